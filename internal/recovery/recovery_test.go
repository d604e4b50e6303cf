package recovery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/recovery"
	"github.com/exadev/regrade/internal/status"
)

// api is an API server in memory: a write with another resourceVersion than the
// Node's is a conflict, as there. Who plays beside the loop holds mu but while it waits.
type api struct {
	mu    sync.Mutex
	nodes map[string]*recover.Node
	lease lease.Lease
	maps  map[string]map[string]string // nil value: there is none
	beats map[string]observe.Heartbeat
	// daemons are the heartbeats of host daemons, kubelets the renew times of kubelets.
	daemons  map[string]observe.Heartbeat
	kubelets map[string]time.Time
	off      time.Duration // of its clock
	calls    []string
	fail     map[string]error // by call
	before   func(call string)
	events   []status.Event
}

func newAPI(nodes ...recover.Node) *api {
	a := &api{nodes: map[string]*recover.Node{}, maps: map[string]map[string]string{}, beats: map[string]observe.Heartbeat{}, daemons: map[string]observe.Heartbeat{}, kubelets: map[string]time.Time{}, fail: map[string]error{}}
	for _, n := range nodes {
		n.Version = "1"
		n.UID = "u-" + n.Name
		a.nodes[n.Name] = &n
	}
	return a
}

func (a *api) call(name string) error {
	a.calls = append(a.calls, name)
	if a.before != nil {
		a.before(name)
	}
	return a.fail[name]
}

// wait lets the loop go on for d.
func (a *api) wait(d time.Duration) {
	a.mu.Unlock()
	time.Sleep(d)
	a.mu.Lock()
}

func (a *api) held() (release func()) {
	a.mu.Lock()
	return a.mu.Unlock
}

func (a *api) Date() time.Time {
	defer a.held()()
	return time.Now().Add(a.off).Truncate(time.Second).UTC()
}

func (a *api) Nodes(context.Context) (nodes []recover.Node, err error) {
	defer a.held()()
	if err := a.call("nodes"); err != nil {
		return nil, err
	}
	for _, n := range a.nodes {
		c := *n
		c.Annotations, c.Taints = maps.Clone(n.Annotations), slices.Clone(n.Taints)
		nodes = append(nodes, c)
	}
	return nodes, nil
}

func (a *api) Lease(context.Context) (observe.Lease, error) {
	defer a.held()()
	return observe.Lease{Lease: a.lease}, a.call("lease")
}

func (a *api) ConfigMap(_ context.Context, name string) (observe.ConfigMap, error) {
	defer a.held()()
	return observe.ConfigMap{Exists: a.maps[name] != nil, Data: maps.Clone(a.maps[name])}, a.call("map " + name)
}

func (a *api) Heartbeats(context.Context) ([]observe.Heartbeat, error) {
	defer a.held()()
	return slices.AppendSeq(slices.Collect(maps.Values(a.beats)), maps.Values(a.daemons)), a.call("beats")
}

func (a *api) KubeletLeases(context.Context) (map[string]time.Time, error) {
	defer a.held()()
	return maps.Clone(a.kubelets), a.call("kubelets")
}

func (a *api) Write(_ context.Context, w recover.Write) error {
	defer a.held()()
	if err := a.call("write " + w.Node); err != nil {
		return err
	}
	n := a.nodes[w.Node]
	if n == nil || n.Version != w.Version || n.UID != w.UID {
		return fmt.Errorf("patch node %s: %w", w.Node, execute.ErrConflict)
	}
	if w.Delete {
		delete(a.nodes, w.Node)
		return nil
	}
	n.Taints = slices.Clone(w.Taints)
	n.Annotations = maps.Clone(n.Annotations)
	for _, key := range w.Drop {
		delete(n.Annotations, key)
	}
	if w.Mark == nil {
		delete(n.Annotations, w.Annotation)
	} else {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[w.Annotation] = *w.Mark
	}
	a.bump(n)
	return nil
}

func (a *api) bump(n *recover.Node) {
	v, _ := strconv.Atoi(n.Version)
	n.Version = strconv.Itoa(v + 1)
}

