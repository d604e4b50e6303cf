package sim_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

// plan is one random history: a fleet, a request, pods, and faults.
type plan struct {
	Voters, Standbys  int
	Seed              uint64
	TombstoneWhenDown bool
	Out, In           string
	Job               string // a protected pod runs here for JobFor
	JobFor            time.Duration
	Blocked           string // a pod here is held by a disruption budget
	Faults            []fault
	// Back are the faults of a second swap that undoes the first, nil for none.
	Back []fault
	// Stale is a host whose Node still names a member that k3s removed long ago.
	Stale string
}

// staleMember ends the name of a member that k3s removed long ago.
const staleMember = "-0badcafe"

// moments are the states at which faults strike.
var moments = []swap.State{
	swap.Begin, swap.Prepare, swap.Wait, swap.DrainIn, swap.TakeSnapshot, swap.Recheck, swap.Promote, swap.Settle,
	swap.DrainOut, swap.StepDown, swap.Remove, swap.Finish, swap.End, swap.Rollback, swap.Restore, swap.TakeOverState, swap.Reclaim,
}

func drawPlan(t *rapid.T) plan {
	p := plan{
		Voters:            rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "voters"),
		Standbys:          rapid.IntRange(1, 3).Draw(t, "standbys"),
		Seed:              rapid.Uint64Range(1, 1<<20).Draw(t, "seed"),
		TombstoneWhenDown: rapid.Bool().Draw(t, "tombstone when down"),
	}
	p.Out = fmt.Sprintf("v%d", rapid.IntRange(1, p.Voters).Draw(t, "out"))
	p.In = fmt.Sprintf("s%d", rapid.IntRange(1, p.Standbys).Draw(t, "in"))
	host := rapid.Custom(func(t *rapid.T) string {
		// Mostly the two that the swap is about.
		switch rapid.IntRange(0, 3).Draw(t, "which") {
		case 0:
			return p.Out
		case 1:
			return p.In
		case 2:
			return fmt.Sprintf("v%d", rapid.IntRange(1, p.Voters).Draw(t, "voter"))
		}
		return fmt.Sprintf("s%d", rapid.IntRange(1, p.Standbys).Draw(t, "standby"))
	})
	if rapid.IntRange(0, 3).Draw(t, "job") == 0 {
		p.Job = rapid.SampledFrom([]string{p.Out, p.In}).Draw(t, "job on")
		p.JobFor = time.Duration(rapid.IntRange(10, 400).Draw(t, "job for")) * time.Second
	}
	if rapid.IntRange(0, 9).Draw(t, "blocked") == 0 {
		p.Blocked = rapid.SampledFrom([]string{p.Out, p.In}).Draw(t, "blocked on")
	}
	kinds := faultKinds
	if rapid.IntRange(0, 2).Draw(t, "persons") > 0 {
		kinds = slices.DeleteFunc(slices.Clone(faultKinds), func(k string) bool { return persons[k] })
	}
	faults := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
		f := fault{
			Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			Host:   host.Draw(t, "host"),
			For:    time.Duration(rapid.SampledFrom([]int{1, 5, 20, 60, 180, 400}).Draw(t, "for")) * time.Second,
			Effect: rapid.IntRange(0, 7).Draw(t, "effect"),
			Mask:   rapid.IntRange(0, 255).Draw(t, "mask"),
		}
		if rapid.IntRange(0, 3).Draw(t, "anywhere") == 0 {
			f.After = rapid.IntRange(0, 120).Draw(t, "after")
		} else {
			f.At = rapid.SampledFrom(moments).Draw(t, "at")
			f.After = rapid.IntRange(0, 12).Draw(t, "after")
		}
		return f
	}), 0, 5)
	p.Faults = faults.Draw(t, "faults")
	if rapid.IntRange(0, 3).Draw(t, "newcomer fails") == 0 {
		// Long enough for a rollback, which chance alone seldom brings about.
		p.Faults = append([]fault{{
			At:    rapid.SampledFrom([]swap.State{swap.Promote, swap.Settle, swap.DrainOut, swap.StepDown}).Draw(t, "failing at"),
			After: rapid.IntRange(0, 8).Draw(t, "failing after"),
			Kind:  rapid.SampledFrom([]string{"crash", "pause", "network lost", "peer port blocked"}).Draw(t, "failing by"),
			Host:  p.In, For: 400 * time.Second,
		}}, p.Faults...)
	}
	if rapid.IntRange(0, 7).Draw(t, "falls as it is added") == 0 {
		// A moment of half a second, which chance alone never meets.
		p.Faults = append([]fault{{
			At: swap.Promote, Kind: "falls as it is added", Host: p.In, For: 40 * time.Second, Effect: rapid.IntRange(0, 9).Draw(t, "fallen for"),
		}}, p.Faults...)
	}
	if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
		p.Back = faults.Draw(t, "faults on the way back")
	}
	if rapid.IntRange(0, 5).Draw(t, "stale") == 0 {
		p.Stale = host.Draw(t, "stale on")
	}
	return p
}

