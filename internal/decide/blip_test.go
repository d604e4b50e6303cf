package decide

import (
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
)

// One bad link between two voters does not say which end is to blame. Two slow
// connects of one moment on another link of one end, which a fit link has now and
// then, must not make that end the cause that is swapped out.
func TestABlipOnAnotherLinkDoesNotDecideWhichEndOfABadLinkGoes(t *testing.T) {
	for _, end := range []string{"n1", "n3"} {
		g := calm()
		took := func(node, to string, from, until int) {
			before := g.fleet.Edit[node]
			g.fleet.Edit[node] = func(n int, s *fitness.Sample) {
				if before != nil {
					before(n, s)
				}
				for i := range s.Connect {
					if s.Connect[i].To == to && n >= from && n < until {
						s.Connect[i].Took = 700 * time.Millisecond
					}
				}
			}
		}
		took("n1", "n3", 0, 1000)
		took("n3", "n1", 0, 1000)
		if d := g.decide(); d.Pair != nil {
			t.Fatalf("without the blip: %s", told(d))
		}
		took(end, "n2", 50, 52) // one moment: two samples
		if d := g.decide(); d.Pair != nil {
			t.Errorf("the blip of %s decides: %s", end, told(d))
		}
	}
}
