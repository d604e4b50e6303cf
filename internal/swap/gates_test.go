package swap

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// R-E2-04, R-E2-08, R-E2-09, R-E2-38: every gate of a swap that has not begun,
// each shut by one thing.
func TestGatesOfASwapThatHasNotBegun(t *testing.T) {
	pair := Pair{Out: "n1", In: "n4"}
	tests := map[string]struct {
		pair  Pair
		given *given
		want  []string
	}{
		"a healthy fleet shuts no gate":                   {given: calm()},
		"a node cannot be swapped for itself":             {pair: Pair{"n1", "n1"}, given: calm(), want: []string{CodeSameNode}},
		"an unknown node is refused":                      {pair: Pair{"n1", "n9"}, given: calm(), want: []string{CodeUnknownNode}},
		"two unknown nodes are both named":                {pair: Pair{"n8", "n9"}, given: calm(), want: []string{CodeUnknownNode, CodeUnknownNode}},
		"an ineligible node is refused":                   {given: calm().with(func(g *given) { g.host(4).Node.Labels[keys.Eligible()] = "false" }), want: []string{CodeIneligible}},
		"a foreign eligible value counts as not eligible": {given: calm().with(func(g *given) { g.host(4).Node.Labels[keys.Eligible()] = "yes" }), want: []string{CodeIneligible}},
		"a pinned voter is refused":                       {given: calm().with(func(g *given) { g.host(1).Node.Labels[keys.Pinned()] = "true" }), want: []string{CodePinned}},
		"a voter cannot come in":                          {pair: Pair{"n1", "n2"}, given: calm(), want: []string{CodeAlreadyAVoter, CodeWrongRole, CodeNotStaged, CodeUnreachable}},
		"an agent cannot go out":                          {pair: Pair{"n4", "n1"}, given: calm(), want: []string{CodeAlreadyAVoter, CodeNotAVoter, CodeWrongRole, CodeNotStaged, CodeUnreachable}},
		"an outgoing voter that could not be an agent is refused (rule 15)": {given: calm().with(func(g *given) {
			g.host(1).Report.AsAgent = &status.Preflight{Problems: []status.Problem{{Code: "AgentNotStaged", Sentence: "no token"}, {Code: "DatastoreMount", Sentence: "a mount"}}}
		}), want: []string{"AgentNotStaged", "DatastoreMount"}},
		"an outgoing voter that says only that it is not ready is refused":            {given: calm().with(func(g *given) { g.host(1).Report.AsAgent.OK = false }), want: []string{CodePreflight}},
		"an outgoing voter that has not said whether it could be an agent is refused": {given: calm().with(func(g *given) { g.host(1).Report.AsAgent = nil }), want: []string{CodeNotStaged}},
		"a voter that stays need not be able to be an agent":                          {given: calm().with(func(g *given) { g.host(2).Report.AsAgent = nil })},
		"a standby without a host daemon is refused":                                  {given: calm().with(func(g *given) { g.host(4).Report = nil }), want: []string{CodeNoHostDaemon}},
		"a standby whose report is garbage is refused":                                {given: calm().with(func(g *given) { g.host(4).Report, g.host(4).ReportProblem = nil, "x" }), want: []string{CodeBadReport}},
		"a silent standby is refused":                                                 {given: calm().with(func(g *given) { g.host(4).Fresh = false }), want: []string{CodeSilent}},
		"a voter without a host daemon is refused":                                    {given: calm().with(func(g *given) { g.host(2).Report = nil }), want: []string{CodeNoHostDaemon}},
		"a paused voter is named (R-E2-45)":                                           {given: calm().with(func(g *given) { g.host(2).Fresh, g.host(2).Node.Ready = false, false }), want: []string{CodeSilent}},
		"a NotReady voter is named":                                                   {given: calm().with(func(g *given) { g.host(2).Node.Ready = false }), want: []string{CodeNotReady}},
		"a voter at another level is named (R-I-03)":                                  {given: calm().with(func(g *given) { g.host(2).Node.Labels[keys.Level()] = "control-plane" }), want: []string{CodeNotFull}},
		"a level that only the host knows is named":                                   {given: calm().with(func(g *given) { g.host(2).Report.Level = fleet.LevelEtcdOnly }), want: []string{CodeNotFull}},
		"an alarm is named":                                                           {given: calm().with(func(g *given) { g.host(2).Report.Etcd.Alarms = []string{"NOSPACE"} }), want: []string{CodeAlarm}},
		"no leader is named":                                                          {given: calm().leader(0), want: []string{CodeNoLeader}},
		"a learner is named":                                                          {given: calm().lists([]status.Member{member(1, false), member(2, false), member(3, false), {ID: 0xaa, Name: "n9-00000001", Learner: true}}, 1, 2, 3), want: []string{CodeLearner}},
		"an unstarted member is named":                                                {given: calm().lists([]status.Member{member(1, false), member(2, false), member(3, false), {ID: 0xaa, Learner: true}}, 1, 2, 3), want: []string{CodeUnstarted}},
		"a member of no Node is named":                                                {given: calm().lists([]status.Member{member(1, false), member(2, false), {ID: 0xaa, Name: "ghost"}}, 1, 2).with(func(g *given) { g.Hosts = slices.Delete(g.Hosts, 2, 3) }), want: []string{CodeUnknownMember}},
		"two members of one Node are named, and its dead one counts as down (rule 2)": {given: calm().lists([]status.Member{member(1, false), member(2, false), {ID: 0xaa, Name: "n2-0000beef", PeerURLs: []string{"https://10.0.0.2:2380"}}}, 1, 2).with(func(g *given) {
			g.host(3).Report.Etcd, g.host(3).Node.EtcdIsVoter = nil, ""
		}), want: []string{CodeUnknownMember, "QuorumAtRisk"}},
		"lists that disagree are named (rule 24)":        {given: calm().lists([]status.Member{member(1, false), member(2, false)}, 3), want: []string{CodeListsDisagree}},
		"two clusters are named":                         {given: calm().with(func(g *given) { g.host(3).Report.Etcd.ClusterID = 7 }), want: []string{CodeClusterID}},
		"a Node that claims a vote no list has is named": {given: calm().with(func(g *given) { g.host(4).Node.EtcdIsVoter = "True"; g.host(4).Node.Labels[fleet.LabelEtcd] = "true" }), want: []string{CodeClaim}},
		"a removed member's stale claim is no claim (R-228-11)": {given: calm().with(func(g *given) {
			g.host(4).Node.EtcdIsVoter = "True"
			g.host(4).Node.Labels[fleet.LabelEtcd] = "true"
			g.host(4).Node.Annotations[fleet.AnnotationEtcdRemovedName] = "n4-0badbeef"
		})},
		"a lagging condition of a voter does not hold a swap":           {given: calm().with(func(g *given) { g.host(2).Node.EtcdIsVoter = "False" })},
		"four voters without a swap are named":                          {given: calm().lists(four(), 1, 2, 3, 4), want: []string{CodeEvenVoters, CodeAlreadyAVoter}},
		"an old etcd is refused (rule 9)":                               {given: calm().with(func(g *given) { g.host(3).Report.Etcd.Version = "3.6.3" }), want: []string{CodeEtcdVersion}},
		"an etcd whose version nobody knows is refused":                 {given: calm().with(func(g *given) { g.host(3).Report.Etcd.Version = "" }), want: []string{CodeEtcdVersion}},
		"an upgrade under way is refused (rule 9)":                      {given: calm().with(func(g *given) { g.host(3).Report.K3sVersion = "v1.35.0+k3s1" }), want: []string{CodeK3sVersions}},
		"a voter whose k3s nobody knows is refused, and named (rule 9)": {given: calm().with(func(g *given) { g.host(1).Report.K3sVersion = "" }), want: []string{CodeNoK3sVersion}},
		"nor do voters agree whose k3s nobody knows": {given: calm().with(func(g *given) {
			g.host(1).Report.K3sVersion, g.host(2).Report.K3sVersion, g.host(3).Report.K3sVersion = "", "", ""
		}), want: []string{CodeNoK3sVersion}},
		"a standby the operator cordoned is no candidate":                 {given: calm().with(func(g *given) { g.host(4).Node.Unschedulable = true }), want: []string{CodeOperatorCordon}},
		"a standby with a wrong clock is refused (rule 22)":               {given: calm().with(func(g *given) { g.host(4).Report.SkewMS = -45_000 }), want: []string{CodeSkew}},
		"a standby with a clock from nowhere is refused":                  {given: calm().with(func(g *given) { g.host(4).Report.SkewMS = math.MaxInt64 }), want: []string{CodeSkew}},
		"a standby whose report is from the future is refused (rule 22)":  {given: calm().with(func(g *given) { g.host(4).Report.At = g.Now.Add(time.Hour) }), want: []string{CodeSkew}},
		"a report that has been true for an hour says nothing of a clock": {given: calm().with(func(g *given) { g.host(4).Report.At = g.Now.Add(-time.Hour) })},
		"a staying voter and an outgoing one may have a wrong clock":      {given: calm().with(func(g *given) { g.host(1).Report.SkewMS, g.host(2).Report.SkewMS = 300_000, -400_000 })},
		"a standby that never checked itself is refused":                  {given: calm().with(func(g *given) { g.host(4).Report.Preflight = nil }), want: []string{CodeNotStaged}},
		"every problem of the preflight is named (rule 17)": {given: calm().with(func(g *given) {
			g.host(4).Report.Preflight = &status.Preflight{Problems: []status.Problem{{Code: "NotStaged", Sentence: "no server.yaml"}, {Code: "DiskFull", Sentence: "1 GiB free"}}}
		}), want: []string{"NotStaged", "DiskFull"}},
		"a peer port that a voter does not reach is named": {given: calm().with(func(g *given) {
			g.host(3).Report.Standbys = []status.Dial{{Node: "n4", Error: "connection refused"}}
		}), want: []string{CodeUnreachable}},
		"a peer port that a voter has not tried is named": {given: calm().with(func(g *given) { g.host(3).Report.Standbys = nil }), want: []string{CodeUnreachable}},
		"a Lease held by another is named": {given: calm().with(func(g *given) {
			g.Lease = lease.Lease{Exists: true, Holder: "n2", RenewTime: g.Now, Duration: time.Minute}
		}), want: []string{CodeLeaseHeld}},
		"a budget that blocks is named (rule 20)":   {given: calm().with(func(g *given) { g.host(1).Pods = []Pod{pod("web-0", func(p *Pod) { p.Blocked = "budget" })} }), want: []string{CodeDisruption}},
		"a pod without an owner is named (rule 20)": {given: calm().with(func(g *given) { g.host(4).Pods = []Pod{pod("web-0", func(p *Pod) { p.Owned = false })} }), want: []string{CodeUnowned}},
		"a running job is waited for and refuses nothing": {given: calm().with(func(g *given) {
			g.host(4).Pods = []Pod{pod("job", func(p *Pod) { p.Protected, p.Owned = true, false })}
		})},
		"a removal asked for of a staying voter is named": {given: calm().with(func(g *given) { g.host(2).Node.Annotations[fleet.AnnotationEtcdRemove] = "true" }), want: []string{CodeStaleRemove}},
		"what could not be read is named":                 {given: calm().with(func(g *given) { g.Missing = []string{"the Lease could not be read"} }), want: []string{CodeMissing}},
		"no list at all is named":                         {given: calm().with(func(g *given) { g.Hosts[0].Fresh, g.Hosts[1].Fresh, g.Hosts[2].Fresh = false, false, false }), want: []string{CodeNoLists}},
		"a Node that is being deleted is named":           {given: calm().with(func(g *given) { g.host(2).Node.Deleting = true }), want: []string{CodeDeleting}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pair
			if tt.pair != (Pair{}) {
				p = tt.pair
			}
			rs := Gates(tt.given.Observation, policy(), p)
			for _, code := range tt.want {
				if !slices.ContainsFunc(rs, func(r status.Reason) bool { return r.Code == code }) {
					t.Errorf("no reason %s in %+v", code, rs)
				}
			}
			if len(tt.want) == 0 && len(rs) > 0 {
				t.Errorf("gates are shut: %+v", rs)
			}
			for _, r := range rs {
				if r.Sentence == "" {
					t.Errorf("reason %s has no sentence", r.Code)
				}
			}
		})
	}
}

