package swap

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

var update = flag.Bool("update", false, "write the golden decisions anew")

// decision is one case: a sentence, the row it must take, and the fleet.
type decision struct {
	name   string
	row    string
	given  *given
	policy func(*Policy)
}

func dry(p *Policy) { p.DryRun = true }

func cases() []decision {
	hour := func(s State) map[State]time.Duration { return map[State]time.Duration{s: 2 * time.Hour} }
	return []decision{
		// Idle.
		{name: "a request that cannot be read is dropped", row: "RequestMalformed", given: calm().with(func(g *given) { g.RequestProblem = "request: unexpected end of JSON input" })},
		{name: "a request older than ten minutes is dropped", row: "RequestExpired", given: calm().asked().with(func(g *given) { g.Request.At = g.Now.Add(-11 * time.Minute) })},
		{name: "a request for a Node that does not exist is refused at once", row: "RequestRefused", given: calm().asked().with(func(g *given) { g.Request.In = "n9" })},
		{name: "a request for a pinned voter and an ineligible standby is refused with both reasons", row: "RequestRefused", given: calm().asked().with(func(g *given) {
			g.host(1).Node.Labels[keys.Pinned()], g.host(4).Node.Labels[keys.Eligible()] = "true", "false"
		})},
		{name: "a request from the far future is dropped", row: "RequestExpired", given: calm().asked().with(func(g *given) { g.Request.At = g.Now.Add(time.Hour) })},
		{name: "a pending host that came back is cleaned", row: "OwedCleanUp", given: calm().cordon(4).with(func(g *given) { g.host(4).Node.Labels[fleet.LabelEtcd] = "true" })},
		{name: "a pending host that the operator had cordoned is cleaned when it returns", row: "OwedCleanUp", given: calm().taint(4).with(func(g *given) {
			g.host(4).Node.Labels[keys.DesiredRole()], g.host(4).Node.Unschedulable = "agent", true
		})},
		{name: "an agent that nobody asked to step down is not cleaned", row: "NothingToDo", given: calm().with(func(g *given) { g.host(4).Node.Labels[fleet.LabelMaster] = "true" })},
		{name: "a pending host that is clean and Ready is uncordoned", row: "OwedUncordon", given: calm().cordon(4)},
		{name: "a voter with a cordon of an ended swap is uncordoned", row: "OwedUncordon", given: calm().cordon(2)},
		{name: "a pending host that is silent is left alone", row: "NothingToDo", given: calm().cordon(4).with(func(g *given) { g.host(4).Fresh = false })},
		{name: "a request waits while a voter is silent", row: "RequestHeld", given: calm().asked().with(func(g *given) { g.host(2).Fresh, g.host(2).Node.Ready = false, false })},
		{name: "a request waits while the Lease is held by a level step", row: "RequestHeld", given: calm().asked().with(func(g *given) {
			g.Lease = lease.Lease{Exists: true, Holder: "n2", RenewTime: g.Now, Duration: time.Minute}
		})},
		{name: "a request waits while a budget blocks and names it", row: "RequestHeld", given: calm().asked().with(func(g *given) {
			g.host(4).Pods = []Pod{pod("web-0", func(p *Pod) { p.Blocked = "Cannot evict pod as it would violate the pod's disruption budget." })}
		})},
		{name: "a request waits for a standby that is not staged", row: "RequestHeld", given: calm().asked().with(func(g *given) {
			g.host(4).Report.Preflight = &status.Preflight{Problems: []status.Problem{{Code: "NotStaged", Sentence: "there is no server configuration"}}}
		})},
		{name: "a request waits for an outgoing voter that could not come back as an agent", row: "RequestHeld", given: calm().asked().with(func(g *given) {
			g.host(1).Report.AsAgent = &status.Preflight{Problems: []status.Problem{{Code: "AgentNotStaged", Sentence: "this host could not come back as an agent: no token"}}}
		})},
		{name: "an outgoing voter that cannot be an agent any more holds the promotion", row: "GateShut", given: cordoned().snapshot().with(func(g *given) {
			g.host(1).Report.AsAgent = &status.Preflight{Problems: []status.Problem{{Code: "DatastoreMount", Sentence: "server/db/etcd is a mount point"}}}
		})},
		{name: "a request waits while the servers to join falter", row: "RequestHeld", given: calm().asked().faltering()},
		{name: "a request that waited for its whole life says what for", row: "RequestExpired", given: calm().asked().faltering().with(func(g *given) { g.Request.At = g.Now.Add(-11 * time.Minute) })},
		{name: "a decision waits while the servers to join falter", row: "DecisionHeld", given: calm().automatic(false).faltering()},
		{name: "a request with every gate open takes the Lease", row: "RequestTaken", given: calm().asked()},
		{name: "a request is carried out in a dry run", row: "RequestTaken", given: calm().asked(), policy: dry},
		{name: "a request is carried out inside the cooldown", row: "RequestTaken", given: calm().asked().with(func(g *given) { g.Status.CooldownUntil = g.Now.Add(time.Hour) })},
		{name: "a request is carried out although the pair was abandoned", row: "RequestTaken", given: calm().asked().with(func(g *given) {
			g.Status.Backoff = []status.Backoff{{Out: "n1", In: "n4", Count: 2, Until: g.Now.Add(time.Hour)}}
		})},
		{name: "an expired Lease of a level step is taken for a request", row: "RequestTaken", given: calm().asked().with(func(g *given) {
			g.Lease = lease.Lease{Exists: true, Holder: "n2", RenewTime: g.Now.Add(-time.Hour), Duration: time.Minute}
		})},
		{name: "an even number of voters without a swap removes nobody", row: "VotersEven", given: calm().automatic(false).with(func(g *given) {
			g.lists([]status.Member{member(1, false), member(2, false)}, 1, 2)
			g.host(3).Report.Etcd = nil
			g.host(3).Node.EtcdIsVoter = ""
		})},
		{name: "a pause lets no decision begin", row: "Paused", given: calm().automatic(false).with(func(g *given) { g.Pause = &status.Pause{Protocol: status.Protocol, At: t0, Reason: "new switch"} })},
		{name: "a pause that cannot be read is a pause", row: "Paused", given: calm().automatic(false).with(func(g *given) { g.PauseProblem = "pause: no time" })},
		{name: "a pause holds a request", row: "RequestHeld", given: calm().asked().with(func(g *given) { g.Pause = &status.Pause{Protocol: status.Protocol, At: t0} })},
		{name: "nothing is wanted", row: "NothingToDo", given: calm()},
		{name: "a decision in a dry run is reported only", row: "DryRun", given: calm().automatic(true), policy: dry},
		{name: "a decision waits for the cooldown", row: "Cooldown", given: calm().automatic(false).with(func(g *given) { g.Status.CooldownUntil = g.Now.Add(time.Minute) })},
		{name: "a missing status starts a cooldown", row: "Cooldown", given: calm().automatic(false).with(func(g *given) { g.Status = nil })},
		{name: "an abandoned pair is not tried again within its backoff", row: "PairBackedOff", given: calm().automatic(false).with(func(g *given) {
			g.Status.Backoff = []status.Backoff{{Out: "n1", In: "n4", Count: 2, Until: g.Now.Add(time.Hour)}}
		})},
		{name: "a decision waits for a gate", row: "DecisionHeld", given: calm().automatic(false).with(func(g *given) { g.host(3).Report.Etcd.Alarms = []string{"NOSPACE"} })},
		{name: "a decision with every gate open takes the Lease", row: "DecisionTaken", given: calm().automatic(false)},

		// Begin.
		{name: "a swap under way is gone on with in a pause", row: "RecordOnIn", given: calm().leased().with(func(g *given) { g.Pause = &status.Pause{Protocol: status.Protocol, At: t0} })},
		{name: "the candidate's Node is gone before anything was ordered", row: "NodeGoneAbandoned", given: calm().leased().with(func(g *given) { g.Hosts = g.Hosts[:3] })},
		{name: "the candidate's Node is gone in the middle", row: "NodeGone", given: steppedDown().with(func(g *given) { g.Hosts = g.Hosts[:3] })},
		{name: "an outgoing Node deleted after its member went leaves a completed swap", row: "CompletedNodeGone", given: agentOut().outNodeGone(6 * time.Minute)},
		{name: "an outgoing Node deleted a moment ago is waited for", row: "NodeGone", given: agentOut().outNodeGone(time.Minute)},
		{name: "an outgoing Node deleted while its member is listed is waited for and named", row: "NodeGone", given: steppedDown().outNodeGone(time.Hour)},
		{name: "a candidate's Node deleted for good takes the stepped-down voter back", row: "StepUpNodeGone", given: steppedDown().lists([]status.Member{member(1, false), member(2, false), member(3, false)}, 1, 2, 3).inNodeGone(11 * time.Minute)},
		{name: "a candidate's Node deleted for good with the voters of before is rolled back", row: "RolledBackNodeGone", given: promoting().inNodeGone(11 * time.Minute)},
		{name: "a candidate's Node deleted while it may still join is waited for", row: "NodeGone", given: promoting().inNodeGone(5 * time.Minute)},
		{name: "a swap whose Nodes both lost their marks at target plus one is not abandoned", row: "RecordOnIn", given: settledIn().unmarked()},
		{name: "a swap whose Nodes both lost their marks is not abandoned without a status", row: "RecordOnIn", given: settledIn().unmarked().with(func(g *given) { g.Status = nil })},
		{name: "a swap whose Nodes both lost their marks takes the Lease that ran out again", row: "LeaseTakenAgain", given: settledIn().unmarked().with(func(g *given) { g.Lease.RenewTime = g.Now.Add(-time.Hour) })},
		{name: "a Lease that ran out before the first record holds up no other swap", row: "DecisionTaken", given: calm().leased().with(func(g *given) {
			g.Lease.RenewTime = g.Now.Add(-time.Hour)
			g.Automatic = &Pair{Out: "n2", In: "n4"}
		})},
		{name: "a Lease that ran out after its swap had ended holds up no other swap", row: "DecisionTaken", given: calm().leased().ended(fleet.OutcomeAbandoned).with(func(g *given) {
			g.Lease.RenewTime = g.Now.Add(-time.Hour)
			g.Automatic = &Pair{Out: "n2", In: "n4"}
		})},
		{name: "a held Lease of a swap that ended before the last one begins nothing", row: "Contradiction", given: calm().leased().with(func(g *given) {
			g.Status.LastSwap = &status.LastSwap{ID: "20261129T110000Z-n4-n1", Out: "n4", In: "n1", Outcome: fleet.OutcomeCompleted, EndedAt: g.Now.Add(-time.Minute)}
			g.Status.History = []status.PastSwap{{ID: g.Status.LastSwap.ID}, {ID: swID}}
		})},
		{name: "the request is taken up once the Lease is held", row: "RequestTakenUp", given: calm().leased().asked()},
		{name: "a server to join that falters is waited for before anything is written", row: "JoinHostWait", given: calm().taken(20 * time.Second).faltering()},
		{name: "a server to join that falters for more than a minute ends the swap with nothing written", row: "GateShutAtBegin", given: calm().taken(61 * time.Second).faltering()},
		{name: "a server to join that falters beside a shut gate is not waited for", row: "GateShutAtBegin", given: calm().taken(20 * time.Second).faltering().with(func(g *given) { g.host(2).Node.Ready = false })},
		{name: "a server to join that falters no more lets the swap begin", row: "RecordOnIn", given: calm().taken(20 * time.Second)},
		{name: "a gate that shut after the Lease was taken abandons with nothing written", row: "GateShutAtBegin", given: calm().leased().with(func(g *given) { g.host(2).Node.Ready = false })},
		{name: "the record goes on the candidate first", row: "RecordOnIn", given: calm().leased()},
		{name: "the record goes on the outgoing voter second", row: "RecordOnOut", given: calm().leased().mark(4)},
		{name: "a candidate registered anew gets its record back", row: "RecordOnIn", given: calm().leased().mark(1)},

		// Prepare.
		{name: "lost marks of a swap that was nearly done are put back", row: "StepDownLost", given: removed().with(func(g *given) {
			delete(g.host(1).Node.Annotations, keys.Step())
			delete(g.host(4).Node.Annotations, keys.Step())
		})},
		{name: "an operator who removes the outgoing voter first ends the swap", row: "OutRemovedByOther", given: cordoned().lists([]status.Member{member(2, false), member(3, false)}, 2, 3).leader(2).with(func(g *given) { g.host(1).Report.Etcd = nil })},
		{name: "a lost order of a candidate that is not listed yet is given again", row: "PromoteLost", given: promoting().with(func(g *given) { delete(g.host(4).Node.Annotations, keys.Step()) })},
		{name: "a lost order to roll back is given again", row: "RollbackLost", given: takenBack().with(func(g *given) { delete(g.host(4).Node.Annotations, keys.Step()) })},
		{name: "a stranger's order on the candidate opens no gate", row: "RunnerWait", given: cordoned().order(4, fleet.StepStepUp).with(func(g *given) { g.host(4).Pods = []Pod{pod("job-1", runner)} })},
		{name: "a lost promotion order of a member is given again", row: "PromoteLost", given: learnerIn().with(func(g *given) { delete(g.host(4).Node.Annotations, keys.Step()) })},
		{name: "a stale remove on the candidate is deleted before any promotion", row: "StaleRemoval", given: begun().with(func(g *given) { g.host(4).Node.Annotations[fleet.AnnotationEtcdRemove] = "true" })},
		{name: "an outgoing voter that leads etcd is told who shall", row: "LeadElsewhere", given: begun()},
		{name: "one that was told so is not waited for", row: "CordonIn", given: begun().with(func(g *given) { g.host(1).Node.Annotations[keys.LeadTo()] = "n2" })},
		{name: "the candidate is cordoned", row: "CordonIn", given: begun().leader(2)},
		{name: "the outgoing voter is cordoned", row: "CordonOut", given: begun().leader(2).cordon(4)},

		// Wait.
		{name: "past the runner wait the swap is abandoned", row: CodeRunnerWaitOver, given: cordoned().steps(hour(Wait)).with(func(g *given) { g.host(4).Pods = []Pod{pod("job-1", runner)} })},
		{name: "a job on the candidate is waited for", row: "RunnerWait", given: cordoned().with(func(g *given) { g.host(4).Pods = []Pod{pod("job-1", runner)} })},
		{name: "a job on the outgoing voter is waited for before the candidate stops", row: "RunnerWait", given: cordoned().with(func(g *given) { g.host(1).Pods = []Pod{pod("job-2", runner)} })},
		{name: "pods that could not be read are waited for", row: "RunnerWait", given: cordoned().with(func(g *given) { g.host(1).PodsRead = false })},

		// DrainIn.
		{name: "a candidate that cannot be drained abandons the swap", row: "DrainInTimeout", given: cordoned().steps(hour(DrainIn)).with(func(g *given) {
			g.host(4).Pods = []Pod{pod("web-0", func(p *Pod) { p.Blocked = "budget web" })}
		})},
		{name: "the candidate is drained", row: "DrainIn", given: cordoned().with(func(g *given) { g.host(4).Pods = []Pod{pod("web-0", nil)} })},
		{name: "pods of the candidate on their way are waited for", row: "DrainInWait", given: cordoned().with(func(g *given) {
			g.host(4).Pods = []Pod{pod("web-0", func(p *Pod) { p.Terminating = true }), pod("ds", func(p *Pod) { p.Stays = true })}
		})},

		// TakeSnapshot.
		{name: "a voter that fails to take the snapshot abandons the swap", row: "SnapshotFailed", given: cordoned().reported(2, fleet.StepSnapshot, fleet.PhaseFailed, func(r *status.Report) { r.Message = "no space left" }).with(func(g *given) { g.host(2).Node.Annotations[keys.SnapshotRequest()] = string(swID) })},
		{name: "a snapshot that is not ready in time abandons the swap", row: "SnapshotTimeout", given: cordoned().steps(map[State]time.Duration{TakeSnapshot: 3 * time.Minute})},
		{name: "a staying voter is asked for the snapshot even when the outgoing sorts first", row: "SnapshotAsked", given: cordoned()},
		{name: "a snapshot that no voter can take names the lists that are missing", row: "SnapshotWait", given: cordoned().with(func(g *given) { g.host(2).Fresh, g.host(3).Fresh = false, false })},
		{name: "the snapshot is waited for", row: "SnapshotWait", given: cordoned().with(func(g *given) { g.host(2).Node.Annotations[keys.SnapshotRequest()] = string(swID) })},
		{name: "a snapshot of another swap does not count", row: "SnapshotAsked", given: cordoned().with(func(g *given) {
			g.Snapshots = []Snapshot{{Name: "fleet-role-20260101T000000Z-n1-n4-n2-1", Node: "n2", Ready: true}}
		})},
		{name: "a snapshot on the outgoing voter does not count", row: "SnapshotAsked", given: cordoned().published().with(func(g *given) { g.Snapshots[0].Node = "n1" })},

		// Recheck.
		{name: "a ready snapshot is recorded on the candidate first", row: "SnapshotOnIN", given: cordoned().published().with(func(g *given) { g.host(2).Node.Annotations[keys.SnapshotRequest()] = string(swID) })},
		{name: "a ready snapshot is recorded on the outgoing voter second", row: "SnapshotOnOUT", given: cordoned().published().noted(4, snapshotName)},
		{name: "a snapshot whose object goes while it is recorded is recorded on both", row: "SnapshotOnOUT", given: cordoned().noted(4, snapshotName)},
		{name: "a snapshot whose object went after it was recorded is not asked for again", row: "PromoteOrdered", given: cordoned().snapshot().with(func(g *given) { g.Snapshots = nil })},
		{name: "a record that names another swap's snapshot proves none", row: "SnapshotAsked", given: cordoned().noted(4, fleet.SnapshotPrefix+"20261128T120000Z-n1-n4-n2-1764417600")},
		{name: "the snapshot request goes once the snapshot is ready", row: "SnapshotTaken", given: cordoned().snapshot().with(func(g *given) { g.host(2).Node.Annotations[keys.SnapshotRequest()] = string(swID) })},
		{name: "a gate shut past the operation timeout abandons the swap", row: "GateShutAbandoned", given: cordoned().snapshot().steps(hour(Recheck)).with(func(g *given) { g.host(3).Node.Ready = false })},
		{name: "the gates are judged again after the wait", row: "GateShut", given: cordoned().snapshot().with(func(g *given) { g.host(3).Node.Ready = false })},
		{name: "an outgoing voter that was pinned in the wait holds the promotion", row: "GateShut", given: cordoned().snapshot().with(func(g *given) { g.host(1).Node.Labels[keys.Pinned()] = fleet.True })},
		{name: "a candidate that may not vote any more holds the promotion", row: "GateShut", given: cordoned().snapshot().with(func(g *given) { g.host(4).Node.Labels[keys.Eligible()] = "false" })},
		{name: "a candidate whose preflight fails after the wait is not promoted", row: "GateShut", given: cordoned().snapshot().with(func(g *given) {
			g.host(4).Report.Preflight = &status.Preflight{Problems: []status.Problem{{Code: "TokenRejected", Sentence: "the server token is refused by the join host"}}}
		})},
		{name: "the candidate is told to join a voter that leads and stays", row: "PromoteOrdered", given: cordoned().snapshot().leader(3)},
		{name: "the candidate is never told to join the outgoing voter", row: "PromoteOrdered", given: cordoned().snapshot().leader(1)},

		// Promote.
		{name: "a candidate that refuses abandons the swap", row: CodeRefusedByHost, given: promoting().reported(4, fleet.StepPromote, fleet.PhaseRefused, func(r *status.Report) { r.Code, r.Message = "NotStaged", "there is no server configuration" })},
		{name: "a candidate that fails is rolled back", row: "PromoteFailed", given: promoting().reported(4, fleet.StepPromote, fleet.PhaseFailed, func(r *status.Report) { r.Message = "the unit failed" })},
		{name: "a candidate that refuses although it is a member is rolled back", row: "PromoteFailed", given: learnerIn().reported(4, fleet.StepPromote, fleet.PhaseRefused)},
		{name: "what keeps the candidate from joining is named", row: "JoinWait", given: promoting().reported(4, fleet.StepPromote, fleet.PhaseRunning, func(r *status.Report) {
			r.Code, r.Message = "EffectFailed", "note: read-only file system; it is tried again"
		})},
		{name: "a newcomer is not rolled back because a voter's daemon is silent", row: "JoinWait", given: settledIn().steps(map[State]time.Duration{Promote: time.Hour, Settle: time.Hour, DrainOut: time.Hour}).with(func(g *given) { g.host(2).Fresh = false })},
		{name: "a refusal waits for the lists to say that the candidate is no member", row: "JoinWait", given: promoting().reported(4, fleet.StepPromote, fleet.PhaseRefused).with(func(g *given) { g.host(2).Fresh = false })},
		{name: "a candidate that does not vote in time is rolled back", row: "PromoteTimeout", given: learnerIn().steps(map[State]time.Duration{Promote: 11 * time.Minute})},
		{name: "a cordon taken away while promoting is put back", row: "CordonAgain:promote", given: promoting().with(func(g *given) { g.host(4).Node.Unschedulable = false })},
		{name: "a learner is waited for", row: "LearnerWait", given: learnerIn()},
		{name: "a member that was added and has not started is waited for", row: "LearnerWait", given: promoting().lists([]status.Member{member(1, false), member(2, false), member(3, false), {ID: 0xa4, PeerURLs: []string{"https://10.0.0.4:2380"}, Learner: true}}, 1, 2, 3)},
		{name: "a candidate that is not listed is waited for", row: "JoinWait", given: promoting()},
		{name: "lists that disagree hold the promotion", row: "JoinWait", given: learnerIn().lists([]status.Member{member(1, false), member(2, false), member(3, false)}, 3)},

		// Settle.
		{name: "a newcomer that fails before the outgoing voter was touched is taken back", row: "NewcomerFailed:settle", given: voting().with(func(g *given) { g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute) })},
		{name: "a newcomer whose Node never gets Ready is taken back", row: "NewcomerFailed:settle", given: serving().markWith(1, recordWithIn()).markWith(4, recordWithIn()).with(func(g *given) {
			g.host(4).Node.Ready = false
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a newcomer that fails is kept while another voter is down", row: "MemberOnIn", given: voting().with(func(g *given) {
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
			g.host(1).Fresh = false
		})},
		{name: "a cordon taken away while the newcomer settles is put back", row: "CordonAgain:settle", given: voting().with(func(g *given) { g.host(1).Node.Unschedulable = false })},
		{name: "the newcomer's member id is recorded on its Node", row: "MemberOnIn", given: voting()},
		{name: "the newcomer's member id is recorded on the outgoing Node", row: "MemberOnOut", given: serving().markWith(4, recordWithIn())},
		{name: "the name of an old member goes once the host votes again", row: "RemovedNameOnIn", given: serving().markWith(1, recordWithIn()).markWith(4, recordWithIn()).with(func(g *given) {
			g.host(4).Node.Annotations[fleet.AnnotationEtcdRemovedName] = "n4-0badbeef"
		})},
		{name: "a newcomer that votes and does not answer is waited for", row: "SettleWait", given: voting().markWith(1, recordWithIn()).markWith(4, recordWithIn())},
		{name: "a newcomer that answers is waited for until its Node is Ready on a later heartbeat", row: "SettleWait", given: serving().markWith(1, recordWithIn()).markWith(4, recordWithIn()).with(func(g *given) { g.host(4).KubeletChanged = false })},

		// DrainOut.
		{name: "a newcomer whose role file does not say server is not settled", row: "SettleWait", given: settledIn().with(unwritten)},
		{name: "a newcomer whose role file cannot be written is taken back", row: "NewcomerFailed:settle", given: settledIn().with(unwritten).with(func(g *given) {
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a newcomer that fails at target plus one is taken back", row: "NewcomerFailed:settle", given: settledIn().with(func(g *given) {
			g.host(4).Report.Etcd = nil
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a newcomer whose report somebody deleted is waited for while its daemon speaks", row: "SettleWait", given: settledIn().with(func(g *given) {
			g.host(4).Report, g.host(4).Fresh, g.host(4).Speaks = nil, false, true
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a newcomer whose daemon and report are gone is taken back", row: "NewcomerFailed:settle", given: settledIn().with(func(g *given) {
			g.host(4).Report, g.host(4).Fresh, g.host(4).Speaks = nil, false, false
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "an outgoing Node that lost its order after the removal gets it again", row: "OrderLostAfterRemoval", given: removed().with(func(g *given) { delete(g.host(1).Node.Annotations, keys.Step()) })},
		{name: "a cordon taken away at target plus one is put back", row: "CordonAgain:drain-out", given: settledIn().with(func(g *given) { g.host(1).Node.Unschedulable = false })},
		{name: "jobs on the outgoing voter past the runner wait take the newcomer back", row: "OutJobsRolledBack", given: settledIn().steps(hour(DrainOut)).with(func(g *given) { g.host(1).Pods = []Pod{pod("job-1", runner)} })},
		{name: "a blocked drain of the outgoing voter past the runner wait takes the newcomer back", row: "OutDrainRolledBack", given: settledIn().taint(1).steps(hour(DrainOut)).with(func(g *given) {
			g.host(1).Pods = []Pod{pod("web-0", func(p *Pod) { p.Blocked = "budget web" })}
		})},
		{name: "with four voters and a shut gate the outgoing voter is not touched", row: "HeldAtPlusOne", given: settledIn().with(func(g *given) { g.host(3).Node.Ready = false })},
		{name: "a newcomer whose answer is old holds the step at target plus one", row: "HeldAtPlusOne", given: settledIn().with(func(g *given) { g.host(4).ReportAge = 20 * time.Second })},
		{name: "an outgoing voter that is unwell does not hold its own way out", row: "TaintOut", given: settledIn().with(func(g *given) { g.host(1).Node.Ready = false })},
		{name: "a job on the outgoing voter is waited for at target plus one", row: "OutRunnerWait", given: settledIn().with(func(g *given) { g.host(1).Pods = []Pod{pod("job-1", runner)} })},
		{name: "the outgoing voter is tainted", row: "TaintOut", given: settledIn()},
		{name: "the outgoing voter is drained", row: "DrainOut", given: settledIn().taint(1).with(func(g *given) { g.host(1).Pods = []Pod{pod("web-0", nil)} })},
		{name: "pods of the outgoing voter on their way are waited for", row: "DrainOutWait", given: settledIn().taint(1).with(func(g *given) {
			g.host(1).Pods = []Pod{pod("web-0", func(p *Pod) { p.Terminating = true })}
		})},
		{name: "the outgoing voter is told to step down and who shall lead", row: "StepDownOrdered", given: settledIn().taint(1)},
		{name: "pods of an outgoing host that is dead are not waited for", row: "StepDownOrdered", given: settledIn().taint(1).leader(2).with(func(g *given) {
			g.host(1).Node.Ready, g.host(1).Fresh = false, false
			g.host(1).Pods = []Pod{pod("web-0", nil)}
		})},

		// StepDown.
		{name: "an outgoing member removed by somebody else is taken as gone", row: "DepartedAlready", given: removed()},
		{name: "a newcomer that fails after the outgoing voter stepped down is taken back", row: "NewcomerFailed:step-down", given: steppedDown().with(func(g *given) {
			g.host(4).Report.Etcd.Linearizable = false
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a newcomer that somebody removed after the step-down is taken back", row: "NewcomerFailed:step-down", given: steppedDown().lists([]status.Member{member(1, false), member(2, false), member(3, false)}, 1, 2, 3).with(func(g *given) {
			g.host(4).Report.Etcd = nil
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a newcomer is not taken back for an outgoing voter that came back as another member", row: "RemovalHeld", given: steppedDown().with(func(g *given) {
			g.host(4).Report.Etcd.Linearizable = false
			g.host(1).Report.MemberID = 0xb1
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "the removal is held while the outgoing voter sees itself lead", row: "RemovalHeld", given: steppedDown().with(func(g *given) { g.host(1).Report.Etcd.Leader = memberID(1) })},
		{name: "the removal is held while the newcomer sees the outgoing voter lead", row: "RemovalHeld", given: steppedDown().with(func(g *given) { g.host(4).Report.Etcd.Leader = memberID(1) })},
		{name: "a cordon taken away during the step-down is put back", row: "CordonAgain:step-down", given: steppingDown().with(func(g *given) { g.host(1).Node.Unschedulable = false })},
		{name: "a taint taken away during the step-down is put back", row: "TaintAgain", given: steppingDown().with(func(g *given) { g.host(1).Node.Taints = nil })},
		{name: "a step-down that was refused takes the newcomer back", row: "StepDownFailed", given: steppingDown().reported(1, fleet.StepStepDown, fleet.PhaseRefused, func(r *status.Report) { r.Code, r.Message = "RoleMismatch", "the label says server" })},
		{name: "a step-down that failed with etcd still serving takes the newcomer back", row: "StepDownFailed", given: steppingDown().reported(1, fleet.StepStepDown, fleet.PhaseFailed)},
		{name: "a step-down that failed with etcd down goes on to the removal", row: "RemovalAsked", given: steppingDown().reported(1, fleet.StepStepDown, fleet.PhaseFailed).leader(2).with(func(g *given) { g.host(1).Report.Etcd.Linearizable = false })},
		{name: "the removal waits for the step-down report", row: "StepDownWait", given: steppingDown()},
		{name: "a step-down that waits for the list of a staying voter names it", row: "StepDownWait", given: steppingDown().with(func(g *given) { g.host(2).Fresh = false })},
		{name: "a NotReady outgoing voter whose daemon speaks is waited for", row: "StepDownWait", given: steppingDown().with(func(g *given) { g.host(1).Node.Ready = false })},
		{name: "an outgoing host whose report cannot be used is not taken for dead", row: "StepDownWait", given: steppingDown().with(func(g *given) {
			h := g.host(1)
			h.Node.Ready, h.Fresh, h.Report, h.ReportProblem, h.Speaks = false, false, nil, "report: number 900, and the host's heartbeat has come to 8: it is not what the host daemon says now", true
		})},
		{name: "a candidate whose report is of an older daemon is named while it joins", row: "JoinWait", given: promoting().with(func(g *given) {
			h := g.host(4)
			h.Fresh, h.Report, h.ReportProblem, h.Speaks = false, nil, "report: protocol 0, this program speaks 1", true
		})},
		{name: "a staying voter with a daemon of another version holds the removal", row: "RemovalHeld", given: steppedDown().with(func(g *given) {
			h := g.host(2)
			h.Fresh, h.Report, h.ReportProblem, h.Speaks = false, nil, "report: protocol 2, this program speaks 1", true
		})},
		{name: "a silent daemon on a Ready Node is waited for", row: "StepDownWait", given: steppingDown().with(func(g *given) { g.host(1).Fresh = false })},
		{name: "the removal is held while a staying voter is not healthy", row: "RemovalHeld", given: steppedDown().with(func(g *given) { g.host(3).Node.Ready = false })},
		{name: "the removal is held while the outgoing voter leads", row: "RemovalHeld", given: steppedDown().leader(1)},
		{name: "the removal is held while the newcomer's role file does not say server", row: "RemovalHeld", given: steppedDown().with(unwritten)},
		{name: "the removal is held while the newcomer is silent", row: "RemovalHeld", given: steppedDown().with(func(g *given) { g.host(4).Fresh = false })},
		{name: "a snapshot pruned in the middle of the swap holds no removal that the record vouches for", row: "RemovalAsked", given: steppedDown().noted(1, snapshotName).with(func(g *given) { g.Snapshots = nil })},
		{name: "the removal is held without the snapshot", row: "RemovalHeld", given: steppedDown().with(func(g *given) { g.Snapshots = nil })},
		{name: "a removal that k3s has just told of is looked for in the lists", row: "RemovalTold", given: told()},
		{name: "a removal that k3s told of and no list shows is asked for again", row: "RemovedNameOnOut", given: told().steps(map[State]time.Duration{StepDown: time.Minute, Remove: 11 * time.Second})},
		{name: "the name of an old member on the outgoing Node goes before the request", row: "RemovedNameOnOut", given: steppedDown().with(func(g *given) {
			g.host(1).Node.Annotations[fleet.AnnotationEtcdRemovedName] = "n1-0badbeef"
		})},
		{name: "an outgoing Node that does not name its member is put right before the request", row: "MemberOnOutRepaired", given: steppedDown().with(func(g *given) { delete(g.host(1).Node.Annotations, fleet.AnnotationEtcdAddress) })},
		{name: "a removal that k3s dropped is asked for again", row: "RemovalAskedAgain", given: removing().with(func(g *given) { delete(g.host(1).Node.Annotations, fleet.AnnotationEtcdRemove) })},
		{name: "k3s is asked to remove the outgoing voter", row: "RemovalAsked", given: steppedDown()},
		{name: "an outgoing voter that is down and silent is removed all the same", row: "RemovalAsked", given: steppingDown().leader(2).with(func(g *given) {
			h := g.host(1)
			h.Node.Ready, h.Fresh = false, false
		})},
		{name: "a condition that is no longer True does not hold the removal", row: "RemovalAsked", given: steppedDown().with(func(g *given) { g.host(1).Node.EtcdIsVoter = "False" })},

		// Remove.
		{name: "a removal that every list proves is marked without removed-node-name", row: "Departed", given: removing().lists(without1(), 2, 3, 4).leader(2)},
		{name: "a removal is not proven by two of three lists", row: "RemovalRetryHeld", given: removing().lists(without1(), 2, 4).leader(2)},
		{name: "a newcomer that fails while the removal is asked for is taken back", row: "NewcomerFailed:remove", given: removing().with(func(g *given) {
			g.host(4).Report.Etcd.Linearizable = false
			g.Status.Swap.FailingSince = g.Now.Add(-6 * time.Minute)
		})},
		{name: "a request that k3s ignores for its equal name is withdrawn", row: "RemovalStuck", given: removing().with(func(g *given) {
			g.host(1).Node.Annotations[fleet.AnnotationEtcdRemovedName] = member(1, false).Name
		})},
		{name: "a removal that k3s has not carried out is withdrawn once a voter has fallen", row: "RemovalHeldWithdrawn", given: removing().with(func(g *given) {
			g.Status.Swap.Step, g.Status.Swap.StepSince = string(Remove), g.Now.Add(-11*time.Second)
			g.host(2).Fresh = false
		})},
		{name: "a rejected removal is retried only while the others are healthy", row: "RemovalRetryHeld", given: removing().with(func(g *given) { g.host(2).Node.Ready = false })},
		{name: "the removal is waited for", row: "RemovalWait", given: removing()},
		{name: "removed-node-name alone proves nothing", row: "RemovalWait", given: removing().with(func(g *given) {
			g.host(1).Node.Annotations[fleet.AnnotationEtcdRemovedName] = "n1-0badbeef"
		})},

		// Finish.
		{name: "the newcomer is uncordoned once the removal is proven", row: "UncordonIn", given: finishing()},
		{name: "the newcomer stays cordoned while the lists cannot prove the removal", row: "FinishWait", given: finishing().with(func(g *given) { g.host(2).Fresh = false })},
		{name: "the outgoing Node is cleaned once its server has ended", row: "CleanOut", given: agentOut()},
		{name: "labels that a live server put back are cleaned again", row: "CleanOut", given: agentOut().cleaned(1).with(func(g *given) { g.host(1).Node.Labels[fleet.LabelEtcd] = "true" })},
		{name: "the outgoing host is uncordoned once Ready on a later heartbeat", row: "UncordonOut", given: agentOut().cleaned(1).with(func(g *given) { g.host(1).Node.Ready, g.host(1).KubeletChanged = true, true })},
		{name: "a Ready Node without a later heartbeat is waited for", row: "FinishWait", given: agentOut().cleaned(1).with(func(g *given) { g.host(1).Node.Ready = true })},
		{name: "the swap is completed", row: "Completed", given: agentOut().cleaned(1).with(func(g *given) {
			h := g.host(1)
			h.Node.Ready, h.KubeletChanged, h.Node.Unschedulable = true, true, false
			delete(h.Node.Annotations, keys.Cordoned())
		})},
		{name: "an outgoing host silent past the bound is cleaned", row: "CleanSilentOut", given: uncordonedIn().steps(map[State]time.Duration{Finish: 6 * time.Minute}).with(func(g *given) { g.host(1).Fresh = false })},
		{name: "an outgoing host that never returns leaves a completed swap with a pending host", row: "CompletedPending", given: uncordonedIn().cleaned(1).steps(map[State]time.Duration{Finish: 6 * time.Minute}).with(func(g *given) { g.host(1).Fresh = false })},
		{name: "a host that failed to finish is left pending past the bound", row: "CompletedPending", given: uncordonedIn().steps(map[State]time.Duration{Finish: 6 * time.Minute}).reported(1, fleet.StepFinishDemote, fleet.PhaseFailed)},
		{name: "what keeps the outgoing host from finishing is named", row: "FinishWait", given: uncordonedIn().reported(1, fleet.StepFinishDemote, "", func(r *status.Report) {
			r.Code, r.Message = "EffectFailed", "note: read-only file system; it is tried again"
		})},
		{name: "the finish is waited for", row: "FinishWait", given: uncordonedIn()},
		{name: "an outgoing host that came back as a new member is removed again", row: "RemovedNameOnOut", given: finishing().lists(append(without1(), status.Member{ID: 0xb1, Name: "n1-0000beef", PeerURLs: []string{"https://10.0.0.1:2380"}}), 2, 3, 4).leader(2)},

		// A status that cannot be read.
		{name: "a swap that may have ended is not begun again while the status cannot be read", row: "StatusUnread", given: calm().leased().with(func(g *given) { g.Status, g.StatusProblem = nil, "i/o timeout" })},
		{name: "nothing is decided in a swap whose status a newer program wrote", row: "StatusUnread", given: steppedDown().with(func(g *given) { g.Status, g.StatusProblem = nil, "status: protocol 9, this program speaks 1" })},

		// End.
		{name: "a removal request does not outlive its swap", row: "EndWithdraw", given: begun().ended(fleet.OutcomeAbandoned).with(func(g *given) { g.host(1).Node.Annotations[fleet.AnnotationEtcdRemove] = "true" })},
		{name: "an agent that still looks like a server is cleaned at the end", row: "EndClean", given: begun().ended(fleet.OutcomeAbandoned).with(func(g *given) { g.host(4).Node.Labels[fleet.LabelEtcd] = "true" })},
		{name: "the taint goes at the end of a rollback", row: "EndUntaint", given: begun().taint(1).ended(fleet.OutcomeRolledBack)},
		{name: "an abandoned swap uncordons the candidate", row: "EndUncordon", given: cordoned().ended(fleet.OutcomeAbandoned)},
		{name: "a snapshot request goes at the end", row: "EndSnapshotRequest", given: begun().ended(fleet.OutcomeAbandoned).with(func(g *given) { g.host(2).Node.Annotations[keys.SnapshotRequest()] = string(swID) })},
		{name: "the marks go from the candidate first", row: "EndClearIn", given: begun().ended(fleet.OutcomeCompleted)},
		{name: "an outcome that stands on the Lease alone is published", row: "OutcomeAgain", given: calm().leased().mark(1).with(func(g *given) {
			g.Lease.Annotations[fleet.LeaseOutcome] = `{"id":"` + string(swID) + `","out":"n1","in":"n4","outcome":"rolled-back","manual":true,"ended_at":"2026-11-29T12:00:00Z"}`
			g.Status = nil
		})},
		{name: "an outcome of another swap on the Lease ends nothing", row: "RecordOnIn", given: calm().leased().mark(1).with(func(g *given) {
			g.Lease.Annotations[fleet.LeaseOutcome] = `{"id":"20261101T120000Z-n1-n4","out":"n1","in":"n4","outcome":"rolled-back","manual":true,"ended_at":"2026-11-01T12:00:00Z"}`
		})},
		{name: "the marks go from the outgoing host second", row: "EndClearOut", given: calm().leased().mark(1).ended(fleet.OutcomeCompleted)},
		{name: "a swap ended with the Lease still held releases it", row: "Released", given: calm().leased().ended(fleet.OutcomeCompleted)},
		{name: "a pending host keeps its cordon", row: "EndClearIn", given: begun().cordon(1).ended(fleet.OutcomeCompleted).with(func(g *given) { g.Status.LastSwap.OutgoingPending = true })},

		// Rollback.
		{name: "a rollback that comes too late withdraws the removal of the newcomer before it goes forward", row: "InRemovalWithdrawn", given: removed().order(4, fleet.StepRollback).reported(4, fleet.StepRollback, fleet.PhaseRunning).with(func(g *given) {
			g.host(4).Node.Annotations[fleet.AnnotationEtcdRemove] = "true"
		})},
		{name: "a rollback that comes too late goes forward", row: "TooLateToRollBack", given: removed().order(4, fleet.StepRollback).reported(4, fleet.StepRollback, fleet.PhaseRunning)},
		{name: "a rollback whose outgoing voter somebody removed before it stepped down goes forward", row: "TooLateToRollBack", given: removed().order(4, fleet.StepRollback).reported(4, fleet.StepRollback, fleet.PhaseRunning).with(func(g *given) {
			delete(g.host(1).Node.Annotations, keys.Step())
		})},
		{name: "a request to remove the outgoing voter is withdrawn in a rollback", row: "OutRemovalWithdrawn", given: removing().order(4, fleet.StepRollback)},
		{name: "a rollback waits for the member lists", row: "RollbackBlind", given: takenBack().with(func(g *given) { g.host(2).Fresh = false })},
		{name: "what keeps the candidate from its rollback is named", row: "RollbackStopWait", given: takenBack().reported(4, fleet.StepRollback, "", func(r *status.Report) {
			r.Code, r.Message = "EffectFailed", "note: read-only file system; it is tried again"
		})},
		{name: "a rollback waits for the candidate to stop its server", row: "RollbackStopWait", given: takenBack()},
		{name: "a rollback without etcd annotations marks the member gone", row: "InGone", given: takenBack().reported(4, fleet.StepRollback, fleet.PhaseRunning, func(r *status.Report) { r.Stopped = true }).readAnew()},
		{name: "a list from before the candidate's server ended proves nothing", row: "RollbackListsOld", given: takenBack().reported(4, fleet.StepRollback, fleet.PhaseRunning, func(r *status.Report) { r.Stopped = true }).readAnew().with(func(g *given) {
			g.host(3).ReadWithin = g.host(4).StoppedAge
		})},
		{name: "a list from before the last word of a dead candidate proves nothing", row: "RollbackListsOld", given: takenBack().readAnew().with(func(g *given) {
			g.host(4).Fresh, g.host(4).ReportAge, g.host(4).StoppedAge = false, 2*time.Second, 0
		})},
		{name: "a rollback of a dead candidate that was never listed goes on", row: "InGone", given: takenBack().readAnew().with(func(g *given) {
			g.host(4).Fresh, g.host(4).ReportAge, g.host(4).StoppedAge = false, time.Minute, 0
		})},
		{name: "an unstarted learner is waited for", row: "EvictionWait", given: takenBack().lists([]status.Member{member(1, false), member(2, false), member(3, false), {ID: 0xa4, PeerURLs: []string{"https://10.0.0.4:2380"}, Learner: true}}, 1, 2, 3).reported(4, fleet.StepRollback, fleet.PhaseRunning, func(r *status.Report) { r.Stopped = true })},
		{name: "a dead learner that k3s never annotated is named on its Node", row: "MemberOnInRepaired", given: stoppedMember(true)},
		{name: "a ghost voter that k3s never annotated is named on its Node", row: "MemberOnInRepaired", given: stoppedMember(false)},
		{name: "the name of an old member goes before the candidate's removal", row: "RemovedNameBack", given: named(stoppedMember(false)).with(func(g *given) { g.host(4).Node.Annotations[fleet.AnnotationEtcdRemovedName] = "n4-0badbeef" })},
		{name: "k3s is asked to remove the candidate", row: "InRemovalAsked", given: named(stoppedMember(false))},
		{name: "the candidate's removal is waited for", row: "InRemovalWait", given: named(stoppedMember(false)).with(func(g *given) { g.host(4).Node.Annotations[fleet.AnnotationEtcdRemove] = "true" })},
		{name: "a request for the candidate that k3s will not find is withdrawn", row: "InRemovalStuck", given: stoppedMember(false).with(func(g *given) { g.host(4).Node.Annotations[fleet.AnnotationEtcdRemove] = "true" })},
		{name: "the candidate's removal is held without an etcd leader", row: "InRemovalHeld", given: named(stoppedMember(false)).leader(0)},
		{name: "a candidate that will not stop is removed after the operation timeout", row: "InRemovalAsked", given: named(stoppedMember(false)).reported(4, fleet.StepRollback, fleet.PhaseFailed, func(r *status.Report) { r.Stopped = false }).steps(map[State]time.Duration{Promote: time.Hour, Rollback: 10 * time.Minute})},
		{name: "a rollback waits until every voter lists the voters of before", row: "RollbackBlind", given: named(stoppedMember(false)).lists([]status.Member{member(1, false), member(2, false), member(3, false)}, 2)},

		{name: "a voter that was rebooted is waited for to take the snapshot", row: "SnapshotWait", given: cordoned().with(func(g *given) {
			g.host(2).Node.Annotations[keys.SnapshotRequest()] = string(swID)
		}).reported(2, fleet.StepSnapshot, "", func(r *status.Report) {
			r.Code, r.Message, r.Etcd = "EtcdDown", "etcd does not answer: connection refused", &status.EtcdView{Error: "connection refused"}
		}).steps(map[State]time.Duration{TakeSnapshot: 20 * time.Second})},

		// Restore.
		{name: "a stepped-down voter goes back to full after the newcomer's removal", row: "StepUpOrdered", given: restoring().order(1, fleet.StepStepDown)},
		{name: "the candidate's Node is cleaned after a rollback", row: "CleanIn", given: restoring().with(func(g *given) { g.host(4).Node.Labels[fleet.LabelEtcd] = "true" })},
		{name: "a rollback ends when the voters are those of before", row: "RolledBack", given: restoring()},
		{name: "a rollback does not end before the outgoing voter is full again", row: "RestoreWait", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, fleet.PhaseRunning)},
		{name: "a rollback ends with an outgoing voter that refused the step-down and cannot step up", row: "RolledBack", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, "", unreadable)},
		{name: "a refused step-down is no restored voter before its step-up is ordered", row: "StepUpOrdered", given: restoring().order(1, fleet.StepStepDown).reported(1, fleet.StepStepDown, fleet.PhaseRefused, unreadable)},
		{name: "an outgoing voter whose daemon had refused to step up is restored when it was never touched", row: "RolledBack", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, fleet.PhaseRefused, unreadable)},
		{name: "an untouched outgoing voter that is silent by now is waited for", row: "RestoreWait", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, "", unreadable).with(func(g *given) { g.host(1).Fresh = false })},
		{name: "an untouched outgoing voter whose etcd does not answer is waited for", row: "RestoreWait", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, "", unreadable, func(r *status.Report) { r.Etcd = &status.EtcdView{Error: "connection refused"} })},
		{name: "an untouched outgoing voter whose Node is not Ready is waited for", row: "RestoreWait", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, "", unreadable).with(func(g *given) { g.host(1).Node.Ready = false })},
		{name: "a leaving outgoing voter that cannot step up is waited for", row: "RestoreWait", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, "", unreadable, func(r *status.Report) { r.Leaving = true })},
		{name: "an outgoing voter at etcd alone that cannot step up is waited for", row: "RestoreWait", given: restoring().order(1, fleet.StepStepUp).reported(1, fleet.StepStepUp, "", unreadable, func(r *status.Report) { r.Level = fleet.LevelEtcdOnly })},
		{name: "a silent candidate is cleaned past the bound", row: "CleanSilentIn", given: restoring().steps(map[State]time.Duration{Restore: 6 * time.Minute}).with(func(g *given) {
			g.host(4).Fresh, g.host(4).Report.Phase = false, fleet.PhaseRunning
			g.host(4).Node.Labels[fleet.LabelEtcd] = "true"
		})},
		{name: "a rollback ends without the candidate past the bound", row: "RolledBackPending", given: restoring().steps(map[State]time.Duration{Restore: 6 * time.Minute}).with(func(g *given) {
			g.host(4).Fresh, g.host(4).Report.Phase = false, fleet.PhaseRunning
		})},
		{name: "a rollback whose outgoing voter somebody removed names it and what a person has to do", row: "RestoreWait", given: restoring().lists([]status.Member{member(2, false), member(3, false)}, 2, 3)},
		{name: "a restoring candidate is waited for", row: "RestoreWait", given: restoring().with(func(g *given) { g.host(4).KubeletChanged = false })},

		// Held.
		{name: "a deleted Lease is taken again for the swap under way", row: "LeaseTakenAgain", given: steppedDown().with(func(g *given) { g.Lease = lease.Lease{} })},
		{name: "a Lease of an ended swap that was put back and has run out is taken for the swap under way", row: "LeaseTakenAgain", given: steppedDown().with(func(g *given) {
			g.Lease.Annotations[fleet.LeaseSwapID] = string(fleet.NewSwapID(t0.Add(-24*time.Hour), "n4", "n2"))
			g.Lease.RenewTime = g.Now.Add(-time.Hour)
		})},
		{name: "a held Lease of another swap holds everything", row: "Contradiction", given: steppedDown().with(func(g *given) {
			g.Lease.Annotations[fleet.LeaseSwapID] = string(fleet.NewSwapID(t0.Add(-24*time.Hour), "n4", "n2"))
		})},
		{name: "an expired Lease is taken again for the swap under way", row: "LeaseTakenAgain", given: steppedDown().with(func(g *given) { g.Lease.RenewTime = g.Now.Add(-time.Hour) })},
		{name: "a Lease taken by another in the middle of a swap is waited for", row: "LeaseIsAnothers", given: steppedDown().with(func(g *given) { g.Lease.Holder, g.Lease.Annotations = "n2", nil })},
		{name: "a live controller's swap is not taken over", row: "OtherController", given: steppedDown().with(func(g *given) {
			g.Self = "controller-2"
			g.LeaseUnchanged = 10 * time.Second
		})},
		{name: "a dead controller's swap is taken over Node by Node", row: "SwapTakenOver", given: steppedDown().with(func(g *given) {
			g.Self = "controller-2"
			g.LeaseUnchanged = 31 * time.Second
		})},
		{name: "the second Node is taken over too", row: "SwapTakenOver", given: steppedDown().with(func(g *given) {
			g.Self = "controller-2"
			g.LeaseUnchanged = 32 * time.Second
			g.host(1).Node.Annotations[keys.Controller()] = "controller-2"
		})},
		{name: "the Lease follows the Nodes in a take-over", row: "LeaseTakenOver", given: steppedDown().with(func(g *given) {
			g.Self = "controller-2"
			g.LeaseUnchanged = 33 * time.Second
			g.host(1).Node.Annotations[keys.Controller()] = "controller-2"
			g.host(4).Node.Annotations[keys.Controller()] = "controller-2"
		})},
		{name: "a dead controller's Lease without records is taken over", row: "LeaseTakenOver", given: calm().leased().with(func(g *given) {
			g.Self = "controller-2"
			g.LeaseUnchanged = 31 * time.Second
		})},
		{name: "a member nobody knows freezes the swap", row: "Frozen", given: steppedDown().lists(append(four(), status.Member{ID: 0xff, Name: "laptop-00000001", PeerURLs: []string{"https://10.0.0.9:2380"}}), 1, 2, 3, 4)},
		{name: "a staying voter that was removed and gives no list any more freezes the swap", row: "Frozen", given: steppedDown().lists([]status.Member{member(1, false), member(2, false), member(4, false)}, 1, 2, 4).leader(2).with(func(g *given) { g.host(3).Report.Etcd = nil })},
		{name: "a staying voter that was replaced freezes the swap", row: "Frozen", given: steppedDown().lists([]status.Member{member(1, false), member(2, false), {ID: 0xb3, Name: "n3-0000beef", PeerURLs: []string{"https://10.0.0.3:2380"}}, member(4, false)}, 1, 2, 3, 4).leader(2)},
		{name: "a request to remove the outgoing voter does not stand through a freeze", row: "FrozenWithdrawn", given: voter3Replaced(removing())},
		{name: "a request to remove the candidate does not stand through a freeze", row: "FrozenWithdrawn", given: voter3Replaced(named(stoppedMember(false))).with(func(g *given) {
			g.host(4).Node.Annotations[fleet.AnnotationEtcdRemove] = "true"
		})},
		{name: "a request that is not of the swap is left alone in a freeze", row: "Frozen", given: voter3Replaced(steppedDown()).with(func(g *given) {
			g.host(4).Node.Annotations[fleet.AnnotationEtcdRemove] = "true"
		})},
		{name: "another cluster id freezes the swap", row: "Frozen", given: steppedDown().with(func(g *given) {
			for i := range g.Hosts {
				if e := g.Hosts[i].Report.Etcd; e != nil {
					e.ClusterID = 0xdd
				}
			}
		})},
		{name: "two swaps at once hold everything", row: "Contradiction", given: begun().with(func(g *given) {
			r := record()
			r.ID, r.In = fleet.NewSwapID(t0, "n1", "n2"), "n2"
			g.markWith(2, r)
		})},
		{name: "a swap under another label prefix holds everything", row: "Contradiction", given: calm().with(func(g *given) { g.host(2).Node.Annotations["example.com/role-swap"] = "x" })},
		{name: "a record of another protocol holds everything", row: "Contradiction", given: begun().with(func(g *given) {
			r := record()
			r.Protocol = 2
			g.markWith(1, r)
		})},
		{name: "an unknown step holds everything", row: "Contradiction", given: begun().with(func(g *given) { g.host(1).Node.Annotations[keys.Step()] = "explode" })},
		{name: "a record that is not JSON holds everything", row: "Contradiction", given: begun().with(func(g *given) { g.host(1).Node.Annotations[keys.Record()] = "{" })},
		{name: "a Lease for a swap that nobody recorded holds everything", row: "Contradiction", given: calm().leased().with(func(g *given) { delete(g.Lease.Annotations, fleet.LeaseRecord) })},
	}
}

