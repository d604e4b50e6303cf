package hostd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/swap"
)

// graded is a rig whose level half is on: the voter a with its Node, b and c beside it.
type graded struct {
	*rig
	reading level.Reading
	others  map[string]*swap.Node
	pods    []observe.Pod
	blocked map[string]string // by pod name: a budget's words
	paused  string
	down    bool // the level half's own API is away
	writes  []string
	silent  bool // no kubelet comes back
	// interrupt is asked before each write; true is a daemon that was killed there.
	interrupt func(what string) bool
}

var errKilled = errors.New("killed")

var (
	plenty = level.Reading{Pressure: &level.Pressure{}, AvailableBytes: 2 << 30, TotalBytes: 4 << 30}
	short  = level.Reading{Pressure: &level.Pressure{SomeAvg60: 50, FullAvg60: 20}, AvailableBytes: 2 << 30, TotalBytes: 4 << 30}
)

func newGraded(t *testing.T) *graded {
	r := newRig(t, "a")
	g := &graded{rig: r, reading: plenty, others: map[string]*swap.Node{}, blocked: map[string]string{}}
	r.self.Ready = true
	r.self.Labels[fleet.LabelControlPlane] = "true"
	for _, name := range []string{"b", "c"} {
		g.others[name] = &swap.Node{Ready: true, Labels: map[string]string{fleet.LabelEtcd: "true", fleet.LabelControlPlane: "true"}, Annotations: map[string]string{}}
	}
	r.lease = lease.Lease{Exists: true}
	k3s := r.host.OnAdvance
	r.host.OnAdvance = func(f *platform.Facts) {
		k3s(f)
		// The kubelet of a full server that serves speaks; an etcd-only one has none.
		runs := f.Server.Process && f.Server.State == platform.StateActive && f.Server.Level != fleet.LevelEtcdOnly && !g.silent
		r.self.Ready = runs
		if f.Server.Process && f.Server.Level != fleet.LevelEtcdOnly {
			f.Shims = max(f.Shims, 1)
		}
	}
	p := level.DefaultPolicy()
	p.StepUp = level.Automatic
	g.levels(p)
	return g
}

func (g *graded) levels(p level.Policy) {
	g.rig.levels = &hostd.LevelSettings{
		Policy: p, Target: 3, API: levelAPI{g}, Memory: func() level.Reading { return g.reading },
		Protected: func(l map[string]string) bool { return l["job"] == "true" },
	}
	g.restart()
}

// again starts the daemon anew, as after a kill.
func (g *graded) again() {
	g.interrupt = nil
	g.restart()
}

func (g *graded) levelJournal() hostd.LevelJournal {
	j, err := hostd.ParseLevelJournal(g.host.Facts().LevelJournal)
	if err != nil {
		g.t.Fatal(err)
	}
	return j
}

func (g *graded) at(l fleet.Level) func() bool {
	return func() bool {
		f := g.host.Facts()
		label := g.self.Labels[keys().Level()]
		return f.Level == l && (label == string(l) || l == fleet.LevelFull && label == "") && !g.levelJournal().Running() && g.lease.Holder == ""
	}
}

// truth holds in every moment: never fewer than the others when they are not all there,
// the label before a restart, at most the own step's Lease.
func (g *graded) truth() {
	g.t.Helper()
	f := g.host.Facts()
	if f.Server.Level == fleet.LevelEtcdOnly && f.Server.Process && g.self.Labels[keys().Level()] != string(fleet.LevelEtcdOnly) && !g.levelJournal().Running() {
		g.t.Fatal("an etcd-only server whose Node does not say so would be taken for dead (R-B-05)")
	}
	if f.Files.Role != fleet.RoleServer || f.Files.Leaving != "" {
		g.t.Fatal("a level took the role (R-112-03)")
	}
}

func (g *graded) runFor(d time.Duration) {
	g.t.Helper()
	for end := g.now.Add(d); g.now.Before(end); {
		g.pass()
		g.truth()
	}
}

// levelAPI is the cluster by the level half's credential.
type levelAPI struct{ g *graded }

func (a levelAPI) err() error {
	if a.g.down {
		return errors.New("no candidate is ready")
	}
	return nil
}

func (a levelAPI) write(what string) error {
	if a.g.interrupt != nil && a.g.interrupt(what) {
		return errKilled
	}
	if err := a.err(); err != nil {
		return err
	}
	a.g.writes = append(a.g.writes, what)
	return nil
}

func (a levelAPI) Date() time.Time { return a.g.now }

func (a levelAPI) Node(_ context.Context, name string) (observe.Node, bool, error) {
	n := *a.g.self
	n.Labels, n.Annotations = maps.Clone(n.Labels), maps.Clone(n.Annotations)
	return observe.Node{Name: name, Version: "1", Node: n}, true, a.err()
}

