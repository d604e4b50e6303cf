package scenarios

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// Twenty swaps in a row, to and fro: no write is lost, nothing is left behind, and
// the daemons grow no more.
func Test_twenty_swaps(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	const swaps = 20
	// Two swaps first, so that each host has been both: what a second life makes
	// anew is not counted as left behind.
	var before leftovers
	var times []float64
	for i := range swaps {
		if i == 2 {
			before = s.leftovers()
			s.Logf("memory after two swaps: %v", before.memory)
		}
		began := time.Now()
		s.mustSwap(out, in)
		times = append(times, time.Since(began).Seconds())
		s.backAsAgent(out)
		out, in = in, out
	}
	slices.Sort(times)
	s.Logf("%d swaps: %.0f to %.0f s, median %.0f s", swaps, times[0], times[len(times)-1], times[len(times)/2])
	after := s.leftovers()
	s.Logf("memory at the end: %v", after.memory)
	for _, what := range slices.Sorted(maps.Keys(after.things)) {
		if b, a := before.things[what], after.things[what]; a != b {
			t.Errorf("%s: %s before, %s after", what, b, a)
		}
	}
	for name, mib := range after.memory {
		if grown := mib - before.memory[name]; grown > 8 {
			t.Errorf("%s holds %d MiB of its own, %d more than after two swaps", name, mib, grown)
		}
	}
	s.end("n2", "n3", out)
}

// leftovers is what a swap could leave: how many objects, which keys on Nodes, which
// files on the hosts; and what the daemons hold of their own, in MiB.
type leftovers struct {
	things map[string]string
	memory map[string]int
}

func (s *scenario) leftovers() leftovers {
	s.t.Helper()
	ctx := s.t.Context()
	l := leftovers{things: map[string]string{}, memory: map[string]int{}}
	leases, err := s.api().CoordinationV1().Leases("").List(ctx, metav1.ListOptions{})
	s.must(err)
	var names []string
	for _, x := range leases.Items {
		if !strings.HasPrefix(x.Name, "apiserver-") {
			names = append(names, x.Namespace+"/"+x.Name)
		}
	}
	l.things["leases"] = sorted(names)
	cms, err := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace).List(ctx, metav1.ListOptions{})
	s.must(err)
	names = nil
	for _, x := range cms.Items {
		names = append(names, x.Name+" "+sorted(slices.Collect(maps.Keys(x.Data))))
	}
	l.things["config maps"] = sorted(names)
	for _, name := range []string{"n1", "n4"} {
		s.checkSettled(name)
		n := s.node(name)
		l.things["labels of "+name] = sorted(slices.Collect(maps.Keys(n.Labels)))
		l.things["annotations of "+name] = sorted(slices.Collect(maps.Keys(n.Annotations)))
		for _, folder := range []string{"/etc/github-runner", "/etc/regrade", "/var/lib/regrade", "/run/regrade", fleet.DefaultDataDir + "/server", "/etc/rancher/k3s"} {
			out, err := s.Host(name).Exec(ctx, "find", folder, "-maxdepth", "1", "-printf", "%f\n")
			s.must(err)
			l.things["files of "+name+" in "+folder] = sorted(strings.Fields(out.Stdout))
		}
	}
	for _, name := range []string{"n1", "n2", "n4"} {
		pid, err := s.Host(name).Systemctl(ctx, "show", "--value", "--property=MainPID", cluster.HostUnit)
		s.must(err)
		raw, err := s.Host(name).Run(ctx, "cat", "/proc/"+strings.TrimSpace(pid)+"/status")
		s.must(err)
		l.memory["host daemon of "+name] = own(raw)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.controller.PID()))
	s.must(err)
	l.memory["controller"] = own(string(raw))
	return l
}

// checkSettled waits until a host has nothing under way.
func (s *scenario) checkSettled(name string) {
	s.t.Helper()
	s.eventually(soon, name+" to be settled", func(context.Context) (bool, string) {
		r := s.report(name)
		return r.Phase != fleet.PhaseRunning, string(r.Phase)
	})
}

// own is a process's anonymous memory in MiB.
func own(status string) int {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib := 0
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib >> 10
			}
		}
	}
	return 0
}

func sorted(names []string) string {
	slices.Sort(names)
	return strings.Join(names, " ")
}
