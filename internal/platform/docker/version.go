package docker

import (
	"context"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// A k3s that does not say its version is asked again after firstAgain, then ever more
// seldom: each question is a process in a container, and up to askTimeout of a pass. No
// swap is made meanwhile (safety rule 9).
const (
	askTimeout = 5 * time.Second
	firstAgain = 5 * time.Second
	lastAgain  = time.Minute
)

// asking is when an image's k3s was last asked for its version in vain, and how long it
// is then left alone.
type asking struct {
	at   time.Time
	wait time.Duration
}

// mayAsk says whether the image's k3s may be asked for its version now, and counts it.
func (h *Host) mayAsk(image string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.asked[image]
	if a.wait > 0 && time.Since(a.at) < a.wait {
		return false
	}
	h.asked[image] = asking{at: time.Now(), wait: min(max(firstAgain, 2*a.wait), lastAgain)}
	return true
}

// version is what the k3s of the server's image says of itself. It is asked in a
// container that runs, whichever role's, as long as both have one image, and
// remembered by the image's id: in the middle of a switch neither runs.
func (h *Host) version(ctx context.Context, p pair, process map[fleet.Role]bool) string {
	image := p.server.Image
	if image == "" {
		image = p.agent.Image
	}
	if r := h.record(); r.Version.Image == image {
		return r.Version.Version
	}
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		c := p.of(role)
		if !process[role] || c.Image != image || c.State != "running" {
			continue
		}
		if !h.mayAsk(image) {
			return ""
		}
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		out, err := h.engine.Run(ctx, c.ID, h.o.K3s, "--version")
		if err != nil || out.Status != 0 {
			return ""
		}
		v := parseVersion(out.Text)
		if v != "" {
			h.mu.Lock()
			h.seen.Version = versionOf{Image: image, Version: v}
			h.mu.Unlock()
		}
		return v
	}
	return ""
}

// parseVersion reads `k3s --version`: "k3s version v1.36.3+k3s1 (…)".
func parseVersion(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		if rest, ok := strings.CutPrefix(line, "k3s version "); ok {
			v, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return v
		}
	}
	return ""
}