func (a levelAPI) Nodes(context.Context) ([]observe.Node, error) {
	out := []observe.Node{{Name: "a", Node: *a.g.self}}
	for _, name := range slices.Sorted(maps.Keys(a.g.others)) {
		out = append(out, observe.Node{Name: name, Node: *a.g.others[name]})
	}
	return out, a.err()
}

func (a levelAPI) Lease(context.Context) (observe.Lease, error) {
	return observe.Lease{Lease: a.g.lease, Version: "1"}, a.err()
}

func (a levelAPI) ConfigMap(context.Context, string) (observe.ConfigMap, error) {
	m := observe.ConfigMap{Exists: true, Data: map[string]string{}}
	if a.g.paused != "" {
		m.Data[fleet.KeyPause] = a.g.paused
	}
	return m, a.err()
}

func (a levelAPI) Pods(context.Context, string) ([]observe.Pod, error) {
	return slices.Clone(a.g.pods), a.err()
}

func (a levelAPI) TryEvict(_ context.Context, p observe.Pod) (string, error) {
	return a.g.blocked[p.Name], a.err()
}

func (a levelAPI) Evict(_ context.Context, p observe.Pod) (string, error) {
	if err := a.write("evict " + p.Name); err != nil {
		return "", err
	}
	if !a.g.self.Unschedulable {
		a.g.t.Fatalf("%s is evicted from a Node that is not cordoned", p.Name)
	}
	if p.Labels["job"] == "true" {
		a.g.t.Fatalf("the job %s is cut", p.Name)
	}
	if why := a.g.blocked[p.Name]; why != "" {
		return why, nil
	}
	a.g.pods = slices.DeleteFunc(a.g.pods, func(q observe.Pod) bool { return q.Name == p.Name })
	return "", nil
}

func (a levelAPI) PatchNode(_ context.Context, name, _ string, p execute.NodePatch) error {
	if name != "a" {
		a.g.t.Fatalf("the Node %s is another host's", name)
	}
	level := "full"
	if l := p.Labels[keys().Level()]; l != nil {
		level = *l
	}
	if err := a.write("mark " + level); err != nil {
		return err
	}
	for k, v := range p.Labels {
		set(a.g.self.Labels, k, v)
	}
	for k, v := range p.Annotations {
		set(a.g.self.Annotations, k, v)
	}
	if p.Unschedulable != nil {
		a.g.self.Unschedulable = *p.Unschedulable
	}
	return nil
}

func set(m map[string]string, k string, v *string) {
	if v == nil {
		delete(m, k)
	} else {
		m[k] = *v
	}
}

func (a levelAPI) PutLease(_ context.Context, _ string, l lease.Lease) error {
	what := "release"
	if l.Holder != "" {
		what = "take"
		if a.g.lease.At(a.g.now) == lease.Held {
			a.g.t.Fatalf("the Lease is taken from %s", a.g.lease.Holder)
		}
	} else if a.g.lease.Holder != "a" {
		a.g.t.Fatalf("the Lease of %q is freed (R-X-07)", a.g.lease.Holder)
	}
	if err := a.write(what); err != nil {
		return err
	}
	a.g.lease = l
	return nil
}

// pod is one that a ReplicaSet would make again.
func pod(name string) observe.Pod {
	return observe.Pod{Namespace: "x", Name: name, UID: name, Owner: "ReplicaSet", Labels: map[string]string{}}
}

