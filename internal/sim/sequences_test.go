package sim

import (
	"context"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sim/sequences"
)

// The model of k3s does what the stand-in does: the same table is played on both.
func TestTheModelOfK3sPlaysTheSequences(t *testing.T) {
	all, err := sequences.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			// A join begins with a tick just past, so that a learner is seen as one.
			p := player{start(t, func(c *Config) { c.LearnerStall = 15 * time.Second })}
			p.after(10 * time.Second)
			p.w.noCondition = true // k3s alone has no start conditions
			p.w.k3s.nextTick = p.w.now.Add(p.w.cfg.PromotionTick)
			for i, step := range s.Steps {
				p.step(i, step)
			}
		})
	}
}

type player struct{ hand }

func (p player) step(i int, s sequences.Step) {
	p.t.Helper()
	host := map[string]string{"a": "v1", "b": "v2", "c": "v3", "d": "s1"}[s.Host]
	switch {
	case s.Do != "":
		p.do(s.Do, host)
	case s.Until != "":
		p.until(s.Until+" "+s.Host, 2*time.Minute, func() bool { return p.is(s.Until, host) })
	case s.Still != "":
		p.never("no more "+s.Still+" "+s.Host, time.Duration(s.Wait)*time.Second+p.w.cfg.Tick, func() bool { return !p.is(s.Still, host) })
	default:
		p.after(time.Duration(s.Wait) * time.Second)
	}
	if p.t.Failed() {
		p.t.Fatalf("step %d: %+v", i, s)
	}
}

func (p player) do(what, host string) {
	p.t.Helper()
	w, h := p.w, p.w.host(host)
	switch what {
	case "join":
		p.join(host)
	case "add":
		_, err := w.etcd.Add(host)
		p.must(err)
	case "kill": // and nothing restarts it
		w.Crash(host)
	case "start":
		h.Up = true
		w.boot(h)
		w.startUnit(h, fleet.RoleServer)
	case "ask":
		p.annotate(host, fleet.AnnotationEtcdRemove, fleet.True)
	case "name":
		n, _, err := w.Controller().Node(context.Background(), host)
		p.must(err)
		m := p.entry(host)
		p.must(w.Controller().PatchNode(context.Background(), host, n.Version, execute.NodePatch{
			Labels:      map[string]*string{fleet.LabelEtcd: new(fleet.True)},
			Annotations: map[string]*string{fleet.AnnotationEtcdName: &m.Name, fleet.AnnotationEtcdAddress: &h.IP},
		}))
	case "move address":
		p.annotate(host, fleet.AnnotationEtcdAddress, "192.0.2.1")
	case "say removed":
		p.annotate(host, fleet.AnnotationEtcdRemovedName, p.entry(host).Name)
	case "lead":
		p.must(w.etcd.MoveLeader(p.entry(host).ID))
	default:
		p.t.Fatalf("nobody knows how to do %q", what)
	}
}

func (p player) is(what, host string) bool {
	p.t.Helper()
	m, server := p.entry(host), p.unit(host, fleet.RoleServer)
	switch what {
	case "gone":
		return m == nil
	case "learner":
		return m != nil && m.Learner
	case "started":
		return m != nil && m.Started()
	case "voter":
		return m != nil && !m.Learner
	case "ready":
		return server.Ready
	case "not ready":
		return !server.Ready
	case "running":
		return server.Process
	case "tombstone":
		return p.data(host).Tombstone
	case "no tombstone":
		return !p.data(host).Tombstone
	case "asked":
		return p.note(host, fleet.AnnotationEtcdRemove) != ""
	case "not asked":
		return p.note(host, fleet.AnnotationEtcdRemove) == ""
	case "removed name":
		return p.note(host, fleet.AnnotationEtcdRemovedName) != ""
	case "no removed name":
		return p.note(host, fleet.AnnotationEtcdRemovedName) == ""
	case "named":
		return m != nil && p.note(host, fleet.AnnotationEtcdName) == m.Name
	}
	p.t.Fatalf("nobody knows what %q is", what)
	return false
}
