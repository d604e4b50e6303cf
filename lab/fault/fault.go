// Package fault breaks the network between the lab's hosts and mends it again.
//
// Every fault is an [Undo]: called once it mends what it broke, called again it does nothing, and what was never undone is
// undone before the lab ends. Faults hold over a reboot of the host, as a broken cable does.
package fault

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/exadev/regrade/lab/host"
)

// Undo mends a fault.
type Undo func() error

// undoLimit bounds the mending of a fault.
const undoLimit = 30 * time.Second

var counter struct {
	sync.Mutex
	n int
}

func nextKey(kind string) string {
	counter.Lock()
	defer counter.Unlock()
	counter.n++
	return fmt.Sprintf("%s-%03d", kind, counter.n)
}

// once makes an Undo of an action, and registers it with the lab.
func once(lab *host.Lab, mend func(ctx context.Context) error) Undo {
	var do sync.Once
	var failed error
	undo := func() error {
		do.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
			defer cancel()
			failed = mend(ctx)
		})
		return failed
	}
	lab.Defer(func() { _ = undo() })
	return undo
}

// drop puts packet rules on the host.
func drop(ctx context.Context, h *host.Host, kind string, rules ...[]string) (Undo, error) {
	key := nextKey(kind)
	if err := h.SetRules(ctx, key, rules...); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return once(h.Lab(), func(ctx context.Context) error { return h.SetRules(ctx, key) }), nil
}

// Partition cuts the host off: no frame from or to any other address, its cable stays in. Silence, no refusal.
func Partition(ctx context.Context, h *host.Host) (Undo, error) {
	return drop(ctx, h, "partition", []string{"-i", "eth0", "-j", "DROP"}, []string{"-o", "eth0", "-j", "DROP"})
}

// PartitionFrom cuts the host off from the others given, both ways.
func PartitionFrom(ctx context.Context, h *host.Host, others ...*host.Host) (Undo, error) {
	var rules [][]string
	for _, other := range others {
		rules = append(rules, []string{"-s", other.IP().String(), "-j", "DROP"}, []string{"-d", other.IP().String(), "-j", "DROP"})
	}
	return drop(ctx, h, "partition-from", rules...)
}

// DropPort drops what comes from or goes to a TCP port over the host's network: the host's own listener is not reached, nor
// does the host reach that port elsewhere. Loopback is left alone.
func DropPort(ctx context.Context, h *host.Host, port int) (Undo, error) {
	p := fmt.Sprint(port)
	return drop(ctx, h, "port-"+p,
		[]string{"-i", "eth0", "-p", "tcp", "--dport", p, "-j", "DROP"}, []string{"-i", "eth0", "-p", "tcp", "--sport", p, "-j", "DROP"},
		[]string{"-o", "eth0", "-p", "tcp", "--dport", p, "-j", "DROP"}, []string{"-o", "eth0", "-p", "tcp", "--sport", p, "-j", "DROP"})
}

// Lose drops each packet that the host gets with the given probability (0 to 1).
func Lose(ctx context.Context, h *host.Host, probability float64) (Undo, error) {
	if probability < 0 || probability > 1 {
		return nil, fmt.Errorf("lose packets of %s: probability %v is not within 0 and 1", h.Name(), probability)
	}
	return drop(ctx, h, "loss", []string{
		"-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.6f", probability), "-j", "DROP",
	})
}

// Unplug pulls the host's cable: the host sees its carrier go.
func Unplug(ctx context.Context, h *host.Host) (Undo, error) {
	if err := h.Unplug(ctx, true); err != nil {
		return nil, err
	}
	return once(h.Lab(), func(ctx context.Context) error { return h.Unplug(ctx, false) }), nil
}

// Pause stops every process of the host's unit (SIGSTOP); undone they run on.
func Pause(h *host.Host, unit string) (Undo, error) {
	if err := h.Pause(unit); err != nil {
		return nil, err
	}
	return once(h.Lab(), func(context.Context) error { return h.Continue(unit) }), nil
}