func (a *api) Tell(_ context.Context, e status.Event) error {
	defer a.held()()
	if err := a.call("event"); err != nil {
		return err
	}
	a.events = append(a.events, e)
	return nil
}

// falls is the node lifecycle controller's word on a kubelet that is silent.
func (a *api) falls(node string) {
	n := a.nodes[node]
	n.Ready, n.Since = recover.ReadyUnknown, time.Now().UTC()
	a.bump(n)
}

func (a *api) returns(node string) {
	n := a.nodes[node]
	n.Ready, n.Since = recover.ReadyTrue, time.Now().UTC()
	a.bump(n)
}

func (a *api) tainted(node string) bool {
	return slices.ContainsFunc(a.nodes[node].Taints, func(t recover.Taint) bool { return t.Key == fleet.TaintOutOfService })
}

func (a *api) count(call string) (n int) {
	for _, c := range a.calls {
		if c == call {
			n++
		}
	}
	return n
}

// wrote puts an entry of a probe there with its last connects to one voter, oldest
// first: "." was reached, "x" not answered, "r" refused. Before them it was reached.
func (a *api) wrote(t *testing.T, node string, counter int, to, how string) {
	t.Helper()
	w := fitness.Window{Node: node, BootID: "b", Period: 15 * time.Second, Size: 10}
	for i := range counter {
		c := fitness.Connect{To: to, Took: time.Millisecond}
		if k := i - counter + len(how); k >= 0 && how[k] != '.' {
			c = fitness.Connect{To: to, Failed: true, Why: map[byte]fitness.Failure{'x': fitness.Unanswered, 'r': fitness.Refused}[how[k]]}
		}
		w.Append(fitness.Sample{At: time.Date(2026, 11, 30, 12, 0, 15*i, 0, time.UTC), Connect: []fitness.Connect{c}})
	}
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if a.maps[fleet.ConfigMapProbe] == nil {
		a.maps[fleet.ConfigMapProbe] = map[string]string{}
	}
	a.maps[fleet.ConfigMapProbe][node] = string(raw)
	a.beats[node] = observe.Heartbeat{Node: node, Probe: true, BootID: "b", Counter: strconv.Itoa(counter), Renewed: time.Now()}
}

func well(name string) recover.Node {
	return recover.Node{Name: name, Ready: recover.ReadyTrue, Labels: map[string]string{}, Annotations: map[string]string{}}
}

func votes(name string) recover.Node {
	n := well(name)
	n.Labels[fleet.LabelEtcd] = fleet.True
	n.EtcdIsVoter = "True"
	return n
}

func policy(change ...func(*recover.Policy)) recover.Policy {
	p := recover.DefaultPolicy()
	p.Self = "n1"
	for _, c := range change {
		c(&p)
	}
	return p
}

// run runs the loop in a bubble while play goes on beside it.
func run(t *testing.T, a *api, s recovery.Settings, play func()) string {
	t.Helper()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.Teller = a
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			recovery.New(a, s).Run(ctx, nil)
			close(done)
		}()
		time.Sleep(time.Second) // between the passes
		a.mu.Lock()
		defer func() {
			a.mu.Unlock()
			cancel()
			<-done
		}()
		play()
	})
	return log.String()
}

const poll = 15 * time.Second

