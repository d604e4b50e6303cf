package controller_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"context"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

const me = "controller-1"

var (
	keys = fleet.DefaultKeys()
	id   = fleet.SwapID("20261129T120000Z-out-in")
	rec  = status.Record{
		Protocol: 1, Prefix: keys.Prefix(), ID: id, Out: "out", In: "in", ClusterID: 0xc, OutMember: 0xa,
		Voters: []status.RecordVoter{{Node: "out", ID: 0xa, Name: "out-00000000"}},
	}
)

func swapping() clustertest.State {
	marks := map[string]string{keys.Swap(): string(id), keys.Controller(): me, keys.Record(): rec.String()}
	node := func() observe.Node {
		a := map[string]string{}
		for k, v := range marks {
			a[k] = v
		}
		return observe.Node{Node: swap.Node{Annotations: a}}
	}
	return clustertest.State{
		Nodes: map[string]observe.Node{"out": node(), "in": node(), "stays": {}},
		Maps: map[string]observe.ConfigMap{
			fleet.ConfigMapActuators: {}, fleet.ConfigMapStatus: {Data: map[string]string{fleet.KeyRequest: "mine"}},
		},
		Lease: observe.Lease{Lease: lease.Lease{
			Exists: true, Holder: fleet.LeaseHolder, Duration: 900 * time.Second, RenewTime: time.Now().Add(-time.Minute),
			Annotations: map[string]string{fleet.LeaseSwapID: string(id), fleet.LeaseController: me},
		}},
	}
}

// rules decide what a test says.
func rules(next func(swap.Observation) swap.Decision) controller.Rules {
	return controller.Rules{
		Next:      func(o swap.Observation, _ swap.Policy) swap.Decision { return next(o) },
		MayRemove: func(swap.Observation, swap.Policy, string) []status.Reason { return nil },
	}
}

func wait(swap.Observation) swap.Decision {
	return swap.Decision{State: swap.Idle, Code: "NothingToDo"}
}

func newController(c *clustertest.Cluster, r controller.Rules) *controller.Controller {
	return controller.New(c, r, controller.Settings{Self: me, Policy: swap.DefaultPolicy()})
}

func cordon(o swap.Observation) swap.Decision {
	return swap.Decision{
		State: swap.Prepare, Code: "CordonIn", Renew: true,
		Swap:   &status.Swap{ID: id, Out: "out", In: "in", Step: "prepare"},
		Action: swap.Action{Kind: swap.Cordon, Node: "in", Swap: id},
	}
}

func writes(c *clustertest.Cluster) []string {
	return slices.DeleteFunc(c.Calls(), func(s string) bool {
		return !strings.HasPrefix(s, "P") || strings.HasPrefix(s, "Pods")
	})
}

// R-E2-14, R-E2-39: each pass renews first, takes one action, then publishes.
func TestAPassRenewsThenActsThenPublishes(t *testing.T) {
	c := clustertest.New(swapping())
	turn := newController(c, rules(cordon)).Pass(t.Context())
	if turn.Err != nil || turn.PublishErr != nil || !turn.Acted {
		t.Fatalf("got %+v", turn)
	}
	want := []string{"PutLease", "PatchNode in", "PatchConfigMap " + fleet.ConfigMapStatus}
	if got := writes(c); !slices.Equal(got, want) {
		t.Errorf("writes %q, want %q", got, want)
	}
	s := c.State()
	if !s.Nodes["in"].Unschedulable || s.Maps[fleet.ConfigMapStatus].Data[fleet.KeyRequest] != "mine" {
		t.Errorf("in: %+v, request %q", s.Nodes["in"], s.Maps[fleet.ConfigMapStatus].Data)
	}
	st, err := status.ParseStatus([]byte(s.Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]))
	if err != nil || st.Swap == nil || st.Swap.ID != id || st.Next.Action != "cordon" || st.Next.Node != "in" || !st.DryRun || st.Controller != me {
		t.Errorf("got %+v, %v", st, err)
	}
}

// R-E2-35, R-228-07: a Lease that another took is neither renewed nor acted under.
func TestNothingIsDoneWhenTheRenewalFails(t *testing.T) {
	c := clustertest.New(swapping())
	ctl := newController(c, rules(func(o swap.Observation) swap.Decision {
		c.Edit(func(s *clustertest.State) { s.Lease.Holder, s.Lease.Annotations = "stays", nil })
		return cordon(o)
	}))
	turn := ctl.Pass(t.Context())
	if turn.Acted || turn.Err == nil {
		t.Errorf("got %+v", turn)
	}
	if got := writes(c); slices.Contains(got, "PutLease") || slices.Contains(got, "PatchNode in") {
		t.Errorf("wrote %q", got)
	}
}

