package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
)

// alertWindow is the window of the scenario. It is shorter than a swap, so that a
// swap is only quiet because it is one.
const alertWindow = 12 * time.Second

// told is a real HTTP receiver on loopback, which keeps what it is told.
type told struct {
	url string
	mu  sync.Mutex
	all []alert.Message
}

func hear(t *testing.T) *told {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &told{url: "http://" + l.Addr().String() + "/hook"}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		raw, err := io.ReadAll(q.Body)
		var m alert.Message
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, m)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

// count is how often it was told of one of the kinds.
func (r *told) count(event alert.Event, kinds ...alert.Kind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.all {
		if m.Event == event && slices.Contains(kinds, m.Kind) {
			n++
		}
	}
	return n
}

// words are all it was told.
func (r *told) words() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, m := range r.all {
		all = append(all, fmt.Sprintf("%s %s %s: %s", m.Event, m.Kind, m.Subject, m.Sentence))
	}
	return strings.Join(all, "\n")
}

// process is one of regrade's on this machine.
type process struct {
	make func() (*exec.Cmd, error)
	log  string
	cmd  *exec.Cmd
}

func (p *process) start(t *testing.T) {
	t.Helper()
	cmd, err := p.make()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.cmd = cmd
}

func (p *process) end() {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// watched starts the heartbeat on the lab's network, with its own account's rights, and
// the alert process beside the receiver, which has no way into the lab: between them is
// a file.
func (s *scenario) watched(r *told) (beat, watch *process, document string) {
	s.t.Helper()
	ctx := s.t.Context()
	rendered, err := s.Regrade(ctx, "manifests", "--heartbeat", "--alert", "--probe=false")
	s.must(err)
	s.must(s.Apply(ctx, []byte(rendered), "Deployment"))
	content, err := s.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountHeartbeat, s.Lab.Hosts()[0])
	s.must(err)
	kubeconfig := filepath.Join(s.Lab.Dir(), "heartbeat.kubeconfig")
	s.must(os.WriteFile(kubeconfig, content, 0o600))
	dir := filepath.Join(s.Lab.Dir(), "health")
	document = filepath.Join(dir, fleet.KeyHealth)
	beat = &process{log: filepath.Join(s.Lab.Dir(), "heartbeat.log"), make: func() (*exec.Cmd, error) {
		cmd, err := s.Lab.Command(context.WithoutCancel(ctx), s.Binaries.Regrade, "heartbeat")
		if err == nil {
			cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "FLEET_ROLE_API_SERVERS="+s.ServerURLs(), "HEARTBEAT_DIR="+dir, "HEARTBEAT_CONFIGMAP=true", "HEARTBEAT_INTERVAL_SECONDS=1", "HEARTBEAT_WINDOW_SECONDS=5")
		}
		return cmd, err
	}}
	watch = &process{log: filepath.Join(s.Lab.Dir(), "alert.log"), make: func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Binaries.Regrade, "alert")
		cmd.Env = []string{
			"FLEET_ALERT_FILE=" + document, "FLEET_ALERT_STATE=" + filepath.Join(s.Lab.Dir(), "alert-state.json"), "FLEET_ALERT_INTERVAL_SECONDS=1",
			fmt.Sprintf("FLEET_ALERT_AFTER_SECONDS=%d", int(alertWindow.Seconds())), "FLEET_ALERT_WEBHOOK_URL=" + r.url,
		}
		return cmd, nil
	}}
	beat.start(s.t)
	s.t.Cleanup(beat.end)
	s.eventually(soon, "the first document", func(context.Context) (bool, string) {
		_, err := os.Stat(document)
		return err == nil, fmt.Sprint(err)
	})
	watch.start(s.t)
	s.t.Cleanup(watch.end)
	return beat, watch, document
}

// hears waits for the one alert of a condition, which is told as one of kinds, lets it be
// over, and waits for the one recovery; the alert process is started anew in between.
func (s *scenario) hears(r *told, watch *process, over func(), kinds ...alert.Kind) {
	s.t.Helper()
	what := fmt.Sprint(kinds)
	s.eventually(3*time.Minute, "an alert of "+what, func(context.Context) (bool, string) {
		return r.count(alert.Began, kinds...) > 0, r.words()
	})
	watch.end()
	watch.start(s.t)
	time.Sleep(alertWindow / 2)
	over()
	s.eventually(4*time.Minute, "the recovery of "+what, func(context.Context) (bool, string) {
		return r.count(alert.Ended, kinds...) > 0, r.words()
	})
	if a, b := r.count(alert.Began, kinds...), r.count(alert.Ended, kinds...); a != 1 || b != 1 {
		s.t.Errorf("%d alerts and %d recoveries of %s, want one of each:\n%s", a, b, what, r.words())
	}
}

