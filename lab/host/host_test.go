package host_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/fault"
	"github.com/exadev/regrade/lab/host"
	"github.com/exadev/regrade/lab/preflight"
)

// newLab gives a lab for one test, or skips: the lab's own packages are tested where it can run (make test insists).
func newLab(t *testing.T) *host.Lab {
	t.Helper()
	if os.Getenv("LAB") == "off" {
		t.Skip("LAB=off")
	}
	if ok, reason := preflight.CanRun(); !ok {
		t.Fatal(reason)
	}
	options := host.Options{Logf: t.Logf}
	if os.Getenv("LAB_TRACE") != "" {
		options.Trace = t.Logf
	}
	lab, err := host.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func addHosts(t *testing.T, lab *host.Lab, names ...string) []*host.Host {
	t.Helper()
	var hosts []*host.Host
	for _, name := range names {
		h, err := lab.AddHost(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

var roundTrip = regexp.MustCompile(`time=([0-9.]+) ms`)

// ping gives the round trip, or false when no answer came within a second.
func ping(t *testing.T, from, to *host.Host) (time.Duration, bool) {
	t.Helper()
	result, err := from.Exec(t.Context(), "ping", "-n", "-c", "1", "-W", "1", to.IP().String())
	if err != nil {
		t.Fatal(err)
	}
	match := roundTrip.FindStringSubmatch(result.Stdout)
	if result.Code != 0 || match == nil {
		return 0, false
	}
	ms, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms * float64(time.Millisecond)), true
}

func mustReach(t *testing.T, from, to *host.Host, want bool) {
	t.Helper()
	// Bridges learn a moved port from the first frame.
	for try := 0; ; try++ {
		if _, got := ping(t, from, to); got == want {
			return
		}
		if try == 3 {
			t.Fatalf("%s reaches %s: got %v, want %v", from.Name(), to.Name(), !want, want)
		}
	}
}

const sleeper = `[Service]
Type=exec
ExecStart=/bin/sh -c 'sleep 1000 & exec sleep 2000'
Restart=no

[Install]
WantedBy=multi-user.target
`

func TestFourHostsLiveThroughWhatScenariosDoToThem(t *testing.T) {
	lab := newLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	hosts := addHosts(t, lab, "n1", "n2", "n3", "n4")
	n1, n2 := hosts[0], hosts[1]
	for _, h := range hosts {
		if err := h.WriteFile("/etc/systemd/system/sleeper.service", []byte(sleeper), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := lab.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("four hosts booted side by side in %.1f s", time.Since(began).Seconds())
	for _, h := range hosts[1:] {
		mustReach(t, n1, h, true)
	}

	t.Run("a disabled unit stays disabled, so no preset ran", func(t *testing.T) {
		result, err := n1.Exec(ctx, "systemctl", "is-enabled", "sleeper.service")
		if err != nil || strings.TrimSpace(result.Stdout) != "disabled" {
			t.Fatalf("got %q, %v", result.Stdout, err)
		}
	})

	t.Run("files and commands", func(t *testing.T) {
		if err := n1.WriteFile("/run/lab/note", []byte("volatile"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n1.WriteFile("/var/lib/rancher/note", []byte("durable"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := n1.Run(ctx, "cat", "/run/lab/note", "/var/lib/rancher/note")
		if err != nil || out != "volatiledurable" {
			t.Fatalf("got %q, %v", out, err)
		}
		result, err := n1.Exec(ctx, "sh", "-c", "echo no >&2; exit 7")
		if err != nil || result.Code != 7 || result.Stderr != "no\n" {
			t.Fatalf("got %+v, %v", result, err)
		}
		short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		defer stop()
		if _, err := n1.Exec(short, "sleep", "60"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a command past its time: %v", err)
		}
	})

	t.Run("a crash ends everything and the next boot has a new boot id and the old disk", func(t *testing.T) {
		for _, power := range []bool{false, true} {
			before, err := n1.BootID(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := n1.Crash(ctx, power); err != nil {
				t.Fatal(err)
			}
			if n1.Up() {
				t.Fatal("it is up after a crash")
			}
			content, err := n1.ReadFile("/var/lib/rancher/note")
			if err != nil || string(content) != "durable" {
				t.Fatalf("disk of a host that is down: %q, %v", content, err)
			}
			mustReach(t, n2, n1, false)
			began := time.Now()
			if err := n1.Boot(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("power %v: up again in %.1f s", power, time.Since(began).Seconds())
			after, err := n1.BootID(ctx)
			if err != nil || after == before {
				t.Fatalf("boot id %q, before %q, %v", after, before, err)
			}
			if there, err := n1.Exists("/run/lab/note"); err != nil || there {
				t.Fatalf("a volatile file outlived the crash: %v, %v", there, err)
			}
			mustReach(t, n2, n1, true)
		}
	})

	t.Run("a clean stop and a reboot", func(t *testing.T) {
		if _, err := n2.Systemctl(ctx, "enable", "sleeper.service"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := n2.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("rebooted in %.1f s", time.Since(began).Seconds())
		if state, err := n2.ActiveState(ctx, "sleeper.service"); err != nil || state != "active" {
			t.Fatalf("an enabled unit after a reboot: %q, %v", state, err)
		}
		began = time.Now()
		if err := n2.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("stopped in %.1f s", time.Since(began).Seconds())
		log, err := n2.Journal(ctx, "sleeper.service")
		if err != nil || !strings.Contains(log, "Stopped sleeper.service") {
			t.Fatalf("journal of a host that is down: %q, %v", log, err)
		}
		if err := n2.Boot(ctx); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a unit is paused, runs on, and is killed", func(t *testing.T) {
		states := func() string {
			all, err := n2.Processes()
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, p := range all {
				if p.Name == "sleep" {
					found += p.State
				}
			}
			return found
		}
		if err := n2.Pause("sleeper.service"); err != nil {
			t.Fatal(err)
		}
		if got := states(); got != "TT" {
			t.Fatalf("paused: %q", got)
		}
		if err := n2.Continue("sleeper.service"); err != nil {
			t.Fatal(err)
		}
		if got := states(); len(got) != 2 || strings.Contains(got, "T") {
			t.Fatalf("continued: %q", got)
		}
		if err := n2.KillUnit("sleeper.service", syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if states() == "" {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if got := states(); got != "" {
			t.Fatalf("killed: %q", got)
		}
		if err := n2.KillUnit("sleeper.service", syscall.SIGKILL); err == nil {
			t.Fatal("killing a unit without processes was no error")
		}
	})

	t.Run("a partition holds over a reboot and heals", func(t *testing.T) {
		heal, err := fault.Partition(ctx, n1)
		if err != nil {
			t.Fatal(err)
		}
		mustReach(t, n2, n1, false)
		mustReach(t, n1, n2, false)
		mustReach(t, n2, hosts[2], true)
		if err := n1.CrashAndBoot(ctx, true); err != nil {
			t.Fatal(err)
		}
		mustReach(t, n2, n1, false)
		if err := heal(); err != nil {
			t.Fatal(err)
		}
		mustReach(t, n2, n1, true)
	})

	t.Run("a dropped port is silent and others are not", func(t *testing.T) {
		undo, err := fault.DropPort(ctx, n1, 2380)
		if err != nil {
			t.Fatal(err)
		}
		if got := dial(ctx, lab, n1, 2380); !errors.Is(got, context.DeadlineExceeded) && !isTimeout(got) {
			t.Fatalf("a dropped port: %v", got)
		}
		if got := dial(ctx, lab, n1, 2379); !errors.Is(got, syscall.ECONNREFUSED) {
			t.Fatalf("another port: %v", got)
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		if got := dial(ctx, lab, n1, 2380); !errors.Is(got, syscall.ECONNREFUSED) {
			t.Fatalf("a port no more dropped: %v", got)
		}
	})

	t.Run("a slow link delays both ways, is changed while used, and is undone", func(t *testing.T) {
		link, err := fault.Slow(ctx, n1, 150*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		mustReach(t, n1, n2, true)
		within := func(low, high time.Duration) {
			t.Helper()
			// The quickest of some: a busy machine only adds to a delay.
			took := time.Hour
			for range 8 {
				one, ok := ping(t, n1, n2)
				if !ok {
					t.Fatal("a ping was not answered")
				}
				if took = min(took, one); took <= high {
					break
				}
			}
			t.Logf("ping over the slow link: %s", took)
			if took < low || took > high {
				t.Fatalf("the quickest ping took %s, want %s to %s", took, low, high)
			}
		}
		within(300*time.Millisecond, 340*time.Millisecond)
		link.SetDelay(20 * time.Millisecond)
		within(40*time.Millisecond, 80*time.Millisecond)
		if err := link.Undo(); err != nil {
			t.Fatal(err)
		}
		mustReach(t, n1, n2, true)
		within(0, 20*time.Millisecond)
	})
}

func dial(ctx context.Context, lab *host.Lab, h *host.Host, port int) error {
	short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	conn, err := lab.DialContext(short, "tcp", h.IP().String()+":"+strconv.Itoa(port))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
