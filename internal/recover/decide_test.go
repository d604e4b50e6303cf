package recover_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	. "github.com/exadev/regrade/internal/recover"
)

var update = flag.Bool("update", false, "write the golden file")

var (
	now  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	keys = fleet.DefaultKeys()
)

const mark = fleet.AnnotationOutOfService

// worker is an agent, voter a server; both are well.
func worker(name string, change ...func(*Node)) Node {
	n := Node{Name: name, UID: "u-" + name, Version: "7", Labels: map[string]string{}, Annotations: map[string]string{}, Ready: ReadyTrue, Since: now.Add(-time.Hour)}
	for _, c := range change {
		c(&n)
	}
	return n
}

func voter(name string, change ...func(*Node)) Node {
	return worker(name, append([]func(*Node){func(n *Node) {
		for _, l := range fleet.ServerLabels() {
			n.Labels[l] = fleet.True
		}
		n.EtcdIsVoter = "True"
	}}, change...)...)
}

func silent(d time.Duration) func(*Node) {
	return func(n *Node) { n.Ready, n.Silent, n.Gone, n.Since = ReadyUnknown, d, d, now.Add(-d) }
}

func labelled(key, value string) func(*Node)  { return func(n *Node) { n.Labels[key] = value } }
func annotated(key, value string) func(*Node) { return func(n *Node) { n.Annotations[key] = value } }
func taint(key, value, effect string) func(*Node) {
	return func(n *Node) { n.Taints = append(n.Taints, Taint{Key: key, Value: value, Effect: effect}) }
}

// out is out of service by us since ago.
func out(ago time.Duration) func(*Node) {
	return func(n *Node) {
		silent(ago + 120*time.Second)(n)
		taint(fleet.TaintOutOfService, fleet.TaintOutOfServiceValue, fleet.EffectNoExecute)(n)
		annotated(mark, FormatMark(now.Add(-ago)))(n)
	}
}

func back(n *Node) { n.Ready, n.Silent, n.Gone = ReadyTrue, 0, 0 }

func held(holder, nodes string, renewed time.Duration) lease.Lease {
	return lease.Lease{Exists: true, Holder: holder, RenewTime: now.Add(-renewed), Duration: 900 * time.Second, Annotations: map[string]string{fleet.LeaseSwapNodes: nodes}}
}

// witness says of each way how its last connects went, the newest first: "n3 xxx" had no
// answer three times, "n3 .xx" reached it the last time, "n3 rxx" was refused, of "n3 ?"
// nobody knows. It has had an answer before.
func witness(node string, ways ...string) Witness {
	w := Witness{Node: node, Live: true, Changed: true, Written: 10 * time.Second, Period: 15 * time.Second}
	for _, way := range ways {
		to, marks, _ := strings.Cut(way, " ")
		x := Way{To: to, Answered: true}
		for _, m := range marks {
			x.Connects = append(x.Connects, map[rune]Outcome{'x': Unanswered, '.': Reached, 'r': Refused, '?': Untold}[m])
		}
		w.Ways = append(w.Ways, x)
	}
	return w
}

// sign is one of the host's own, which moved so long ago.
func sign(of SignOf, still time.Duration) func(*Node) {
	return func(n *Node) { n.Signs = append(n.Signs, Sign{Of: of, Still: still, Moved: true}) }
}

func first(of SignOf, still time.Duration) func(*Node) {
	return func(n *Node) { n.Signs = append(n.Signs, Sign{Of: of, Still: still}) }
}

type change func(*Observation, *Policy)

type tt struct {
	nodes  []Node
	change change
	want   string // "node action CODES", for each verdict
}

