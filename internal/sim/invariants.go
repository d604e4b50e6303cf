package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// Invariant is one of docs/invariants.md, named after the safety rule of
// design §4 that it comes from.
type Invariant string

// Invariants that are held after every event.
const (
	OneSwap              Invariant = "1 at most one swap in the cluster"
	OneLevel             Invariant = "1 one host steps its level at a time, under its own Lease, beside no swap and with every other voter there"
	OnlyTheTwo           Invariant = "1 no k3s unit is touched but those of the swap's two hosts"
	QuorumKept           Invariant = "2 the voters that are up never fall below a quorum by our doing"
	NoRemovalAtTwo       Invariant = "2 never a removal at two voters"
	NoChangeBeside       Invariant = "3 no member is added or asked to go beside a learner that is not the swap's own"
	StayingVotersKept    Invariant = "4 no staying voter is removed"
	NeverBothRoles       Invariant = "10 never both k3s processes on a host"
	NoTombstoneStart     Invariant = "12 no server starts on a tombstone"
	MemberOutlivesReboot Invariant = "18 a member's server may start on its datastore, whenever its host is rebooted"
	OneCluster           Invariant = "19 one cluster id, no second cluster"
	NoProtectedEviction  Invariant = "20 no protected pod is cut"
	OthersLease          Invariant = "21 no action while the Lease is another's"
	OperatorsCordon      Invariant = "27 the operator's cordon is kept"
	NodeKept             Invariant = "K the Node's uid and node name stay"
	AsBefore             Invariant = "6 a swap published as rolled back or abandoned leaves the members it began with"
	Exchanged            Invariant = "5 a swap published as completed has IN voting and OUT gone"
)

// Violation is an invariant that did not hold.
type Violation struct {
	Invariant Invariant
	Sentence  string
	Event     Event
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (%s)", v.Invariant, v.Sentence, v.Event)
}

// slack is the time for which a fault may go unnoticed: a report counts as an
// answer given now for ten seconds (swap.Policy.JustNow), and a pass later the
// effect is made.
const slack = 15 * time.Second

// guard watches the invariants. It knows the truth, not the reports.
type guard struct {
	violations []Violation
	// ids of each swap's record, as seen on a Node.
	records map[fleet.SwapID]status.Record
	voters  map[fleet.MemberID]string    // committed voters at the last look, by host
	down    map[fleet.MemberID]time.Time // voters whose etcd does not answer, since when
	ours    map[string]time.Time         // servers that a daemon stopped, and when
	quorate bool
	uid     map[string]string
	// operator holds the Nodes that a person cordoned, deleted those that a person
	// deleted, third the members that a person added or asked to go.
	operator map[string]bool
	deleted  map[string]bool
	third    map[fleet.MemberID]bool
	members  // what each swap began with, and how it ended
	jobs     // what ended agents and pods
}

// Guard watches the invariants from now on.
func (w *World) Guard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := &guard{
		records: map[fleet.SwapID]status.Record{}, voters: map[fleet.MemberID]string{}, down: map[fleet.MemberID]time.Time{},
		ours: map[string]time.Time{}, quorate: true, uid: map[string]string{}, operator: map[string]bool{},
		deleted: map[string]bool{}, third: map[fleet.MemberID]bool{},
		members: newMembers(), jobs: newJobs(),
	}
	for name, n := range w.api.Nodes {
		g.uid[name] = n.UID
	}
	w.guard = g
	g.look(w, Event{At: w.now})
}

// OperatorCordons cordons a Node as a person does. One that is cordoned already
// is left as it is: nobody could tell that two wanted it.
func (w *World) OperatorCordons(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.api.node(name)
	if n.Unschedulable {
		return
	}
	n.Unschedulable = true
	w.api.touch(n)
	if w.guard != nil {
		w.guard.operator[name] = true
	}
	w.record(Effect{By: "fault", What: "operator cordons", Node: name})
}

// Violations are the invariants that did not hold so far.
func (w *World) Violations() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guard == nil {
		return nil
	}
	return slices.Clone(w.guard.violations)
}

func (g *guard) fail(i Invariant, e Event, format string, args ...any) {
	v := Violation{i, fmt.Sprintf(format, args...), e}
	if !slices.ContainsFunc(g.violations, func(o Violation) bool { return o.Invariant == i && o.Sentence == v.Sentence }) {
		g.violations = append(g.violations, v)
	}
}