// live carries the plan out and returns what was wrong.
func live(p plan) (r *run, wrong []string) {
	cfg := sim.DefaultConfig()
	cfg.Voters, cfg.Standbys, cfg.Seed, cfg.TombstoneWhenDown = p.Voters, p.Standbys, p.Seed, p.TombstoneWhenDown
	r, err := newRun(cfg)
	if err != nil {
		return nil, []string{err.Error()}
	}
	r.w.Guard()
	r.spend(40 * time.Second)
	before := r.w.Voters()
	if p.Job != "" {
		k, v, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
		r.w.AddPod(sim.Pod{Node: p.Job, Ends: time.Now().Add(p.JobFor), Pod: observe.Pod{
			Namespace: "runners", Name: "job", UID: "job", Owner: "Runner", Labels: map[string]string{k: v},
		}})
	}
	if p.Blocked != "" {
		r.w.AddPod(sim.Pod{Node: p.Blocked, Blocked: "budget web", Pod: observe.Pod{
			Namespace: "default", Name: "web", UID: "web", Owner: "ReplicaSet",
		}})
	}
	if p.Stale != "" {
		r.w.Edit("an old removed-node-name", func(a *sim.API) {
			a.Nodes[p.Stale].Annotations[fleet.AnnotationEtcdRemovedName] = p.Stale + staleMember
		})
	}
	wrong = r.one(before, p.Out, p.In, p.Faults)
	if p.Back == nil || len(wrong) > 0 {
		return r, wrong
	}
	r.first = r.outcome()
	before = r.w.Voters()
	if _, swapped := before[p.In]; !swapped {
		return r, nil
	}
	return r, r.one(before, p.In, p.Out, p.Back)
}

// one is a request with its faults, and a long quiet time behind it.
func (r *run) one(before map[string]fleet.MemberID, out, in string, faults []fault) (wrong []string) {
	r.request(out, in)
	for _, f := range faults {
		for range 600 {
			if f.At == "" || r.turn.Decision.State == f.At {
				break
			}
			r.step()
		}
		for range f.After {
			r.step()
		}
		r.suffer(f)
	}
	r.heal()
	within := 40 * time.Minute
	if r.person {
		within = 20 * time.Minute // it may wait for that person for ever
	}
	settled := r.settle(within)
	for _, v := range r.w.Violations() {
		wrong = append(wrong, v.String())
	}
	if r.disagreed != "" {
		wrong = append(wrong, r.disagreed)
	}
	if r.person {
		return append(wrong, r.wayOut(settled)...)
	}
	if !settled {
		wrong = append(wrong, "nothing ended: "+r.words())
	}
	wrong = append(wrong, r.left()...)
	return append(wrong, exchanged(before, r.w.Voters(), out, in)...)
}

// words are the last turn's, for a failure.
func (r *run) words() string {
	d := r.turn.Decision
	return fmt.Sprintf("state %s, row %s, action %s %s: %s; waits %v; error %v",
		d.State, d.Row, d.Action.Kind, d.Action.Node, d.Sentence, d.Waits, r.turn.Err)
}

