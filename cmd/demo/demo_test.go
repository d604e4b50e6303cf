package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/etcd/embedded"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
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
		"v1 is unfit: round trip", "the limit is 100ms", "learner promoted", "hands etcd's leadership over",
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

func TestTheStandInRule(t *testing.T) {
	const ms = time.Millisecond
	voter := func() *status.Report { return &status.Report{Etcd: &status.EtcdView{Linearizable: true}} }
	for name, c := range map[string]struct {
		trips map[string]time.Duration
		want  *swap.Pair
	}{
		"all are well":                       {trips: map[string]time.Duration{"v1": 2 * ms, "v2": 2 * ms, "s1": ms}},
		"a voter at the limit is fit":        {trips: map[string]time.Duration{"v1": 100 * ms, "v2": 2 * ms, "s1": ms}},
		"a voter above it goes":              {trips: map[string]time.Duration{"v1": 101 * ms, "v2": 2 * ms, "s1": ms}, want: &swap.Pair{Out: "v1", In: "s1"}},
		"the quickest standby comes":         {trips: map[string]time.Duration{"v1": 150 * ms, "v2": 2 * ms, "s1": 3 * ms, "s2": ms}, want: &swap.Pair{Out: "v1", In: "s2"}},
		"a standby between the limits stays": {trips: map[string]time.Duration{"v1": 150 * ms, "v2": 2 * ms, "s1": 51 * ms}},
		"two unfit voters: a common cause":   {trips: map[string]time.Duration{"v1": 150 * ms, "v2": 150 * ms, "s1": ms}},
		"a silent voter is not slow":         {trips: map[string]time.Duration{"v2": 2 * ms, "s1": ms}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoundTrips(nil, 3)
			var o swap.Observation
			for _, host := range []string{"s1", "s2", "v1", "v2"} {
				h := swap.Host{Name: host, Report: &status.Report{}}
				h.Node.Labels = map[string]string{swap.DefaultPolicy().Keys.Eligible(): "true"}
				if host[0] == 'v' {
					h.Report = voter()
				}
				o.Hosts = append(o.Hosts, h)
				if took, ok := c.trips[host]; ok {
					for range 3 {
						r.add(host, took, nil)
					}
				}
			}
			got := (&standIn{trips: r, election: time.Second}).pair(o, swap.DefaultPolicy())
			if (got == nil) != (c.want == nil) || (got != nil && *got != *c.want) {
				t.Fatalf("got %+v, want %+v", got, c.want)
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
	r := newRoundTrips(map[string]string{"h": "http://" + k.address()}, 3)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx, time.Millisecond) }()
	wait := func(ok func(time.Duration) bool) {
		t.Helper()
		for range 500 {
			if took, known := r.median("h"); known && ok(took) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		took, known := r.median("h")
		t.Fatalf("median %s, known %t", took, known)
	}
	wait(func(d time.Duration) bool { return d < 40*time.Millisecond })
	k.slow(25 * time.Millisecond)
	wait(func(d time.Duration) bool { return d >= 50*time.Millisecond })
	cancel()
	<-done
}
