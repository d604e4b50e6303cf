package swap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/status"
)

// protected is the number of runner pods on a host: never cut (R-I-07).
func (v *view) protected(h *Host) int {
	n := 0
	for _, p := range h.Pods {
		if p.Protected {
			n++
		}
	}
	return n
}

// evictable is the number of pods a drain still has to see gone.
func (v *view) evictable(h *Host) int {
	n := 0
	for _, p := range h.Pods {
		if !p.Protected && !p.Stays {
			n++
		}
	}
	return n
}

// blocked names the pods of a host that a drain may not evict: a disruption
// budget refuses, or nothing would make the pod again (safety rule 20).
func (v *view) blocked(h *Host) []status.Reason {
	if h == nil {
		return nil
	}
	var rs []status.Reason
	for _, p := range h.Pods {
		switch {
		case p.Protected || p.Stays || p.Terminating:
		case !p.Owned:
			rs = append(rs, reason(CodeUnowned, h.Name, "pod %s/%s on %s has no owner that would make it again", p.Namespace, p.Name, h.Name))
		case p.Blocked != "":
			rs = append(rs, reason(CodeDisruption, h.Name, "pod %s/%s on %s may not be evicted: %s", p.Namespace, p.Name, h.Name, p.Blocked))
		}
	}
	return rs
}

func (v *view) runnerPods(hosts ...*Host) []status.Reason {
	var rs []status.Reason
	for _, h := range hosts {
		var names []string
		for _, p := range h.Pods {
			if p.Protected {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			rs = append(rs, reason(CodeRunnerPods, h.Name, "%s runs %s", h.Name, strings.Join(names, ", ")))
		}
		if !h.PodsRead {
			rs = append(rs, reason(CodePodsNotRead, h.Name, "the pods of %s could not be read", h.Name))
		}
	}
	return rs
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
