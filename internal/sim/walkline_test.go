package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// root is a moment from which more is walked later.
type root struct {
	moment
	path []string
}

// whole is the whole walk: all without a fault first, then what the first fault leads
// to. A state that is reached both ways is then walked once, with more faults to come.
func (k *walk) whole() {
	k.began = spent()
	k.sumAll()
	k.explore()
	k.layered = true
	said := k.began
	for i, r := range k.roots {
		if now := spent(); now-said > time.Minute {
			said = now
			k.tell(fmt.Sprintf("after %d of %d roots", i, len(k.roots)))
		}
		k.path = append(k.path[:0], r.path...)
		k.strikes(r.moment)
	}
}

// short: the short cut of one order from beat to beat may be taken.
func (k *walk) short() bool { return !k.plain && !k.anywhere && k.bursts }

// line walks on in one order, from the beginning of a beat to the end of the swap or
// to a state that is known. Nothing branches within a beat, so only the beginnings of
// beats are states; the invariants look after every event all the same. The next
// fault strikes once the line has come to its end, from its last beat to its first:
// what the fault leads back to is known then.
func (k *walk) line(d digest) {
	began := len(k.path)
	var on []moment
	mine := map[digest]bool{}
	for {
		if mine[d] && len(k.w.guard.violations) == 0 {
			k.stands()
			break
		}
		if !k.arrive(d) {
			break
		}
		mine[d] = true
		if k.mayStrike() {
			on = append(on, k.freeze())
		}
		k.path = append(k.path, beatPasses)
		k.settle()
		k.oneBeat()
		k.sumAll()
		d, _ = k.digest()
	}
	for _, m := range slices.Backward(on) {
		k.strikes(m)
	}
	k.path = k.path[:began]
}

// inTurn is the one order: the hosts say what there is, the controller sees all of it.
var inTurn = [processes]int{1, 2, staying, 0}

// settle lets all pass in one order, again and again, until nobody has anything more to
// do. A pass that changed nothing is not made again before something that it depends
// on has changed (input).
func (k *walk) settle() {
	var idle [processes]digest
	for range 50 {
		quiet := true
		for _, i := range inTurn {
			before := k.input(i)
			if !k.alive(i) || idle[i] == before {
				continue
			}
			k.steps++
			was := k.sums
			k.pass(i)
			k.sum(i)
			if k.sums == was {
				idle[i] = before
			} else {
				quiet = false
			}
		}
		if quiet {
			return
		}
	}
	k.fail("never at rest")
}

// stands: the line has come round to where it was, so that nothing more comes by
// itself. Somebody is told then what is waited for, or which host is still owed its
// clean-up (safety rules 16 and 25).
func (k *walk) stands() {
	var st status.Status
	if cm := k.w.api.ConfigMaps[fleet.ConfigMapStatus]; cm != nil {
		st, _ = status.ParseStatus([]byte(cm.Data[fleet.KeyStatus]))
	}
	if st.Next.Code == "" && len(st.Next.Waits) == 0 && len(st.Pending) == 0 {
		k.fail("it stands still and nothing says why: " + strings.Join(k.w.Clean(), "; "))
	}
	what := fmt.Sprintf("stands, %s, pending %v", st.Next.Code, st.Pending)
	if k.outcomes[what]++; k.outcomes[what] == 1 {
		k.examples = append(k.examples, fmt.Sprintf("%s: %s %s\n  not clean: %s\n  by %s", what, st.Next.State, st.Next.Sentence, strings.Join(k.w.Clean(), "; "), strings.Join(k.path, ", ")))
	}
}
