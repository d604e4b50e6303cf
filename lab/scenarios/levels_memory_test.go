package scenarios

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/cluster"
)

// What a host daemon with levels on takes of its host, at the pace of the shipped settings: three servers, each with
// its level half, look at their memory and report, and nothing is the matter.
func Test_levels_at_rest(t *testing.T) {
	long(t)
	settings := cluster.LevelSettings()
	settings["period"] = "15s"
	settings["levels"] = map[string]any{"enabled": true, "pressure": []string{cluster.PressureFile}}
	s := gradedBy(t, cluster.Standard(), settings, "n1", "n2", "n3")
	names := []string{"n1", "n2", "n3"}
	time.Sleep(90 * time.Second) // what the start has touched is given back after three periods
	const watched = 4 * time.Minute
	began := map[string]usage{}
	samples := map[string][]float64{}
	for _, name := range names {
		began[name] = s.usage(name)
	}
	for end := time.Now().Add(watched); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		for _, name := range names {
			samples[name] = append(samples[name], s.usage(name).resident)
		}
	}
	for _, name := range names {
		now := s.usage(name)
		if now.pid != began[name].pid {
			t.Errorf("the daemon of %s was started anew", name)
			continue
		}
		sum, most := 0.0, 0.0
		for _, mib := range samples[name] {
			sum, most = sum+mib, max(most, mib)
		}
		mean := sum / float64(len(samples[name]))
		cpu := 100 * (now.cpu - began[name].cpu).Seconds() / watched.Seconds()
		s.Logf("host daemon of %s: resident %.1f MiB on average, %.1f at most; %.2f %% of a CPU", name, mean, most, cpu)
		// The bounds of docs/figures.md.
		if mean > 25 {
			t.Errorf("%s: %.1f MiB are more than 25", name, mean)
		}
		if cpu > 0.5 {
			t.Errorf("%s: %.2f %% of a CPU are more than 0.5", name, cpu)
		}
	}
	s.end(names...)
}

// usage is what a process has and has had.
type usage struct {
	pid      string
	resident float64 // MiB
	cpu      time.Duration
}

func (s *scenario) usage(name string) usage {
	s.t.Helper()
	pid, err := s.DaemonPID(s.t.Context(), s.Host(name))
	s.must(err)
	out, err := s.Host(name).Run(s.t.Context(), "cat", "/proc/"+pid+"/stat")
	s.must(err)
	u, err := parseUsage(pid, out)
	s.must(err)
	return u
}

// parseUsage reads proc(5)'s stat: utime and stime in ticks of 10 ms, rss in pages.
func parseUsage(pid, stat string) (usage, error) {
	_, rest, ok := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 22 {
		return usage{}, fmt.Errorf("stat of %s: %q", pid, stat)
	}
	u := usage{pid: pid}
	for _, i := range []int{11, 12} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("stat of %s: %w", pid, err)
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	pages, err := strconv.ParseFloat(fields[21], 64)
	u.resident = pages * 4096 / (1 << 20)
	return u, err
}