func TestPressureStepsDownOneLevelAfterTheOtherAndCalmStepsUp(t *testing.T) { // R-112-02, R-112-04, R-112-20
	g := newGraded(t)
	daemon := pod("ds")
	daemon.Owner = "DaemonSet"
	g.pods = []observe.Pod{pod("web-1"), pod("web-2"), daemon}
	g.runFor(5 * time.Minute)
	if len(g.writes) > 0 {
		t.Fatalf("a calm host writes %v", g.writes)
	}
	g.reading = short
	began := g.now
	g.until("control-plane", g.at(fleet.LevelControlPlane))
	if d := g.now.Sub(began); d < 2*time.Minute || d > 3*time.Minute {
		t.Errorf("the first step after %s of pressure, the window is 2m", d)
	}
	if want := []string{"take", "mark control-plane", "evict web-1", "evict web-2", "release"}; !slices.Equal(g.writes, want) {
		t.Errorf("%v, want %v", g.writes, want)
	}
	if g.restarts() != 0 || !g.self.Unschedulable || len(g.pods) != 1 {
		t.Errorf("%d restarts, cordoned %t, %v left: want the cordon and the drain alone", g.restarts(), g.self.Unschedulable, g.pods)
	}
	ended := g.levelJournal().Ended
	g.writes = nil
	g.until("etcd-only", g.at(fleet.LevelEtcdOnly))
	if d := g.levelJournal().Began.Sub(ended); d < 10*time.Minute {
		t.Errorf("the second step %s after the first, the cooldown is 10m", d)
	}
	if want := []string{"take", "mark etcd-only", "release"}; !slices.Equal(g.writes, want) {
		t.Errorf("%v, want %v", g.writes, want)
	}
	if f := g.host.Facts(); g.restarts() != 1 || f.Server.Level != fleet.LevelEtcdOnly || f.Shims != 0 || g.leader == idA || g.moves != 1 {
		t.Errorf("%d restarts into %s, %d shims, leader %s after %d hand-overs", g.restarts(), f.Server.Level, f.Shims, g.leader, g.moves)
	}
	if !slices.Contains(g.host.Calls, "level etcd-only") || !before(g.host.Calls, "level etcd-only", "restart server") {
		t.Errorf("the level is not written before the restart: %v", g.host.Calls)
	}
	g.runFor(3 * time.Hour)
	if !g.at(fleet.LevelEtcdOnly)() {
		t.Fatal("more pressure moved more (R-112-03)")
	}
	g.reading, g.writes = plenty, nil
	calm := g.now
	g.until("back at control-plane", g.at(fleet.LevelControlPlane))
	if d := g.now.Sub(calm); d < 10*time.Minute {
		t.Errorf("up after %s of calm", d)
	}
	if f := g.host.Facts(); f.Server.Level == fleet.LevelEtcdOnly || g.restarts() != 2 {
		t.Errorf("%d restarts, at %s", g.restarts(), f.Server.Level)
	}
	g.until("full", g.at(fleet.LevelFull))
	if want := []string{"take", "mark control-plane", "release", "take", "mark full", "release"}; !slices.Equal(g.writes, want) {
		t.Errorf("%v, want %v", g.writes, want)
	}
	if g.self.Unschedulable || g.self.Annotations[keys().LevelCordoned()] != "" || g.restarts() != 2 {
		t.Errorf("cordoned %t, %v, %d restarts", g.self.Unschedulable, g.self.Annotations, g.restarts())
	}
	if r := g.report(); r.Regrade == nil || r.Regrade.To != fleet.LevelFull || r.Regrade.Phase != fleet.PhaseDone || r.Regrade.By != hostd.ByPressure || r.Step != "" || r.Code != "" {
		t.Errorf("%+v of %+v", r.Regrade, r)
	}
}

func before(calls []string, a, b string) bool { return slices.Index(calls, a) < slices.Index(calls, b) }

func TestTheWayUpIsByHandUnlessItIsSet(t *testing.T) { // R-112-07
	g := newGraded(t)
	g.levels(level.DefaultPolicy())
	g.reading = short
	g.until("control-plane", g.at(fleet.LevelControlPlane))
	g.reading = plenty
	g.runFor(time.Hour)
	if !g.at(fleet.LevelControlPlane)() || g.report().Regrade.Wait != level.CodeByHand {
		t.Errorf("%+v", g.report().Regrade)
	}
	g.command = &hostd.Command{Level: fleet.LevelFull}
	g.restart()
	g.until("full", g.at(fleet.LevelFull))
	if g.levelJournal().By != hostd.ByHand {
		t.Errorf("%+v", g.levelJournal())
	}
}