// look is called after every event and every tick.
func (g *guard) look(w *World, e Event) {
	g.lookNodes(w, e)
	g.lookHosts(w, e)
	g.lookMembers(w, e)
	g.lookEffect(w, e)
	g.lookOutcome(w, e)
	g.lookJobs(w, e)
}

// current is the record of the swap under way, from any Node that carries it.
func (g *guard) current(w *World) *status.Record {
	k := w.cfg.Keys
	for _, name := range w.api.names() {
		a := w.api.node(name).Annotations
		if r, err := w.recordOf(a[k.Record()]); err == nil && string(r.ID) == a[k.Swap()] {
			return &r
		}
	}
	return nil
}

func (g *guard) lookNodes(w *World, e Event) {
	ids := map[string]bool{}
	for _, name := range w.api.names() {
		n := w.api.node(name)
		if id, ok := n.Annotations[w.cfg.Keys.Swap()]; ok {
			ids[id] = true
			if r, err := w.recordOf(n.Annotations[w.cfg.Keys.Record()]); err == nil {
				g.records[r.ID] = r
			}
		}
		if n.UID != g.uid[name] && !g.deleted[name] {
			g.fail(NodeKept, e, "the uid of %s was %s and is %s", name, g.uid[name], n.UID)
		}
		if g.operator[name] && !n.Unschedulable {
			g.fail(OperatorsCordon, e, "%s was uncordoned", name)
		}
	}
	if len(ids) > 1 {
		g.fail(OneSwap, e, "%d swaps stand on the Nodes", len(ids))
	}
}

func (g *guard) lookHosts(w *World, e Event) {
	for _, h := range w.hosts {
		if h.Units[fleet.RoleServer].Process && h.Units[fleet.RoleAgent].Process {
			g.fail(NeverBothRoles, e, "both run on %s", h.Name)
		}
		if h.Data.SQLite {
			g.fail(OneCluster, e, "%s founded a cluster of its own", h.Name)
		}
		if h.Data.Backups > 0 {
			g.fail(NoTombstoneStart, e, "k3s set the datastore of %s aside and joins anew", h.Name)
		}
	}
}

// answers says whether a member runs and the others reach it.
func (w *World) answers(m status.Member) bool {
	h := w.memberHost(m)
	if h == nil || !h.Up || h.Paused || h.Isolated || h.PeerBlocked {
		return false
	}
	l := w.etcd.Local(h.Name)
	return l.Answers && l.ID == m.ID
}

func (g *guard) lookMembers(w *World, e Event) {
	members, _ := w.etcd.Members()
	voters, up := map[fleet.MemberID]string{}, 0
	for _, m := range members {
		if h := w.memberHost(m); h != nil && h.Data.WAL && h.Data.Member == m.ID {
			if a := h.mayRise(); !a.May {
				g.fail(MemberOutlivesReboot, e, "%s is a member, and after a reboot its server would not start: %s", h.Name, a.Why)
			}
		}
		if m.Learner {
			continue
		}
		name := "?"
		if h := w.memberHost(m); h != nil {
			name = h.Name
		}
		voters[m.ID] = name
		if w.answers(m) {
			up++
			if _, was := g.down[m.ID]; was {
				delete(g.ours, name) // it has been stopped and is back; a unit may take a moment to stop
			}
			delete(g.down, m.ID)
		} else if g.down[m.ID].IsZero() {
			g.down[m.ID] = w.now
		}
	}
	rec := g.current(w)
	for id, name := range g.voters {
		if _, still := voters[id]; still {
			continue
		}
		down := g.down[id]
		delete(g.down, id)
		if g.third[id] {
			continue // a person's doing
		}
		if len(g.voters) <= 2 {
			g.fail(NoRemovalAtTwo, e, "%s was removed while there were %d voters", name, len(g.voters))
		}
		if rec == nil || (name != rec.Out && name != rec.In) {
			g.fail(StayingVotersKept, e, "%s (%s) is a voter no more", name, id)
		}
		// The one removed must not have been what made the quorum.
		if other, since := g.longestDown(voters); up < quorum.Need(len(voters)) && since.Before(w.now.Add(-slack)) {
			g.fail(QuorumKept, e, "%s (down since %s) was removed with %s down since %s", name, down.Format(time.TimeOnly), other, since.Format(time.TimeOnly))
		}
	}
	g.voters = voters
	quorate := up >= quorum.Need(len(voters))
	if g.quorate && !quorate {
		for name, stopped := range g.ours {
			if !g.isVoter(name) {
				continue
			}
			for id, since := range g.down {
				other := g.voters[id]
				if other != name && other != "" && g.ours[other].IsZero() && since.Before(stopped.Add(-slack)) && !g.third[id] {
					g.fail(QuorumKept, e, "%d of %d voters are up: %s was stopped at %s with %s down since %s",
						up, len(voters), name, stopped.Format(time.TimeOnly), other, since.Format(time.TimeOnly))
				}
			}
		}
	}
	g.quorate = quorate
}