// Group B from end to end: silent, waited for, tainted once the threshold is over and
// not before, cleared when it is Ready again.
func TestACrashedNodeIsRecovered(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.wait(poll)
		if a.count("nodes") != 2 || len(a.calls) != 2 {
			t.Errorf("two passes over a fleet that is well are two lists: %q", a.calls)
		}
		a.falls("n3")
		a.wait(120 * time.Second) // the first look that saw it was 14 s later
		if a.tainted("n3") {
			t.Error("tainted before it was silent for the threshold")
		}
		a.wait(2 * poll)
		if !a.tainted("n3") || a.nodes["n3"].Annotations[fleet.AnnotationOutOfService] == "" {
			t.Fatalf("not tainted: %+v", a.nodes["n3"])
		}
		if got := a.nodes["n3"].Taints[0]; got.Effect != "NoExecute" || got.Value != "nodeshutdown" || got.Added.IsZero() {
			t.Errorf("%+v", got)
		}
		a.wait(10 * time.Minute)
		if n := a.count("write n3"); n != 1 {
			t.Errorf("written %d times", n)
		}
		a.returns("n3")
		a.wait(poll)
		if a.tainted("n3") || len(a.nodes["n3"].Annotations) != 0 {
			t.Errorf("not cleared: %+v", a.nodes["n3"])
		}
		a.wait(10 * poll)
	})
	for said, times := range map[string]int{
		"n3 is silent for 0s of 2m0s": 1, "the limit is 2m0s": 1, "n3 is out of service since": 1, "n3 is Ready again": 1, "node needs nothing": 1,
	} {
		if n := strings.Count(log, said); n != times {
			t.Errorf("%q is said %d times:\n%s", said, n, log)
		}
	}
	var reasons []string
	for _, e := range a.events {
		reasons = append(reasons, e.Node+" "+e.Reason)
		if e.UID != "u-n3" || e.Message == "" {
			t.Errorf("%+v", e)
		}
	}
	if diff := cmp.Diff([]string{"n3 OutOfServiceHeld", "n3 OutOfServiceTainted", "n3 OutOfServiceCleared"}, reasons); diff != "" {
		t.Error(diff)
	}
}

// A node whose kubelet speaks again within the threshold starts anew, also when nobody
// looked at that moment: the condition's time says so.
func TestASilenceThatWasBrokenCountsAnew(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.falls("n3")
		a.wait(100 * time.Second)
		a.falls("n3") // it spoke, and is silent again
		a.wait(115 * time.Second)
		if a.tainted("n3") {
			t.Error("two silences were taken for one")
		}
		a.wait(3 * poll)
		if !a.tainted("n3") {
			t.Error("not tainted")
		}
	})
}

// The condition's time has whole seconds, and a clock may be set back: a kubelet that
// spoke and one that is silent are told apart by what the condition says as well.
func TestASilenceBeginsWithTheWordUnknown(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.nodes["n3"].Ready, a.nodes["n3"].Since = recover.ReadyFalse, time.Now().UTC()
		a.wait(10 * time.Minute)
		a.nodes["n3"].Ready = recover.ReadyUnknown
		a.wait(115 * time.Second)
		if a.tainted("n3") {
			t.Error("the time in which it spoke was counted")
		}
		a.wait(2 * poll)
		if !a.tainted("n3") {
			t.Error("not tainted")
		}
	})
}

// Safety rule 22: what the API's clock says, and that of whoever wrote the condition,
// makes nobody dead earlier, nor later.
func TestAClockThatJumpsTaintsNobody(t *testing.T) {
	for name, off := range map[string]time.Duration{"an hour on": time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(well("n1"), well("n2"), well("n3"))
			run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
				a.falls("n3")
				a.wait(30 * time.Second)
				a.off = off
				a.wait(75 * time.Second)
				if a.tainted("n3") {
					t.Error("tainted by a clock")
				}
				a.wait(3 * poll)
				if !a.tainted("n3") {
					t.Error("the clock keeps it from being recovered")
				}
			})
		})
	}
	t.Run("the condition's time lies in the future", func(t *testing.T) {
		a := newAPI(well("n1"), well("n2"), well("n3"))
		run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
			a.falls("n3")
			a.nodes["n3"].Since = time.Now().Add(5 * time.Hour)
			a.wait(120*time.Second + 2*poll)
			if !a.tainted("n3") {
				t.Error("not tainted")
			}
		})
	})
}

// A Lease that looks expired since the Date jumped is its holder's while it is renewed.
func TestALeaseIsNotOverByAClockThatJumps(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.falls("n3")
		a.off = 2 * time.Hour
		for range 100 { // the controller writes by an earlier Date
			a.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, Duration: 900 * time.Second, RenewTime: time.Now(), Annotations: map[string]string{fleet.LeaseSwapNodes: "n3"}}
			a.wait(poll)
		}
		if a.tainted("n3") {
			t.Error("a node of a swap was tainted")
		}
	})
}