// wayOut: where a person has changed what is not regrade's to put right, or a
// host never comes back, the target number votes and nothing is under way, or the
// controller waits and names what for.
func (r *run) wayOut(settled bool) []string {
	if settled && len(r.w.Voters()) == r.policy.Target {
		return nil
	}
	d := r.turn.Decision
	if st := r.status(); st != nil && len(st.Pending) > 0 && d.State == swap.Idle && len(r.w.Voters()) == r.policy.Target {
		return nil // the swap has ended, and the status names the host that is still owed its clean-up
	}
	if d.Acts() {
		return []string{"still acting: " + r.words()}
	}
	named := len(d.Waits) > 0
	for _, n := range append(r.names, "voters", "API server") {
		named = named || strings.Contains(d.Sentence, n)
	}
	if r.turn.Err != nil {
		named = r.turn.Err.Error() != ""
	}
	if !named || d.Code == "" && r.turn.Err == nil {
		return []string{fmt.Sprintf("%d voters, and the wait names nothing: %s", len(r.w.Voters()), r.words())}
	}
	return nil
}

// exchanged: the voters are those of before, or with OUT exchanged for IN.
func exchanged(before, after map[string]fleet.MemberID, out, in string) []string {
	var wrong []string
	_, outStill := after[out]
	_, inNow := after[in]
	if outStill == inNow {
		wrong = append(wrong, fmt.Sprintf("out votes: %t, in votes: %t", outStill, inNow))
	}
	for host, id := range before {
		if got := after[host]; host != out && got != id {
			wrong = append(wrong, fmt.Sprintf("the member of %s was %s and is %s", host, id, got))
		}
	}
	for host := range after {
		if _, was := before[host]; !was && host != in {
			wrong = append(wrong, host+" became a voter")
		}
	}
	return wrong
}

// setChecks sets how many histories a property lives through: few by default,
// and always the same ones, so that a build does not fail by chance. As many as
// REGRADE_SIM_CHECKS says are other ones each time; rapid's own flags win.
func setChecks(t *testing.T, few int) {
	t.Helper()
	want := map[string]string{"rapid.checks": strconv.Itoa(few), "rapid.seed": "20261129"}
	if env := os.Getenv("REGRADE_SIM_CHECKS"); env != "" {
		want = map[string]string{"rapid.checks": env}
	}
	for name, value := range want {
		f := flag.Lookup(name)
		if f.Value.String() != f.DefValue {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, f.DefValue) })
	}
}

// Whatever fails in the middle of a swap, the invariants hold after every
// event, and once nothing fails any more the swap ends and leaves a clean
// cluster behind (safety rules 1-4, 6, 10-13, 16, 18-21, 25, 27).
func TestWhateverFailsTheInvariantsHoldAndTheSwapEnds(t *testing.T) {
	setChecks(t, 40)
	outcomes := map[string]int{}
	defer func() { t.Logf("outcomes: %v", outcomes) }()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			p := drawPlan(t)
			r, wrong := live(p)
			outcomes[r.outcome()]++
			if r.first != "" {
				outcomes["there and back"]++
			}
			if len(wrong) == 0 {
				return
			}
			report(t, p, r, wrong)
		})
	})
}

// outcome is how the swap ended, or why none began.
func (r *run) outcome() string {
	if r == nil {
		return "none"
	}
	if len(r.swaps) == 0 {
		return "not begun"
	}
	if st := r.status(); st != nil && st.LastSwap != nil {
		return string(st.LastSwap.Outcome)
	}
	return "begun, outcome lost"
}

func report(t *rapid.T, p plan, r *run, wrong []string) {
	t.Logf("plan: %+v", p)
	if r != nil {
		for _, e := range r.w.Log() {
			t.Log(e)
		}
	}
	for _, s := range wrong {
		t.Log("WRONG: " + s)
	}
	t.Fatalf("%d things are wrong; the first: %s", len(wrong), wrong[0])
}