var cases = map[string]tt{
	"R-B: a node silent for the threshold is tainted":    {[]Node{worker("n1"), worker("n2", silent(120*time.Second))}, nil, "n2 taint SilentLong"},
	"a node silent for less is waited for":               {[]Node{worker("n1"), worker("n2", silent(119*time.Second))}, nil, "n2 - SilentShort"},
	"a node that is Ready and unmarked is not spoken of": {[]Node{worker("n1"), worker("n2", func(n *Node) { n.Silent = time.Hour })}, nil, ""},
	"a node that says itself that it is not Ready is left alone": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour), func(n *Node) { n.Ready = ReadyFalse })}, nil, "n2 - KubeletSpeaks",
	},
	"a node without a Ready condition is left alone":                      {[]Node{worker("n1"), worker("n2", func(n *Node) { n.Ready = ReadyAbsent })}, nil, "n2 - NoReadyCondition"},
	"a node with a Ready condition of a new word is left alone":           {[]Node{worker("n1"), worker("n2", func(n *Node) { n.Ready = "Maybe" })}, nil, "n2 - NoReadyCondition"},
	"the own node is never tainted":                                       {[]Node{worker("n1"), worker("me", silent(time.Hour))}, nil, "me - OwnNode"},
	"R-B-05, R-N-08: a server that is held at etcd-only is never tainted": {[]Node{worker("n1"), voter("n2", silent(time.Hour), labelled(keys.Level(), "etcd-only"))}, nil, "n2 - AtALevel"},
	"R-B-07: any value of the level label exempts":                        {[]Node{worker("n1"), worker("n2", silent(time.Hour), labelled(keys.Level(), ""))}, nil, "n2 - AtALevel"},
	"a node of a swap is left alone by its record":                        {[]Node{worker("n1"), worker("n2", silent(time.Hour), annotated(keys.Record(), "{}"))}, nil, "n2 - SwapNode"},
	"a node of a swap is left alone though the Lease has expired": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour), annotated(keys.Swap(), "x"))}, leaseOf(held(fleet.LeaseHolder, "n2", time.Hour), time.Hour), "n2 - SwapNode",
	},
	"a swap under another prefix counts (safety rule 25)": {[]Node{worker("n1"), worker("n2", silent(time.Hour), annotated("other.example/role-swap", "x"))}, nil, "n2 - SwapNode"},
	"R-I-25: a host whose clean-up is owed is recovered as any agent": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour), annotated(keys.Cordoned(), "x"))}, nil, "n2 taint SilentLong",
	},
	"R-B-03, R-B-06: the Lease's nodes are left alone while it is held": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour)), worker("n3")}, leaseOf(held(fleet.LeaseHolder, "n2,n3", time.Minute), time.Second), "n2 - LeaseHeld",
	},
	"R-B-04, R-B-07: the holder of the Lease is left alone when it is a node": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(held("n2", "", time.Minute), time.Second), "n2 - LeaseHeld",
	},
	"R-B-02, R-B-06: they are recovered once it has expired": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(held(fleet.LeaseHolder, "n2", time.Hour), time.Hour), "n2 taint SilentLong",
	},
	"a Lease that expired by a jump of the Date is held (safety rule 22)": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(held(fleet.LeaseHolder, "n2", time.Hour), 15*time.Minute), "n2 - LeaseHeld",
	},
	"R-B-04: the holder of a level's Lease is left alone for its whole duration, whatever the Date says": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(held("n2", "", 300*time.Hour), 899*time.Second), "n2 - LeaseHeld",
	},
	"a Lease that the Date holds is held, however long it stood still": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(held("n2", "", -time.Hour), time.Hour), "n2 - LeaseHeld",
	},
	"a Lease that nobody can date is held": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(lease.Lease{Exists: true, Holder: "n2"}, time.Hour), "n2 - LeaseHeld",
	},
	"R-B-01: a Lease that is not there holds nothing": {[]Node{worker("n1"), worker("n2", silent(time.Hour))}, leaseOf(lease.Lease{}, 0), "n2 taint SilentLong"},
	"a Lease that could not be read holds everything": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour)), worker("n3", out(time.Hour), back)},
		func(o *Observation, _ *Policy) { o.LeaseProblem = "503" }, "n2 - LeaseNotRead\nn3 clear ReadyAgain",
	},
	"an operator's taint of the key is left alone": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour), taint(fleet.TaintOutOfService, "by-hand", "NoSchedule"))}, nil, "n2 - ForeignTaint",
	},
	"an operator's taint that looks like ours and has no mark is left alone": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour), taint(fleet.TaintOutOfService, fleet.TaintOutOfServiceValue, fleet.EffectNoExecute))}, nil, "n2 - ForeignTaint",
	},
	"an operator's taint on a Ready node without our mark is left alone": {
		[]Node{worker("n1"), worker("n2", taint(fleet.TaintOutOfService, fleet.TaintOutOfServiceValue, fleet.EffectNoExecute))}, nil, "",
	},
	"a node is not tainted twice":                            {[]Node{worker("n1"), worker("n2", out(time.Minute))}, nil, "n2 - OutOfService"},
	"ours is asserted again when somebody took it (rule 27)": {[]Node{worker("n1"), worker("n2", silent(time.Hour), annotated(mark, "x"))}, nil, "n2 taint SilentLong"},
	"R-B-08: the taint goes when the node is Ready":          {[]Node{worker("n1"), worker("n2", out(time.Minute), back)}, nil, "n2 clear ReadyAgain"},
	"R-B-08: also of a node of a swap":                       {[]Node{worker("n1"), voter("n2", out(time.Minute), back, annotated(keys.Record(), "{}"))}, nil, "n2 clear ReadyAgain"},
	"R-B-08: also of a node that the Lease exempts":          {[]Node{worker("n1"), voter("n2", out(time.Minute), back)}, leaseOf(held("n2", "", 0), 0), "n2 clear ReadyAgain"},
	"a node that comes back and stays not Ready is cleared: its kubelet lives": {
		[]Node{worker("n1"), worker("n2", out(time.Minute), speaks(120*time.Second))}, nil, "n2 clear KubeletBack",
	},
	"one that says so for less is waited for": {[]Node{worker("n1"), worker("n2", out(time.Minute), speaks(119*time.Second))}, nil, "n2 - KubeletSpeaks"},
	"one that we did not taint is left alone": {
		[]Node{worker("n1"), worker("n2", speaks(time.Hour), taint(fleet.TaintOutOfService, fleet.TaintOutOfServiceValue, fleet.EffectNoExecute))}, nil, "n2 - KubeletSpeaks",
	},
	"a node that is marked as before the annotation's name was changed is out of service": {[]Node{worker("n1"), worker("n2", out(time.Minute))}, renamed, "n2 - OutOfService"},
	"it is cleared": {[]Node{worker("n1"), worker("n2", out(time.Minute), back)}, renamed, "n2 clear ReadyAgain"},
	"and not deleted, for it may be another program's": {
		[]Node{worker("n1"), worker("n2", out(48*time.Hour))}, both(pruning, renamed), "n2 - OutOfService BadMark",
	},
	"the own node's taint goes: this process runs there": {[]Node{worker("n1"), worker("me", out(time.Minute), back)}, nil, "me clear ReadyAgain"},
	"a mark without a taint goes":                        {[]Node{worker("n1"), worker("n2", annotated(mark, ""))}, nil, "n2 clear ReadyAgain"},
	"several nodes in one pass": {
		[]Node{worker("n1"), worker("n5"), worker("n6"), worker("n4", silent(2*time.Hour)), worker("n2", silent(time.Hour)), worker("n3", out(time.Minute), back)}, nil,
		"n2 taint SilentLong\nn3 clear ReadyAgain\nn4 taint SilentLong",
	},
	"a node that is being deleted is left alone": {[]Node{worker("n1"), worker("n2", silent(time.Hour), func(n *Node) { n.Deleting = true })}, nil, "n2 - BeingDeleted"},

	"more than half of the nodes at once have a common cause": {
		[]Node{worker("n1"), worker("n2", silent(time.Hour)), worker("n3", silent(time.Hour))}, nil, "n2 - ManySilent\nn3 - ManySilent",
	},
	"half of them have not":        {[]Node{worker("n1"), worker("n4"), worker("n2", silent(time.Hour)), worker("n3", silent(time.Hour))}, nil, "n2 taint SilentLong\nn3 taint SilentLong"},
	"one node is never a crowd":    {[]Node{worker("n2", silent(time.Hour))}, nil, "n2 taint SilentLong"},
	"a setting allows for a crowd": {[]Node{worker("n1"), worker("n2", silent(time.Hour)), worker("n3", silent(time.Hour))}, func(_ *Observation, p *Policy) { p.MaxPercent = 100 }, "n2 taint SilentLong\nn3 taint SilentLong"},
	"nodes that are silent for other reasons are no part of a crowd": {
		[]Node{voter("n1", silent(time.Hour), labelled(keys.Level(), "etcd-only")), worker("n2", silent(time.Hour)), worker("n3")}, nil, "n1 - AtALevel\nn2 taint SilentLong",
	},
	"nodes that went one after the other count: no more than may are out of service in the end": {
		[]Node{worker("n1", out(time.Hour)), worker("n2", out(time.Hour)), worker("n3", silent(time.Hour)), worker("n4"), worker("n5")}, nil, "n1 - OutOfService\nn2 - OutOfService\nn3 - ManySilent",
	},
	"the last one that may be": {
		[]Node{worker("n1", out(time.Hour)), worker("n2", out(time.Hour)), worker("n3", silent(time.Hour)), worker("n4"), worker("n5"), worker("n6")}, nil, "n1 - OutOfService\nn2 - OutOfService\nn3 taint SilentLong",
	},
	"one that a person took out of service counts, Ready or not": {
		[]Node{worker("n1", taint(fleet.TaintOutOfService, "by-hand", "NoExecute")), worker("n2", silent(time.Hour)), worker("n3")}, nil, "n2 - ManySilent",
	},
	"one alone may be whatever the percent": {[]Node{worker("n1"), worker("n2", silent(time.Hour))}, func(_ *Observation, p *Policy) { p.MaxPercent = 1 }, "n2 taint SilentLong"},
	"a second one may not":                  {[]Node{worker("n1", out(time.Hour)), worker("n2", silent(time.Hour)), worker("n3")}, func(_ *Observation, p *Policy) { p.MaxPercent = 1 }, "n1 - OutOfService\nn2 - ManySilent"},

	"a voter that two other hosts find unreachable is tainted":     {voters(), witnesses(witness("n1", "n2 .", "n3 xxx"), witness("n2", "n1 .", "n3 xxx")), "n3 taint SilentLong"},
	"a standby is a witness, too":                                  {voters(), witnesses(witness("n1", "n3 xxx"), witness("n4", "n3 xxx")), "n3 taint SilentLong"},
	"one witness is too few":                                       {voters(), witnesses(witness("n1", "n3 xxx")), "n3 - TooFewWitnesses"},
	"a host is no witness of itself":                               {voters(), witnesses(witness("n1", "n3 xxx"), witness("n3", "n3 xxx")), "n3 - TooFewWitnesses"},
	"a voter that somebody reaches runs":                           {voters(), witnesses(witness("n1", "n3 xxx"), witness("n2", "n3 xxx"), witness("n4", "n3 .xx")), "n3 - StillReached"},
	"two connects that failed are too few":                         {voters(), witnesses(witness("n1", "n3 xx"), witness("n2", "n3 xxx")), "n3 - TooFewWitnesses"},
	"one that failed after one that did not is too few":            {voters(), witnesses(witness("n1", "n3 xx."), witness("n2", "n3 xxx")), "n3 - TooFewWitnesses"},
	"a probe that is silent itself is no witness (rule 24)":        {voters(), witnesses(witness("n1", "n3 xxx"), dumb(witness("n2", "n3 xxx"))), "n3 - TooFewWitnesses"},
	"an entry of before is no evidence (rule 22)":                  {voters(), witnesses(witness("n1", "n3 xxx"), stale(witness("n2", "n3 xxx"))), "n3 - TooFewWitnesses"},
	"an entry of before that reached it is none either":            {voters(), witnesses(witness("n1", "n3 xxx"), witness("n2", "n3 xxx"), stale(witness("n4", "n3 ."))), "n3 taint SilentLong"},
	"an entry that cannot be used may hide a way":                  {voters(), witnesses(Witness{Node: "n1", Problem: "no entry"}), "n3 - TooFewWitnesses"},
	"R-B: in a cluster without probes the threshold alone decides": {voters(), nil, "n3 taint SilentLong"},
	"where there are probes and no entry is left a voter is held":  {voters(), witnesses(), "n3 - TooFewWitnesses"},
	"where the probes measure others only, too":                    {voters(), witnesses(witness("n1", "n2 .")), "n3 - TooFewWitnesses"},
	"where one entry of two is missing, too":                       {voters(), witnesses(witness("n1", "n3 xxx"), witness("n2", "n1 .")), "n3 - TooFewWitnesses"},
	"a voter that refuses a connect runs":                          {voters(), witnesses(witness("n1", "n3 xxx"), witness("n2", "n3 xxx"), witness("n4", "n3 rrr")), "n3 - StillRefuses"},
	"one whose refusals are over for less than three connects":     {voters(), witnesses(witness("n1", "n3 xxr"), witness("n2", "n3 xxx")), "n3 - TooFewWitnesses"},
	"a connect that failed for want of a socket is no evidence":    {voters(), witnesses(witness("n1", "n3 ?xx"), witness("n2", "n3 xxx")), "n3 - TooFewWitnesses"},
	"nor is one of an older probe, which does not say why":         {voters(), witnesses(witness("n1", "n3 ???"), witness("n2", "n3 xxx")), "n3 - TooFewWitnesses"},
	"nor one of a host that never had an answer":                   {voters(), witnesses(never(witness("n1", "n3 xxx")), witness("n2", "n3 xxx")), "n3 - TooFewWitnesses"},
	"evidence of eight periods ago is one":                         {voters(), witnesses(witness("n1", "n3 xxx"), aged(120*time.Second, witness("n2", "n3 xxx"))), "n3 taint SilentLong"},
	"of more it is none":                                           {voters(), witnesses(witness("n1", "n3 xxx"), aged(121*time.Second, witness("n2", "n3 xxx"))), "n3 - TooFewWitnesses"},

	"a host whose own probe goes on is not dead":   {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign(SignProbe, 119*time.Second))}, nil, "n2 - ProbeBeats"},
	"one whose host daemon does is not":            {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign(SignDaemon, 0))}, nil, "n2 - DaemonBeats"},
	"one whose kubelet renews its Lease is not":    {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign(SignKubelet, 0))}, nil, "n2 - KubeletRenews"},
	"each of them is named":                        {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign(SignProbe, 0), sign(SignDaemon, 0), sign(SignKubelet, 0))}, nil, "n2 - ProbeBeats DaemonBeats KubeletRenews"},
	"one of which all stand still is dead":         {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign(SignProbe, 120*time.Second), first(SignDaemon, time.Hour), sign(SignKubelet, time.Hour))}, nil, "n2 taint SilentLong"},
	"a sign that is not watched for long enough":   {[]Node{worker("n1"), worker("n2", silent(time.Hour), first(SignDaemon, 119*time.Second))}, nil, "n2 - SignsNotWatched"},
	"a sign of another kind is one":                {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign("new", 0))}, nil, "n2 - SignsNotWatched"},
	"what comes every minute is missed after four": {[]Node{worker("n1"), worker("n2", silent(time.Hour), sign(SignProbe, 239*time.Second))}, func(_ *Observation, p *Policy) { p.Period = time.Minute }, "n2 - ProbeBeats"},
	"signs hold whatever the witnesses say": {
		[]Node{voter("n1"), voter("n2"), voter("n3", silent(time.Hour), sign(SignDaemon, 0)), worker("n4")}, witnesses(witness("n1", "n3 xxx"), witness("n2", "n3 xxx")), "n3 - DaemonBeats",
	},
	"signs hold without the evidence rule as well": {
		[]Node{voter("n1"), voter("n2"), voter("n3", silent(time.Hour), sign(SignDaemon, 0)), worker("n4")}, func(_ *Observation, p *Policy) { p.Evidence = false }, "n3 - DaemonBeats",
	},
	"signs that could not be read hold everything but what is cleared": {
		[]Node{worker("n1"), worker("n4"), worker("n2", silent(time.Hour)), worker("n3", out(time.Hour), back)}, func(o *Observation, _ *Policy) { o.SignsProblem = "503" }, "n2 - SignsNotRead\nn3 clear ReadyAgain",
	},
	"a worker is measured by nobody": {[]Node{worker("n1"), worker("n2", silent(time.Hour))}, func(o *Observation, _ *Policy) { o.WitnessProblem = "503" }, "n2 taint SilentLong"},
	"a server whose condition denies its vote is measured by nobody": {
		[]Node{voter("n1"), voter("n3", silent(time.Hour), func(n *Node) { n.EtcdIsVoter = "False" })}, func(o *Observation, _ *Policy) { o.WitnessProblem = "503" }, "n3 taint SilentLong",
	},
	"probes that could not be read hold a voter": {voters(), func(o *Observation, _ *Policy) { o.WitnessProblem = "503" }, "n3 - WitnessesNotRead"},
	"without the evidence rule the threshold alone decides": {
		voters(), func(o *Observation, p *Policy) {
			o.Probed, o.Witnesses, p.Evidence = true, []Witness{witness("n1", "n3 .")}, false
		}, "n3 taint SilentLong",
	},

	"nothing is deleted unless somebody says so":                {[]Node{worker("n1"), worker("n2", out(1000*time.Hour))}, nil, "n2 - OutOfService"},
	"R-I-31, R-B-09: an agent that is gone for long is deleted": {[]Node{worker("n1"), worker("n2", out(24*time.Hour))}, pruning, "n2 prune GoneLong"},
	"one that is gone for less is not":                          {[]Node{worker("n1"), worker("n2", out(24*time.Hour-time.Second))}, pruning, "n2 - OutOfService"},
	"one whose silence began later than its mark is not": {
		[]Node{worker("n1"), worker("n2", out(48*time.Hour), func(n *Node) { n.Since = now.Add(-time.Hour) })}, pruning, "n2 - OutOfService",
	},
	"R-X-06: a server's Node is never deleted, by its label etcd": {[]Node{worker("n1"), worker("n2", out(48*time.Hour), labelled(fleet.LabelEtcd, "false"))}, pruning, "n2 - OutOfService ServerLabel"},
	"R-X-06: nor by its label control-plane":                      {[]Node{worker("n1"), worker("n2", out(48*time.Hour), labelled(fleet.LabelControlPlane, ""))}, pruning, "n2 - OutOfService ServerLabel"},
	"R-X-06: nor by its label master":                             {[]Node{worker("n1"), worker("n2", out(48*time.Hour), labelled(fleet.LabelMaster, fleet.True))}, pruning, "n2 - OutOfService ServerLabel"},
	"nor by the role it shall have":                               {[]Node{worker("n1"), worker("n2", out(48*time.Hour), labelled(keys.DesiredRole(), "server"))}, pruning, "n2 - OutOfService ServerLabel"},
	"one that shall be an agent is deleted":                       {[]Node{worker("n1"), worker("n2", out(48*time.Hour), labelled(keys.DesiredRole(), "agent"))}, pruning, "n2 prune GoneLong"},
	"nor by its condition":                                        {[]Node{worker("n1"), worker("n2", out(48*time.Hour), func(n *Node) { n.EtcdIsVoter = "True" })}, pruning, "n2 - OutOfService ServerLabel"},
	"one with an annotation of etcd is not":                       {[]Node{worker("n1"), worker("n2", out(48*time.Hour), annotated(fleet.AnnotationEtcdRemovedName, "x"))}, pruning, "n2 - OutOfService EtcdAnnotation"},
	"one with an annotation of etcd that nobody knows yet is not": {[]Node{worker("n1"), worker("n2", out(48*time.Hour), annotated("etcd.k3s.cattle.io/new", "x"))}, pruning, "n2 - OutOfService EtcdAnnotation"},
	"one of a swap is not":                                        {[]Node{worker("n1"), worker("n2", out(48*time.Hour), annotated(keys.Step(), "promote"))}, pruning, "n2 - OutOfService SwapNode"},
	"one whose clean-up is owed is not":                           {[]Node{worker("n1"), worker("n2", out(48*time.Hour), annotated(keys.Cordoned(), "x"))}, pruning, "n2 - OutOfService CleanUpOwed"},
	"one at a level is not":                                       {[]Node{worker("n1"), worker("n2", out(48*time.Hour), labelled(keys.Level(), "full"))}, pruning, "n2 - OutOfService AtALevel"},
	"one that the Lease names is not":                             {[]Node{worker("n1"), worker("n2", out(48*time.Hour))}, both(pruning, leaseOf(held("n2", "", 0), 0)), "n2 - OutOfService LeaseHeld"},
	"none is while the Lease is not known":                        {[]Node{worker("n1"), worker("n2", out(48*time.Hour))}, both(pruning, func(o *Observation, _ *Policy) { o.LeaseProblem = "503" }), "n2 - OutOfService LeaseNotRead"},
	"one on which something still goes on is not":                 {[]Node{worker("n1"), worker("n2", out(48*time.Hour), sign(SignDaemon, time.Minute))}, pruning, "n2 - OutOfService DaemonBeats"},
	"one that says itself that it is not Ready is not":            {[]Node{worker("n1"), worker("n2", out(48*time.Hour), func(n *Node) { n.Ready = ReadyFalse })}, pruning, "n2 - KubeletSpeaks"},
	"one with somebody else's taint is not":                       {[]Node{worker("n1"), worker("n2", silent(48*time.Hour), taint(fleet.TaintOutOfService, "by-hand", "NoExecute"))}, pruning, "n2 - ForeignTaint"},
	"one whose mark cannot be read is not":                        {[]Node{worker("n1"), worker("n2", out(48*time.Hour), annotated(mark, "yesterday"))}, pruning, "n2 - OutOfService BadMark"},
	"one that this process has not seen gone for so long is not, whatever the Date says": {
		[]Node{worker("n1"), worker("n2", out(480*time.Hour), func(n *Node) { n.Silent, n.Gone = 24*time.Hour-time.Second, 24*time.Hour-time.Second })}, pruning, "n2 - OutOfService",
	},
	"one that it has, pauses left out, is": {
		[]Node{worker("n1"), worker("n2", out(480*time.Hour), func(n *Node) { n.Silent, n.Gone = time.Hour, 24*time.Hour })}, pruning, "n2 prune GoneLong",
	},
	"one whose mark is of a Date that was ahead is not": {
		[]Node{worker("n1"), worker("n2", out(48*time.Hour), annotated(mark, FormatMark(now.Add(time.Hour))))}, pruning, "n2 - OutOfService",
	},
	"one that this process has not seen silent for the threshold is not": {[]Node{worker("n1"), worker("n2", out(48*time.Hour), func(n *Node) { n.Silent = 119 * time.Second })}, pruning, "n2 - OutOfService"},
	"a Date that jumped says nothing, the own clock does (rule 22)": {
		[]Node{worker("n1"), worker("n2", out(48*time.Hour), func(n *Node) { n.Gone = time.Hour })}, both(pruning, func(o *Observation, _ *Policy) { o.DateJumped = true }), "n2 - OutOfService",
	},
	"and goes on alone": {
		[]Node{worker("n1"), worker("n2", out(time.Minute), func(n *Node) { n.Gone = 25 * time.Hour })}, both(pruning, func(o *Observation, _ *Policy) { o.DateJumped = true }), "n2 prune GoneLong",
	},
}