// A level's Lease is not renewed in its step: whatever the Date says meanwhile, its
// holder is left alone until it was seen to stand still for its whole duration.
func TestTheHolderOfALevelsLeaseIsLeftAloneThoughTheDateJumps(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.lease = lease.Lease{Exists: true, Holder: "n3", Duration: 900 * time.Second, RenewTime: time.Now()}
		a.falls("n3")
		a.wait(time.Minute)
		a.off = 5 * time.Hour
		a.wait(839 * time.Second)
		if a.tainted("n3") {
			t.Fatal("tainted in its step")
		}
		a.wait(4 * poll)
		if !a.tainted("n3") {
			t.Error("not tainted after it")
		}
	})
}

// R-B-06, R-X-08: when nobody renews it any more it is over, its whole duration after
// the first look at it (safety rule 21).
func TestAHolderThatIsGoneFreesTheNodes(t *testing.T) {
	for name, renewed := range map[string]time.Duration{"just now": 0, "an hour ago": time.Hour} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(well("n1"), well("n2"), well("n3"))
			run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
				a.falls("n3")
				a.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, Duration: 900 * time.Second, RenewTime: time.Now().Add(-renewed), Annotations: map[string]string{fleet.LeaseSwapNodes: "n3"}}
				a.wait(895 * time.Second)
				if a.tainted("n3") {
					t.Error("tainted while the Lease is held")
				}
				a.wait(3 * poll)
				if !a.tainted("n3") {
					t.Error("not tainted after it")
				}
			})
		})
	}
}

// Safety rule 24: who could not look for a while has seen nothing.
func TestAPauseOfTheAPIIsNoSilenceOfANode(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.falls("n3")
		a.wait(60 * time.Second)
		a.fail["nodes"] = errors.New("list nodes: nobody answers")
		a.wait(10 * time.Minute)
		delete(a.fail, "nodes")
		a.wait(90 * time.Second)
		if a.tainted("n3") {
			t.Error("the time without an API was counted")
		}
		a.wait(4 * poll)
		if !a.tainted("n3") {
			t.Error("not tainted")
		}
	})
	if n := strings.Count(log, "pass cut short"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

// R-B: a Node that changed since it was read is left for the next pass, and the others
// are written all the same.
func TestAConflictWaitsForTheNextPass(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"), well("n4"), well("n5"))
	met := false
	log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.falls("n2")
		a.falls("n3")
		a.before = func(call string) {
			if call == "write n2" && !met {
				met = true
				n := a.nodes["n2"]
				n.Annotations["a-swap-began"] = "now"
				a.bump(n)
			}
		}
		a.wait(120*time.Second + poll)
		if !met || a.tainted("n2") || !a.tainted("n3") {
			t.Errorf("met %v, n2 tainted %v, n3 %v", met, a.tainted("n2"), a.tainted("n3"))
		}
		a.wait(poll)
		if !a.tainted("n2") || a.nodes["n2"].Annotations["a-swap-began"] != "now" {
			t.Errorf("%+v", a.nodes["n2"])
		}
	})
	if !strings.Contains(log, "decided anew in the next pass") {
		t.Error(log)
	}
}

// A write that may have been made and was not answered for is seen in the next pass.
func TestAWriteThatWasMadeAndNotAnsweredIsNotMadeTwice(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.falls("n3")
		a.before = func(call string) {
			if call == "write n3" {
				a.fail["write n3"] = context.DeadlineExceeded
				n := a.nodes["n3"]
				n.Taints = []recover.Taint{{Key: fleet.TaintOutOfService, Value: "nodeshutdown", Effect: "NoExecute"}}
				n.Annotations[fleet.AnnotationOutOfService] = "2026-11-30T12:00:00Z"
				a.bump(n)
			}
		}
		a.wait(10 * time.Minute)
	})
	if n := a.count("write n3"); n != 1 || len(a.nodes["n3"].Taints) != 1 {
		t.Errorf("%d writes, %+v", n, a.nodes["n3"].Taints)
	}
}

