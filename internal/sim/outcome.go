package sim

import (
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// members is what the guard knows of each swap: the members it began with, and
// how it was said to have ended.
type members struct {
	began map[fleet.SwapID][]fleet.MemberID
	ended map[fleet.SwapID]fleet.Outcome
	hosts map[fleet.MemberID]string // whose member each is, or was
	seen  int                       // version of the status ConfigMap at the last look
}

func newMembers() members {
	return members{began: map[fleet.SwapID][]fleet.MemberID{}, ended: map[fleet.SwapID]fleet.Outcome{}, hosts: map[fleet.MemberID]string{}}
}

// lookOutcome judges a swap at the moment its end is published: rolled back or
// abandoned means that the true member list is the one it began with, unless a
// person has changed it meanwhile.
func (g *guard) lookOutcome(w *World, e Event) {
	ms, _ := w.etcd.Members()
	for _, m := range ms {
		if h := w.memberHost(m); h != nil {
			g.hosts[m.ID] = h.Name
		}
	}
	if id := w.api.Lease.SwapID(); id != "" && g.began[id] == nil {
		g.began[id] = w.listed()
	}
	cm := w.api.ConfigMaps[fleet.ConfigMapStatus]
	if cm == nil || cm.version == g.seen {
		return
	}
	g.seen = cm.version
	st, err := status.ParseStatus([]byte(cm.Data[fleet.KeyStatus]))
	if err != nil || st.LastSwap == nil || g.ended[st.LastSwap.ID] == st.LastSwap.Outcome {
		return
	}
	last := st.LastSwap
	g.ended[last.ID] = last.Outcome
	began, now := g.began[last.ID], w.listed()
	if last.Outcome == fleet.OutcomeCompleted {
		g.lookExchanged(w, e, *last)
		return
	}
	if began == nil || slices.Equal(began, now) {
		return
	}
	for _, id := range slices.Concat(began, now) {
		if slices.Contains(began, id) != slices.Contains(now, id) && !g.third[id] {
			g.fail(AsBefore, e, "%s began with the members %s, was %s and leaves %s", last.ID, words(began), last.Outcome, words(now))
			return
		}
	}
}

func (g *guard) lookExchanged(w *World, e Event, last status.LastSwap) {
	in := false
	ms, _ := w.etcd.Members()
	for _, m := range ms {
		h := w.memberHost(m)
		switch {
		case h == nil || g.third[m.ID]:
		case h.Name == last.Out:
			g.fail(Exchanged, e, "%s was completed and %s is still listed as %s", last.ID, last.Out, m.ID)
		case h.Name == last.In:
			in = in || !m.Learner
		}
	}
	if !in && !slices.ContainsFunc(w.memberIDs(last.In), func(id fleet.MemberID) bool { return g.third[id] }) && !g.deletedIn(last.In) {
		g.fail(Exchanged, e, "%s was completed and %s is no voter", last.ID, last.In)
	}
}

// deletedIn: a person had a host's member removed, with its Node or by name.
func (g *guard) deletedIn(host string) bool {
	for id := range g.third {
		if g.hosts[id] == host {
			return true
		}
	}
	return false
}

// listed are the ids of all members, learners as well, as etcd lists them.
func (w *World) listed() []fleet.MemberID {
	ms, _ := w.etcd.Members()
	ids := make([]fleet.MemberID, len(ms))
	for i, m := range ms {
		ids[i] = m.ID
	}
	slices.Sort(ids)
	return ids
}

func words(ids []fleet.MemberID) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = id.String()
	}
	return "[" + strings.Join(parts, " ") + "]"
}
