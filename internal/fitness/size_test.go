package fitness_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
	"github.com/exadev/regrade/internal/status"
)

// The verdicts of 64 hosts go into one document with the rest of a status, also
// where everything is bad: every standby finds every voter slow and lossy.
func TestTheVerdictsOf64HostsFitInAStatus(t *testing.T) {
	for name, bad := range map[string]bool{"calm": false, "everything is bad": true} {
		f := fitnesstest.New(7, 57)
		if bad {
			for _, v := range f.Voters {
				f.Delay[v], f.Loss[v], f.Disk[v] = 700*time.Millisecond, 0.1, 30
			}
			for _, s := range f.Standbys {
				f.Disk[s] = 30
			}
		}
		vs := fitness.Judge(f.Hosts(), fitness.DefaultPolicy())
		whole, trimmed := length(t, vs), fitness.Trim(vs, status.MaxDocument*3/4)
		t.Logf("%s: %d bytes, trimmed %d", name, whole, length(t, trimmed))
		if n := length(t, trimmed); n > status.MaxDocument*3/4 {
			t.Errorf("%s: %d bytes are too many for a document of %d", name, n, status.MaxDocument)
		}
		if !bad && whole != length(t, trimmed) {
			t.Errorf("%s: something is left out without need", name)
		}
		for i := range vs {
			if trimmed[i].Fitness != vs[i].Fitness || len(vs[i].Reasons) > 0 && trimmed[i].Reasons[0].Code != vs[i].Reasons[0].Code {
				t.Errorf("%s: %+v became %+v", name, vs[i], trimmed[i])
			}
		}
	}
}

func length(t *testing.T, vs []fitness.Verdict) int {
	t.Helper()
	raw, err := json.Marshal(vs)
	if err != nil {
		t.Fatal(err)
	}
	return len(raw)
}

// What an ordinary fleet writes: the figure behind how often a probe may write
// (safety rule 29).
func TestACalmEntryIsSmall(t *testing.T) {
	for voters, most := range map[int][2]int{3: {3 << 10, 2 << 10}, 7: {4 << 10, 5 << 9}} {
		hosts := fitnesstest.New(voters, 1).Hosts()
		for i, h := range []fitness.Host{hosts[0], hosts[voters]} {
			raw, err := h.Window.Encode()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d voters, %s votes %t: %d bytes", voters, h.Node, h.Votes, len(raw))
			if len(raw) > most[i] {
				t.Errorf("%d voters: the entry of %s has %d bytes, want at most %d", voters, h.Node, len(raw), most[i])
			}
		}
	}
}