// The evidence rule end to end: a voter that one host still reaches is held, and
// tainted once two hosts write that they do not.
func TestAVoterIsTaintedOnTheWordOfTwo(t *testing.T) {
	a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		counter := 10
		write := func(n1, n2 string) {
			counter++
			a.wrote(t, "n1", counter, "n3", n1)
			a.wrote(t, "n2", counter, "n3", n2)
		}
		const up, down = "...", "xxx"
		write(up, up)
		a.falls("n3")
		for range 20 {
			a.wait(poll)
			write(down, up)
		}
		if a.tainted("n3") {
			t.Fatal("tainted though n2 reaches it")
		}
		// A host that refuses runs: k3s is stopped on it, and its pods are not.
		for range 20 {
			a.wait(poll)
			write(down, "rrr")
		}
		if a.tainted("n3") {
			t.Fatal("tainted though it refuses the connects of n2")
		}
		// Both probes fall silent: nothing is known any more.
		for range 20 {
			a.wait(poll)
		}
		if a.tainted("n3") {
			t.Fatal("tainted on what a silent probe once said")
		}
		for range 3 {
			write(down, down)
			a.wait(poll)
		}
		if !a.tainted("n3") {
			t.Error("not tainted though neither reaches it")
		}
	})
	if n, lists := a.count("map "+fleet.ConfigMapProbe), a.count("nodes"); n > lists {
		t.Errorf("%d reads of the probes in %d passes", n, lists)
	}
}

// beats goes on for a host as what runs there does, every poll.
func (a *api) beat(sign recover.SignOf, node string) {
	switch sign {
	case recover.SignKubelet:
		a.kubelets[node] = time.Now()
	default:
		b := observe.Heartbeat{Node: node, Probe: sign == recover.SignProbe, BootID: "b", Counter: "7", Renewed: time.Now()}
		if b.Probe {
			a.beats[node] = b
		} else {
			a.daemons[node] = b
		}
	}
}

// Issue 6: k3s is stopped for some minutes and its host is not. Whatever goes on there
// holds the taint by itself, and for the threshold after it ended.
func TestAHostOnWhichSomethingGoesOnIsNotTainted(t *testing.T) {
	for _, sign := range []recover.SignOf{recover.SignProbe, recover.SignDaemon, recover.SignKubelet} {
		t.Run(string(sign), func(t *testing.T) {
			a := newAPI(well("n1"), well("n2"), well("n3"))
			log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
				a.falls("n3")
				for range 40 {
					a.beat(sign, "n3")
					a.wait(poll)
				}
				if a.tainted("n3") {
					t.Fatal("tainted though it goes on")
				}
				a.wait(105 * time.Second)
				if a.tainted("n3") {
					t.Error("tainted before the threshold was over since it ended")
				}
				a.wait(3 * poll)
				if !a.tainted("n3") {
					t.Error("not tainted after it")
				}
			})
			if !strings.Contains(log, "the host runs") {
				t.Error(log)
			}
		})
	}
}

// A heartbeat that stood still from the first look on is none, whatever its time says,
// and costs the threshold once.
func TestAHeartbeatOfBeforeIsNoSignOfLife(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		for _, sign := range []recover.SignOf{recover.SignProbe, recover.SignDaemon, recover.SignKubelet} {
			a.beat(sign, "n3")
		}
		d := a.daemons["n3"]
		d.Renewed = time.Now().Add(5 * time.Hour) // a clock that is ahead
		a.daemons["n3"] = d
		a.falls("n3")
		a.wait(120*time.Second + poll)
		if !a.tainted("n3") {
			t.Error("not tainted")
		}
	})
}

// An entry of the host's own that changes is a sign of life as its heartbeat is.
func TestAHostWhoseOwnEntryChangesIsNotTainted(t *testing.T) {
	a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"))
	log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		a.falls("n3")
		for counter := 10; counter < 40; counter++ {
			for _, n := range []string{"n1", "n2", "n3"} {
				a.wrote(t, n, counter, "n3", "xxx")
			}
			delete(a.beats, "n3")
			a.wait(poll)
		}
		if a.tainted("n3") {
			t.Error("tainted")
		}
	})
	if !strings.Contains(log, "n3's own probe was seen to go on") {
		t.Error(log)
	}
}

