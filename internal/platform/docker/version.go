package docker

import (
	"context"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// A k3s that does not say its version is asked again after firstAgain, then ever more
// seldom: each question is a process in a container. No swap is made meanwhile (safety
// rule 9).
//
// A question has askTimeout, more than any look: on a slow engine a look has little left
// when it comes to the version, and a glance has half a second at all. The answer is there
// for the next one.
const (
	askTimeout = 15 * time.Second
	firstAgain = 5 * time.Second
	lastAgain  = time.Minute
)

// asking is a question for the version of an image's k3s that is under way, or when the
// last one was in vain and how long it is then left alone.
type asking struct {
	underWay bool
	at       time.Time
	wait     time.Duration
}

// mayAsk says whether the image's k3s may be asked for its version now. Who asks owes told.
func (h *Host) mayAsk(image string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.asked[image]
	if a.underWay || a.wait > 0 && time.Since(a.at) < a.wait {
		return false
	}
	a.underWay = true
	h.asked[image] = a
	return true
}

// told keeps the answer; empty is none.
func (h *Host) told(image, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version == "" {
		h.asked[image] = asking{at: time.Now(), wait: min(max(firstAgain, 2*h.asked[image].wait), lastAgain)}
		return
	}
	h.seen.Version = versionOf{Image: image, Version: version}
	delete(h.asked, image)
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
		said := make(chan string, 1)
		go func() { said <- h.ask(context.WithoutCancel(ctx), c.ID, image) }()
		select {
		case v := <-said:
			return v
		case <-ctx.Done():
			return ""
		}
	}
	return ""
}

func (h *Host) ask(ctx context.Context, container, image string) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v := ""
	if out, err := h.engine.Run(ctx, container, h.o.K3s, "--version"); err == nil && out.Status == 0 {
		v = parseVersion(out.Text)
	}
	h.told(image, v)
	return v
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
