package recover

import (
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// prune deletes the Node of an agent that is out of service for longer than the
// policy says (R-I-31, R-X-06; design §3). Only a Node that we tainted is deleted: it
// has passed every gate of the taint. A server's Node is never deleted, for k3s
// removes its member with it; of that labels, annotations and condition each speak
// alone.
func prune(v *Verdict, n *Node, o *Observation, p Policy, leased map[string]bool) {
	if p.Prune <= 0 {
		return
	}
	if _, ours := n.Annotations[p.Annotation]; !ours {
		v.hold(CodeBadMark, "%s is not deleted: its mark is of another setting, %s", n.Name, p.mark(n))
		return
	}
	gone, err := goneFor(n, o, p)
	if err != nil {
		v.hold(CodeBadMark, "%s is not deleted: its mark %v", n.Name, err)
		return
	}
	if gone < p.Prune {
		return
	}
	held := len(v.Reasons)
	v.Reasons = append(v.Reasons, p.exempt(n)...)
	v.Reasons = append(v.Reasons, underLease(n, o, leased)...)
	v.Reasons = append(v.Reasons, alive(n, o, p)...)
	for _, label := range fleet.ServerLabels() {
		if _, ok := n.Labels[label]; ok {
			v.hold(CodeServerLabel, "%s is not deleted: it carries the label %s, and a server's Node takes its member along", n.Name, label)
		}
	}
	if n.Labels[p.Keys.DesiredRole()] == string(fleet.RoleServer) {
		v.hold(CodeServerLabel, "%s is not deleted: it shall be a server, by its label %s", n.Name, p.Keys.DesiredRole())
	}
	if key := n.etcdAnnotation(); key != "" {
		v.hold(CodeEtcdAnnotation, "%s is not deleted: it carries the annotation %s", n.Name, key)
	}
	if n.EtcdIsVoter == "True" {
		v.hold(CodeServerLabel, "%s is not deleted: its condition says that it votes", n.Name)
	}
	if id, ok := n.Annotations[p.Keys.Cordoned()]; ok {
		v.hold(CodeCleanUpOwed, "%s is not deleted: the clean-up of swap %s is owed", n.Name, id)
	}
	if len(v.Reasons) > held {
		return
	}
	v.act(ActPrune, CodeGoneLong, "%s is gone for %s, the limit is %s", n.Name, hours(gone), hours(p.Prune))
	v.Write = &Write{Node: n.Name, UID: n.UID, Version: n.Version, Delete: true}
}

// goneFor is how long a Node has been out of service: no longer than this process has
// seen it silent, by its own clock and without the pauses, and no longer than the mark
// and the condition say. These were written by other clocks, and a process that has just
// begun cannot tell whether the API's Date has jumped: alone they would have a Node
// deleted within the threshold (safety rule 22). A Date that was seen to jump says
// nothing at all.
func goneFor(n *Node, o *Observation, p Policy) (time.Duration, error) {
	at, err := ParseMark(n.Annotations[p.Annotation])
	if err != nil {
		return 0, err
	}
	if n.Silent < p.After {
		return 0, nil // the API was away: whoever lives has its time to say so
	}
	if o.DateJumped {
		return n.Gone, nil
	}
	if n.Since.After(at) {
		at = n.Since
	}
	return min(n.Gone, o.Now.Sub(at)), nil
}

func hours(d time.Duration) string { return d.Truncate(time.Minute).String() }
