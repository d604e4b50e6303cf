package hostd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/platform"
)

// blind is a host whose sight fails at some time.
type blind struct {
	platform.Host
	err error
}

func (b *blind) Observe(ctx context.Context) (platform.Facts, error) {
	if b.err != nil {
		return platform.Facts{}, b.err
	}
	return b.Host.Observe(ctx)
}

// What a new process alone can put right ends this one, so that it is started anew;
// what may come right by itself does not. The break check: leave ErrAnew out of Run.
func TestADaemonThatCanNeverSeeItsHostAgainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "b")
		r.wall, r.wake = true, make(chan struct{}, 1)
		p := hostd.DefaultPolicy()
		p.JoinURLs = joins()
		h := &blind{Host: r.host}
		d := hostd.New(hostd.Settings{Node: "b", Policy: p, Host: h, API: r, Etcd: etcd{r}, Ways: r})
		ended := make(chan error, 1)
		go func() { ended <- d.Run(t.Context()) }()
		synctest.Wait()
		h.err = errors.New("no engine answers")
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		default:
		}
		h.err = fmt.Errorf("docker: list containers: %w", platform.ErrAnew)
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			if !errors.Is(err, platform.ErrAnew) {
				t.Error(err)
			}
		default:
			t.Error("it goes on")
		}
	})
}

func TestAWarningOfTheHostIsLoggedOnceAndHoldsNothingUp(t *testing.T) {
	r := newRig(t, "b")
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	r.restart()
	warning := func(on bool) {
		r.host.Change(func(f *platform.Facts) {
			f.Warnings = nil
			if on {
				f.Warnings = []platform.Warning{{Code: "ComposeVersion", Sentence: "use another"}}
			}
		})
		for range 3 {
			if _, err := r.daemon.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	warning(true)
	if n := strings.Count(log.String(), "ComposeVersion"); n != 1 || r.daemon.Decision().Code != "" {
		t.Errorf("said %d times, decided %+v\n%s", n, r.daemon.Decision(), &log)
	}
	warning(false)
	warning(true)
	if n := strings.Count(log.String(), "ComposeVersion"); n != 2 {
		t.Errorf("said %d times", n)
	}
}