// Each is asked before the Lease is taken, of pressure and of a person: nothing is
// written, and the reason is told.
func TestWhatHoldsAStepIsNamedAndNothingIsWritten(t *testing.T) { // R-112-06, R-X-07, R-112-19, safety rules 1, 24 and 26
	for name, tt := range map[string]struct {
		change func(*graded)
		code   string
	}{
		"a swap holds the Lease":        {func(g *graded) { g.hold() }, ""},
		"another host holds the Lease":  {func(g *graded) { g.taken("b", g.now) }, level.CodeLeaseTaken},
		"another voter is not Ready":    {func(g *graded) { g.others["c"].Ready = false }, level.CodeNotReady},
		"another voter has no Node":     {func(g *graded) { delete(g.others, "c") }, level.CodeNotReady},
		"another voter's etcd is mute":  {func(g *graded) { g.rig.silent = []fleet.MemberID{idC} }, level.CodeSilent},
		"another voter is etcd-only":    {func(g *graded) { g.others["c"].Labels[keys().Level()] = "etcd-only" }, level.CodeNotReady},
		"a Node carries a swap":         {func(g *graded) { g.others["c"].Annotations[keys().Swap()] = string(id) }, level.CodeSwap},
		"a swap under another prefix":   {func(g *graded) { g.others["c"].Annotations["other.example/role-swap"] = "x" }, level.CodeSwap},
		"a learner is listed":           {func(g *graded) { m := member("d", idD, 4); m.Learner = true; g.members = append(g.members, m) }, level.CodeLearner},
		"there are four voters":         {func(g *graded) { g.members = append(g.members, member("d", idD, 4)) }, level.CodeCount},
		"a person has paused the fleet": {func(g *graded) { g.paused = pauseText() }, level.CodePaused},
		"a pause that cannot be read":   {func(g *graded) { g.paused = "{" }, level.CodePaused},
		"the cluster cannot be read":    {func(g *graded) { g.down = true }, level.CodeUnread},
	} {
		for _, by := range []string{hostd.ByPressure, hostd.ByHand} {
			t.Run(name+", "+by, func(t *testing.T) {
				g := newGraded(t)
				g.reading = short
				if by == hostd.ByHand {
					g.reading = plenty
					g.command = &hostd.Command{Level: fleet.LevelControlPlane}
					g.restart()
				}
				g.after = nil
				tt.change(g)
				for range 40 {
					if tt.code == "" {
						g.hold() // it is renewed
					}
					g.pass()
				}
				if len(g.writes) > 0 || g.restarts() > 0 || g.host.Facts().Level != fleet.LevelFull {
					t.Errorf("%v", g.writes)
				}
				if said := g.daemon.Decision().Level; tt.code != "" && (said.Code != tt.code || said.Sentence == "") {
					t.Errorf("it says %+v, want %s", said, tt.code)
				}
			})
		}
	}
}

func (g *graded) taken(by string, at time.Time) {
	g.lease = lease.Lease{Exists: true, Holder: by, AcquireTime: at, RenewTime: at, Duration: 15 * time.Minute}
}

// A controller that went away lets its Lease run out; a level's step may take it then, and
// takes none of its marks with it.
func TestALeaseThatASwapLetRunOutMayBeTaken(t *testing.T) { // R-X-08
	g := newGraded(t)
	g.hold()
	g.lease.RenewTime = g.now.Add(-2 * time.Hour)
	g.lease.Annotations["x"] = "kept"
	g.reading = short
	g.until("control-plane", g.at(fleet.LevelControlPlane))
	if len(g.lease.Annotations) != 1 || g.lease.Annotations["x"] != "kept" {
		t.Errorf("%v", g.lease.Annotations)
	}
}

// Killed right before any of its effects, or after it, the daemon goes on; whatever is
// done is done once, and the Lease is free in the end.
func TestADaemonKilledAnywhereInAStepEndsIt(t *testing.T) { // crash safety of issue 6
	for _, to := range []fleet.Level{fleet.LevelControlPlane, fleet.LevelEtcdOnly} {
		for _, up := range []bool{false, true} {
			killed := 0
			for n := 0; ; n++ {
				g := newGraded(t)
				g.pods = []observe.Pod{pod("web-1")}
				from, goal := fleet.LevelFull, to
				if to == fleet.LevelEtcdOnly {
					from = fleet.LevelControlPlane
				}
				if up {
					from, goal = goal, from
				}
				g.bring(from)
				g.host.Calls, g.writes = nil, nil
				count := 0
				step := func(string) error {
					if count++; count == n+1 {
						return errKilled
					}
					return nil
				}
				g.host.Fail = step
				g.interrupt = func(what string) bool { return step(what) != nil }
				g.command = &hostd.Command{Level: goal}
				g.restart()
				hit := false
				for range 200 {
					if g.at(goal)() && len(g.host.Calls) > 0 {
						break
					}
					wake, err := g.daemon.Pass(t.Context())
					if err != nil {
						if !errors.Is(err, errKilled) {
							t.Fatal(err)
						}
						// The daemon of the host goes on with what the command had begun.
						hit = true
						g.host.Fail, g.command = nil, nil
						g.again()
						g.pass()
						if !g.levelJournal().Running() && g.host.Facts().Level == from && g.lease.Holder == "" {
							g.command = &hostd.Command{Level: goal} // it had noted nothing
							g.restart()
						}
						continue
					}
					if !wake.Again {
						g.now = g.now.Add(wake.After)
						g.host.Advance()
					}
					g.truth()
				}
				if !g.at(goal)() {
					t.Fatalf("from %s to %s, killed before effect %d: level %s, label %q, %+v, lease %q; %v; %+v", from, goal, n+1, g.host.Facts().Level,
						g.self.Labels[keys().Level()], g.levelJournal(), g.lease.Holder, g.writes, g.daemon.Decision())
				}
				if want := map[bool]int{true: 1}[(from == fleet.LevelEtcdOnly) != (goal == fleet.LevelEtcdOnly)]; g.restarts() != want {
					t.Fatalf("from %s to %s, killed before effect %d: %d restarts, want %d", from, goal, n+1, g.restarts(), want)
				}
				if !hit {
					break
				}
				killed++
			}
			if killed < 4 {
				t.Errorf("to %s, up %t: killed at %d effects only", to, up, killed)
			}
		}
	}
}

