package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/status"
)

// Issue 4, bad input: an account that writes another boot id in each period, of whatever
// length, makes a reader keep no more of them, and the last ones are still known.
func TestBootsThatAreMadeUpTakeNoMoreMemory(t *testing.T) {
	boot := func(i int) string { return fmt.Sprintf("%d-%s", i, strings.Repeat("x", 200)) }
	const many = 10 * mostBoots
	t.Run("in entries of probes", func(t *testing.T) {
		entry := func(i int) string {
			w := fitness.Window{Node: "n2", BootID: boot(i), Period: 15 * time.Second, Size: 5}
			w.Append(fitness.Sample{At: time.Unix(1e9+int64(i), 0)})
			raw, err := w.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}
		var p Probes
		see := func(i int) SeenProbe {
			return p.See([]string{"n2"}, map[string]string{"n2": entry(i)}, 0, nil, time.Now())[0]
		}
		for i := range many {
			see(i)
		}
		if n := len(p.seen["n2"].former); n > mostBoots {
			t.Errorf("%d boots are kept", n)
		}
		if s := see(many - mostBoots/2); s.Seen {
			t.Error("an entry of a boot that was seen before is news")
		}
	})
	t.Run("in reports of hosts", func(t *testing.T) {
		var s seenReport
		for i := range many {
			s.seeReport(boot(i), &status.Report{BootID: boot(i), Counter: 1}, time.Now())
		}
		if n := len(s.former); n > mostBoots {
			t.Errorf("%d boots are kept", n)
		}
		if !s.older(&status.Report{BootID: boot(many - mostBoots/2), Counter: 2}) {
			t.Error("a report of a boot that was seen before is news")
		}
	})
}
