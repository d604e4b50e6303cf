package beat_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/heartbeat/beat"
	"github.com/exadev/regrade/internal/observe"
)

// rig is a cluster and a place to publish to.
type rig struct {
	mu sync.Mutex

	apiErr, statusErr error
	voters            int
	status            string
	off               time.Duration // of the API's clock
	held              string        // a server that is etcd-only
	beats             []observe.Heartbeat
	beatsErr          error
	beatReads         int

	name       string
	files      map[string]string
	writes     int
	readErr    error
	publishErr func(heartbeat.Files) error
}

func newRig(name string) *rig {
	return &rig{name: name, voters: 3, files: map[string]string{}}
}

func (r *rig) Nodes(context.Context) ([]heartbeat.Node, error) {
	if r.apiErr != nil {
		return nil, r.apiErr
	}
	var nodes []heartbeat.Node
	for i := range r.voters {
		n := heartbeat.Node{Name: fmt.Sprintf("n%d", i+1), Ready: true, EtcdIsVoter: "True", Labels: map[string]string{fleet.LabelEtcd: "true"}}
		if n.Name == r.held {
			n.Ready, n.Labels[fleet.DefaultKeys().Level()] = false, string(fleet.LevelEtcdOnly)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func (r *rig) RoleStatus(context.Context) (string, error) { return r.status, r.statusErr }

func (r *rig) Heartbeats(context.Context) ([]observe.Heartbeat, error) {
	r.beatReads++
	return r.beats, r.beatsErr
}

func (r *rig) Runners(context.Context, heartbeat.Wanted) *heartbeat.Runners { return nil }

func (r *rig) Date() time.Time {
	if r.apiErr != nil {
		return time.Time{}
	}
	return time.Now().Add(r.off)
}

func (r *rig) Name() string { return r.name }

func (r *rig) Publish(_ context.Context, files heartbeat.Files) error {
	if r.publishErr != nil {
		if err := r.publishErr(files); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, content := range files {
		r.files[name] = string(content)
	}
	r.writes++
	return nil
}

func (r *rig) Read(_ context.Context, name string) ([]byte, error) {
	if r.readErr != nil {
		return nil, r.readErr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if raw, ok := r.files[name]; ok {
		return []byte(raw), nil
	}
	return nil, nil
}

func (r *rig) document(t *testing.T) heartbeat.Document {
	t.Helper()
	d, err := heartbeat.Parse([]byte(r.files[fleet.KeyHealth]))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func start(c beat.Cluster, to ...beat.Publisher) *beat.Beat {
	return beat.New(c, beat.Settings{
		Build:    heartbeat.Settings{Checks: heartbeat.DefaultChecks(), Target: 3, StatusLife: heartbeat.DefaultStatusLife},
		Interval: 3 * time.Minute, Window: 10 * time.Minute, HealthyUntil: fleet.FileHealthyUntil, Publishers: to,
	})
}

func goodStatus() string {
	return fmt.Sprintf(`{"protocol":1,"at":%q,"target":3,"dry_run":true,"hosts":[]}`, time.Now().UTC().Format(time.RFC3339))
}

// R-185-14: the role status, and until when the fleet is vouched for, go out with a
// healthy document only; the document always.
func TestTheRoleStatusIsRepublishedOnlyWhileTheFleetIsVouchedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("file")
		b := start(r, r)
		r.status, r.voters = goodStatus(), 2
		b.Tick(t.Context())
		if got := slices.Sorted(maps.Keys(r.files)); !slices.Equal(got, []string{fleet.KeyHealth}) || r.document(t).Healthy {
			t.Fatalf("an unhealthy fleet published %v", got)
		}
		r.voters = 3
		b.Tick(t.Context())
		if r.files[fleet.KeyRoleStatus] != r.status || !r.document(t).Healthy || r.files[fleet.FileHealthyUntil] != fmt.Sprint(time.Now().Add(10*time.Minute).Unix()) {
			t.Fatalf("%v", r.files)
		}
		// What cannot be read is not republished, and what was is left to grow old.
		before := r.files[fleet.KeyRoleStatus]
		r.status = "{"
		b.Tick(t.Context())
		r.status = ""
		b.Tick(t.Context())
		if r.files[fleet.KeyRoleStatus] != before {
			t.Errorf("republished %q", r.files[fleet.KeyRoleStatus])
		}
		for name, content := range r.files {
			if content == "" {
				t.Errorf("%s is empty", name)
			}
		}
	})
}

// R-F-02, R-F-07: a restart reads the time back from what is published, wherever.
func TestEvenSinceOutlastsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("file")
		r.voters = 4
		start(r, r).Tick(t.Context())
		since := r.document(t).Voters.EvenSince
		if since.IsZero() {
			t.Fatal("not even")
		}
		for range 5 {
			time.Sleep(3 * time.Minute)
			start(r, r).Tick(t.Context())
		}
		if got := r.document(t).Voters.EvenSince; !got.Equal(since) {
			t.Errorf("even since %s, want %s", got, since)
		}
		// The process begins while the API does not answer, and again before it does.
		r.apiErr, r.statusErr = errors.New("refused"), errors.New("refused")
		for range 3 {
			time.Sleep(3 * time.Minute)
			b := start(r, r)
			b.Tick(t.Context())
			b.Tick(t.Context())
		}
		if d := r.document(t); d.Voters != nil || len(d.Unread) != 2 || d.Healthy {
			t.Errorf("%+v", d)
		}
		r.apiErr, r.statusErr = nil, nil
		start(r, r).Tick(t.Context())
		if got := r.document(t).Voters.EvenSince; !got.Equal(since) {
			t.Errorf("even since %s, want %s", got, since)
		}
		// Of what was in a long absence nobody knows: it is even since now.
		time.Sleep(2 * time.Hour)
		start(r, r).Tick(t.Context())
		if got := r.document(t).Voters.EvenSince; !got.Equal(time.Now().UTC().Truncate(time.Second)) {
			t.Errorf("even since %s, after two hours of nothing", got)
		}
	})
}