// R-228-21: an action that fails is taken again and leaves the swap where it was.
func TestAFailedActionIsTakenAgain(t *testing.T) {
	c := clustertest.New(swapping())
	fail := true
	c.Hook = func(call string) error {
		if fail && call == "PatchNode in" {
			return errors.New("no answer")
		}
		return nil
	}
	ctl := newController(c, rules(cordon))
	if turn := ctl.Pass(t.Context()); turn.Acted || turn.Err == nil || !strings.Contains(turn.Err.Error(), "cordon in") || turn.PublishErr != nil {
		t.Errorf("got %+v", turn)
	}
	fail = false
	if turn := ctl.Pass(t.Context()); !turn.Acted {
		t.Errorf("got %+v", turn)
	}
}

func TestNothingIsDecidedWithoutNodesLeaseOrDate(t *testing.T) { // safety rule 24
	for _, call := range []string{"Nodes", "Lease"} {
		c := clustertest.New(swapping())
		c.Hook = func(got string) error {
			if got == call {
				return errors.New("no answer")
			}
			return nil
		}
		ctl := newController(c, rules(func(swap.Observation) swap.Decision {
			t.Errorf("decided without %s", call)
			return swap.Decision{}
		}))
		if turn := ctl.Pass(t.Context()); turn.Err == nil || len(writes(c)) != 0 {
			t.Errorf("got %+v", turn)
		}
	}
	c := clustertest.New(swapping())
	c.Clock = func() time.Time { return time.Time{} }
	if turn := newController(c, rules(wait)).Pass(t.Context()); turn.Err == nil {
		t.Error("decided without the API server's Date")
	}
}

// Safety rules 2, 8, 23: the removal is judged on an observation made after
// the decision.
func TestARemovalIsJudgedOnANewObservation(t *testing.T) {
	c := clustertest.New(swapping())
	r := rules(func(swap.Observation) swap.Decision {
		c.Calls()
		return swap.Decision{State: swap.Remove, Renew: true, Action: swap.Action{Kind: swap.RequestRemoval, Node: "out", Swap: id}}
	})
	var judged []string
	r.MayRemove = func(o swap.Observation, _ swap.Policy, node string) []status.Reason {
		judged = c.Calls()
		if node != "out" || len(o.Hosts) != 3 {
			t.Errorf("judged %s on %d hosts", node, len(o.Hosts))
		}
		return []status.Reason{{Code: swap.CodeLeads, Sentence: "out still leads etcd"}}
	}
	turn := newController(c, r).Pass(t.Context())
	if turn.Acted || turn.Err == nil || !strings.Contains(turn.Err.Error(), "out still leads etcd") {
		t.Errorf("got %+v", turn)
	}
	if !slices.Contains(judged, "ConfigMap "+fleet.ConfigMapActuators) {
		t.Errorf("the reports were not read again: %q", judged)
	}
	if _, asked := c.State().Nodes["out"].Annotations[fleet.AnnotationEtcdRemove]; asked {
		t.Error("the removal was asked for")
	}
}

func TestTheStatusIsWrittenOnAChangeOrEachMinute(t *testing.T) { // safety rule 29
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(clustertest.State{
			Nodes: map[string]observe.Node{"n1": {}},
			Maps:  map[string]observe.ConfigMap{fleet.ConfigMapActuators: {}, fleet.ConfigMapStatus: {}},
		})
		ctl := newController(c, rules(wait))
		count := func() int {
			n := 0
			for _, w := range writes(c) {
				if w == "PatchConfigMap "+fleet.ConfigMapStatus {
					n++
				}
			}
			return n
		}
		pass := func() {
			t.Helper()
			if turn := ctl.Pass(t.Context()); turn.Err != nil || turn.PublishErr != nil {
				t.Fatal(turn.Err, turn.PublishErr)
			}
		}
		pass()
		if n := count(); n != 1 {
			t.Errorf("first: %d writes", n)
		}
		pass() // what the first status carries on is settled now
		count()
		for range 3 {
			time.Sleep(15 * time.Second)
			pass()
		}
		if n := count(); n != 0 {
			t.Errorf("unchanged for 45 s: %d writes", n)
		}
		time.Sleep(16 * time.Second)
		pass()
		if n := count(); n != 1 {
			t.Errorf("after a minute: %d writes", n)
		}
		c.Edit(func(s *clustertest.State) {
			s.Nodes["n1"] = observe.Node{Node: swap.Node{Ready: true, Labels: map[string]string{keys.Eligible(): "true"}}}
		})
		pass()
		if n := count(); n != 1 {
			t.Errorf("a change: %d writes", n)
		}
	})
}

