package parts

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// removedMessage is what etcd's own loop logs when it, and not ErrNotify's reader, took the removal error
// from the channel they share (k3s-facts §5.3).
const removedMessage = "data-dir used by this member must be removed"

// reporter writes events, each kind once.
type reporter struct {
	mu      sync.Mutex
	out     io.Writer
	sent    map[EventKind]bool
	running atomic.Bool
}

func (r *reporter) report(kind EventKind, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent[kind] {
		return
	}
	r.sent[kind] = true
	line, err := json.Marshal(Event{Kind: kind, Running: r.running.Load(), Detail: detail})
	if err != nil {
		return
	}
	_, _ = r.out.Write(append(line, '\n'))
}

func runEtcd(args []string) int {
	flags := flag.NewFlagSet(EtcdName, flag.ContinueOnError)
	file := flags.String("config-file", "", "etcd configuration, as etcd reads it")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	// The parent holds the other end; by hand, file descriptor 3 may be absent and events are lost.
	r := &reporter{out: os.NewFile(3, "events"), sent: map[EventKind]bool{}}
	if err := serveEtcd(*file, r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		r.report(EventFatal, err.Error())
		return 1
	}
	r.report(EventStopped, "etcd has stopped")
	return 0
}

// serveEtcd runs etcd until SIGTERM, until a removal, or until it stops by itself.
func serveEtcd(file string, r *reporter) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)

	cfg, err := embed.ConfigFromFile(file)
	if err != nil {
		return fmt.Errorf("etcd configuration %s: %w", file, err)
	}
	logger, err := removalLogger(r)
	if err != nil {
		return fmt.Errorf("etcd logger: %w", err)
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)

	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	// Close hands leadership over first, and may be called after etcd stopped by itself.
	defer server.Close()

	// A member that was removed while down never hears a leader again: its peers refuse its streams.
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	ready := server.Server.ReadyNotify()
	for {
		select {
		case <-look.C:
			if server.Server.Leader() != 0 {
				r.running.Store(true)
				look.Stop()
			}
		case <-ready:
			ready = nil
			r.running.Store(true)
			r.report(EventReady, "etcd serves")
		case err := <-server.Server.ErrNotify():
			// The same text comes from rafthttp (a peer's answer) and, a second later, from the member's
			// own applied removal.
			if err.Error() == rafthttp.ErrMemberRemoved.Error() {
				r.report(EventRemoved, err.Error())
				return nil
			}
			return fmt.Errorf("etcd server: %w", err)
		case err := <-server.Err():
			// A listener may tell of etcd's own stop before etcd does.
			select {
			case <-server.Server.StopNotify():
				return nil
			case <-signals:
				return nil
			case <-time.After(2 * time.Second):
				return fmt.Errorf("etcd listener: %w", err)
			}
		case <-server.Server.StopNotify():
			return nil
		case <-signals:
			return nil
		}
	}
}

// removalLogger logs as etcd does, to stderr, and reports a removal that only etcd's own loop saw.
func removalLogger(r *reporter) (*zap.Logger, error) {
	config := logutil.DefaultZapLoggerConfig
	config.OutputPaths, config.ErrorOutputPaths = []string{"stderr"}, []string{"stderr"}
	return config.Build(zap.Hooks(func(entry zapcore.Entry) error {
		if entry.Message == removedMessage {
			r.report(EventRemoved, rafthttp.ErrMemberRemoved.Error())
		}
		return nil
	}))
}