// R-185-31 and design §3: an even target or one under three is never acted on.
func TestABadTargetShutsTheGate(t *testing.T) {
	for _, n := range []int{0, 1, 2, 4} {
		p := policy()
		p.Target = n
		rs := Gates(calm().Observation, p, Pair{"n1", "n4"})
		if !slices.ContainsFunc(rs, func(r status.Reason) bool { return r.Code == CodeTarget }) {
			t.Errorf("target %d: %+v", n, rs)
		}
	}
}

// Safety rule 9.
func TestEtcdVersionsThatCanCrashAreNotSafe(t *testing.T) {
	for v, want := range map[string]bool{
		"3.5.25": false, "3.5.26": true, "3.5.27": true, "3.6.0": false, "3.6.3": false, "3.6.4": true, "3.6.14": true,
		"v3.6.14-k3s1": true, "3.7.0": true, "3.4.40": false, "4.0.0": true, "": false, "3.6": false, "x.y.z": false, "3.6.99999": false,
	} {
		if got := EtcdVersionSafe(v); got != want {
			t.Errorf("%q: safe %v, want %v", v, got, want)
		}
	}
}

// Safety rule 2: for OUT's restart the newcomer counts as up only when its etcd
// has just answered.
func TestNoRemovalIsAskedForWhileTheSwapIsFrozen(t *testing.T) {
	if rs := MayRemove(steppedDown().Observation, policy(), "n1"); len(rs) > 0 {
		t.Fatalf("a removal that may be done is refused: %+v", rs)
	}
	rs := MayRemove(voter3Replaced(steppedDown()).Observation, policy(), "n1")
	if len(rs) == 0 || rs[0].Code != CodeStayingChanged {
		t.Errorf("a staying voter is another member now: %+v", rs)
	}
}

