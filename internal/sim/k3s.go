package sim

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// k3s is the state of k3s's cluster-wide controllers.
type k3s struct {
	removedAt map[fleet.MemberID]time.Time
	// unstarted is when a learner without client URLs was first seen.
	unstarted map[fleet.MemberID]time.Time
	nextTick  time.Time
	// heldUntil keeps the member controller from acting: it has back-offs of
	// up to minutes of its own (k3s-facts §5.1).
	heldUntil time.Time
}

// HoldMemberController keeps k3s from acting on remove annotations for d.
func (w *World) HoldMemberController(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.k3s.heldUntil = w.now.Add(d)
	w.record(Effect{By: "fault", What: "k3s member controller backs off for " + d.String()})
}

func (w *World) tickK3s() {
	w.tickPromotion()
	if !w.now.Before(w.k3s.heldUntil) {
		w.tickMemberController()
	}
	for _, h := range w.hosts {
		w.tickMetadata(h)
	}
}

// memberHost is the host of a member by its peer URL, nil for a foreign one.
func (w *World) memberHost(m status.Member) *Host {
	if len(m.PeerURLs) == 0 {
		return nil
	}
	return w.joinHost(m.PeerURLs[0])
}

// tickPromotion is the learner loop of k3s-facts §4.1, every 15 s on the
// leader's host. The condition is written from the list as it was before the
// promotion, which is why it lags by one tick.
func (w *World) tickPromotion() {
	if w.now.Before(w.k3s.nextTick) {
		return
	}
	w.k3s.nextTick = w.now.Add(w.cfg.PromotionTick)
	leader := w.etcd.Leader()
	members, err := w.etcd.Members()
	if err != nil || leader == 0 {
		return
	}
	var h *Host
	for _, m := range members {
		if m.ID == leader {
			h = w.memberHost(m)
		}
	}
	if h == nil || !h.Units[fleet.RoleServer].Process || h.Paused {
		return
	}
	if w.apiAnswers(h.Name) {
		w.writeConditions(members)
	}
	for _, m := range members {
		if !m.Learner {
			continue
		}
		name := ""
		if mh := w.memberHost(m); mh != nil {
			name = mh.Name
		}
		if m.Started() {
			// No liveness check: a learner that has just died becomes a voter too.
			delete(w.k3s.unstarted, m.ID)
			if w.etcd.Promote(m.ID) == nil {
				w.k3sDid("learner promoted", name)
			}
			continue
		}
		since, known := w.k3s.unstarted[m.ID]
		if !known {
			w.k3s.unstarted[m.ID] = w.now
		} else if w.now.Sub(since) > w.cfg.LearnerStall && w.etcd.Remove(m.ID) == nil {
			w.k3s.removedAt[m.ID] = w.now
			w.k3sDid("learner that never started evicted", name)
		}
	}
}

// writeConditions is EtcdIsVoter: from the member list alone, by the Node's
// node-name annotation, for Nodes with the etcd label (k3s-facts §4.2).
func (w *World) writeConditions(members []status.Member) {
	for _, name := range w.api.names() {
		n := w.api.node(name)
		if n.Labels[fleet.LabelEtcd] != fleet.True {
			continue
		}
		want := "False"
		for _, m := range members {
			if m.Started() && m.Name == n.Annotations[fleet.AnnotationEtcdName] && !m.Learner {
				want = "True"
			}
		}
		if n.EtcdIsVoter != want {
			n.EtcdIsVoter = want
			w.api.touch(n)
		}
	}
}

// tickMemberController is the state machine of k3s-facts §5.1 (1.34.4 and later).
func (w *World) tickMemberController() {
	holder := false
	for _, h := range w.hosts {
		holder = holder || (w.servesAPI(h) && !h.Isolated)
	}
	if !holder {
		return
	}
	for _, name := range w.api.names() {
		n := w.api.node(name)
		if _, labelled := n.Labels[fleet.LabelEtcd]; !labelled || !strings.EqualFold(n.Annotations[fleet.AnnotationEtcdRemove], "true") {
			continue
		}
		w.handleRemoval(n)
	}
	w.tickDeletions()
}

