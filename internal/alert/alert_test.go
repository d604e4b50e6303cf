package alert_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/status"
)

var (
	start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	rules = alert.Rules{After: alert.DefaultAfter, Receivers: []string{"webhook"}}
)

// story is a run of looks, one a minute, with what was told of each.
type story struct {
	t     *testing.T
	state alert.State
	at    time.Time
	first bool
	told  []string
}

func newStory(t *testing.T) *story {
	return &story{t: t, at: start, first: true}
}

// healthy is the document of a fleet that is well.
func healthy(at time.Time) *heartbeat.Document {
	return &heartbeat.Document{
		Protocol: 1, At: at, Healthy: true, Reasons: []string{}, Checks: []heartbeat.Check{{Name: "api", OK: true}, {Name: "nodes", OK: true}, {Name: "voters", OK: true}},
		NotReady: []heartbeat.NotReady{}, NodePressure: []heartbeat.Pressure{},
		Voters: &heartbeat.Voters{Count: 3, Up: 3, Target: 3, Tolerance: 1, By: heartbeat.ByMembers},
	}
}

// look is one minute later.
func (s *story) look(d *heartbeat.Document, problem string) {
	s.t.Helper()
	g := alert.Sight{Document: d, Problem: problem, Elapsed: time.Minute}
	if s.first {
		g.Elapsed, s.first = 0, false
	}
	s.state = alert.Step(s.state, g, rules)
	s.take()
	s.at = s.at.Add(time.Minute)
}

// take is the one receiver, and a restart after it.
func (s *story) take() {
	s.t.Helper()
	for _, l := range s.state.Outbox {
		m := l.Message
		s.told = append(s.told, strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Event, m.Kind, m.Subject)))
		s.state = alert.Delivered(s.state, m.ID, "webhook")
	}
	s.restart()
}