func (g *guard) isVoter(name string) bool {
	for _, n := range g.voters {
		if n == name {
			return true
		}
	}
	return false
}

// longestDown is the voter of these that has been down the longest.
func (g *guard) longestDown(voters map[fleet.MemberID]string) (string, time.Time) {
	name, since := "", time.Time{}
	for id, n := range voters {
		if at, down := g.down[id]; down && (name == "" || at.Before(since)) {
			name, since = n, at
		}
	}
	if name == "" {
		return "", time.Unix(1<<40, 0)
	}
	return name, since
}

func (g *guard) lookEffect(w *World, e Event) {
	switch e.By {
	case "fault":
		return
	case "k3s":
		g.lookK3s(w, e)
		return
	}
	l := w.api.Lease
	if e.By == controllerName && strings.HasPrefix(e.What, "patch node") && l.At(w.date()) == lease.Held && l.Holder != fleet.LeaseHolder {
		g.fail(OthersLease, e, "the Lease is held by %s", l.Holder)
	}
	h := w.host(e.By)
	if h == nil {
		return
	}
	role, effect := "", ""
	for _, verb := range []string{"start k3s ", "stop k3s ", "restart k3s "} {
		if r, ok := strings.CutPrefix(e.What, verb); ok {
			role, effect = r, strings.TrimSuffix(verb, " k3s ")
		}
	}
	if effect == "" {
		return
	}
	if role == string(fleet.RoleServer) && effect != "start" {
		g.ours[h.Name] = w.now
	}
	if effect == "start" {
		return
	}
	if effect == "restart" && l.Holder == h.Name {
		g.lookLevel(w, e, h)
		return
	}
	if !g.concerns(h.Name) && !g.deletedIn(h.Name) {
		g.fail(OnlyTheTwo, e, "%s is in no swap", h.Name)
	}
}

// lookLevel: a server is restarted for a level, by the Lease in its own name.
func (g *guard) lookLevel(w *World, e Event, h *Host) {
	if w.api.Lease.At(w.date()) != lease.Held {
		g.fail(OneLevel, e, "the Lease of %s has run out", h.Name)
	}
	for _, name := range w.api.names() {
		if _, ok := w.api.node(name).Annotations[w.cfg.Keys.Swap()]; ok {
			g.fail(OneLevel, e, "%s takes part in a swap", name)
		}
	}
	for id, name := range g.voters {
		if since, down := g.down[id]; down && name != h.Name && since.Before(w.now.Add(-slack)) {
			g.fail(OneLevel, e, "%s is restarted with %s down since %s", h.Name, name, since.Format(time.TimeOnly))
		}
	}
	for _, o := range w.hosts {
		if o != h && h.Level == fleet.LevelEtcdOnly && o.Level == fleet.LevelEtcdOnly {
			g.fail(OneLevel, e, "%s would be etcd-only beside %s", h.Name, o.Name)
		}
	}
}

// concerns says whether a host has ever been in a swap: what it owes from one
// it may finish long after (safety rule 16).
func (g *guard) concerns(host string) bool {
	for _, r := range g.records {
		if r.In == host || r.Out == host {
			return true
		}
	}
	return false
}

// protected is the default runner selector.
func (w *World) protected(p *Pod) bool {
	key, value, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
	return p.Labels[key] == value
}

func (g *guard) lookK3s(w *World, e Event) {
	if e.What != "added as a learner" {
		return
	}
	members, _ := w.etcd.Members()
	rec := g.current(w)
	switch {
	case rec == nil || rec.In != e.Node:
		g.fail(NoChangeBeside, e, "%s joins and is not the newcomer of a swap", e.Node)
	case g.ended[rec.ID] != "":
		g.fail(NoChangeBeside, e, "%s joins and its swap was %s before", e.Node, g.ended[rec.ID])
	}
	voters, up := 0, 0
	for _, m := range members {
		h := w.memberHost(m)
		if m.Learner {
			if (h == nil || h.Name != e.Node) && !g.third[m.ID] {
				g.fail(NoChangeBeside, e, "another learner is there")
			}
			continue
		}
		voters++
		if w.answers(m) || w.now.Sub(g.down[m.ID]) < slack {
			up++
		}
	}
	if up < quorum.Need(voters+1) {
		g.fail(QuorumKept, e, "a member is added with %d of %d voters up", up, voters)
	}
}