// Safety rule 25: what was deleted is made again; what was lost is not invented.
func TestDeletedMapsAreMadeAgain(t *testing.T) {
	c := clustertest.New(clustertest.State{Nodes: map[string]observe.Node{"n1": {}}})
	turn := newController(c, rules(wait)).Pass(t.Context())
	if turn.PublishErr != nil {
		t.Fatal(turn.PublishErr)
	}
	s := c.State()
	if m := s.Maps[fleet.ConfigMapActuators]; !m.Exists || len(m.Data) != 0 {
		t.Errorf("reports: %+v", m)
	}
	st, err := status.ParseStatus([]byte(s.Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]))
	if err != nil || !st.CooldownUntil.After(st.At) {
		t.Errorf("a lost status starts a cooldown: %+v, %v", st, err)
	}
}

func TestAStatusOfANewerProgramOrOneUnreadIsLeftAlone(t *testing.T) {
	const theirs = `{"protocol":2,"at":"2026-11-29T12:00:00Z"}`
	c := clustertest.New(clustertest.State{Maps: map[string]observe.ConfigMap{
		fleet.ConfigMapActuators: {}, fleet.ConfigMapStatus: {Data: map[string]string{fleet.KeyStatus: theirs}},
	}})
	ctl := newController(c, rules(wait))
	if turn := ctl.Pass(t.Context()); turn.PublishErr == nil {
		t.Error("published over a newer program's status")
	}
	c.Hook = func(call string) error {
		if call == "ConfigMap "+fleet.ConfigMapStatus {
			return errors.New("no answer")
		}
		return nil
	}
	if turn := ctl.Pass(t.Context()); turn.PublishErr == nil {
		t.Error("published over a status nobody read")
	}
	if got := c.State().Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]; got != theirs {
		t.Errorf("status is %s", got)
	}
}

// R-228-18, safety rule 21: a controller that was stopped in the middle of a pass
// does not put its old sight over the outcome that another published meanwhile.
func TestAnOutcomeThatAnotherPublishedIsNotOverwritten(t *testing.T) {
	const theirs = `{"protocol":1,"at":"2026-11-29T12:00:00Z","last_swap":{"id":"20261129T120000Z-out-in"}}`
	c := clustertest.New(swapping())
	ctl := newController(c, rules(func(o swap.Observation) swap.Decision {
		c.Edit(func(s *clustertest.State) {
			s.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Exists: true, Data: map[string]string{fleet.KeyStatus: theirs}}
		})
		return wait(o)
	}))
	if turn := ctl.Pass(t.Context()); turn.PublishErr != nil {
		t.Fatal(turn.PublishErr)
	}
	if got := c.State().Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]; got != theirs {
		t.Errorf("status is %s", got)
	}
}

// A Lease that ran out names no swap: nothing is hurried for it.
func TestALeaseThatRanOutIsNoBusiness(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	turn := controller.Turn{Observation: swap.Observation{Now: at, Lease: lease.Lease{
		Exists: true, Holder: fleet.LeaseHolder, RenewTime: at, Duration: time.Minute,
		Annotations: map[string]string{fleet.LeaseSwapID: string(id)},
	}}}
	if !turn.Busy() {
		t.Error("a held Lease of a swap is no business")
	}
	turn.Observation.Now = at.Add(time.Hour)
	if turn.Busy() {
		t.Error("busy for a Lease that ran out")
	}
}

func TestAMalformedStatusIsReplaced(t *testing.T) { // issue 2, bad input
	c := clustertest.New(clustertest.State{Maps: map[string]observe.ConfigMap{
		fleet.ConfigMapActuators: {}, fleet.ConfigMapStatus: {Data: map[string]string{fleet.KeyStatus: "nonsense", fleet.KeyRequest: "kept"}},
	}})
	if turn := newController(c, rules(wait)).Pass(t.Context()); turn.PublishErr != nil {
		t.Fatal(turn.PublishErr)
	}
	data := c.State().Maps[fleet.ConfigMapStatus].Data
	if _, err := status.ParseStatus([]byte(data[fleet.KeyStatus])); err != nil || data[fleet.KeyRequest] != "kept" {
		t.Errorf("got %q, %v", data, err)
	}
}

