package sim_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Right after the Lease was taken the standby finds servers to join that cannot say who
// the members are (safety rule 17). That is waited for, with nothing written on a Node;
// the swap goes on when it has passed, and is abandoned for it after a minute.
func TestServersToJoinThatFalterAtTheBeginningAreWaitedForAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		ends  fleet.Outcome
	}{
		"and the swap goes on when they can": {30 * time.Second, fleet.OutcomeCompleted},
		"and then it is abandoned":           {10 * time.Minute, fleet.OutcomeAbandoned},
	} {
		t.Run(name, func(t *testing.T) {
			faults["servers to join falter"] = func(r *run, f fault) {
				r.w.FalterFor(f.Host, f.For)
				r.w.DaemonDied(f.Host)
				r.newDaemon(f.Host) // which judges at once; another would within a minute
				r.boss.due = time.Now().Add(3 * time.Second)
			}
			faults["looked at"] = func(r *run, _ fault) {
				began := time.Now()
				for r.turn.Decision.State == swap.Begin && r.turn.Decision.Row != "RecordOnIn" && r.turn.Decision.Action.Kind != swap.Conclude {
					r.step()
				}
				waited := time.Since(began)
				if waited < min(c.lasts, status.JoinPatience)-10*time.Second || waited > status.JoinPatience+30*time.Second {
					t.Errorf("it waited for %s", waited)
				}
				writes := 0
				for _, e := range r.w.Log() {
					if e.By == "controller" && e.Node != "" {
						writes++
					}
				}
				if r.turn.Decision.Row == "RecordOnIn" {
					writes--
				}
				if writes > 0 {
					t.Errorf("%d writes on Nodes meanwhile: %s", writes, r.words())
				}
			}
			defer delete(faults, "servers to join falter")
			defer delete(faults, "looked at")
			synctest.Test(t, func(t *testing.T) {
				r, wrong := live(plan{Voters: 3, Standbys: 1, Seed: 7, Out: "v1", In: "s1", Faults: []fault{
					{At: swap.Begin, Kind: "servers to join falter", Host: "s1", For: c.lasts},
					{After: 3, Kind: "looked at"},
				}})
				for _, s := range wrong {
					t.Error(s)
				}
				st := r.status()
				if st == nil || st.LastSwap == nil || st.LastSwap.Outcome != c.ends {
					t.Fatalf("it ended as %+v; %s", st, r.words())
				}
				var why strings.Builder
				for _, x := range st.LastSwap.Reasons {
					why.WriteString(x.Code)
				}
				if want := map[fleet.Outcome]string{fleet.OutcomeAbandoned: status.CodeJoinHostFalters}[c.ends]; why.String() != want {
					t.Errorf("its reasons are %q, want %q", why.String(), want)
				}
			})
		})
	}
}
