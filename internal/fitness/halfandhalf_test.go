package fitness_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
)

// A link that is bad in as many samples lasts as long, whether its connects are slow,
// fail, or do either by turns.
func TestALinkThatIsSlowAndLossyByTurnsLastsAsOneThatIsAllOfOne(t *testing.T) {
	for name, failed := range map[string]func(i int) bool{
		"slow":     func(int) bool { return false },
		"failing":  func(int) bool { return true },
		"by turns": func(i int) bool { return i%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			f := fitnesstest.New(3, 1)
			p := fitness.DefaultPolicy()
			for _, node := range []string{"n1", "n4"} {
				f.Edit[node] = func(n int, s *fitness.Sample) {
					if n%20 != 10 || n > 70 {
						return // four samples of a hundred, over more than a quarter of the window
					}
					for i := range s.Connect {
						if node == "n4" && s.Connect[i].To != "n1" {
							continue
						}
						if s.Connect[i].Failed = failed(n / 20); !s.Connect[i].Failed {
							s.Connect[i].Took = p.LinkLimit() + time.Millisecond
						}
					}
				}
			}
			vs := fitness.Judge(f.Hosts(), p)
			n1 := vs[0]
			if n1.Fitness != fitness.Unfit || n1.Part != fitness.Cause || n1.BadLinks != 2 || n1.LastingLinks != 2 || n1.Seen != 1 {
				t.Errorf("%s, %s, on %d bad links of which %d last, seen by %d standbys", n1.Fitness, n1.Part, n1.BadLinks, n1.LastingLinks, n1.Seen)
			}
			if len(n1.Grounds()) == 0 {
				t.Fatal("no ground")
			}
			for _, r := range n1.Grounds() {
				if !r.Lasting {
					t.Errorf("not lasting: %s", r.Sentence)
				}
				// What a person is told counts them together as well.
				if m := r.Measure; m == nil || m.Beyond != 4 {
					t.Errorf("%s: beyond the limit in %+v", r.Sentence, m)
				}
			}
		})
	}
}