func TestAPlaceThatCannotBeReadAtFirstIsReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("put")
		r.voters = 4
		start(r, r).Tick(t.Context())
		since := r.document(t).Voters.EvenSince
		time.Sleep(time.Minute)
		down := errors.New("connection refused")
		r.readErr, r.publishErr = down, func(heartbeat.Files) error { return down }
		b := start(r, r)
		if turn := b.Tick(t.Context()); turn.Err() == nil || !turn.Document.Voters.EvenSince.After(since) {
			t.Fatalf("%+v", turn)
		}
		r.readErr, r.publishErr = nil, nil
		time.Sleep(3 * time.Minute)
		b.Tick(t.Context())
		if got := r.document(t).Voters.EvenSince; !got.Equal(since) {
			t.Errorf("even since %s, want %s", got, since)
		}
	})
}

// Issue 6, "Figures and bad input": one publisher that hangs or refuses keeps nothing
// from the others.
func TestAPublisherThatHangsKeepsNothingFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, well := newRig("put"), newRig("file")
		release := make(chan struct{})
		hangs.publishErr = func(heartbeat.Files) error { <-release; return nil } // not even by its context
		b := start(well, hangs, well)
		ctx, cancel := context.WithCancel(t.Context())
		var turns []beat.Turn
		done := make(chan struct{})
		go func() { b.Run(ctx, func(t beat.Turn) { turns = append(turns, t) }); close(done) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if well.writes != 4 || len(turns) != 4 {
			t.Errorf("%d writes in %d turns", well.writes, len(turns))
		}
		for i, want := range []string{"did not come back within 10s", "has not come back"} {
			if err := turns[i].Err(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "file") {
				t.Errorf("turn %d: %v", i, err)
			}
		}
		close(release)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if last := turns[len(turns)-1]; last.Err() != nil {
			t.Error(last.Err())
		}
		cancel()
		<-done
	})
}

func TestWhatIsTooLargeIsPublishedWithoutTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("gist")
		r.status = goodStatus()
		r.publishErr = func(f heartbeat.Files) error {
			if len(f) > 1 {
				return fmt.Errorf("gist: %w", heartbeat.ErrTooLarge)
			}
			return nil
		}
		turn := start(r, r).Tick(t.Context())
		if got := slices.Sorted(maps.Keys(r.files)); !slices.Equal(got, []string{fleet.KeyHealth}) {
			t.Errorf("published %v", got)
		}
		if err := turn.Err(); !errors.Is(err, heartbeat.ErrTooLarge) || !strings.Contains(err.Error(), "only fleet-health.json was published") {
			t.Error(err)
		}
	})
}

// Rule 22: what dates a document is the API server's clock; while that does not answer
// its last word is carried on by this process's own.
func TestDocumentsAreDatedByTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("file")
		r.off = -5 * time.Hour
		b := start(r, r)
		b.Tick(t.Context())
		first := r.document(t).At
		if want := time.Now().Add(r.off).UTC().Truncate(time.Second); !first.Equal(want) {
			t.Errorf("at %s, want %s", first, want)
		}
		r.apiErr = errors.New("refused")
		time.Sleep(7 * time.Minute)
		b.Tick(t.Context())
		if got := r.document(t).At; !got.Equal(first.Add(7 * time.Minute)) {
			t.Errorf("at %s, want seven minutes after %s", got, first)
		}
	})
}

// A document of before that nobody can read is none.
func TestADamagedDocumentOfBeforeIsWrittenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("file")
		r.files[fleet.KeyHealth] = `{"at":`
		if err := start(r, r).Tick(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		r.document(t)
	})
}

// A process that is told to end does not publish what it could not read for that.
func TestAnEndingProcessPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("file")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.apiErr = ctx.Err()
		start(r, r).Tick(ctx)
		if r.writes != 0 {
			t.Error("it published")
		}
	})
}

// A day more on the API server's clock is no day of trouble: who reads the document
// compares its times with its own, and would be told at once (safety rule 22).
func TestAClockThatJumpsMakesNoTroubleOlder(t *testing.T) {
	for name, jump := range map[string]time.Duration{
		"ahead": 24 * time.Hour, "back": -24 * time.Hour, "by as much as two servers differ": 20 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig("put")
				b := start(r, r)
				b.Tick(t.Context())
				r.voters, r.held = 2, "n2" // the held one has no host daemon that speaks
				b.Tick(t.Context())
				time.Sleep(5 * time.Minute)
				b.Tick(t.Context())
				time.Sleep(3 * time.Minute)
				r.off += jump
				b.Tick(t.Context())
				d := r.document(t)
				times := map[string]time.Time{"even": d.Voters.EvenSince, "no tolerance": d.Voters.NoToleranceSince}
				for _, c := range d.Checks {
					if !c.OK {
						times[c.Name] = c.Since
					}
				}
				for _, n := range d.NotReady {
					times[n.Name] = n.Since
				}
				if len(times) < 4 {
					t.Errorf("only %v", times)
				}
				for of, since := range times {
					if age := d.At.Sub(since); age < 7*time.Minute || age > 9*time.Minute {
						t.Errorf("%s lasts for %s, want 8m", of, age)
					}
				}
			})
		})
	}
}
