package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/etcd/embedded"
	"github.com/exadev/regrade/internal/fitness"
)

// The test binary is the member too, as the demo's own binary is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == memberArg {
		os.Exit(embedded.Main(os.Args[2]))
	}
	os.Exit(m.Run())
}

func demo(t *testing.T, ctx context.Context, args ...string) (code int, out, errs string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var o, e strings.Builder
	code = run(ctx, []string{self, memberArg}, args, &o, &e)
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "regrade-demo-*")); code != 1 && len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return code, o.String(), e.String()
}

func TestASlowVoterIsSwappedForAStandbyWithWritesFlowing(t *testing.T) {
	code, out, errs := demo(t, t.Context(), "--fast")
	t.Log(out)
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, errs)
	}
	for _, want := range []string{
		"v1 is to be swapped for", "the limit is 100ms", "learner promoted", "hands etcd's leadership over",
		"v1 out,", "completed", "0 failed", "lost 0",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
}

func TestWithoutAFaultNothingIsSwapped(t *testing.T) {
	code, out, errs := demo(t, t.Context(), "--fast", "--fault", "none", "--hosts", "4")
	if code != 0 || !strings.Contains(out, "every voter was fit") || !strings.Contains(out, "lost 0") {
		t.Fatalf("exit status %d: %s%s", code, out, errs)
	}
}

func TestAnInterruptedDemoLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	code, out, errs := demo(t, ctx, "--fast")
	if code != 130 {
		t.Fatalf("exit status %d: %s%s", code, out, errs)
	}
}

func TestBadArgumentsAreAUsageError(t *testing.T) {
	for name, args := range map[string][]string{
		"too few hosts":    {"--hosts", "3"},
		"too many hosts":   {"--hosts", "10"},
		"an unknown fault": {"--fault", "flood"},
		"a stray argument": {"now"},
		"an unknown flag":  {"--quick"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, errs := demo(t, t.Context(), args...); code != 2 || errs == "" {
				t.Fatalf("exit status %d: %q", code, errs)
			}
		})
	}
}

// The demo's windows through regrade's own judgement.
func TestTheDemosWindowsAreJudged(t *testing.T) {
	const ms = time.Millisecond
	names := []string{"s1", "s2", "v1", "v2", "v3"}
	for name, c := range map[string]struct {
		ways    map[string]time.Duration // 2 ms where nothing is said; negative: no answer
		unfit   []string
		unknown []string
	}{
		"all are well":                        {},
		"a voter at the limit is fit":         {ways: map[string]time.Duration{"v1": 100 * ms}},
		"a voter above it is unfit":           {ways: map[string]time.Duration{"v1": 101 * ms}, unfit: []string{"v1"}},
		"two of three have suspects all over": {ways: map[string]time.Duration{"v1": 150 * ms, "v2": 150 * ms}, unfit: []string{"v1", "v2"}},
		"a silent voter is not slow":          {ways: map[string]time.Duration{"v1": -1}, unknown: []string{"v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			timing := options{}.timing()
			urls := map[string]string{}
			for _, n := range names {
				urls[n] = ""
			}
			p := newProbes(urls, timing.window, timing.period())
			now := time.Now()
			for range 2 * timing.window {
				for _, n := range names {
					took, ok := c.ways[n]
					if !ok {
						took = 2 * ms
					}
					var err error
					if took < 0 {
						err = errors.New("no answer")
					}
					p.add(n, took, err)
				}
				now = now.Add(timing.sample)
				p.sample(now)
			}
			hosts := p.hosts(now)
			for i := range hosts {
				hosts[i].Votes = hosts[i].Node[0] == 'v'
			}
			var unfit, unknown []string
			for _, v := range fitness.Judge(hosts, newJudge(p, timing).rules.Fitness) {
				switch {
				case v.Fitness == fitness.Unfit && v.Votes:
					unfit = append(unfit, v.Node)
				case v.Fitness == fitness.Unknown:
					unknown = append(unknown, v.Node)
				}
			}
			if !slices.Equal(unfit, c.unfit) || !slices.Equal(unknown, c.unknown) {
				t.Fatalf("unfit %v, unknown %v; want %v, %v", unfit, unknown, c.unfit, c.unknown)
			}
		})
	}
}

func TestASlowLinkDelaysBothWays(t *testing.T) {
	k, err := newLink("127.0.0.1:1") // nobody there: the standby answers
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	r := newProbes(map[string]string{"h": "http://" + k.address()}, 3, time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx, time.Millisecond) }()
	wait := func(ok func(time.Duration) bool) {
		t.Helper()
		for range 500 {
			if took, known := r.way("h"); known && ok(took) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		took, known := r.way("h")
		t.Fatalf("the middle %s, known %t", took, known)
	}
	wait(func(d time.Duration) bool { return d < 40*time.Millisecond })
	k.slow(25 * time.Millisecond)
	wait(func(d time.Duration) bool { return d >= 50*time.Millisecond })
	cancel()
	<-done
}

// A demo that is killed leaves no member behind, not even one that is not ready: its two others never come.
func TestAMemberThatIsNotReadyEndsWithItsParent(t *testing.T) {
	for name, told := range map[string]bool{"killed": false, "told to stop, and killed when that took too long": true} {
		t.Run(name, func(t *testing.T) { endsWithItsParent(t, told) })
	}
}

func endsWithItsParent(t *testing.T, told bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, ports := t.TempDir(), make([]string, 4)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().String()
		_ = l.Close()
	}
	spec, err := json.Marshal(embedded.Spec{
		Name: "v1", Dir: filepath.Join(dir, "v1"), Peer: ports[0], Client: ports[1], Advertised: "http://" + ports[0],
		Initial: "v1=http://" + ports[0] + ",v2=http://" + ports[2] + ",v3=http://" + ports[3], Heartbeat: 100 * time.Millisecond, Election: time.Second, Log: filepath.Join(dir, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, memberArg, string(spec))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for deadline := time.Now().Add(30 * time.Second); ; {
		if c, err := net.Dial("tcp", ports[0]); err == nil {
			_ = c.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if told {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended: // nothing is left to be seen: closing waits by now
			t.Fatalf("a member that is not ready was closed: %v", err)
		case <-time.After(2 * time.Second):
		}
	}
	if err := stdin.Close(); err != nil { // as the kernel does when the parent is gone
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("it runs on as an orphan")
	}
}
