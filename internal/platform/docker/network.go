package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/platform"
)

// With REGRADE_NETWORK=container:NAME the three containers are in the network of another
// one, a mesh's say. When that is started anew it gets another network, and the three keep
// the one that is gone: nobody hears of them any more. An engine sees to none of it. The
// daemon does, in two steps: it ends itself, so that the engine starts it in the network
// that is there now, and from there it starts k3s anew.
//
// That the other container has started later makes one suspect it, and proves nothing: a
// clock that was set back looks the same, and a voter that works must not be restarted for
// that. The proof is the kernel's: the other container's address, which the engine knows, is
// not in this process's network.

// cutOff says that this process is in a network that is gone, which no new look mends.
func (h *Host) cutOff(ctx context.Context) error {
	h.mu.Lock()
	self := h.self
	h.mu.Unlock()
	if self.Network == "" {
		return nil
	}
	n, err := h.engine.Inspect(ctx, self.Network)
	if errors.Is(err, ErrGone) {
		// Ended, this process would not come back: the engine finds no network for it.
		return fmt.Errorf("the container %s, whose network this one and k3s have, is gone: make all three containers anew (docs/operations.md)", short(self.Network))
	}
	if err != nil {
		return err
	}
	if !n.Runs() || !n.Started.After(self.Started) || len(n.Addresses) == 0 || h.with(n) {
		return nil
	}
	return fmt.Errorf("the container %s was started anew, and this one is in the network that it had before: %w", n.Name, platform.ErrAnew)
}

// hearAgain is when a container is asked again for its network: each question is a
// process in it, and has hearTimeout of the look that asks.
const (
	hearTimeout = 3 * time.Second
	hearAgain   = time.Minute
)

// heard is what a container said of its network.
type heard struct {
	started time.Time // of the container, when it was asked
	at      time.Time
	other   bool // than this process's
}

// severed says that a container is in another network than this process, which has that
// of the same third container as it is now. What cannot be told is no.
func (h *Host) severed(ctx context.Context, c Container) bool {
	h.mu.Lock()
	self, last := h.self, h.heard[c.ID]
	h.mu.Unlock()
	if self.Network == "" || c.Network != self.Network || c.State != "running" {
		return false
	}
	n, err := h.engine.Inspect(ctx, c.Network)
	if err != nil || !n.Runs() || !n.Started.After(c.Started) || n.Started.After(self.Started) || !h.with(n) {
		return false
	}
	if last.started.Equal(c.Started) && (last.other || time.Since(last.at) < hearAgain) {
		return last.other
	}
	said := heard{started: c.Started, at: time.Now(), other: h.elsewhere(ctx, c)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard[c.ID] = said
	return said.other
}

// elsewhere asks in a container which network it is in.
func (h *Host) elsewhere(ctx context.Context, c Container) bool {
	ctx, cancel := context.WithTimeout(ctx, hearTimeout)
	defer cancel()
	out, err := h.engine.Run(ctx, c.ID, c.Command[0], "entrypoint", "network")
	if err != nil || out.Status != 0 {
		return false
	}
	theirs := strings.TrimSpace(out.Text)
	ours, _ := h.o.Network()
	return strings.HasPrefix(theirs, "net:[") && strings.HasPrefix(ours, "net:[") && theirs != ours
}

// with says that this process is in a container's network as it is now.
func (h *Host) with(c Container) bool {
	_, own := h.o.Network()
	return slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool { return slices.Contains(own, a) })
}

// kernelNetwork is the network of this process: its namespace, and the addresses in it.
func kernelNetwork() (name string, addresses []netip.Addr) {
	name, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return name, nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addresses = append(addresses, p.Addr())
		}
	}
	return name, addresses
}
