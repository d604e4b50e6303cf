package bounded_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/bounded"
)

var errOwn = errors.New("its own")

func TestACallIsWaitedForNoLongerThanItsTime(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		heeds bool
		end   time.Duration // when the caller's context ends, zero for never
		after time.Duration
		err   string
	}{
		"one that comes back at once":              {0, true, 0, 0, ""},
		"one that comes back in time":              {3 * time.Second, false, 0, 3 * time.Second, ""},
		"one that heeds its context":               {time.Hour, true, 0, 10 * time.Second, "its own"},
		"one that hangs":                           {time.Hour, false, 0, 11 * time.Second, "did not come back within 10s"},
		"a caller that ends, and one that heeds":   {time.Hour, true, 2 * time.Second, 2 * time.Second, "its own"},
		"a caller that ends, and one that hangs":   {time.Hour, false, 2 * time.Second, 3 * time.Second, "did not come back"},
		"a caller that has ended, and one at once": {0, false, time.Nanosecond, time.Nanosecond, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.end > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.end)
					defer cancel()
				}
				began := time.Now()
				var c bounded.Calls
				v, err := bounded.Do(ctx, &c, 10*time.Second, func(ctx context.Context) (int, error) {
					heeded := ctx.Done()
					if !tt.heeds {
						heeded = nil
					}
					select {
					case <-heeded:
						return 0, errOwn
					case <-time.After(tt.takes):
						return 7, nil
					}
				})
				if d := time.Since(began); d > tt.after {
					t.Errorf("after %s, want %s", d, tt.after)
				}
				if (err == nil) != (tt.err == "") || err == nil && v != 7 || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%d, %v", v, err)
				}
				time.Sleep(2 * time.Hour) // until what hangs has come back
			})
		})
	}
}

// The break check: forget the call that has not come back.
func TestNoCallIsMadeBesideOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c bounded.Calls
		made := 0
		hang := func(context.Context) (int, error) { made++; time.Sleep(time.Minute); return 0, nil }
		if _, err := bounded.Do(t.Context(), &c, time.Second, hang); err == nil {
			t.Fatal("it came back")
		}
		if _, err := bounded.Do(t.Context(), &c, time.Second, hang); !errors.Is(err, bounded.ErrBusy) || made != 1 {
			t.Errorf("%v, made %d times", err, made)
		}
		time.Sleep(time.Hour)
		if _, err := bounded.Do(t.Context(), &c, time.Hour, hang); err != nil || made != 2 {
			t.Errorf("%v, made %d times", err, made)
		}
	})
}
