package sim

import (
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// jobs is what the guard knows of the processes that carry jobs.
type jobs struct {
	stopped map[string]time.Time // when each host's agent was last stopped
	running map[string]*Pod      // protected pods at the last look, by uid
}

func newJobs() jobs { return jobs{stopped: map[string]time.Time{}, running: map[string]*Pod{}} }

// lookJobs: no running job is cut by anything that regrade does: not evicted, not
// deleted, and its Node's agent is not stopped nor are its containers ended. How
// the agent came to its stop does not matter: a process that a fault has killed
// was not asked to stop.
func (g *guard) lookJobs(w *World, e Event) {
	for _, h := range w.hosts {
		u := h.Units[fleet.RoleAgent]
		if u.stopped.IsZero() || u.stopped.Equal(g.stopped[h.Name]) {
			continue
		}
		g.stopped[h.Name] = u.stopped
		g.cut(w, e, h.Name, "the agent of "+h.Name+" was stopped")
	}
	g.lookGone(w, e)
	switch {
	case e.By == "fault" || e.By == "k3s":
	case strings.HasPrefix(e.What, "evict "):
		name := strings.TrimPrefix(e.What, "evict ")
		for _, p := range w.api.Pods {
			if p.Name == name && p.Node == e.Node && w.protected(p) {
				g.fail(NoProtectedEviction, e, "pod %s on %s was evicted", p.Name, p.Node)
			}
		}
	case e.What == "stop k3s agent":
		g.cut(w, e, e.By, "the agent of "+e.By+" is told to stop")
	case e.What == "container shims ended":
		g.cut(w, e, e.By, "the containers on "+e.By+" were ended")
	case e.What == "restart k3s server" && w.host(e.By).Level == fleet.LevelEtcdOnly:
		g.cut(w, e, e.By, "the server of "+e.By+" restarts without a kubelet")
	}
}

// lookGone: a job is gone that was not over, nor its Node deleted by a person.
func (g *guard) lookGone(w *World, e Event) {
	now := map[string]*Pod{}
	for _, p := range w.api.Pods {
		if w.protected(p) {
			now[p.UID] = p
		}
	}
	for uid, p := range g.running {
		over := !p.Ends.IsZero() && !w.now.Before(p.Ends)
		if now[uid] == nil && !over && w.api.node(p.Node) != nil {
			g.fail(NoProtectedEviction, e, "pod %s on %s was deleted", p.Name, p.Node)
		}
	}
	g.running = now
}

// cut: jobs that run on a Node whose containers end now. One that began within
// the slack came between the look and the act: a Node that somebody uncordons
// takes jobs at once, and nobody can look at the moment he acts.
func (g *guard) cut(w *World, e Event, node, how string) {
	for _, p := range w.api.Pods {
		if p.Node == node && w.protected(p) && (p.bound.IsZero() || w.now.Sub(p.bound) >= slack) {
			g.fail(NoProtectedEviction, e, "%s while pod %s runs", how, p.Name)
		}
	}
}