// R-F-01..08, R-I-23, R-I-32: a swap is told as a swap and raises nothing within its
// bound; one that is past it, a lost host, a dead heartbeat and an even number of
// voters each raise one alert, over a restart of the alert process, and one recovery.
func Test_alerts(t *testing.T) {
	long(t)
	beside(t)
	c := shared.own(t, hurried()) // a host is removed by hand: it is not handed on
	s := &scenario{Cluster: c}
	s = beginOn(t, c, s.bounds(), "n2")
	s.leaderDies = true
	ctx := t.Context()
	r := hear(t)
	beat, watch, document := s.watched(r)

	s.Logf("a swap within its bounds")
	seen := make(chan bool, 1)
	go func() {
		told := false
		for end := time.Now().Add(swapLimit); time.Now().Before(end) && !told; time.Sleep(200 * time.Millisecond) {
			raw, err := os.ReadFile(document)
			d, perr := heartbeat.Parse(raw)
			told = err == nil && perr == nil && d.RoleSwap != nil && d.RoleSwap.Out == "n1" && d.RoleSwap.In == "n4"
		}
		seen <- told
	}()
	s.mustSwap("n1", "n4")
	s.backAsAgent("n1")
	if !<-seen {
		t.Error("the swap was in no document")
	}
	time.Sleep(2 * alertWindow)
	if words := r.words(); words != "" {
		t.Errorf("a swap within its bounds raised:\n%s", words)
	}

	s.Logf("a swap past its bound: its controller stands still while it waits for a job")
	s.must(s.RunRunner(ctx, "hold", "n1"))
	s.ask("n4", "n1")
	s.awaitState("wait")
	s.must(s.controller.Pause())
	s.hears(r, watch, func() {
		s.must(s.EndPod(ctx, "hold"))
		s.must(s.controller.Continue())
		s.Logf("it ended %s", s.ended("n4", "n1").Outcome)
	}, alert.RoleSwapOverdue)
	members := s.members()

	s.Logf("a lost host")
	lost := "n3"
	s.must(s.Host(lost).Crash(ctx, true))
	// Its daemon falls silent long before the API calls its Node not Ready, and the window is
	// shorter than that: whichever is told first, the other is the same loss.
	s.hears(r, watch, func() {
		// Long enough for the Node as well, and for the window.
		s.eventually(2*time.Minute, "the Node of "+lost+" to be not Ready", func(context.Context) (bool, string) {
			raw, err := os.ReadFile(document)
			if err != nil {
				return false, err.Error()
			}
			d, err := heartbeat.Parse(raw)
			return err == nil && slices.ContainsFunc(d.NotReady, func(n heartbeat.NotReady) bool { return n.Name == lost }), fmt.Sprint(d.NotReady, err)
		})
		time.Sleep(2 * alertWindow)
		if words := r.words(); !strings.Contains(words, lost) {
			t.Errorf("no alert names %s:\n%s", lost, words)
		}
		s.must(s.Host(lost).Boot(ctx))
	}, alert.ServerNotReady, alert.NoTolerance)
	s.must(s.AwaitVoters(ctx, 2*time.Minute, members.Voters()...))

	s.Logf("a dead heartbeat")
	beat.end()
	s.hears(r, watch, func() { beat.start(t) }, alert.HeartbeatStale)

	s.Logf("an even number of voters")
	standby := "n1"
	if voter(s.memberOf(members, standby)) {
		standby = "n4"
	}
	s.eventually(2*time.Minute, standby+" to be promoted by hand", func(ctx context.Context) (bool, string) {
		o, err := s.HostCLI(ctx, s.Host(standby), "promote-local", "--join", "n2")
		return err == nil && o.Code == fleet.ExitDone, fmt.Sprintf("exit %d: %s%s %v", o.Code, o.Stdout, o.Stderr, err)
	})
	s.hears(r, watch, func() {
		s.patchNode(standby, nil, map[string]any{fleet.AnnotationEtcdRemove: "true"})
		s.must(s.AwaitVoters(ctx, 2*time.Minute, members.Voters()...))
	}, alert.VotersEven)

	s.Logf("it was told:\n%s", r.words())
	began, ended := map[string]int{}, map[string]int{}
	r.mu.Lock()
	for _, m := range r.all {
		if m.Event == alert.Began {
			began[string(m.Kind)+" "+m.Subject]++
		} else {
			ended[string(m.Kind)+" "+m.Subject]++
		}
	}
	r.mu.Unlock()
	for what, n := range began {
		if n != 1 || ended[what] != 1 {
			t.Errorf("%s: %d alerts, %d recoveries", what, n, ended[what])
		}
	}
	// A promotion by hand is no swap: when the host's Node was not Ready for longer than this
	// scenario's short window, that is told, and is true.
	delete(began, string(alert.ServerNotReady)+" "+standby)
	if len(began) != 4 {
		t.Errorf("%d conditions were told, want the four that were made", len(began))
	}
	s.checkWrites()
}
