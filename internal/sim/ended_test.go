package sim_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

// Histories around the end of a swap: what says that it has ended, who may say so,
// and that nothing which is lost or put back begins it again.

func play(t *testing.T, p plan) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, wrong := live(p)
		for _, w := range wrong {
			t.Error(w)
		}
		if len(r.w.Voters()) != 3 {
			t.Errorf("%d voters are left: %s", len(r.w.Voters()), r.words())
		}
	})
}

// The status goes, comes back as it was long ago, or cannot be read, while the marks
// of an ended swap are taken off: no swap begins again (safety rule 25).
func TestAStatusThatGoesAtTheEndBeginsNoSwapAgain(t *testing.T) {
	for _, kind := range []string{"status deleted", "old status put back", "status unreadable"} {
		for _, how := range []string{"completed", "abandoned", "rolled back"} {
			for after := range 6 {
				t.Run(fmt.Sprintf("%s, %s, after %d", kind, how, after), func(t *testing.T) {
					p := plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1"}
					switch how {
					case "abandoned":
						p.Job, p.JobFor = "v1", 10*time.Minute
					case "rolled back":
						p.Faults = []fault{{At: swap.Promote, Kind: "falls as it is added", Host: "s1", For: 40 * time.Second, Effect: 8}}
					}
					p.Faults = append(p.Faults, fault{At: swap.End, After: after, Kind: kind, Host: "v1", For: 20 * time.Second, Effect: 3}, fault{Kind: "quiet", For: 3 * time.Minute})
					play(t, p)
				})
			}
		}
	}
}

// A controller stops just before it writes how the swap ended. Another one takes
// the swap over, and what had kept it is gone by then; the first one goes on
// (safety rule 21).
func TestAControllerThatSleptEndsNoSwapOfAnother(t *testing.T) {
	arm := func(r *run, f fault) {
		old := r.boss
		old.stall(0, "@never", f.For)
		old.replaced = true
		once := false
		r.alter = func(d swap.Decision) swap.Decision {
			if d.Action.Kind == swap.Conclude && !once {
				once = true
				old.what = "write configmap"
			}
			return d
		}
	}
	faults["stops in conclude"] = arm
	defer delete(faults, "stops in conclude")
	for _, sleep := range []time.Duration{45 * time.Second, 60 * time.Second, 70 * time.Second, 90 * time.Second, 3 * time.Minute} {
		t.Run(fmt.Sprint("job ", sleep), func(t *testing.T) {
			play(t, plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Job: "v1", JobFor: 135 * time.Second,
				Faults: []fault{{At: swap.Wait, Kind: "stops in conclude", For: sleep}, {Kind: "quiet", For: 6 * time.Minute}}})
		})
	}
}

// A controller has written how a swap ended and stops before it publishes the rest
// of the status. Another releases the Lease and carries out the next swap; the
// first goes on (safety rule 21).
func TestAStatusIsNeverWrittenOverANewerOne(t *testing.T) {
	for k := 3; k <= 6; k++ {
		t.Run(fmt.Sprint("call ", k), func(t *testing.T) {
			var before, after string
			faults["stops after conclude"] = func(r *run, f fault) {
				old := r.boss
				old.stall(0, "@never", f.For)
				old.replaced = true
				once := false
				r.alter = func(d swap.Decision) swap.Decision {
					if d.Action.Kind == swap.Conclude && !once {
						once = true
						old.what, old.at = "", old.calls+k
					}
					return d
				}
			}
			last := func(r *run) string {
				if st := r.status(); st != nil && st.LastSwap != nil {
					return fmt.Sprintf("%s %s, %d in the history", st.LastSwap.ID, st.LastSwap.Outcome, len(st.History))
				}
				return "none"
			}
			faults["asks for the way back"] = func(r *run, f fault) { r.request("s1", "v1") }
			faults["note"] = func(r *run, f fault) { before = last(r) }
			faults["note again"] = func(r *run, f fault) { after = last(r) }
			defer delete(faults, "stops after conclude")
			defer delete(faults, "asks for the way back")
			defer delete(faults, "note")
			defer delete(faults, "note again")
			outlive(t, plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1",
				Faults: []fault{{At: swap.DrainOut, Kind: "stops after conclude", For: 8 * time.Minute}, {After: 40, Kind: "quiet", For: 2 * time.Minute},
					{Kind: "asks for the way back"}, {Kind: "quiet", For: 4 * time.Minute}, {Kind: "note"}, {Kind: "quiet", For: 4 * time.Minute}, {Kind: "note again"}}})
			if before != after {
				t.Errorf("the status of a controller that slept took the place of another's: %s before, %s after", before, after)
			}
		})
	}
}

// The marks of a swap that ended before the last one did are put back on its Nodes:
// everything is held and a person is told (safety rule 25).
func TestMarksOfAnOldSwapBeginNothing(t *testing.T) {
	var saved map[string]map[string]string
	faults["save nodes"] = func(r *run, f fault) {
		saved = map[string]map[string]string{}
		r.w.Edit("save", func(a *sim.API) {
			for n, o := range a.Nodes {
				saved[n] = maps.Clone(o.Annotations)
			}
		})
	}
	faults["put back node"] = func(r *run, f fault) {
		r.w.Edit("old annotations put back on "+f.Host, func(a *sim.API) {
			for k, v := range saved[f.Host] {
				if strings.Contains(k, "role-") {
					a.Nodes[f.Host].Annotations[k] = v
				}
			}
		})
	}
	defer delete(faults, "save nodes")
	defer delete(faults, "put back node")
	for _, at := range []swap.State{swap.Prepare, swap.Recheck, swap.Promote, swap.DrainOut, swap.StepDown, swap.Finish} {
		for _, hosts := range [][]string{{"v1"}, {"s1"}, {"s1", "v1"}} {
			t.Run(fmt.Sprint(at, " ", hosts), func(t *testing.T) {
				back := []fault{{At: swap.End, After: 10, Kind: "quiet", For: time.Minute}}
				for _, h := range hosts {
					back = append(back, fault{Kind: "put back node", Host: h})
				}
				back = append(back, fault{Kind: "quiet", For: 25 * time.Minute})
				held(t, plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{{At: at, Kind: "save nodes"}}, Back: back})
			})
		}
	}
}

// outlive only lives through a history.
func outlive(t *testing.T, p plan) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, _ := live(p)
		for _, v := range r.w.Violations() {
			t.Error(v)
		}
	})
}

// held wants nothing done and the reason named.
func held(t *testing.T, p plan) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, _ := live(p)
		for _, v := range r.w.Violations() {
			t.Error(v)
		}
		if d := r.turn.Decision; d.State != swap.Contradiction || len(d.Waits) == 0 || !strings.Contains(d.Waits[0].Sentence, "put back") || len(r.w.Voters()) != 3 {
			t.Errorf("%d voters: %s", len(r.w.Voters()), r.words())
		}
	})
}
