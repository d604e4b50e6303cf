package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// runOn runs one command on a cluster whose calls the hook sees.
func runOn(ctx context.Context, hook func(*clustertest.Cluster, string), args ...string) (code int, out, errs string) {
	return runThrough(ctx, hook, func(c *clustertest.Cluster) cli.Cluster { return c }, args...)
}

// runThrough is runOn with something between the command and the cluster.
func runThrough(ctx context.Context, hook func(*clustertest.Cluster, string), through func(*clustertest.Cluster) cli.Cluster, args ...string) (code int, out, errs string) {
	state := well()
	m := state.Maps[fleet.ConfigMapStatus]
	m.Version = "1"
	state.Maps[fleet.ConfigMapStatus] = m
	c := clustertest.New(state)
	c.Beating = true
	c.Hook = func(call string) error { hook(c, call); return nil }
	var o, x bytes.Buffer
	code = cli.Run(ctx, args, env.Env{Out: &o, Err: &x, Getenv: func(string) string { return "" }, Now: time.Now}, cli.Deps{
		Look: 2 * time.Millisecond, Rules: controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove},
		Connect: func(kube.Access, kube.Options) (cli.Cluster, error) { return through(c), nil },
	})
	return code, o.String(), x.String()
}

// Of two requests at once one would be told "accepted" and never be carried out.
func TestOfTwoRequestsAtOnceTheLaterIsRefused(t *testing.T) {
	first := true
	code, _, errs := runOn(t.Context(), func(c *clustertest.Cluster, call string) {
		if call != "PatchConfigMap "+fleet.ConfigMapStatus || !first {
			return
		}
		first = false
		raw, err := json.Marshal(status.Request{Protocol: status.Protocol, Out: "n2", In: "n4", At: time.Now().UTC()})
		if err != nil {
			t.Fatal(err)
		}
		c.Edit(func(s *clustertest.State) {
			put(s, fleet.ConfigMapStatus, fleet.KeyRequest, string(raw))
			m := s.Maps[fleet.ConfigMapStatus]
			m.Version = "2"
			s.Maps[fleet.ConfigMapStatus] = m
		})
	}, "swap", "n1", "n4", "--period", "1")
	if code != fleet.ExitFailed || !strings.Contains(errs, cli.CodeRequestPending) {
		t.Errorf("exit status %d: %s", code, errs)
	}
}

func TestAStatusThatMovedMeanwhileRefusesNoRequest(t *testing.T) {
	version := 0
	code, out, errs := runOn(t.Context(), func(c *clustertest.Cluster, call string) {
		if call == "PatchConfigMap "+fleet.ConfigMapStatus && version < 3 {
			version++
			c.Edit(func(s *clustertest.State) {
				m := s.Maps[fleet.ConfigMapStatus]
				m.Version = "moved-" + strings.Repeat("x", version)
				s.Maps[fleet.ConfigMapStatus] = m
			})
		}
	}, "swap", "n1", "n4", "--period", "1")
	if code != fleet.ExitDone || version != 3 {
		t.Errorf("exit status %d after %d moves: %s%s", code, version, out, errs)
	}
}

// A person who stops waiting has not stopped the swap: that is not "refused".
func TestAWaitThatIsInterruptedSaysThatTheSwapGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := false
	code, _, errs := runOn(ctx, func(_ *clustertest.Cluster, call string) {
		switch {
		case call == "PatchConfigMap "+fleet.ConfigMapStatus:
			asked = true
		case asked:
			cancel()
		}
	}, "swap", "n1", "n4", "--wait", "--period", "1")
	if code != fleet.ExitNotYet || !strings.Contains(errs, "interrupted") {
		t.Errorf("exit status %d: %s", code, errs)
	}
}

// lossy makes the first write and loses its answer, or loses the write itself.
type lossy struct {
	*clustertest.Cluster
	made, blind bool
	lost        bool
}

func (l *lossy) PatchConfigMap(ctx context.Context, name, version string, keys map[string]*string) error {
	if l.made {
		if err := l.Cluster.PatchConfigMap(ctx, name, version, keys); err != nil {
			return err
		}
	}
	l.lost = true
	return context.DeadlineExceeded
}

func (l *lossy) ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error) {
	if l.lost && l.blind {
		return observe.ConfigMap{}, context.DeadlineExceeded
	}
	return l.Cluster.ConfigMap(ctx, name)
}

// Issue 3, bad input: a request whose write was not answered stands or does not, and
// the command says which.
func TestARequestWhoseAnswerWasLost(t *testing.T) {
	for name, test := range map[string]struct {
		made, blind bool
		code        int
		words       string
	}{
		"it was made":            {true, false, fleet.ExitDone, "accepted"},
		"it was not made":        {false, false, fleet.ExitFailed, "no such request stands"},
		"nobody can say by then": {true, true, fleet.ExitFailed, "whether it stands all the same is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runThrough(t.Context(), func(*clustertest.Cluster, string) {}, func(c *clustertest.Cluster) cli.Cluster {
				return &lossy{Cluster: c, made: test.made, blind: test.blind}
			}, "swap", "n1", "n4", "--period", "1")
			if code != test.code || !strings.Contains(out+errs, test.words) {
				t.Errorf("exit status %d: %s%s", code, out, errs)
			}
		})
	}
}

// Issue 3, bad input: a controller that does not reach the API cannot say so in the
// status: the one who reads it is told that it is old.
func TestAnOldStatusIsSaidToBeOld(t *testing.T) {
	for age, old := range map[time.Duration]bool{time.Minute: false, 5 * time.Minute: true} {
		first := true
		code, out, errs := runOn(t.Context(), func(c *clustertest.Cluster, _ string) {
			if !first {
				return
			}
			first = false
			raw, err := json.Marshal(status.Status{Protocol: status.Protocol, At: time.Now().Add(-age), Target: 3})
			if err != nil {
				t.Fatal(err)
			}
			c.Edit(func(s *clustertest.State) { put(s, fleet.ConfigMapStatus, fleet.KeyStatus, string(raw)) })
		}, "status")
		if code != fleet.ExitDone || strings.Contains(errs, "no controller has published since") != old {
			t.Errorf("%s old: exit status %d: %s%s", age, code, out, errs)
		}
	}
}