// bring puts the host at a level, as its daemon left it.
func (g *graded) bring(l fleet.Level) {
	g.t.Helper()
	if l == fleet.LevelFull {
		return
	}
	g.command = &hostd.Command{Level: l}
	g.restart()
	g.until("at "+string(l), g.at(l))
	g.command = nil
}

func TestAStepIsTakenBackAsLongAsTheServerWasNotRestarted(t *testing.T) { // safety rules 2 and 8
	for name, tt := range map[string]struct {
		when   string // the write after which it happens
		strike func(*graded)
		code   string
	}{
		"another voter falls before the restart":       {"mark etcd-only", func(g *graded) { g.rig.silent = []fleet.MemberID{idC} }, level.CodeSilent},
		"another voter's Node goes before the restart": {"mark etcd-only", func(g *graded) { g.others["b"].Ready = false }, level.CodeNotReady},
		"leadership does not go":                       {"mark etcd-only", func(g *graded) { g.leader, g.stuck = idA, true }, hostd.CodeHandOverFailed},
		"the Lease is lost":                            {"mark etcd-only", func(g *graded) { g.lease = lease.Lease{Exists: true} }, level.CodeLeaseLost},
		"another host takes it":                        {"mark etcd-only", func(g *graded) { g.taken("b", g.now.Add(-time.Second)) }, level.CodeLeaseLost},
		"a pause comes in its middle":                  {"mark etcd-only", func(g *graded) { g.paused = "{" }, level.CodePaused},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraded(t)
			g.bring(fleet.LevelControlPlane)
			g.leader = idB
			n := g.restarts()
			g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
			g.restart()
			struck := false
			for range 400 {
				g.pass()
				if !struck && slices.Contains(g.writes, tt.when) {
					struck = true
					tt.strike(g)
				}
				if j := g.levelJournal(); struck && !j.Running() {
					break
				}
			}
			j := g.levelJournal()
			if f := g.host.Facts(); !struck || j.Phase != fleet.PhaseFailed || j.Code != tt.code || f.Level != fleet.LevelControlPlane || g.restarts() != n ||
				g.self.Labels[keys().Level()] != "control-plane" {
				t.Errorf("level %s, label %q, %d restarts: %+v", f.Level, g.self.Labels[keys().Level()], g.restarts()-n, j)
			}
		})
	}
}

func TestAServerThatDoesNotComeBackIsNamedAndLeftAsItIs(t *testing.T) { // safety rule 2
	g := newGraded(t)
	g.bring(fleet.LevelControlPlane)
	g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
	g.restart()
	g.until("restarted", func() bool { return g.restarts() == 1 })
	g.etcdDown = true
	g.until("given up", func() bool { return !g.levelJournal().Running() })
	if j := g.levelJournal(); j.Phase != fleet.PhaseFailed || j.Code != hostd.CodeNotBack || g.restarts() != 1 {
		t.Errorf("%d restarts: %+v", g.restarts(), j)
	}
	g.command = nil
	g.again()
	g.reading = short
	g.runFor(30 * time.Minute)
	if g.restarts() != 1 || g.lease.Holder != "" || g.self.Labels[keys().Level()] != "etcd-only" {
		t.Errorf("%d restarts, Lease of %q, label %q", g.restarts(), g.lease.Holder, g.self.Labels[keys().Level()])
	}
}

func TestAServerThatComesUpWithoutItsNodeKeepsTheLabel(t *testing.T) { // R-B-05, R-N-08
	g := newGraded(t)
	g.bring(fleet.LevelEtcdOnly)
	g.silent = true
	g.command = &hostd.Command{Level: fleet.LevelControlPlane}
	g.restart()
	g.until("given up", func() bool {
		j := g.levelJournal()
		return j.To == fleet.LevelControlPlane && j.Phase == fleet.PhaseFailed
	})
	if j := g.levelJournal(); j.Code != hostd.CodeNotBack || g.self.Labels[keys().Level()] != "etcd-only" {
		t.Errorf("label %q: %+v", g.self.Labels[keys().Level()], j)
	}
	g.silent, g.command = false, nil
	g.again()
	g.until("labelled as it is", g.at(fleet.LevelControlPlane))
}

