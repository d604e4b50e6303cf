package scenarios

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/exadev/regrade/lab/cluster"
)

// clusters gives tests their clusters, lent ones and those of their own, and lends
// one to test after test, so that not each of them pays for the start. One that a
// test has failed on, or left in another shape than it found it in, is taken down.
// No more than atOnce exist, idle ones with them: three servers of which nobody wants
// anything take a good part of a core from those that are looked at.
type clusters struct {
	mu   sync.Mutex
	used int
	idle []*lent
}

// lent is a cluster and the kind of spec it was made of.
type lent struct {
	*cluster.Cluster
	kind string
}

var shared clusters

// atOnce is how many tests run side by side, and so how many clusters.
func atOnce() int {
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, err := strconv.Atoi(f.Value.String()); err == nil && n > 0 {
			return n
		}
	}
	return 1
}

// beside lets the test run beside others where there is more than one turn. Else the
// tests run in the order of their files, in which those that lend one kind of cluster
// follow each other; Go gives parallel ones their turn in any order.
func beside(t *testing.T) {
	t.Helper()
	if atOnce() > 1 {
		t.Parallel()
	}
}

// own makes a cluster that is handed on to nobody.
func (p *clusters) own(t *testing.T, spec cluster.Spec) *cluster.Cluster {
	t.Helper()
	cluster.Need(t)
	_, over := p.find("")
	t.Cleanup(p.done)
	end(t, over)
	return cluster.Start(t, spec)
}

// end takes down what has to go before another cluster is made.
func end(t *testing.T, over []*lent) {
	t.Helper()
	for _, o := range over {
		o.Logf = cluster.TestLog(t)
		if err := o.End(false, ""); err != nil {
			t.Error(err)
		}
	}
}

// take gives a cluster of the kind, made by spec when none is idle. It goes back,
// or down, when the test has ended.
func (p *clusters) take(t *testing.T, kind string, spec func() cluster.Spec) *cluster.Cluster {
	t.Helper()
	cluster.Need(t)
	logf := cluster.TestLog(t)
	c, over := p.find(kind)
	t.Cleanup(p.done)
	end(t, over)
	if c == nil {
		made, err := cluster.New(t.Context(), spec(), logf)
		if made != nil {
			c = &lent{Cluster: made, kind: kind}
		}
		if err != nil {
			if made != nil {
				t.Log(made.End(true, t.Name()))
			}
			t.Fatal(err)
		}
	}
	c.Logf = logf
	t.Cleanup(func() { p.giveBack(t, c) })
	return c.Cluster
}

// find counts one cluster more. It is an idle one of the kind; else those that it
// returns have to go before another is made.
func (p *clusters) find(kind string) (found *lent, over []*lent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used++
	for i, c := range p.idle {
		if c.kind == kind {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return c, nil
		}
	}
	n := min(max(p.used+len(p.idle)-atOnce(), 0), len(p.idle))
	over, p.idle = slices.Clone(p.idle[:n]), p.idle[n:] // the one that has waited longest first
	return nil, over
}

func (p *clusters) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
}

func (p *clusters) giveBack(t *testing.T, c *lent) {
	keep := os.Getenv(cluster.EnvKeep) == "1"
	if t.Failed() || keep {
		if err := c.End(t.Failed(), t.Name()); err != nil {
			t.Error(err)
		}
		return
	}
	c.Logf = func(string, ...any) {}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// close takes down what is idle at the end.
func (p *clusters) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed error
	for _, c := range p.idle {
		if err := c.End(false, ""); err != nil {
			failed = err
		}
	}
	p.idle = nil
	return failed
}

func TestMain(m *testing.M) {
	status := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}