// voter3Replaced: somebody took n3 out of etcd and it joined again, as another member.
func voter3Replaced(g *given) *given {
	return g.lists([]status.Member{member(1, false), member(2, false), {ID: 0xb3, Name: "n3-0000beef", PeerURLs: []string{"https://10.0.0.3:2380"}}, member(4, false)}, 1, 2, 3, 4).leader(2)
}

// stoppedMember: IN's server is stopped and its member still listed, with
// nothing on its Node to show it (k3s-facts §4.1).
func stoppedMember(learner bool) *given {
	return takenBack().lists([]status.Member{member(1, false), member(2, false), member(3, false), member(4, learner)}, 1, 2, 3).
		reported(4, fleet.StepRollback, fleet.PhaseRunning, func(r *status.Report) { r.Stopped = true })
}

// named: k3s has annotated the Node.
func named(g *given) *given {
	n := &g.host(4).Node
	n.Labels[fleet.LabelEtcd] = "true"
	n.Annotations[fleet.AnnotationEtcdName], n.Annotations[fleet.AnnotationEtcdAddress] = member(4, false).Name, "10.0.0.4"
	return g
}

func (d decision) decide() Decision {
	p := policy()
	if d.policy != nil {
		d.policy(&p)
	}
	return Next(d.given.Observation, p)
}

// R-I-40, R-E2-31..39: a golden decision for every branch.
func TestDecisionsAreAsRecorded(t *testing.T) {
	for _, d := range cases() {
		t.Run(d.name, func(t *testing.T) {
			got := d.decide()
			if got.Row != d.row {
				t.Fatalf("row %s in state %s, want %s: %s %+v", got.Row, got.State, d.row, got.Sentence, got.Waits)
			}
			raw, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "decisions", strings.ReplaceAll(d.name, " ", "-")+".json")
			if *update {
				if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(raw)); diff != "" {
				t.Errorf("decision differs (-recorded +got):\n%s", diff)
			}
		})
	}
}

func TestEveryRowHasADecision(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range cases() {
		seen[d.decide().Row] = true
	}
	for _, r := range Table() {
		if !seen[r.Code] {
			t.Errorf("no case takes row %s of state %s", r.Code, r.From)
		}
	}
}

func TestNoTwoDecisionsShareAName(t *testing.T) {
	names := map[string]bool{}
	for _, d := range cases() {
		if names[d.name] {
			t.Errorf("two cases are named %q", d.name)
		}
		names[d.name] = true
	}
}