func TestJobsAreNeverCut(t *testing.T) { // R-I-07, safety rule 20
	g := newGraded(t)
	job := pod("job-1")
	job.Labels["job"] = "true"
	alone := pod("alone")
	alone.Owner = ""
	g.pods = []observe.Pod{job, alone, pod("kept"), pod("web-1")}
	g.blocked["kept"] = "budget kept"
	g.reading = short
	g.until("control-plane", g.at(fleet.LevelControlPlane))
	if j := g.levelJournal(); j.Code != hostd.CodePodsStay || len(g.pods) != 3 {
		t.Errorf("%+v, %v", j, g.pods)
	}
	g.runFor(time.Hour)
	if r := g.report().Regrade; !g.at(fleet.LevelControlPlane)() || r.Wait != level.CodeJobs || !strings.Contains(r.Why, "x/kept") {
		t.Errorf("a host with a job became etcd-only, or does not say why not: %+v", r)
	}
	g.pods = nil
	g.until("etcd-only once they have ended", g.at(fleet.LevelEtcdOnly))
}

func TestAnOperatorsCordonIsKept(t *testing.T) { // safety rule 27, R-112-13
	g := newGraded(t)
	g.self.Unschedulable = true
	g.bring(fleet.LevelControlPlane)
	if g.self.Annotations[keys().LevelCordoned()] != "" {
		t.Error("a person's cordon is taken for the own one")
	}
	g.command = &hostd.Command{Level: fleet.LevelFull}
	g.restart()
	g.until("full", g.at(fleet.LevelFull))
	if !g.self.Unschedulable {
		t.Error("a person's cordon is taken away")
	}
}

func TestALabelThatSomebodyTookAwayComesBack(t *testing.T) { // R-B-05, safety rule 27
	g := newGraded(t)
	g.bring(fleet.LevelEtcdOnly)
	g.again()
	delete(g.self.Labels, keys().Level())
	g.self.Unschedulable = false
	g.writes = nil
	g.pass()
	g.runFor(2 * time.Minute)
	if !g.at(fleet.LevelEtcdOnly)() || !g.self.Unschedulable || !slices.Equal(g.writes, []string{"mark etcd-only"}) {
		t.Errorf("%v", g.writes)
	}
}

func TestASwapGoesBeforeALevel(t *testing.T) { // R-X-07, safety rule 26
	g := newGraded(t)
	g.bring(fleet.LevelControlPlane)
	g.command = nil
	g.again()
	// A level's step had begun, its Lease ran out, and a controller took this host out.
	g.host.Change(func(f *platform.Facts) {
		f.LevelJournal = hostd.LevelJournal{From: fleet.LevelControlPlane, To: fleet.LevelEtcdOnly, Phase: fleet.PhaseRunning, Began: g.now.Add(-time.Hour)}.Bytes()
	})
	g.writes = nil
	g.reading = short
	g.order(fleet.StepStepDown)
	g.until("stepped down", g.settled(fleet.StepStepDown, fleet.PhaseDone))
	g.pass()
	if j := g.levelJournal(); j.Running() || j.Code != hostd.CodeLevelSwap || len(g.writes) > 0 {
		t.Errorf("%v: %+v", g.writes, j)
	}
}

func TestTheOwnLeaseOfNoStepIsFreed(t *testing.T) {
	g := newGraded(t)
	g.taken("a", g.now)
	g.pass()
	g.pass()
	if g.lease.Holder != "" || !slices.Equal(g.writes, []string{"release"}) {
		t.Errorf("%q: %v", g.lease.Holder, g.writes)
	}
}

func TestALevelJournalThatCannotBeReadHoldsEveryStep(t *testing.T) { // safety rule 25
	g := newGraded(t)
	g.host.Change(func(f *platform.Facts) { f.LevelJournal = []byte("{") })
	g.reading = short
	g.runFor(time.Hour)
	if len(g.writes) > 0 || g.report().Regrade.Wait != hostd.CodeBadJournal {
		t.Errorf("%v: %+v", g.writes, g.report().Regrade)
	}
}

// With the start of its server not noted a host is restarted once (safety rule 2).
func TestAnUnnotedServerIsRestartedOnceForALevel(t *testing.T) {
	g := newGraded(t)
	g.bring(fleet.LevelControlPlane)
	on := g.host.OnAdvance
	g.host.OnAdvance = func(f *platform.Facts) { on(f); f.Server.Level = "" }
	g.host.Advance()
	g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
	g.restart()
	g.until("etcd-only", g.at(fleet.LevelEtcdOnly))
	if g.restarts() != 1 {
		t.Errorf("%d restarts", g.restarts())
	}
}

