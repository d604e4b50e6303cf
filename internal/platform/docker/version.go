package docker

import (
	"context"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// A k3s that does not say its version is asked again after askAgain: each question is
// a process in a container.
const (
	askTimeout = 3 * time.Second
	askAgain   = time.Minute
)

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
		h.mu.Lock()
		soon := time.Since(h.asked[image]) < askAgain
		h.asked[image] = time.Now()
		h.mu.Unlock()
		if soon {
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