func leaseOf(l lease.Lease, unchanged time.Duration) change {
	return func(o *Observation, _ *Policy) { o.Lease, o.LeaseUnchanged = l, unchanged }
}
func renamed(_ *Observation, p *Policy) { p.Annotation, p.Former = "example.com/new", []string{mark} }
func speaks(d time.Duration) func(*Node) {
	return func(n *Node) { n.Ready, n.Silent, n.Gone, n.Speaks = ReadyFalse, 0, 0, d }
}
func pruning(_ *Observation, p *Policy) { p.Prune = 24 * time.Hour }
func both(a, b change) change           { return func(o *Observation, p *Policy) { a(o, p); b(o, p) } }
func witnesses(w ...Witness) change {
	return func(o *Observation, _ *Policy) { o.Probed, o.Witnesses = true, w }
}
func dumb(w Witness) Witness  { w.Live = false; return w }
func stale(w Witness) Witness { w.Written = time.Hour; return w }
func never(w Witness) Witness { w.Ways[0].Answered = false; return w }

func aged(by time.Duration, w Witness) Witness { w.Written = by; return w }
func voters() []Node {
	return []Node{voter("n1"), voter("n2"), voter("n3", silent(time.Hour)), worker("n4")}
}

func (c tt) decide() Decision {
	p := DefaultPolicy()
	p.Self = "me"
	o := Observation{Now: now, Nodes: c.nodes}
	if c.change != nil {
		c.change(&o, &p)
	}
	return Decide(o, p)
}

