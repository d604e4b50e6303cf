package scenarios

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/exadev/regrade/lab/cluster"
)

// clusters lends a cluster to one test after another, so that not each of them
// pays for the start. One that a test has failed on, or left in another shape than
// it found it in, is taken down. At most atOnce exist at a time: what the machine
// carries while two tests run side by side.
type clusters struct {
	mu   sync.Mutex
	idle []*lent
}

// lent is a cluster and the kind of spec it was made of.
type lent struct {
	*cluster.Cluster
	kind string
}

const atOnce = 2

var shared clusters

// take gives a cluster of the kind, made by spec when none is idle. It goes back,
// or down, when the test has ended.
func (p *clusters) take(t *testing.T, kind string, spec func() cluster.Spec) *cluster.Cluster {
	t.Helper()
	cluster.Need(t)
	logf := cluster.TestLog(t)
	c, over := p.find(kind)
	for _, o := range over {
		o.Logf = logf
		if err := o.End(false, ""); err != nil {
			t.Error(err)
		}
	}
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

// find takes an idle cluster of the kind, else those that have to go before
// another is made.
func (p *clusters) find(kind string) (found *lent, over []*lent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.idle {
		if c.kind == kind {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return c, nil
		}
	}
	if len(p.idle) >= atOnce-1 {
		over, p.idle = p.idle, nil
	}
	return nil, over
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
