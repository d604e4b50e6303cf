package beat_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/heartbeat/beat"
	"github.com/exadev/regrade/internal/observe"
)

// minutes are ticks three minutes apart, each after its change of the cluster.
func minutes(t *testing.T, b *beat.Beat, n int, each func(i int)) {
	t.Helper()
	for i := range n {
		if each != nil {
			each(i)
		}
		b.Tick(t.Context())
		time.Sleep(3 * time.Minute)
	}
}

func listening(r *rig, interval time.Duration) *beat.Beat {
	return beat.New(r, beat.Settings{
		Build:    heartbeat.Settings{Checks: heartbeat.DefaultChecks(), Target: 3, StatusLife: heartbeat.DefaultStatusLife, Interval: interval},
		Interval: 3 * time.Minute, Publishers: []beat.Publisher{r},
	})
}

// speaks has the host daemon of n2 write its heartbeat. Its host's clock is an hour ahead.
func (r *rig) speaks(counter int) {
	r.beats = []observe.Heartbeat{{Node: "n2", BootID: "b", Counter: strconv.Itoa(counter), Renewed: time.Now().Add(time.Hour)}}
}

func (r *rig) wantDown(t *testing.T, want ...string) {
	t.Helper()
	v := r.document(t).Voters
	if v == nil || !slices.Equal(v.Down, want) || v.Up != 3-len(want) || v.NoToleranceSince.IsZero() != (len(want) == 0) {
		t.Errorf("voters %+v, want %v down", v, want)
	}
}

// A host that dies while it is etcd-only is not Ready before and after. The break check:
// leave Silent out of the count.
func TestAHostThatDiesWhileItIsEtcdOnlyIsAVoterThatIsDown(t *testing.T) { // rule 24, R-X-09
	synctest.Test(t, func(t *testing.T) {
		r := newRig("a")
		r.held = "n2"
		b := listening(r, 3*time.Minute)
		minutes(t, b, 20, func(i int) { r.speaks(i) })
		r.wantDown(t)
		minutes(t, b, 1, nil) // it has fallen silent, three minutes ago
		r.wantDown(t)
		minutes(t, b, 1, nil)
		r.wantDown(t, "n2")

		// What is known is not lost by a restart, nor by a look that fails.
		again := listening(r, 3*time.Minute)
		minutes(t, again, 1, nil)
		r.wantDown(t, "n2")
		r.beatsErr = errors.New("no answer in time")
		minutes(t, again, 1, nil)
		r.wantDown(t, "n2")
		r.beatsErr = nil
		minutes(t, again, 1, func(int) { r.speaks(100) })
		r.wantDown(t)
		r.held = "" // it is full again, and Ready
		minutes(t, again, 1, nil)
		r.wantDown(t)
	})
}

func TestWhatNobodySaysOfAServerAtALevelIsNoDeath(t *testing.T) {
	for sentence, c := range map[string]struct {
		interval time.Duration
		change   func(r *rig)
		reads    bool
	}{
		"there is no heartbeat":                      {3 * time.Minute, func(*rig) {}, true},
		"the heartbeats may not be read":             {3 * time.Minute, func(r *rig) { r.speaks(1); r.beatsErr = errors.New("leases is forbidden") }, true},
		"there is only its probe's":                  {3 * time.Minute, func(r *rig) { r.speaks(1); r.beats[0].Probe = true }, true},
		"another host's daemon is silent":            {3 * time.Minute, func(r *rig) { r.speaks(1); r.beats[0].Node = "n3" }, true},
		"one tick alone, which sees nothing move":    {0, func(r *rig) { r.speaks(1) }, false},
		"no server is at a level":                    {3 * time.Minute, func(r *rig) { r.held = "" }, false},
		"the Nodes cannot be read":                   {3 * time.Minute, func(r *rig) { r.apiErr = errors.New("no answer") }, false},
		"a controller of today hears its daemon":     {3 * time.Minute, func(r *rig) { r.speaks(1) }, false},
		"a controller of an hour ago heard of it":    {3 * time.Minute, func(*rig) {}, true},
		"a server at a level that is Ready is there": {3 * time.Minute, func(r *rig) { r.held = "n9" }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig("a")
				r.held = "n2"
				c.change(r)
				b := listening(r, c.interval)
				minutes(t, b, 10, func(int) {
					at := time.Now()
					switch sentence {
					case "a controller of an hour ago heard of it":
						at = at.Add(-time.Hour)
					case "a controller of today hears its daemon":
					default:
						return
					}
					r.status = fmt.Sprintf(`{"protocol":1,"at":%q,"target":3,"dry_run":true,"hosts":[{"name":"n1","fresh":true,"voter":true},{"name":"n2","fresh":true,"voter":true},{"name":"n3","fresh":true,"voter":true}]}`, at.UTC().Format(time.RFC3339))
				})
				if r.apiErr == nil {
					r.wantDown(t)
				}
				if (r.beatReads > 0) != c.reads {
					t.Errorf("heartbeats were read %d times", r.beatReads)
				}
			})
		})
	}
}