func words(d Decision) string {
	var lines []string
	for _, v := range d.Verdicts {
		lines = append(lines, fmt.Sprintf("%s %s %s", v.Node, cmpOr(string(v.Action), "-"), v.Codes()))
	}
	return strings.Join(lines, "\n")
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// R-B-01..09, R-I-25, R-I-31, R-N-08, R-X-06, R-X-08, design §3, safety rules 21, 22, 24, 27.
func TestWhichNodesAreRecovered(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, words(c.decide())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a person is told, all cases in one file.
func TestTheSentencesAreAsRecorded(t *testing.T) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		fmt.Fprintf(&b, "%s\n", name)
		for _, v := range cases[name].decide().Verdicts {
			for _, r := range v.Reasons {
				fmt.Fprintf(&b, "    %s: %s\n", cmpOr(string(v.Action), "left alone"), r.Sentence)
			}
		}
	}
	const golden = "testdata/verdicts.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

// The taint comes and goes without touching what is others'.
func TestWhatIsWritten(t *testing.T) {
	other, byHand := Taint{Key: "a", Effect: "NoSchedule", Added: now.Add(-time.Hour)}, Taint{Key: fleet.TaintOutOfService, Value: "by-hand", Effect: "NoSchedule"}
	own := Taint{Key: fleet.TaintOutOfService, Value: "nodeshutdown", Effect: "NoExecute", Added: now}
	text := "2026-11-30T12:00:00Z"
	for name, c := range map[string]struct {
		node Node
		want Write
	}{
		"the taint is added, others kept": {
			worker("n2", silent(time.Hour), func(n *Node) { n.Taints = []Taint{other} }),
			Write{Node: "n2", UID: "u-n2", Version: "7", Annotation: mark, Mark: &text, Taints: []Taint{other, own}},
		},
		"mark and taint are removed, others kept": {
			worker("n2", annotated(mark, text), func(n *Node) { n.Taints = []Taint{other, own} }),
			Write{Node: "n2", UID: "u-n2", Version: "7", Annotation: mark, Taints: []Taint{other}},
		},
		"marks of earlier settings go along": {
			worker("n2", annotated(mark, text), annotated("example.com/former", "x"), func(n *Node) { n.Taints = []Taint{own} }),
			Write{Node: "n2", UID: "u-n2", Version: "7", Annotation: mark, Drop: []string{"example.com/former"}},
		},
		"one of the key that a person added beside it stays": {
			worker("n2", annotated(mark, text), func(n *Node) { n.Taints = []Taint{own, byHand} }),
			Write{Node: "n2", UID: "u-n2", Version: "7", Annotation: mark, Taints: []Taint{byHand}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := tt{nodes: []Node{worker("n1"), c.node}, change: func(_ *Observation, p *Policy) { p.Former = []string{"example.com/former"} }}.decide()
			if len(d.Verdicts) != 1 || d.Verdicts[0].Write == nil {
				t.Fatalf("%+v", d.Verdicts)
			}
			if diff := cmp.Diff(c.want, *d.Verdicts[0].Write); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Where all is well a pass is one list; the Lease and the probes are read when a
// decision hangs on them.
func TestWhatADecisionNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  []Node
		change func(*Policy)
		want   string
	}{
		"all well":                           {[]Node{voter("n1"), worker("n2")}, nil, "{false false false}"},
		"a silent worker":                    {[]Node{voter("n1"), worker("n2", silent(0))}, nil, "{true true false}"},
		"a silent voter":                     {[]Node{voter("n1", silent(0))}, nil, "{true true true}"},
		"a silent voter, no evidence asked":  {[]Node{voter("n1", silent(0))}, func(p *Policy) { p.Evidence = false }, "{true true false}"},
		"a voter at a level":                 {[]Node{voter("n1", silent(0), labelled(keys.Level(), "etcd-only"))}, nil, "{false false false}"},
		"a voter that speaks":                {[]Node{voter("n1", func(n *Node) { n.Ready = ReadyFalse })}, nil, "{false false false}"},
		"one that is out of service":         {[]Node{worker("n1", out(time.Hour))}, nil, "{false false false}"},
		"the same where nodes are deleted":   {[]Node{worker("n1", out(time.Hour))}, func(p *Policy) { p.Prune = time.Hour }, "{true true false}"},
		"somebody's taint":                   {[]Node{voter("n1", silent(0), taint(fleet.TaintOutOfService, "x", "NoExecute"))}, nil, "{false false false}"},
		"one that is to be cleared":          {[]Node{worker("n1", out(time.Hour), back)}, nil, "{false false false}"},
		"a swap's node, which nothing frees": {[]Node{voter("n1", silent(0), annotated(keys.Swap(), "x"))}, nil, "{false false false}"},
		"the own node":                       {[]Node{voter("me", silent(0))}, nil, "{false false false}"},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			p.Self = "me"
			if c.change != nil {
				c.change(&p)
			}
			if got := fmt.Sprint(Needs(c.nodes, p)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
