package embedded

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// Spec is one member. It is handed to the child as JSON.
type Spec struct {
	Name string `json:"name"`
	Dir  string `json:"dir"`
	// Peer and Client are the addresses it listens on; Advertised is the peer
	// URL the others dial, which may be a proxy's.
	Peer       string `json:"peer"`
	Client     string `json:"client"`
	Advertised string `json:"advertised"`
	// Initial is name=URL of every member, the own included; Join says that the
	// cluster is there already. Both are ignored where Dir has a WAL.
	Initial string `json:"initial"`
	Join    bool   `json:"join"`

	Heartbeat time.Duration `json:"heartbeat"`
	Election  time.Duration `json:"election"`
	Log       string        `json:"log"`
}

// Main runs the member until it is told to stop (SIGTERM: it hands leadership
// over first), until stdin ends because the parent is gone, or until etcd stops
// by itself because the member was removed. It returns the exit status.
func Main(spec string) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	signal.Ignore(os.Interrupt) // Ctrl-C is the parent's business
	orphaned := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(orphaned)
	}()
	ended := make(chan int, 1)
	go func() { ended <- member(spec, stop) }()
	select {
	case status := <-ended:
		return status
	case <-orphaned:
		// Closing waits for a member that never became ready, such as a learner whose leader
		// is gone, for ever, and nobody is left to kill this one. It may have been told to
		// stop before, and be closing by now.
		return 0
	}
}

func member(spec string, stop <-chan os.Signal) int {
	var s Spec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return fail(fmt.Errorf("member: %w", err))
	}
	cfg, err := config(s)
	if err != nil {
		return fail(err)
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fail(fmt.Errorf("start member %s: %w", s.Name, err))
	}
	select {
	case <-stop:
	case <-e.Server.StopNotify():
	case err := <-e.Err():
		e.Close()
		return fail(fmt.Errorf("member %s: %w", s.Name, err))
	}
	e.Close()
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func config(s Spec) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = s.Name, s.Dir
	for _, u := range []struct {
		to  *[]url.URL
		raw string
	}{
		{&cfg.ListenPeerUrls, "http://" + s.Peer}, {&cfg.ListenClientUrls, "http://" + s.Client},
		{&cfg.AdvertiseClientUrls, "http://" + s.Client}, {&cfg.AdvertisePeerUrls, s.Advertised},
	} {
		parsed, err := url.Parse(u.raw)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", s.Name, err)
		}
		*u.to = []url.URL{*parsed}
	}
	cfg.InitialCluster, cfg.ClusterState = s.Initial, embed.ClusterStateFlagNew
	if s.Join {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	cfg.TickMs, cfg.ElectionMs = uint(s.Heartbeat.Milliseconds()), uint(s.Election.Milliseconds())
	cfg.LogLevel, cfg.LogOutputs = "warn", []string{s.Log}
	// Demo members are small and short-lived: no fsync worth waiting for, and a
	// small database file.
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 64 << 20
	return cfg, nil
}
