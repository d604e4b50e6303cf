package sim

import (
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// third notes that the membership may now change because of somebody who is
// neither regrade nor k3s.
func (w *World) third(ids ...fleet.MemberID) {
	if w.guard == nil {
		return
	}
	for _, id := range ids {
		w.guard.third[id] = true
	}
}

// memberIDs are those of a host: by its address, so a second one as well.
func (w *World) memberIDs(host string) []fleet.MemberID {
	var ids []fleet.MemberID
	members, _ := w.etcd.Members()
	for _, m := range members {
		if h := w.memberHost(m); h != nil && h.Name == host {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// OperatorUncordons uncordons a Node as a person does.
func (w *World) OperatorUncordons(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.api.node(name)
	if n == nil || !n.Unschedulable {
		return
	}
	n.Unschedulable = false
	w.api.touch(n)
	if w.guard != nil {
		delete(w.guard.operator, name)
	}
	w.record(Effect{By: "fault", What: "operator uncordons", Node: name})
}

// OperatorAsksRemoval has k3s asked to remove a host's member.
func (w *World) OperatorAsksRemoval(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.api.node(name)
	if n == nil {
		return
	}
	w.third(w.memberIDs(name)...)
	n.Annotations[fleet.AnnotationEtcdRemove] = fleet.True
	w.api.touch(n)
	w.record(Effect{By: "fault", What: "operator asks k3s to remove its member", Node: name})
}

// OperatorWithdrawsRemoval takes such a request away, whoever made it.
func (w *World) OperatorWithdrawsRemoval(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.api.node(name)
	if n == nil {
		return
	}
	delete(n.Annotations, fleet.AnnotationEtcdRemove)
	w.api.touch(n)
	w.record(Effect{By: "fault", What: "operator withdraws the request to remove its member", Node: name})
}

// OperatorRemovesMember removes a host's members from etcd at once, as somebody with
// etcdctl does: no annotation tells of it.
func (w *World) OperatorRemovesMember(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.third(w.memberIDs(name)...)
	members, err := w.etcd.Members()
	if err != nil {
		return
	}
	for _, m := range members {
		if h := w.memberHost(m); h != nil && h.Name == name && w.removeMember(members, m) == nil {
			w.record(Effect{By: "fault", What: "somebody removes its member", Node: name})
		}
	}
}

// OperatorDeletesNode deletes a Node. It goes once k3s's finalizers let it, with
// the member where it has one (k3s-facts §5.5).
func (w *World) OperatorDeletesNode(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.api.node(name)
	if n == nil || n.Deleting {
		return
	}
	w.third(w.memberIDs(name)...)
	if w.guard != nil {
		w.guard.deleted[name] = true
	}
	n.Deleting = true
	w.api.touch(n)
	w.record(Effect{By: "fault", What: "operator deletes the Node", Node: name})
}

// tickDeletions are k3s's finalizers (k3s-facts §5.5).
func (w *World) tickDeletions() {
	for _, name := range w.api.names() {
		n := w.api.node(name)
		if !n.Deleting {
			continue
		}
		_, labelled := n.Labels[fleet.LabelEtcd]
		if labelled && n.Annotations[fleet.AnnotationEtcdRemovedName] == "" {
			member, address := n.Annotations[fleet.AnnotationEtcdName], n.Annotations[fleet.AnnotationEtcdAddress]
			if member == "" || address == "" {
				continue // the handler fails for ever: the Node stays Terminating
			}
			members, err := w.etcd.Members()
			if err != nil {
				continue
			}
			if m := named(members, member, address); m != nil && w.removeMember(members, *m) != nil {
				continue
			}
		}
		delete(w.api.Nodes, name)
		delete(w.api.Kubelets, name)
		w.api.Pods = slices.DeleteFunc(w.api.Pods, func(p *Pod) bool { return p.Node == name })
		w.k3sDid("Node gone", name)
	}
}

// register makes the Node of a kubelet that has just started, where there is
// none: a kubelet registers at its start and never again (k3s-facts §5.5).
func (w *World) register(h *Host) *Node {
	start := w.kubeletStart(h)
	n := w.api.node(h.Name)
	if n != nil || h.registered.Equal(start) {
		h.registered = start
		return n
	}
	h.registered = start
	n = &Node{Name: h.Name, ReadySince: w.now}
	n.Node = swap.Node{
		UID: w.memberName("uid-" + h.Name), Labels: map[string]string{w.cfg.Keys.Eligible(): fleet.True},
		Annotations: map[string]string{}, Ready: true, InternalIP: h.IP, KubeletVersion: w.cfg.Version,
	}
	h.server.labelled = false // k3s writes its labels on a Node that it registers
	w.api.Nodes[h.Name], w.api.Kubelets[h.Name] = n, w.now
	if w.guard != nil && w.guard.deleted[h.Name] {
		w.guard.uid[h.Name] = n.UID
		delete(w.guard.deleted, h.Name)
		delete(w.guard.operator, h.Name)
	}
	w.api.touch(n)
	w.k3sDid("Node registered", h.Name)
	return n
}

// AddGhost adds a voter that belongs to no host and never runs, as somebody with
// etcdctl would. A host's name in place makes it a second member of that host.
func (w *World) AddGhost(host string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.etcd.(*raft)
	if !ok || !r.quorate() {
		return ErrNoQuorum
	}
	m := &member{host: "", caughtUp: true}
	m.ID = r.newID("ghost")
	m.Name, m.PeerURLs = "ghost-0badc0de", []string{"https://10.0.9.9:2380"}
	if host != "" {
		m.Name, m.PeerURLs = w.memberName(host), []string{"https://" + w.host(host).IP + ":12380"}
	}
	m.ClientURLs = []string{"https://10.0.9.9:2379"}
	w.third(m.ID)
	r.members = append(r.members, m)
	r.sort()
	r.spread()
	w.record(Effect{By: "fault", What: "somebody adds a voter: " + m.Name, Node: host})
	return nil
}

// RemoveGhosts removes what AddGhost has added.
func (w *World) RemoveGhosts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.etcd.(*raft)
	if !ok {
		return
	}
	n := len(r.members)
	r.members = slices.DeleteFunc(r.members, func(m *member) bool { return m.host == "" })
	if len(r.members) != n {
		r.spread()
		w.record(Effect{By: "fault", What: "somebody removes the voters that he added"})
	}
}

// JobArrives binds a protected pod to a Node that takes one, and says whether it
// did.
func (w *World) JobArrives(name string, p observe.Pod, life time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.api.node(name)
	if n == nil || n.Unschedulable || !n.Ready || len(n.Taints) > 0 {
		return false
	}
	w.api.Pods = append(w.api.Pods, &Pod{Node: name, Pod: p, Ends: w.now.Add(life), bound: w.now})
	w.record(Effect{By: "fault", What: "job " + p.Name + " begins", Node: name})
	return true
}