// controllerName stands for the controller in an Effect.
const controllerName = ""

// Clean says what is not as it should be once nothing is under way: every
// host is up, and every host and Node is wholly a voter or wholly an agent.
func (w *World) Clean() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if l := w.api.Lease; l.Holder != "" || len(l.Annotations) > 0 {
		say("the Lease has holder %q and annotations %v", l.Holder, l.Annotations)
	}
	members, err := w.etcd.Members()
	if err != nil {
		say("etcd: %v", err)
	}
	voter := map[string]bool{}
	for _, m := range members {
		h := w.memberHost(m)
		switch {
		case h == nil:
			say("member %s belongs to no host", m.ID)
		case m.Learner:
			say("%s is a learner", h.Name)
		default:
			voter[h.Name] = true
		}
	}
	if len(voter) != w.cfg.Voters {
		say("%d voters, want %d", len(voter), w.cfg.Voters)
	}
	for _, h := range w.hosts {
		w.cleanHost(h, voter[h.Name], say)
		w.cleanNode(h.Name, voter[h.Name], say)
	}
	return wrong
}

func (w *World) cleanHost(h *Host, voter bool, say func(string, ...any)) {
	server, agent := h.Units[fleet.RoleServer], h.Units[fleet.RoleAgent]
	if h.Files.Leaving != "" || h.Files.Joining.Swap != "" {
		say("%s is left with leaving %q joining %q", h.Name, h.Files.Leaving, h.Files.Joining.Swap)
	}
	if voter {
		if !server.Process || agent.Process || h.Files.Role != fleet.RoleServer || h.Level != fleet.LevelFull || !h.Data.WAL {
			say("voter %s: server process %t, agent process %t, role %s, level %s, WAL %t",
				h.Name, server.Process, agent.Process, h.Files.Role, h.Level, h.Data.WAL)
		}
		return
	}
	if server.Process || !agent.Process || h.Files.Role != fleet.RoleAgent || h.Level != fleet.LevelFull || h.Data.WAL || h.Data.Tombstone {
		say("agent %s: server process %t, agent process %t, role %s, level %s, WAL %t, tombstone %t",
			h.Name, server.Process, agent.Process, h.Files.Role, h.Level, h.Data.WAL, h.Data.Tombstone)
	}
	if h.ServerJoin != "" {
		say("agent %s is left with a server's join drop-in", h.Name)
	}
}

func (w *World) cleanNode(name string, voter bool, say func(string, ...any)) {
	n, k := w.api.node(name), w.cfg.Keys
	if n == nil {
		say("%s has no Node", name)
		return
	}
	for _, key := range append(k.SwapAnnotations(), k.Cordoned()) {
		if v, ok := n.Annotations[key]; ok {
			say("%s is left with annotation %s=%s", name, key, v)
		}
	}
	for _, t := range n.Taints {
		if t.Key == k.Taint() {
			say("%s is left with our taint", name)
		}
	}
	if _, ok := n.Labels[k.Level()]; ok {
		say("%s is left with a level label", name)
	}
	if n.Unschedulable && (w.guard == nil || !w.guard.operator[name]) {
		say("%s is left cordoned", name)
	}
	if !n.Ready {
		say("%s is not Ready", name)
	}
	if want, ok := n.Labels[k.DesiredRole()]; ok && (want == string(fleet.RoleServer)) != voter {
		say("%s is labelled desired-role=%s", name, want)
	}
	if voter {
		if n.Annotations[fleet.AnnotationEtcdRemove] != "" {
			say("voter %s is left with a request to be removed", name)
		}
		if n.Labels[fleet.LabelEtcd] == "" {
			say("voter %s has no etcd label", name)
		}
		return
	}
	for _, key := range fleet.ServerLabels() {
		if _, ok := n.Labels[key]; ok {
			say("agent %s is left with label %s", name, key)
		}
	}
	for _, key := range fleet.EtcdAnnotations() {
		if v, ok := n.Annotations[key]; ok {
			say("agent %s is left with annotation %s=%s", name, key, v)
		}
	}
}