// Whatever comes and goes around it, a host under pressure that comes and goes is never
// restarted without the others being there, cuts no job and touches no Lease of others.
func TestWhateverHappensAroundALevelTheVotesAreThere(t *testing.T) { // safety rules 1, 2 and 26
	rapid.Check(t, func(rt *rapid.T) {
		g := newGraded(t)
		p := level.DefaultPolicy()
		p.StepUp = level.Automatic
		p.Window, p.Cooldown, p.Gap = 90*time.Second, 2*time.Minute, time.Minute
		g.levels(p)
		g.pods = []observe.Pod{pod("web-1")}
		g.host.Fail = func(call string) error {
			if call != "restart server" {
				return nil
			}
			for name, n := range g.others {
				if !n.Ready || len(g.rig.silent) > 0 {
					t.Fatalf("restarted while %s is not there (%v are silent)", name, g.rig.silent)
				}
			}
			if g.lease.Holder != "a" || g.leader == idA {
				t.Fatalf("restarted with the Lease of %q, leader %s", g.lease.Holder, g.leader)
			}
			return nil
		}
		for range rapid.IntRange(20, 200).Draw(rt, "passes") {
			switch rapid.IntRange(0, 40).Draw(rt, "event") {
			case 0, 1, 2:
				g.reading = rapid.SampledFrom([]level.Reading{plenty, short}).Draw(rt, "memory")
			case 3:
				g.others["b"].Ready = !g.others["b"].Ready
			case 4:
				g.rig.silent = rapid.SampledFrom([][]fleet.MemberID{nil, nil, {idC}}).Draw(rt, "silent")
			case 5:
				g.again()
			case 6:
				if g.lease.At(g.now) != lease.Held {
					g.taken("b", g.now)
				}
			case 7:
				if g.lease.Holder == "b" {
					g.lease = lease.Lease{Exists: true}
				}
			case 8:
				g.down = !g.down
			case 9:
				g.leader = rapid.SampledFrom([]fleet.MemberID{idA, idB, idC}).Draw(rt, "leader")
			case 10:
				g.now = g.now.Add(time.Duration(rapid.IntRange(-100, 2000).Draw(rt, "the Date jumps")) * time.Second)
			case 11:
				g.self.Unschedulable = !g.self.Unschedulable
			}
			wake, err := g.daemon.Pass(t.Context())
			if err != nil && !g.down && !errors.Is(err, execute.ErrConflict) {
				t.Fatal(err)
			}
			if !wake.Again {
				g.now = g.now.Add(wake.After)
				g.host.Advance()
			}
			g.check()
			if f := g.host.Facts(); f.Files.Role != fleet.RoleServer {
				t.Fatal("a level took the role")
			}
		}
		// In the end, with all well and memory plenty, it is full again.
		g.down, g.reading, g.rig.silent, g.others["b"].Ready = false, plenty, nil, true
		if g.lease.Holder == "b" {
			g.lease = lease.Lease{Exists: true}
		}
		for range 400 {
			wake, err := g.daemon.Pass(t.Context())
			if err != nil && !errors.Is(err, execute.ErrConflict) {
				t.Fatal(err)
			}
			if !wake.Again {
				g.now = g.now.Add(wake.After)
				g.host.Advance()
			}
		}
		if !g.at(fleet.LevelFull)() {
			t.Fatalf("never full again: level %s, label %q, Lease %q, %+v, %+v", g.host.Facts().Level, g.self.Labels[keys().Level()], g.lease.Holder, g.levelJournal(), g.daemon.Decision())
		}
	})
}

func FuzzParseLevelJournal(f *testing.F) {
	for _, s := range []string{"", "{", `{"from":"full","to":"control-plane","phase":"running"}`, `{"to":"agent"}`, strings.Repeat("x", 70000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		j, err := hostd.ParseLevelJournal(raw)
		if err != nil {
			return
		}
		again, err := hostd.ParseLevelJournal(j.Bytes())
		if len(raw) > 0 && (err != nil || fmt.Sprint(again) != fmt.Sprint(j)) {
			t.Errorf("%q: %v, %v", raw, again, err)
		}
	})
}

func pauseText() string { return `{"protocol":1,"at":"2026-11-29T12:00:00Z","reason":"upgrade"}` }