// Where there are probes a voter is never judged by the threshold alone: not when the
// map is gone, not when an entry is, not when both map and heartbeats are taken away
// meanwhile. Where there never were any it is.
func TestMissingEntriesAreNoEvidence(t *testing.T) {
	down := func(a *api) {
		for _, n := range []string{"n1", "n2", "n4"} {
			a.wrote(t, n, 10+a.count("nodes"), "n3", "xxx")
		}
	}
	for name, c := range map[string]struct {
		each    func(*api)
		tainted bool
	}{
		"all there":           {down, true},
		"no probe ever":       {func(*api) {}, false},
		"a map that is empty": {func(a *api) { a.maps[fleet.ConfigMapProbe] = map[string]string{} }, false},
		"the map is gone":     {func(a *api) { down(a); a.maps[fleet.ConfigMapProbe] = nil }, false},
		"all but one are": {func(a *api) {
			down(a)
			delete(a.maps[fleet.ConfigMapProbe], "n2")
			delete(a.maps[fleet.ConfigMapProbe], "n4")
		}, false},
		"one heartbeat is left": {func(a *api) { a.beats["gone"] = observe.Heartbeat{Node: "gone", Probe: true} }, false},
		"all is taken away meanwhile": {func(a *api) {
			if down(a); a.count("nodes") > 2 {
				a.maps[fleet.ConfigMapProbe], a.beats = nil, map[string]observe.Heartbeat{}
			}
		}, false},
	} {
		if name == "no probe ever" || name == "a map that is empty" {
			c.tainted = true // the controller makes an empty map
		}
		t.Run(name, func(t *testing.T) {
			a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"))
			run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
				a.falls("n3")
				for range 20 {
					c.each(a)
					a.wait(poll)
				}
				if a.tainted("n3") != c.tainted {
					t.Errorf("tainted: %v", a.tainted("n3"))
				}
			})
		})
	}
}

// Probes that go on and do not write say nothing any more, by the reader's clock.
func TestEvidenceIsForgotten(t *testing.T) {
	a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"))
	log := run(t, a, recovery.Settings{Policy: policy(func(p *recover.Policy) { p.After = 10 * time.Minute }), Poll: poll}, func() {
		a.wrote(t, "n1", 10, "n3", "...")
		a.wrote(t, "n2", 10, "n3", "...")
		a.falls("n3")
		a.wait(2 * poll)
		a.wrote(t, "n1", 11, "n3", "xxx")
		a.wrote(t, "n2", 11, "n3", "xxx")
		for i := range 100 {
			a.wait(poll)
			for _, n := range []string{"n1", "n2"} { // their heartbeats go on, within the window that they vouch for
				a.beats[n] = observe.Heartbeat{Node: n, Probe: true, BootID: "b", Counter: strconv.Itoa(11 + i/10), Renewed: time.Now()}
			}
		}
		if a.tainted("n3") {
			t.Fatal("tainted on what was seen half an hour ago")
		}
		a.wrote(t, "n1", 120, "n3", "xxx")
		a.wrote(t, "n2", 120, "n3", "xxx")
		a.wait(2 * poll)
		if !a.tainted("n3") {
			t.Error("not tainted on what is seen now")
		}
	})
	if !strings.Contains(log, "n1 (written ") {
		t.Error(log)
	}
}

// A host that is silent for longer than a window keeps says nothing of a witness: what
// was seen when it still answered is remembered.
func TestThatAHostOnceAnsweredIsRemembered(t *testing.T) {
	a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"))
	run(t, a, recovery.Settings{Policy: policy(func(p *recover.Policy) { p.After = 10 * time.Minute }), Poll: poll}, func() {
		a.wrote(t, "n1", 10, "n3", "...")
		a.wrote(t, "n2", 10, "n3", "...")
		a.falls("n3")
		for i := range 50 {
			a.wait(poll)
			a.wrote(t, "n1", 11+i, "n3", "xxxxxxxxxxx"[:min(11, 1+i)])
			a.wrote(t, "n2", 11+i, "n3", "xxxxxxxxxxx"[:min(11, 1+i)])
		}
		if !a.tainted("n3") {
			t.Error("not tainted")
		}
	})
}

