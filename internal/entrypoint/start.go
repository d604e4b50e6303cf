package entrypoint

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/sleep"
)

// Bounds of the wait for a join host: one try, and the pause before the next.
// There are as many tries as it takes (R-A-09).
const (
	tryTimeout = 3 * time.Second
	tryPause   = 2 * time.Second
)

// Start takes one start of the container to its end: it does not return when
// k3s is executed. nil means that the container was stopped while it idled or
// waited; an error is a refusal or a failure, exit status 1 either way.
func Start(ctx context.Context, o Options, role fleet.Role, log *slog.Logger) error {
	files := container.New(o.Root, getenv(o.Environ))
	var asked Asked
	var said State
	var logged string
	for {
		f, notes, err := Read(o, files, role)
		if err != nil {
			return err
		}
		f.Asked = asked
		d := Next(f)
		if d.Kind == Exec {
			d = alone(o.Root, role, d, log)
		}
		if now := (State{Kind: d.Kind, Role: role, Why: d.Why}); now != said {
			if err := say(o.Root, now); err != nil {
				log.Warn("health will not know", obs.Err, err)
			}
			said = now
		}
		// A wait is logged once for each thing that a server says, not for each try.
		if now := strings.Join([]string{string(d.Kind), d.URL, string(asked.Says)}, " "); now != logged {
			for _, n := range notes {
				log.Warn("left aside", obs.Err, n)
			}
			switch {
			case d.Kind == Wait && !strings.HasPrefix(logged, string(Wait)+" "+d.URL+" "):
				log.Info("waiting for the join host", obs.Server, d.URL)
			case d.Kind == Ask:
				log.Info("no cluster is founded yet", obs.Sentence, d.Why)
			}
			logged = now
		}
		switch d.Kind {
		case Idle:
			log.Warn("idle: k3s is not started; restart the container once the reason is gone", obs.Role, role, obs.Sentence, d.Why)
			<-ctx.Done()
			return nil
		case Refuse:
			return fmt.Errorf("refused: %s", d.Why)
		case Wait, Ask:
			// What was read may be old by the time of an answer: read and decide anew.
			if asked.URL == d.URL && !sleep.For(ctx, tryPause) {
				return nil
			}
			asked = ask(ctx, d.URL, d.Address)
		case Exec:
			return become(ctx, o, files, f, d, log)
		}
	}
}

// become executes k3s in place of this process.
func become(ctx context.Context, o Options, files *container.Files, f Facts, d Decision, log *slog.Logger) error {
	if f.Role == fleet.RoleServer {
		// Takes no vote away when it fails: the daemon then does not know the level.
		if err := files.SetStarted(f.Level); err != nil {
			log.Warn("the level is not noted", obs.Err, err)
		}
	}
	openMounts(log)
	program := filepath.Join("/", o.Root, o.K3s)
	log.Info("k3s starts", obs.Role, f.Role, obs.Sentence, d.Why)
	if ctx.Err() != nil {
		return nil // stopped: k3s would not hear of it
	}
	if err := syscall.Exec(program, append([]string{program}, d.Args...), files.Environ(f.Role, o.Environ)); err != nil {
		return fmt.Errorf("execute %s: %w", program, err)
	}
	return nil
}