func TestTheRestartOfOutNeedsTheNewcomersAnswer(t *testing.T) {
	g := settledIn().taint(1)
	if d := Next(g.Observation, policy()); d.Row != "StepDownOrdered" {
		t.Fatalf("row %s", d.Row)
	}
	g.host(4).ReportAge = policy().JustNow + time.Second
	if d := Next(g.Observation, policy()); d.Row != "HeldAtPlusOne" {
		t.Fatalf("an old answer of the newcomer lets OUT restart: row %s", d.Row)
	}
}

// Safety rule 8.
func TestTheNewcomerIsNeverToldToLead(t *testing.T) {
	g := settledIn().taint(1).leader(4)
	if d := Next(g.Observation, policy()); d.Action.LeadTo == "n4" || d.Action.LeadTo == "n1" || d.Action.LeadTo == "" {
		t.Errorf("lead to %q", d.Action.LeadTo)
	}
}

// Design §3: a completed or rolled-back swap starts the cooldown, an abandoned
// one does not (R-228-45); the abandoned pair backs off and doubles (rule 20).
func TestWhatAnOutcomeStarts(t *testing.T) {
	p := policy()
	last := status.LastSwap{ID: swID, Out: "n1", In: "n4", Outcome: fleet.OutcomeAbandoned, EndedAt: t0}
	s := Concluded(&status.Status{}, last, p)
	if !s.CooldownUntil.IsZero() {
		t.Errorf("an abandoned swap starts a cooldown until %s", s.CooldownUntil)
	}
	for i, want := range []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour} {
		if i > 0 {
			last.ID = fleet.NewSwapID(t0.Add(time.Duration(i)*time.Minute), "n1", "n4")
			s = Concluded(&s, last, p)
		}
		if len(s.Backoff) != 1 || s.Backoff[0].Until.Sub(t0) != want {
			t.Errorf("after %d abandoned swaps: %+v, want %s", i+1, s.Backoff, want)
		}
	}
	if again := Concluded(&s, last, p); again.Backoff[0].Count != 3 {
		t.Errorf("one swap is counted twice: %+v", again.Backoff)
	}
	last.ID, last.Outcome = swID, fleet.OutcomeRolledBack
	s = Concluded(&s, last, p)
	if s.CooldownUntil.Sub(t0) != p.Cooldown || len(s.Backoff) != 0 {
		t.Errorf("a rolled-back swap: cooldown %s, backoff %+v", s.CooldownUntil.Sub(t0), s.Backoff)
	}
	if s.Swap != nil || s.LastSwap == nil {
		t.Error("the outcome is not published")
	}
}