// The probes cost requests only while a voter is silent.
func TestAPassAsksForNoMoreThanItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		fall []string
		map_ bool
		want []string
	}{
		"all well":                           {nil, true, []string{"nodes"}},
		"a worker is silent":                 {[]string{"n4"}, true, []string{"nodes", "lease", "beats", "kubelets", "event"}},
		"a voter is":                         {[]string{"n3"}, true, []string{"nodes", "lease", "beats", "kubelets", "map fleet-role-probe", "event"}},
		"a voter is, and nobody has a probe": {[]string{"n3"}, false, []string{"nodes", "lease", "beats", "kubelets", "map fleet-role-probe", "event"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"))
			if c.map_ {
				a.maps[fleet.ConfigMapProbe] = map[string]string{}
			}
			for _, n := range c.fall {
				a.falls(n)
			}
			turn := recovery.New(a, recovery.Settings{Policy: policy(), Teller: a}).Pass(t.Context())
			if turn.Err != nil {
				t.Fatal(turn.Err)
			}
			if diff := cmp.Diff(c.want, a.calls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What could not be read holds what hangs on it and nothing else.
func TestWhatCouldNotBeReadHoldsWhatHangsOnIt(t *testing.T) {
	for name, c := range map[string]struct {
		fail            string
		worker, voter   bool
		returnedCleared bool
	}{
		"the Lease":      {"lease", false, false, true},
		"the probes":     {"map " + fleet.ConfigMapProbe, true, false, true},
		"the heartbeats": {"beats", false, false, true},
		"the kubelets":   {"kubelets", false, false, true},
		"the Nodes":      {"nodes", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"), well("n5"), well("n6"))
			a.maps[fleet.ConfigMapProbe] = map[string]string{}
			a.nodes["n5"].Annotations[fleet.AnnotationOutOfService] = "x"
			a.fail[c.fail] = errors.New("503")
			a.falls("n3")
			a.falls("n4")
			log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() { a.wait(5 * time.Minute) })
			if a.tainted("n4") != c.worker || a.tainted("n3") != c.voter || (len(a.nodes["n5"].Annotations) == 0) != c.returnedCleared {
				t.Errorf("worker %v, voter %v, %v", a.tainted("n4"), a.tainted("n3"), a.nodes["n5"].Annotations)
			}
			if !strings.Contains(log, "503") {
				t.Error(log)
			}
		})
	}
}

func TestADryRunWritesNothing(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	log := run(t, a, recovery.Settings{Policy: policy(), Poll: poll, DryRun: true}, func() {
		a.falls("n3")
		a.wait(5 * time.Minute)
	})
	if a.count("write n3") != 0 || !strings.Contains(log, "node would be changed") || !strings.Contains(a.events[len(a.events)-1].Message, "a dry run") {
		t.Errorf("%q\n%s", a.calls, log)
	}
}

// R-I-31: a Node that is gone for long, and only then; a server's never.
func TestAnAgentThatIsGoneForLongIsPruned(t *testing.T) {
	a := newAPI(votes("n1"), votes("n2"), votes("n3"), well("n4"), well("n5"))
	run(t, a, recovery.Settings{Policy: policy(func(p *recover.Policy) { p.Prune = 2 * time.Hour }), Poll: poll}, func() {
		a.falls("n3")
		a.falls("n4")
		a.wait(2*time.Hour + 2*time.Minute)
		if a.nodes["n4"] == nil {
			t.Error("deleted before its time")
		}
		a.wait(2 * time.Minute)
		if a.nodes["n4"] != nil || a.nodes["n3"] == nil {
			t.Errorf("agent there %v, server there %v", a.nodes["n4"] != nil, a.nodes["n3"] != nil)
		}
	})
}

// Safety rule 22: a Date that jumps by a day prunes nobody.
func TestADateThatJumpsPrunesNobody(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n4"))
	run(t, a, recovery.Settings{Policy: policy(func(p *recover.Policy) { p.Prune = 2 * time.Hour }), Poll: poll}, func() {
		a.falls("n4")
		a.wait(10 * time.Minute)
		a.off = 24 * time.Hour
		a.wait(100 * time.Minute)
		if a.nodes["n4"] == nil {
			t.Fatal("deleted by a clock")
		}
		a.wait(20 * time.Minute)
		if a.nodes["n4"] != nil {
			t.Error("not deleted by the own clock either")
		}
	})
}

// A process that has just begun has seen nobody gone for long, and cannot know that the
// Date is ten days ahead: it deletes nothing before it has seen so for itself.
func TestANewProcessPrunesNobodyByTheDate(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n4"))
	a.nodes["n4"].Ready, a.nodes["n4"].Since = recover.ReadyUnknown, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a.nodes["n4"].Taints = []recover.Taint{{Key: fleet.TaintOutOfService, Value: fleet.TaintOutOfServiceValue, Effect: fleet.EffectNoExecute}}
	a.nodes["n4"].Annotations[fleet.AnnotationOutOfService] = "2026-11-20T12:00:00Z"
	run(t, a, recovery.Settings{Policy: policy(func(p *recover.Policy) { p.Prune = 2 * time.Hour }), Poll: poll}, func() {
		a.off = time.Until(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
		a.wait(time.Hour)
		a.fail["nodes"] = errors.New("nobody answers") // a pause, which does not count
		a.wait(90 * time.Minute)
		delete(a.fail, "nodes")
		a.wait(59 * time.Minute)
		if a.nodes["n4"] == nil {
			t.Fatal("deleted before this process has seen it gone for two hours")
		}
		a.wait(3 * time.Minute)
		if a.nodes["n4"] != nil {
			t.Error("not deleted by the own clock either")
		}
	})
}

// A host that comes back and does not get Ready is not dead: it is cleared once its
// kubelet has said so for the threshold, and not for a word of a moment.
func TestANodeThatComesBackNotReadyIsCleared(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	run(t, a, recovery.Settings{Policy: policy(), Poll: poll}, func() {
		speaks := func() {
			a.nodes["n3"].Ready, a.nodes["n3"].Since = recover.ReadyFalse, time.Now().UTC()
			a.bump(a.nodes["n3"])
		}
		a.falls("n3")
		a.wait(3 * time.Minute)
		if !a.tainted("n3") {
			t.Fatal("not tainted")
		}
		speaks()
		a.wait(105 * time.Second)
		a.falls("n3")
		a.wait(time.Minute)
		speaks()
		a.wait(110 * time.Second)
		if !a.tainted("n3") {
			t.Error("cleared before it spoke for the threshold on end")
		}
		a.wait(3 * poll)
		if a.tainted("n3") || len(a.nodes["n3"].Annotations) != 0 {
			t.Error("not cleared")
		}
	})
}

// A fleet that falls silent as a whole does not make a request for each node.
func TestEventsAreBounded(t *testing.T) {
	var nodes []recover.Node
	for i := range 100 {
		nodes = append(nodes, well(fmt.Sprintf("n%02d", i)))
	}
	a := newAPI(nodes...)
	for name := range a.nodes {
		a.nodes[name].Ready = recover.ReadyUnknown
	}
	a.fail["event"] = errors.New("forbidden")
	recovery.New(a, recovery.Settings{Policy: policy(), Teller: a}).Pass(t.Context())
	if n := a.count("event"); n != 20 {
		t.Errorf("%d events", n)
	}
}

// A person who looks once goes by the Date, and writes nothing.
func TestALookGoesByTheDate(t *testing.T) {
	a := newAPI(well("n1"), well("n2"), well("n3"))
	a.falls("n3")
	a.nodes["n3"].Since = time.Now().Add(-time.Hour)
	turn := recovery.New(a, recovery.Settings{Policy: policy(), ByDate: true}).Pass(t.Context())
	if len(turn.Decision.Verdicts) != 1 || turn.Decision.Verdicts[0].Action != recover.ActTaint || a.count("write n3") != 0 {
		t.Errorf("%+v, %q", turn.Decision, a.calls)
	}
}