func (w *World) handleRemoval(n *Node) {
	member, address := n.Annotations[fleet.AnnotationEtcdName], n.Annotations[fleet.AnnotationEtcdAddress]
	if member == "" || address == "" {
		return // an error, retried until they appear
	}
	switch removed := n.Annotations[fleet.AnnotationEtcdRemovedName]; {
	case removed != "" && removed != member:
		delete(n.Annotations, fleet.AnnotationEtcdRemovedName)
		delete(n.Annotations, fleet.AnnotationEtcdRemove)
		w.api.touch(n)
		w.k3sDid("removal swallowed: removed-node-name was another", n.Name)
		return
	case removed == member:
		return // nothing, and the annotation stays
	}
	members, err := w.etcd.Members()
	if err != nil {
		return
	}
	victim := named(members, member, address)
	if victim != nil {
		if err := w.removeMember(members, *victim); errors.Is(err, ErrNotEnough) {
			delete(n.Annotations, fleet.AnnotationEtcdRemove)
			w.api.touch(n)
			w.k3sDid("removal refused, not enough started members: annotation cleared", n.Name)
			return
		} else if err != nil {
			return // retried
		}
	}
	n.Annotations[fleet.AnnotationEtcdRemovedName] = member
	delete(n.Annotations, fleet.AnnotationEtcdRemove)
	delete(n.Annotations, fleet.AnnotationEtcdName)
	delete(n.Annotations, fleet.AnnotationEtcdAddress)
	w.api.touch(n)
	if victim == nil {
		w.k3sDid("no such member: taken for a success", n.Name)
	} else {
		w.k3sDid("member removed", n.Name)
	}
}

// named is the member that k3s takes a Node's annotations for, nil when none is.
func named(members []status.Member, name, address string) *status.Member {
	for i, m := range members {
		if m.Name == name && len(m.PeerURLs) > 0 && hostOf(m.PeerURLs[0]) == address {
			return &members[i]
		}
	}
	return nil
}

func (w *World) removeMember(members []status.Member, victim status.Member) error {
	if w.etcd.Leader() == victim.ID {
		to := fleet.MemberID(0)
		for _, m := range members {
			if m.ID != victim.ID && !m.Learner {
				to = m.ID // the first in the list, dead or not
				break
			}
		}
		if to == 0 {
			return ErrNotEnough
		}
		if err := w.etcd.MoveLeader(to); err != nil {
			return err
		}
	}
	if err := w.etcd.Remove(victim.ID); err != nil {
		return err
	}
	w.k3s.removedAt[victim.ID] = w.now
	return nil
}

func hostOf(peerURL string) string {
	u, err := url.Parse(peerURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// tickMetadata: a live server process keeps its own Node's label and
// annotations, also after its removal when it is etcd-only (k3s-facts §6.2).
func (w *World) tickMetadata(h *Host) {
	u := h.Units[fleet.RoleServer]
	if !h.Up || h.Paused || !u.Process || !h.server.once || !w.apiAnswers(h.Name) {
		return
	}
	if h.server.level != fleet.LevelEtcdOnly && !w.servesAPI(h) {
		return
	}
	n := w.api.node(h.Name)
	if n == nil {
		return
	}
	if h.server.level != fleet.LevelEtcdOnly && !h.server.labelled {
		h.server.labelled = true // once a start
		n.Labels[fleet.LabelControlPlane] = fleet.True
		w.api.touch(n)
	}
	w.writeMetadata(h)
}

func (w *World) writeMetadata(h *Host) {
	n := w.api.node(h.Name)
	if n == nil || (n.Labels[fleet.LabelEtcd] == fleet.True &&
		n.Annotations[fleet.AnnotationEtcdName] == h.server.name && n.Annotations[fleet.AnnotationEtcdAddress] == h.IP) {
		return
	}
	n.Labels[fleet.LabelEtcd] = fleet.True
	n.Annotations[fleet.AnnotationEtcdName] = h.server.name
	n.Annotations[fleet.AnnotationEtcdAddress] = h.IP
	w.api.touch(n)
	w.k3sDid("etcd label and annotations written", h.Name)
}

// tickKubernetes: silent Nodes turn NotReady, evicted and finished pods go.
func (w *World) tickKubernetes() {
	if !w.apiAnswers("") {
		return
	}
	for _, name := range w.api.names() {
		n := w.api.node(name)
		if n.Ready && w.now.Sub(w.api.Kubelets[name]) > w.cfg.GoneAfter {
			n.Ready, n.ReadySince = false, w.now
			w.api.touch(n)
			w.k3sDid("Node turned NotReady", name)
		}
	}
	kept := w.api.Pods[:0]
	for _, p := range w.api.Pods {
		done := !p.Ends.IsZero() && !w.now.Before(p.Ends)
		gone := !p.evicted.IsZero() && w.now.Sub(p.evicted) >= w.cfg.Evict
		if !done && !gone {
			kept = append(kept, p)
		}
	}
	w.api.Pods = kept
}