// Another host takes the Lease between this host's look and its write. The fake cluster
// fails the test when it is taken from it, or freed. What was refused starts no cooldown.
func TestALeaseThatGoesInTheLastMomentStaysItsHolders(t *testing.T) { // R-112-06, R-X-07, safety rule 21
	g := newGraded(t)
	struck := 0
	g.after = func(what string) {
		if j := g.levelJournal(); what == "report" && struck == 0 && j.Running() && g.lease.Holder == "" {
			struck++
			g.taken("b", g.now)
		}
	}
	g.reading = short
	passes := func(cond func() bool) {
		t.Helper()
		for range 400 {
			if cond() {
				return
			}
			wake, err := g.daemon.Pass(t.Context())
			if err != nil && !errors.Is(err, execute.ErrConflict) {
				t.Fatal(err)
			}
			if !wake.Again {
				g.now = g.now.Add(wake.After)
				g.host.Advance()
			}
		}
		t.Fatalf("never: %+v", g.levelJournal())
	}
	passes(func() bool { return g.levelJournal().Phase == fleet.PhaseRefused })
	if struck != 1 || g.lease.Holder != "b" || len(g.writes) > 0 {
		t.Fatalf("%d, Lease of %q, %v", struck, g.lease.Holder, g.writes)
	}
	g.lease = lease.Lease{Exists: true}
	freed := g.now
	passes(g.at(fleet.LevelControlPlane))
	if d := g.now.Sub(freed); d > time.Minute {
		t.Errorf("%s after the Lease was free", d)
	}

	// And when it lets its own go: by then another has it.
	g.taken("a", g.now)
	g.after = func(what string) {
		if what == "report" && g.lease.Holder == "a" {
			g.taken("b", g.now)
		}
	}
	g.again()
	g.pass()
	g.pass()
	if g.lease.Holder != "b" {
		t.Errorf("the Lease of %q", g.lease.Holder)
	}
}

// A controller that waited the Lease out begins a swap on this host in the middle of a
// step: its Node is the swap's by then.
func TestAStepLeavesItsNodeToASwap(t *testing.T) { // R-X-08, safety rule 26
	g := newGraded(t)
	g.bring(fleet.LevelControlPlane)
	g.leader = idB
	g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
	g.restart()
	g.until("marked", func() bool { return g.self.Labels[keys().Level()] == "etcd-only" })
	g.order("")
	g.writes = nil
	g.pass()
	g.pass()
	if j := g.levelJournal(); j.Phase != fleet.PhaseFailed || j.Code != hostd.CodeLevelSwap || len(g.writes) > 0 || g.restarts() > 0 {
		t.Errorf("%v, %d restarts: %+v", g.writes, g.restarts(), j)
	}
}

// On a host whose owner's program applies levels that program is the restart: every gate
// is asked again right before it, and k3s's unit is not restarted beside it (R-112-05).
func TestAProgramThatAppliesLevelsIsTheRestart(t *testing.T) {
	newApplied := func(t *testing.T) *graded {
		g := newGraded(t)
		g.host.Change(func(f *platform.Facts) { f.LevelRun.Applies = true })
		return g
	}
	applied := func(g *graded) int { return strings.Count(strings.Join(g.host.Calls, "\n"), "level ") }
	t.Run("down and up", func(t *testing.T) {
		g := newApplied(t)
		g.bring(fleet.LevelEtcdOnly)
		if applied(g) != 2 || g.restarts() != 0 || g.leader == idA {
			t.Errorf("%v, %d restarts, leader %s", g.host.Calls, g.restarts(), g.leader)
		}
		g.bring2(fleet.LevelFull)
		if applied(g) != 4 || g.restarts() != 0 {
			t.Errorf("%v, %d restarts", g.host.Calls, g.restarts())
		}
	})
	t.Run("a voter that falls in the last moment holds it", func(t *testing.T) {
		g := newApplied(t)
		g.bring(fleet.LevelControlPlane)
		n := applied(g)
		g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
		g.restart()
		g.leader = idB
		g.after = func(what string) {
			if what == "others" && g.self.Labels[keys().Level()] == "etcd-only" && !g.levelJournal().Replaces.IsZero() {
				g.rig.silent = []fleet.MemberID{idC}
			}
		}
		g.until("taken back", func() bool { return g.levelJournal().Phase == fleet.PhaseFailed })
		if applied(g) != n || g.host.Facts().Level != fleet.LevelControlPlane {
			t.Errorf("applied %d times more", applied(g)-n)
		}
	})
	t.Run("one that fails is named and taken back", func(t *testing.T) {
		g := newApplied(t)
		g.bring(fleet.LevelControlPlane)
		g.host.ApplyFails = "apply_level etcd-only: exit status 1: no room"
		g.command = &hostd.Command{Level: fleet.LevelEtcdOnly}
		g.restart()
		g.until("failed", func() bool { return g.levelJournal().Phase == fleet.PhaseFailed })
		if j := g.levelJournal(); j.Code != hostd.CodeNotApplied || !strings.Contains(j.Message, "no room") || g.self.Labels[keys().Level()] != "control-plane" {
			t.Errorf("%+v", j)
		}
	})
}

// bring2 brings a host on from where it is.
func (g *graded) bring2(l fleet.Level) {
	g.t.Helper()
	g.command = &hostd.Command{Level: l}
	g.restart()
	g.until("at "+string(l), g.at(l))
}