// restart loses all but what is written.
func (s *story) restart() {
	s.t.Helper()
	raw, err := json.Marshal(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.state, err = alert.ParseState(raw); err != nil {
		s.t.Fatal(err)
	}
}

// minutes of a document that change made of a healthy one.
func (s *story) minutes(n int, change func(d *heartbeat.Document)) {
	s.t.Helper()
	for range n {
		d := healthy(s.at)
		if change != nil {
			change(d)
		}
		s.look(d, "")
	}
}

// gone are minutes without a document.
func (s *story) gone(n int) {
	s.t.Helper()
	for range n {
		s.look(nil, "connection refused")
	}
}

func (s *story) want(told ...string) {
	s.t.Helper()
	if diff := cmp.Diff(told, s.told); diff != "" {
		s.t.Error(diff)
	}
	s.told = nil
}

func lost(name string, since time.Time) func(*heartbeat.Document) {
	return func(d *heartbeat.Document) {
		d.NotReady = append(d.NotReady, heartbeat.NotReady{Name: name, Role: fleet.RoleServer, Since: since, Voter: true})
		d.Voters.Up--
		if d.Voters.Tolerance--; d.Voters.Tolerance == 0 {
			d.Voters.NoToleranceSince = since
		}
	}
}

func swapping(deadline time.Time) func(*heartbeat.Document) {
	return func(d *heartbeat.Document) {
		d.RoleSwap = &status.Swap{ID: "20261130T120000Z-n1-n4", Out: "n1", In: "n4", Step: "drain-out", StepSince: start, Deadline: deadline}
	}
}

func even(count int, since time.Time) func(*heartbeat.Document) {
	return func(d *heartbeat.Document) {
		d.Voters.Count, d.Voters.Up, d.Voters.EvenSince = count, count, since
		d.Voters.Tolerance = (count - 1) / 2
		if count == 2 {
			d.Voters.NoToleranceSince = since
		}
		if count != d.Voters.Target {
			failing("voters", fmt.Sprintf("etcd has %d voters, 3 are wanted", count), since)(d)
		}
	}
}

func failing(check, reason string, since time.Time) func(*heartbeat.Document) {
	return func(d *heartbeat.Document) {
		d.Healthy, d.Reasons = false, append(d.Reasons, reason)
		d.Checks = slices.DeleteFunc(d.Checks, func(c heartbeat.Check) bool { return c.Name == check })
		d.Checks = append(d.Checks, heartbeat.Check{Name: check, Reason: reason, Since: since})
	}
}

func both(a, b func(*heartbeat.Document)) func(*heartbeat.Document) {
	return func(d *heartbeat.Document) { a(d); b(d) }
}

func TestAHealthyFleetRaisesNothing(t *testing.T) {
	s := newStory(t)
	s.minutes(60, nil)
	s.want()
}

func TestALostServerAlertsOnceAfterTheWindowAndRecoversOnce(t *testing.T) { // R-F-08
	s := newStory(t)
	s.minutes(16, lost("n2", start))
	s.want()
	s.minutes(30, lost("n2", start))
	s.want("alert server_not_ready n2")
	s.minutes(30, nil)
	s.want("recovery server_not_ready n2")
}

// The loss of a voter leaves three voters without tolerance: the alert of that server
// says it, and no second one is raised.
func TestALostVoterIsOneAlertThatSaysWhatItMeans(t *testing.T) {
	d := healthy(start.Add(time.Hour))
	lost("n2", start)(d)
	j := alert.Judge(d, rules.After, func(alert.Condition) time.Time { return time.Time{} })
	if len(j.Due) != 1 || j.Due[0].Severity != alert.Critical || !strings.Contains(j.Due[0].Sentence, "2 of 3 voters are up, and the next loss stops all writes") {
		t.Errorf("%+v", j.Due)
	}
}

func TestASilentVoterOnAReadyNodeIsNoTolerance(t *testing.T) { // rule 24
	s := newStory(t)
	silent := func(d *heartbeat.Document) {
		d.Voters.Up, d.Voters.Tolerance, d.Voters.NoToleranceSince = 2, 0, start
	}
	s.minutes(40, silent)
	s.want("alert no_tolerance")
	s.minutes(1, nil)
	s.want("recovery no_tolerance")
}

// Its Node is Ready before its daemon speaks: for that moment nobody is told that there
// is no tolerance, which has been so all the while.
func TestALostVoterThatComesBackRaisesNothingElse(t *testing.T) {
	s := newStory(t)
	s.minutes(40, lost("n2", start))
	s.want("alert server_not_ready n2")
	silent := func(d *heartbeat.Document) {
		d.Voters.Up, d.Voters.Tolerance, d.Voters.NoToleranceSince = 2, 0, start
	}
	s.minutes(3, silent)
	s.want("recovery server_not_ready n2")
	s.minutes(5, nil)
	s.want()
	s.minutes(40, silent)
	s.want("alert no_tolerance")
}

// A window may be shorter than the API takes to call a Node not Ready: who was told that no
// more voter may fail, for n2, is not told of n2 again. The break check: without State.named.
func TestALossIsOneAlertHoweverShortTheWindow(t *testing.T) { // R-F-08, issue 6
	short := alert.Rules{After: 12 * time.Second, Receivers: rules.Receivers}
	silent := func(since time.Time, names ...string) func(*heartbeat.Document) {
		return func(d *heartbeat.Document) {
			d.Voters.Up -= len(names)
			d.Voters.Tolerance, d.Voters.NoToleranceSince, d.Voters.Down = 0, since, names
		}
	}
	unready := func(since time.Time, names ...string) func(*heartbeat.Document) {
		return func(d *heartbeat.Document) {
			silent(start, names...)(d)
			for _, n := range names {
				d.NotReady = append(d.NotReady, heartbeat.NotReady{Name: n, Role: fleet.RoleServer, Since: since, Voter: true})
			}
		}
	}
	five := func(of func(*heartbeat.Document)) func(*heartbeat.Document) {
		return func(d *heartbeat.Document) {
			d.Voters.Count, d.Voters.Up, d.Voters.Target = 5, 5, 5
			of(d)
		}
	}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for sentence, test := range map[string]struct {
		part []func(*heartbeat.Document) // each for so many seconds
		long []int
		want []string
	}{
		"the Node follows its voter": {
			[]func(*heartbeat.Document){silent(start, "n2"), unready(at(40), "n2"), silent(start, "n2"), nil}, []int{40, 100, 5, 30},
			[]string{"alert no_tolerance", "recovery no_tolerance"},
		},
		"the Node stops being Ready long after: until then its daemon alone was silent": {
			[]func(*heartbeat.Document){silent(start, "n2"), unready(at(600), "n2"), nil}, []int{600, 60, 30},
			[]string{"alert no_tolerance", "alert server_not_ready n2", "recovery no_tolerance", "recovery server_not_ready n2"},
		},
		"another server is lost meanwhile": {
			[]func(*heartbeat.Document){silent(start, "n2"), both(silent(start, "n2"), unready(at(40), "n3")), nil}, []int{40, 60, 30},
			[]string{"alert no_tolerance", "alert server_not_ready n3", "recovery no_tolerance", "recovery server_not_ready n3"},
		},
		"two of five at once": {
			[]func(*heartbeat.Document){five(silent(start, "n4", "n5")), five(unready(at(40), "n4", "n5")), five(nothing)}, []int{40, 60, 30},
			[]string{"alert no_tolerance", "recovery no_tolerance"},
		},
		"one more may fail again, and the server is still away": {
			[]func(*heartbeat.Document){silent(start, "n2"), unready(at(40), "n2"), func(d *heartbeat.Document) {
				d.NotReady = []heartbeat.NotReady{{Name: "n2", Role: fleet.RoleServer, Since: at(40)}}
			}, nil}, []int{40, 60, 30, 30},
			[]string{"alert no_tolerance", "recovery no_tolerance", "alert server_not_ready n2", "recovery server_not_ready n2"},
		},
		"a document that names nobody": {
			[]func(*heartbeat.Document){silent(start), func(d *heartbeat.Document) { unready(at(40), "n2")(d); d.Voters.Down = nil }, nil}, []int{40, 60, 30},
			[]string{"alert no_tolerance", "alert server_not_ready n2", "recovery no_tolerance", "recovery server_not_ready n2"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s, now := newStory(t), start
			for i, change := range test.part {
				for range test.long[i] {
					d := healthy(now)
					if d.Interval = 1; change != nil {
						change(d)
					}
					s.state = alert.Step(s.state, alert.Sight{Document: d, Elapsed: time.Second}, short)
					s.take()
					now = now.Add(time.Second)
				}
			}
			s.want(test.want...)
		})
	}
}

func nothing(*heartbeat.Document) {}

func TestNoToleranceNamesTheVotersThatAreDown(t *testing.T) {
	d := healthy(start.Add(time.Hour))
	d.Voters.Up, d.Voters.Tolerance, d.Voters.NoToleranceSince, d.Voters.Down = 2, 0, start, []string{"n2"}
	due, _ := alert.Check(alert.Look{Document: d, Date: d.At}, alert.State{}, rules.After)
	if len(due) != 1 || !strings.Contains(due[0].Sentence, "2 of 3 voters are up. Down or silent: n2.") {
		t.Errorf("%+v", due)
	}
}

// Who was told that there is no tolerance is not told that this is over while there is none,
// though the alert of a server says it by now, or that of an even count.
func TestNoToleranceIsOverWhenThereIsSome(t *testing.T) { // rule 24, R-F-08
	silent := func(d *heartbeat.Document) {
		d.Voters.Up, d.Voters.Tolerance, d.Voters.NoToleranceSince = 2, 0, start
	}
	s := newStory(t)
	s.minutes(40, silent)
	s.want("alert no_tolerance")
	s.minutes(40, lost("n2", s.at))
	s.want("alert server_not_ready n2")
	s.minutes(1, nil)
	s.want("recovery no_tolerance", "recovery server_not_ready n2")
}

func TestAServerHeldAtALevelIsNoLoss(t *testing.T) { // R-K-12, R-X-09, R-N-08
	s := newStory(t)
	s.minutes(60, func(d *heartbeat.Document) {
		d.NotReady = []heartbeat.NotReady{{Name: "n2", Role: fleet.RoleServer, Since: start, Level: fleet.LevelEtcdOnly, Voter: true}}
	})
	s.want()
}

// Another program of the same form writes the label as it is.
func TestAServerAtTheLevelFullIsALoss(t *testing.T) { // R-X-09
	s := newStory(t)
	s.minutes(20, func(d *heartbeat.Document) {
		d.NotReady = []heartbeat.NotReady{{Name: "n2", Role: fleet.RoleServer, Since: start, Level: fleet.LevelFull, Voter: true}}
	})
	s.want("alert server_not_ready n2")
}

func TestAnAgentThatIsNotReadyIsNobodysAlert(t *testing.T) {
	s := newStory(t)
	s.minutes(60, func(d *heartbeat.Document) {
		d.NotReady = []heartbeat.NotReady{{Name: "w1", Role: fleet.RoleAgent, Since: start}}
	})
	s.want()
}

func TestASwapWithinItsBoundRaisesNothing(t *testing.T) { // R-F-04, R-F-06, R-I-32
	s := newStory(t)
	s.minutes(60, func(d *heartbeat.Document) {
		swapping(start.Add(time.Hour))(d)
		even(4, start)(d)
		d.Healthy, d.Reasons, d.Checks = true, []string{}, nil
		d.NotReady = []heartbeat.NotReady{{Name: "n1", Role: fleet.RoleServer, Since: start, RoleSwap: true, Voter: true}, {Name: "n4", Role: fleet.RoleServer, Since: start, RoleSwap: true}}
		d.Voters.NoToleranceSince, d.Voters.Tolerance, d.Voters.Up = start, 0, 3
	})
	s.want()
}

func TestAServerBesideASwapIsLostAllTheSame(t *testing.T) { // R-F-04
	s := newStory(t)
	s.minutes(30, both(swapping(start.Add(time.Hour)), lost("n2", start)))
	s.want("alert server_not_ready n2")
}

func TestASwapNodeIsALostServerPastTheBound(t *testing.T) { // R-F-04
	s := newStory(t)
	gone := func(d *heartbeat.Document) {
		swapping(start.Add(20 * time.Minute))(d)
		d.NotReady = []heartbeat.NotReady{{Name: "n1", Role: fleet.RoleServer, Since: start, RoleSwap: true}}
	}
	s.minutes(21, gone)
	s.want()
	s.minutes(1, gone)
	s.want("alert server_not_ready n1")
}

func TestAnOverdueSwapAlertsOnceAndItsNextStateEndsThat(t *testing.T) { // R-F-05, R-F-08
	s := newStory(t)
	s.minutes(26, swapping(start.Add(10*time.Minute)))
	s.want()
	s.minutes(20, swapping(start.Add(10*time.Minute)))
	s.want("alert role_swap_overdue 20261130T120000Z-n1-n4")
	s.minutes(5, swapping(start.Add(3*time.Hour)))
	s.want("recovery role_swap_overdue 20261130T120000Z-n1-n4")
	s.minutes(5, nil)
	s.want()
}

// A state that waits for as long as it takes has no bound; a person hears of it all the
// same.
func TestASwapWithoutABoundIsOverdueByTheTimeItsStateBegan(t *testing.T) { // R-F-05
	s := newStory(t)
	s.minutes(40, swapping(time.Time{}))
	s.want("alert role_swap_overdue 20261130T120000Z-n1-n4")
}

func TestAnEvenCountAlertsAfterTheWindow(t *testing.T) { // R-F-06, R-F-08, R-I-23
	for _, count := range []int{2, 4} {
		s := newStory(t)
		s.minutes(16, even(count, start))
		s.want()
		s.minutes(30, even(count, start))
		s.want("alert voters_even")
		s.minutes(5, nil)
		s.want("recovery voters_even")
	}
}

func TestAnEvenCountPastASwapsBoundAlertsBesideTheSwap(t *testing.T) { // R-F-06
	s := newStory(t)
	s.minutes(31, both(swapping(start.Add(30*time.Minute)), even(4, start)))
	s.want()
	s.minutes(30, both(swapping(start.Add(30*time.Minute)), even(4, start)))
	s.want("alert voters_even", "alert role_swap_overdue 20261130T120000Z-n1-n4")
}

// Who was told that the number is even is not told that it is over because a swap begins.
func TestASwapThatBeginsEndsNoAlert(t *testing.T) {
	s := newStory(t)
	s.minutes(20, even(4, start))
	s.want("alert voters_even")
	s.minutes(30, both(swapping(start.Add(3*time.Hour)), even(4, start)))
	s.want()
	s.minutes(1, nil)
	s.want("recovery voters_even")
}

func TestAnUnhealthyFleetAlertsForWhatHasNoKindOfItsOwn(t *testing.T) {
	s := newStory(t)
	s.minutes(40, failing("runners", "the runner controller has no ready replica", start))
	s.want("alert fleet_unhealthy")
	s.minutes(1, nil)
	s.want("recovery fleet_unhealthy")
	since := s.at
	s.minutes(40, func(d *heartbeat.Document) {
		d.Voters.Count, d.Voters.Up, d.Voters.Tolerance = 5, 5, 2
		failing("voters", "etcd has 5 voters, 3 are wanted", since)(d)
	})
	s.want("alert fleet_unhealthy")
}

// A document of a program without checks says no time: it counts from when it was seen.
func TestADocumentOfAnotherProgramAlertsToo(t *testing.T) {
	s := newStory(t)
	other := func(d *heartbeat.Document) {
		*d = heartbeat.Document{At: d.At, Reasons: []string{"no node is Ready"}, NotReady: []heartbeat.NotReady{{Name: "n2", Role: fleet.RoleServer}}}
	}
	s.minutes(16, other)
	s.want()
	s.minutes(16, other)
	s.want("alert server_not_ready n2", "alert fleet_unhealthy")
	s.minutes(1, nil)
	s.want("recovery server_not_ready n2", "recovery fleet_unhealthy")
}

func TestADeadHeartbeatAlertsAsItself(t *testing.T) {
	s := newStory(t)
	s.minutes(5, nil)
	last := healthy(s.at)
	for range 17 {
		s.look(last, "")
	}
	s.want("alert heartbeat_stale")
	for range 20 {
		s.look(last, "")
	}
	s.want()
	// A copy of before is no sign of life, nor is the last one after it once more.
	s.look(healthy(last.At.Add(-time.Minute)), "")
	s.want()
	s.minutes(5, nil)
	s.want("recovery heartbeat_stale")
}

// A window that is shorter than what lies between two documents would tell a living
// heartbeat as dead, again and again. The break check: go by the window alone.
func TestAHeartbeatThatComesSeldomIsNoDeadOne(t *testing.T) {
	s := alert.State{}
	look := func(minutes int, interval int64, every int) (told []string) {
		d := healthy(s.Last)
		if s.Last.IsZero() {
			d = healthy(start)
		}
		for i := range minutes {
			if i%every == 0 {
				d = healthy(d.At.Add(time.Duration(every) * time.Minute))
				d.Interval = interval
			}
			s = alert.Step(s, alert.Sight{Document: d, Elapsed: time.Minute}, rules)
			for _, l := range s.Outbox {
				told = append(told, string(l.Message.Event)+" "+string(l.Message.Kind))
			}
			s.Outbox = nil
		}
		return told
	}
	if told := look(240, 60*60, 60); len(told) != 0 {
		t.Errorf("once an hour, as it says: %v", told)
	}
	if told := look(70, 60*60, 1000); !slices.Equal(told, []string{"alert heartbeat_stale"}) {
		t.Errorf("it has ended: %v", told)
	}
	if told := look(17, 0, 1000); !slices.Equal(told, []string{"recovery heartbeat_stale", "alert heartbeat_stale"}) {
		t.Errorf("one that does not say how often it comes: %v", told)
	}
	// What says that it comes once in a hundred years is looked for after a day.
	if told := look(26*60, 100*365*24*60*60, 100_000); !slices.Equal(told, []string{"recovery heartbeat_stale", "alert heartbeat_stale"}) {
		t.Errorf("once in a century: %v", told)
	}
	at := start.Add(time.Hour)
	d := healthy(at)
	d.Interval = 60 * 60
	for age, want := range map[time.Duration]int{40 * time.Minute: 0, 62 * time.Minute: 1} {
		if due, _ := alert.Check(alert.Look{Document: d, Date: at.Add(age)}, alert.State{}, rules.After); len(due) != want {
			t.Errorf("a check of a document that is %s old: %v", age, due)
		}
	}
}

func TestADocumentThatCannotBeReadAlertsAsItselfAndEndsNothing(t *testing.T) {
	s := newStory(t)
	s.minutes(20, lost("n2", start))
	s.want("alert server_not_ready n2")
	s.gone(60)
	s.want("alert heartbeat_stale")
	s.minutes(1, lost("n2", start))
	s.want("recovery heartbeat_stale")
	s.minutes(1, nil)
	s.want("recovery server_not_ready n2")
}

func TestWithoutAnyDocumentEverTheHeartbeatIsStale(t *testing.T) {
	s := newStory(t)
	s.gone(40)
	s.want("alert heartbeat_stale")
}

// Rule 24: what the document does not know neither begins nor ends.
func TestWhatIsNotReadIsHeld(t *testing.T) {
	blind := func(since time.Time, unread ...string) func(*heartbeat.Document) {
		return func(d *heartbeat.Document) {
			d.Unread, d.NotReady, d.Voters, d.NodePressure = unread, nil, nil, nil
			failing("api", "the API does not answer", since)(d)
		}
	}
	s := newStory(t)
	s.minutes(20, both(lost("n2", start), swapping(start)))
	s.want("alert server_not_ready n2", "alert role_swap_overdue 20261130T120000Z-n1-n4")
	s.minutes(60, blind(s.at, heartbeat.UnreadNodes, heartbeat.UnreadStatus))
	s.want("alert fleet_unhealthy")
	s.minutes(5, nil)
	s.want("recovery server_not_ready n2", "recovery role_swap_overdue 20261130T120000Z-n1-n4", "recovery fleet_unhealthy")

	// Nobody knows whether a swap is why.
	since := s.at
	s.minutes(60, func(d *heartbeat.Document) {
		d.Unread = []string{heartbeat.UnreadStatus}
		even(4, since)(d)
		d.Checks = nil
		failing("status", "the controller's status cannot be read", since)(d)
		d.NotReady = []heartbeat.NotReady{{Name: "n1", Role: fleet.RoleServer, Since: since, RoleSwap: true}, {Name: "n3", Role: fleet.RoleServer, Since: since}}
	})
	s.want("alert server_not_ready n3", "alert fleet_unhealthy")
}

// Rule 22: the clock that dates the documents jumps, there and back.
func TestAClockThatJumpsRaisesNothing(t *testing.T) {
	s := newStory(t)
	s.minutes(5, nil)
	s.at = s.at.Add(24 * time.Hour)
	s.minutes(5, nil)
	s.at = s.at.Add(-48 * time.Hour)
	s.minutes(30, nil)
	s.want()
}

// Its document has moved its times with the clock (beat.Beat); so must what was noticed.
func TestAClockThatJumpsAheadTellsNothingEarly(t *testing.T) {
	s := newStory(t)
	silent := func(d *heartbeat.Document) {
		d.Voters.Up, d.Voters.Tolerance, d.Voters.NoToleranceSince, d.Voters.Down = 2, 0, s.at.Add(-5*time.Minute), []string{"n2"}
	}
	s.minutes(5, silent)
	s.at = s.at.Add(24 * time.Hour)
	s.minutes(5, silent)
	s.want()
}

func TestADocumentPutBackFromACopySpeaksNotForToday(t *testing.T) {
	s := newStory(t)
	old := healthy(s.at)
	s.minutes(20, lost("n2", start))
	s.want("alert server_not_ready n2")
	s.look(old, "")
	s.want()
	for range 20 {
		s.look(old, "")
	}
	s.want("alert heartbeat_stale")
	s.minutes(1, lost("n2", start))
	s.want("recovery heartbeat_stale")
}

// What a CDN, or a mirror of two, does when its origin is dead: each look gets the other
// copy, and none of them is news.
func TestFrozenCopiesThatAreReadInTurnAreADeadHeartbeat(t *testing.T) {
	for _, copies := range []int{1, 2, 3, 4, 7} {
		s := newStory(t)
		s.minutes(5, nil)
		var frozen []*heartbeat.Document
		for i := range copies {
			d := healthy(s.at.Add(time.Duration(i-copies) * time.Minute))
			if i == 1 {
				lost("n2", start.Add(-time.Hour))(d) // what only one of them says is not told and taken back
			}
			frozen = append(frozen, d)
		}
		told := 0
		for i := range 60 {
			s.look(frozen[i%copies], "")
			if len(s.told) > told {
				told = len(s.told)
				if i > 16+copies {
					t.Errorf("%d copies: told after %d minutes", copies, i)
				}
			}
		}
		if s.told[len(s.told)-1] != "alert heartbeat_stale" || slices.Contains(s.told, "recovery heartbeat_stale") || slices.Contains(s.told, "recovery server_not_ready n2") {
			t.Errorf("%d copies: %q", copies, s.told)
		}
		s.told = nil
		s.minutes(1, nil)
		if !slices.Contains(s.told, "recovery heartbeat_stale") {
			t.Errorf("%d copies: a new document is no recovery: %q", copies, s.told)
		}
	}
}

// A clock that was a year ahead for one document must not silence everything for a year.
func TestADocumentFromAheadSilencesNothing(t *testing.T) {
	s := newStory(t)
	s.minutes(5, nil)
	ahead := healthy(s.at.AddDate(1, 0, 0))
	s.look(ahead, "")
	began := s.at
	s.minutes(20, lost("n2", began))
	s.want("alert server_not_ready n2")
	s.at = s.at.Add(-3 * time.Hour) // and back again: the times of before are forgotten
	s.minutes(20, nil)
	s.want("recovery server_not_ready n2")
}

// A lost server whose own clock is ahead has a time in a document of another program,
// or of an older heartbeat, that lies ahead: it is lost since it was noticed. It keeps
// no other from being told.
func TestATimeThatIsAheadIsNotBelieved(t *testing.T) {
	s := newStory(t)
	ahead := func(d *heartbeat.Document) {
		lost("n2", d.At.Add(time.Hour))(d)
		d.Voters.NoToleranceSince = start
	}
	s.minutes(16, ahead)
	s.want()
	s.minutes(2, ahead)
	s.want("alert server_not_ready n2")
	s.minutes(1, nil)
	s.want("recovery server_not_ready n2")
	s.minutes(20, func(d *heartbeat.Document) { even(4, d.At.Add(time.Hour))(d); d.Checks, d.Healthy = nil, true })
	s.want("alert voters_even")
}

// A receiver is down for an hour: what it missed it is told in order, once.
func TestAReceiverThatIsAwayMissesNothing(t *testing.T) {
	r := alert.Rules{After: rules.After, Receivers: []string{"webhook", "ntfy"}}
	var s alert.State
	at := start
	look := func(n int, change func(*heartbeat.Document)) {
		for range n {
			d := healthy(at)
			if change != nil {
				change(d)
			}
			s = alert.Step(s, alert.Sight{Document: d, Elapsed: time.Minute}, r)
			at = at.Add(time.Minute)
			for m, ok := alert.Next(s, "ntfy"); ok; m, ok = alert.Next(s, "ntfy") {
				s = alert.Delivered(s, m.ID, "ntfy")
			}
		}
	}
	look(20, lost("n2", start))
	look(40, nil)
	var got []string
	for m, ok := alert.Next(s, "webhook"); ok; m, ok = alert.Next(s, "webhook") {
		got = append(got, string(m.Event)+" "+m.Subject)
		s = alert.Delivered(s, m.ID, "webhook")
	}
	if diff := cmp.Diff([]string{"alert n2", "recovery n2"}, got); diff != "" || len(s.Outbox) != 0 {
		t.Errorf("%s, %d left", diff, len(s.Outbox))
	}
}

func TestAReceiverThatIsNoMoreIsNotWaitedFor(t *testing.T) {
	s := alert.State{Outbox: []alert.Letter{{Message: alert.Message{ID: "1"}, To: []string{"a", "b"}}, {Message: alert.Message{ID: "2"}, To: []string{"b"}}}}
	if s := alert.Only(s, []string{"a"}); len(s.Outbox) != 1 || len(s.Outbox[0].To) != 1 {
		t.Errorf("%+v", s.Outbox)
	}
}

func TestTheOutboxIsBounded(t *testing.T) {
	var s alert.State
	at := start
	for i := range 400 {
		d := healthy(at)
		if i%2 == 0 {
			lost("n2", at.Add(-time.Hour))(d)
		}
		s = alert.Step(s, alert.Sight{Document: d, Elapsed: time.Minute}, rules)
		at = at.Add(time.Minute)
	}
	raw, err := json.Marshal(s)
	if err != nil || len(s.Outbox) != alert.MaxOutbox || s.Lost != 400-alert.MaxOutbox || len(raw) > alert.MaxState/2 {
		t.Errorf("%d wait, %d lost, %d bytes, %v", len(s.Outbox), s.Lost, len(raw), err)
	}
}

// When too many wait those go first that nobody has to do anything about, and who is
// told again is told that some are missing.
func TestWhatIsOverMakesRoomFirst(t *testing.T) {
	two := alert.Rules{After: rules.After, Receivers: []string{"webhook"}}
	var s alert.State
	at := start
	look := func(change func(*heartbeat.Document)) {
		d := healthy(at)
		lost("n1", start.Add(-time.Hour))(d)
		if change != nil {
			change(d)
		}
		s = alert.Step(s, alert.Sight{Document: d, Elapsed: time.Minute}, two)
		at = at.Add(time.Minute)
	}
	for range 200 {
		look(lost("n2", start.Add(-time.Hour)))
		look(nil)
	}
	m, ok := alert.Next(s, "webhook")
	if !ok || m.Subject != "n1" || len(s.Outbox) > alert.MaxOutbox || s.Lost == 0 || s.Lost+uint64(len(s.Outbox)) != s.Count {
		t.Errorf("first %s, %d wait, %d lost of %d", m.Subject, len(s.Outbox), s.Lost, s.Count)
	}
	open := map[string]bool{}
	noted := false
	for _, l := range s.Outbox {
		began := l.Message.Event == alert.Began
		if began == open[l.Message.Subject] {
			t.Errorf("%s comes out of turn", l.Message.ID)
		}
		open[l.Message.Subject] = began
		noted = noted || strings.HasPrefix(l.Message.Sentence, "(Too many messages waited: ")
	}
	if !noted {
		t.Error("nobody is told that messages were dropped")
	}
	// One of them was told the alert already: it is told the recovery too.
	s = alert.State{}
	two.Receivers = []string{"webhook", "ntfy"}
	for i := range 200 {
		look(lost(fmt.Sprintf("m%d", i), start.Add(-time.Hour)))
		if m, ok := alert.Next(s, "ntfy"); ok {
			s = alert.Delivered(s, m.ID, "ntfy")
		}
	}
	if raw, err := json.Marshal(s.Outbox); err != nil || len(raw) > alert.MaxWaiting {
		t.Errorf("%d bytes wait, %v", len(raw), err)
	}
}

// However long the sentences, a state is small enough to be kept and read.
func TestTheStateIsSmallWhateverWaits(t *testing.T) {
	var s alert.State
	at := start
	for i := range 300 {
		d := healthy(at)
		d.RoleSwap = &status.Swap{ID: fleet.SwapID(strings.Repeat("<", 900) + fmt.Sprint(i)), Out: "n1", In: "n4", Step: "drain-out", StepSince: start.AddDate(0, 0, -1), Deadline: start.AddDate(0, 0, -1)}
		d.RoleSwap.Reasons = []status.Reason{{Sentence: strings.Repeat("<", 100_000)}}
		s = alert.Step(s, alert.Sight{Document: d, Elapsed: time.Minute}, rules)
		at = at.Add(time.Minute)
	}
	raw, err := json.Marshal(s)
	if err != nil || len(raw) > alert.MaxState/2 || s.Lost+uint64(len(s.Outbox)) != s.Count {
		t.Errorf("%d bytes, %d lost and %d wait of %d, %v", len(raw), s.Lost, len(s.Outbox), s.Count, err)
	}
	if _, err := alert.ParseState(raw); err != nil {
		t.Error(err)
	}
}

// A document of another program may list very many servers; what was told of them all has to
// be read back, or all is told again. The break check: read all of them.
func TestTheStateOfVeryManyServersCanBeReadBack(t *testing.T) {
	d := heartbeat.Document{At: start.Add(time.Hour), Healthy: true, Reasons: []string{}}
	for i := range 900 {
		d.NotReady = append(d.NotReady, heartbeat.NotReady{Name: fmt.Sprintf("n%03d", i) + strings.Repeat("x", 200), Role: fleet.RoleServer, Since: start})
	}
	raw, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	read, err := heartbeat.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	s := alert.Step(alert.State{}, alert.Sight{Document: &read}, rules)
	raw, err = json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alert.ParseState(raw); err != nil || len(s.Active) == 0 {
		t.Errorf("%d conditions: %v", len(s.Active), err)
	}
}

// What others wrote reaches no header and no second line.
func TestAMessageIsPlainText(t *testing.T) {
	d := healthy(start.Add(time.Hour))
	d.RoleSwap = &status.Swap{ID: "a\r\nX-Evil: 1", Out: "\x00", In: strings.Repeat("ä", 2000), Step: "\x1b[31m", Deadline: start}
	s := alert.Step(alert.State{}, alert.Sight{Document: d}, rules)
	if len(s.Outbox) != 1 {
		t.Fatal(s.Outbox)
	}
	m := s.Outbox[0].Message
	for _, text := range []string{m.ID, m.Title, m.Sentence} {
		if strings.ContainsAny(text, "\r\n\x00\x1b") || len(text) > 1024 || text != strings.ToValidUTF8(text, "?") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}

func TestACheckWithoutAStateGoesByWhatTheDocumentSays(t *testing.T) {
	at := start.Add(time.Hour)
	doc := func(change func(*heartbeat.Document)) *heartbeat.Document {
		d := healthy(at)
		if change != nil {
			change(d)
		}
		return d
	}
	for sentence, test := range map[string]struct {
		look alert.Look
		want []alert.Kind
	}{
		"a healthy fleet":                 {alert.Look{Document: doc(nil), Date: at.Add(time.Minute)}, nil},
		"no document":                     {alert.Look{Problem: "it is not there"}, []alert.Kind{alert.HeartbeatStale}},
		"an old document":                 {alert.Look{Document: doc(lost("n2", start)), Date: at.Add(16 * time.Minute)}, []alert.Kind{alert.HeartbeatStale}},
		"a document from a little ahead":  {alert.Look{Document: doc(nil), Date: at.Add(-time.Minute)}, nil},
		"a document from the future":      {alert.Look{Document: doc(nil), Date: at.Add(-time.Hour)}, []alert.Kind{alert.HeartbeatStale}},
		"a document from centuries ahead": {alert.Look{Document: doc(func(d *heartbeat.Document) { d.At = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }), Date: at}, []alert.Kind{alert.HeartbeatStale}},
		"a source that says no time":      {alert.Look{Document: doc(nil)}, []alert.Kind{alert.HeartbeatStale}},
		"a lost server that says no time": {alert.Look{Document: doc(lost("n2", time.Time{})), Date: at}, []alert.Kind{alert.ServerNotReady}},
		"a lost server from ahead":        {alert.Look{Document: doc(lost("n2", at.Add(time.Hour))), Date: at}, []alert.Kind{alert.ServerNotReady}},
		"another program's document": {alert.Look{Document: doc(func(d *heartbeat.Document) {
			*d = heartbeat.Document{At: d.At, Reasons: []string{"no node is Ready"}}
		}), Date: at}, []alert.Kind{alert.FleetUnhealthy}},
		"a lost server":                   {alert.Look{Document: doc(lost("n2", start)), Date: at}, []alert.Kind{alert.ServerNotReady}},
		"a server that was lost just now": {alert.Look{Document: doc(lost("n2", at)), Date: at}, nil},
		"an even number":                  {alert.Look{Document: doc(even(2, start)), Date: at}, []alert.Kind{alert.VotersEven}},
		"no tolerance, as the document says": {alert.Look{Document: doc(func(d *heartbeat.Document) {
			d.Voters.Up, d.Voters.Tolerance, d.Voters.NoToleranceSince = 2, 0, start
		}), Date: at}, []alert.Kind{alert.NoTolerance}},
		"a swap that is overdue":             {alert.Look{Document: doc(swapping(start)), Date: at}, []alert.Kind{alert.RoleSwapOverdue}},
		"a swap and an even number with it ": {alert.Look{Document: doc(both(swapping(at.Add(time.Minute)), even(4, start))), Date: at}, nil},
	} {
		due, _ := alert.Check(test.look, alert.State{}, rules.After)
		var got []alert.Kind
		for _, c := range due {
			got = append(got, c.Kind)
			if c.Sentence == "" {
				t.Errorf("%s: %s says nothing", sentence, c.Kind)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", sentence, got, test.want)
		}
	}
}

// What a state has noticed a check says too, whatever the document says of itself.
func TestACheckGoesByItsState(t *testing.T) {
	at := start.Add(time.Hour)
	stale := []alert.Condition{{Kind: alert.HeartbeatStale}}
	other := heartbeat.Document{At: at, Reasons: []string{"no node is Ready"}}
	for sentence, test := range map[string]struct {
		document *heartbeat.Document
		state    alert.State
		want     []alert.Kind
		words    string
	}{
		"a heartbeat that was told to be stale":         {healthy(at), alert.State{Last: at, Active: stale}, []alert.Kind{alert.HeartbeatStale}, "no new one is seen"},
		"one that is still for too long":                {healthy(at), alert.State{Last: at, Still: 901}, []alert.Kind{alert.HeartbeatStale}, "no new one is seen"},
		"one that is still for a while":                 {healthy(at), alert.State{Last: at, Still: 899}, nil, ""},
		"one that is back":                              {healthy(at), alert.State{Last: at.Add(-time.Minute), Still: 2000, Active: stale}, nil, ""},
		"one that is back after a clock went back":      {healthy(at), alert.State{Last: at.AddDate(1, 0, 0), Back: at.Add(-time.Minute), Active: stale}, nil, ""},
		"a copy of before":                              {healthy(at), alert.State{Last: at.Add(time.Hour)}, []alert.Kind{alert.HeartbeatStale}, "one of 2026-11-30 14:00:00Z was seen before it"},
		"a copy of a moment before":                     {healthy(at), alert.State{Last: at.Add(time.Minute)}, nil, ""},
		"another program's document, noticed just now":  {&other, alert.State{Last: at, Noticed: []alert.Condition{{Kind: alert.FleetUnhealthy, Since: at}}}, nil, ""},
		"another program's document, noticed long ago":  {&other, alert.State{Last: at, Noticed: []alert.Condition{{Kind: alert.FleetUnhealthy, Since: start}}}, []alert.Kind{alert.FleetUnhealthy}, "no node is Ready"},
		"another program's document, noticed by nobody": {&other, alert.State{Last: start}, []alert.Kind{alert.FleetUnhealthy}, "no node is Ready"},
	} {
		test.state.Protocol = alert.Protocol
		due, _ := alert.Check(alert.Look{Document: test.document, Date: at}, test.state, rules.After)
		var got []alert.Kind
		for _, c := range due {
			got = append(got, c.Kind)
			if !strings.Contains(c.Sentence, test.words) {
				t.Errorf("%s: %q", sentence, c.Sentence)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", sentence, got, test.want)
		}
	}
}

func TestBadStatesAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                       "unexpected end",
		`{}`:                                     "protocol 0",
		`{"protocol":2}`:                         "protocol 2",
		`{"protocol":1,"still_seconds":-1}`:      "below zero",
		`{"protocol":1,"active":[{"kind":"x"}]}`: `no kind "x"`,
		`{"protocol":1,"outbox":{}}`:             "cannot unmarshal",
	} {
		if _, err := alert.ParseState([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestAStateIsWorthWritingWhenSomethingHappened(t *testing.T) {
	w := alert.State{Protocol: 1, Last: start, Still: 60}
	for sentence, test := range map[string]struct {
		change func(*alert.State)
		want   bool
	}{
		"nothing":                      {func(*alert.State) {}, false},
		"a new document":               {func(s *alert.State) { s.Last = start.Add(time.Hour) }, false},
		"a clock that has gone back":   {func(s *alert.State) { s.Last = start.Add(-time.Hour) }, true},
		"an older document":            {func(s *alert.State) { s.Back, s.Alone = start.Add(-time.Hour), 60 }, false},
		"a minute without one":         {func(s *alert.State) { s.Still += 60 }, false},
		"a quarter of the window":      {func(s *alert.State) { s.Still += 225 }, true},
		"one after a minute without":   {func(s *alert.State) { s.Still = 0 }, true},
		"a condition":                  {func(s *alert.State) { s.Active = []alert.Condition{{Kind: alert.VotersEven}} }, true},
		"a message that was delivered": {func(s *alert.State) { s.Outbox = []alert.Letter{{}} }, true},
	} {
		s := w
		test.change(&s)
		if got := alert.Worth(s, w, rules.After); got != test.want {
			t.Errorf("%s: %v", sentence, got)
		}
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"last":"2026-11-30T12:00:00Z","still_seconds":60,"active":[{"kind":"voters_even","severity":"critical","sentence":"x"}],"outbox":[{"message":{"id":"1"},"to":["webhook"]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := alert.ParseState(raw)
		if err != nil {
			return
		}
		s = alert.Only(alert.Step(s, alert.Sight{Document: healthy(start), Elapsed: time.Minute}, rules), rules.Receivers)
		for m, ok := alert.Next(s, "webhook"); ok; m, ok = alert.Next(s, "webhook") {
			s = alert.Delivered(s, m.ID, "webhook")
		}
	})
}

func FuzzStep(f *testing.F) {
	raw, _ := healthy(start).JSON()
	f.Add(raw, int64(60))
	f.Fuzz(func(t *testing.T, raw []byte, still int64) {
		d, err := heartbeat.Parse(raw)
		if err != nil {
			return
		}
		s := alert.Step(alert.State{Still: still & 0xffff}, alert.Sight{Document: &d}, rules)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := alert.ParseState(b); err != nil && len(b) <= alert.MaxState {
			t.Error(err)
		}
	})
}