// R-228-18: the outcome stands in the status that the same pass publishes.
func TestAConclusionSurvivesThePassThatMakesIt(t *testing.T) {
	c := clustertest.New(swapping())
	ctl := newController(c, rules(func(o swap.Observation) swap.Decision {
		d := cordon(o)
		d.Action = swap.Action{Kind: swap.Conclude, Swap: id, Last: &status.LastSwap{
			ID: id, Out: "out", In: "in", Outcome: fleet.OutcomeAbandoned, EndedAt: o.Now,
		}}
		return d
	}))
	if turn := ctl.Pass(t.Context()); turn.Err != nil || turn.PublishErr != nil {
		t.Fatal(turn.Err, turn.PublishErr)
	}
	st, err := status.ParseStatus([]byte(c.State().Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus]))
	if err != nil || st.Swap != nil || st.LastSwap == nil || st.LastSwap.Outcome != fleet.OutcomeAbandoned || len(st.Backoff) != 1 || !st.CooldownUntil.IsZero() && st.CooldownUntil.After(st.At.Add(time.Hour)) {
		t.Errorf("got %+v, %v", st, err)
	}
}

// passes runs a loop and returns the times of its passes from the start.
func passes(t *testing.T, c *clustertest.Cluster, next func(swap.Observation) swap.Decision, length time.Duration, meanwhile func()) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := time.Now()
	var times []time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		newController(c, rules(next)).Run(ctx, c, func(controller.Turn) { times = append(times, time.Since(start)) })
	}()
	if meanwhile != nil {
		go meanwhile()
	}
	time.Sleep(length)
	cancel()
	<-done
	return times
}

func TestTheLoopKeepsTime(t *testing.T) {
	idle := func() *clustertest.Cluster { return clustertest.New(clustertest.State{}) }
	for name, test := range map[string]struct {
		c         func() *clustertest.Cluster
		next      func(swap.Observation) swap.Decision
		meanwhile func(*clustertest.Cluster)
		want      []time.Duration
	}{
		"idle: once a period": {idle, wait, nil, []time.Duration{0, 15 * time.Second, 30 * time.Second}},
		"a swap under way: every two seconds": {
			func() *clustertest.Cluster { return clustertest.New(swapping()) },
			func(o swap.Observation) swap.Decision { d := cordon(o); d.Action = swap.Action{}; return d }, nil,
			[]time.Duration{0, 2 * time.Second, 4 * time.Second, 6 * time.Second},
		},
		"something changed: soon": {idle, wait, func(c *clustertest.Cluster) {
			time.Sleep(5 * time.Second)
			c.Poke()
			time.Sleep(300 * time.Millisecond)
			c.Poke() // comes with the first
		}, []time.Duration{0, 6 * time.Second, 21 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := test.c()
				meanwhile := func() {}
				if test.meanwhile != nil {
					meanwhile = func() { test.meanwhile(c) }
				}
				got := passes(t, c, test.next, test.want[len(test.want)-1]+time.Millisecond, meanwhile)
				if !slices.Equal(got, test.want) {
					t.Errorf("passes at %v, want %v", got, test.want)
				}
			})
		})
	}
}

// After an action that succeeded the next pass comes at once; the same action
// again, which changed nothing, is not hurried.
func TestAfterAnActionTheNextPassComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(swapping())
		n := 0
		next := func(o swap.Observation) swap.Decision {
			n++
			d := cordon(o)
			switch n {
			case 1:
			case 2:
				d.Action.Node = "out"
			case 3, 4:
				d.Action = swap.Action{Kind: swap.TaintNode, Node: "out", Swap: id}
			default:
				d.Action = swap.Action{}
			}
			return d
		}
		got := passes(t, c, next, 3*time.Second, nil)
		want := []time.Duration{0, 0, 0, 0, 2 * time.Second}
		if !slices.Equal(got, want) {
			t.Errorf("passes at %v, want %v", got, want)
		}
	})
}

func TestAPassThatFailsIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(clustertest.State{})
		c.Hook = func(string) error { return errors.New("no answer") }
		got := passes(t, c, wait, 4*time.Second+time.Millisecond, nil)
		if want := []time.Duration{0, 2 * time.Second, 4 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("passes at %v, want %v", got, want)
		}
	})
}
