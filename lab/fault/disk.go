package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/exadev/regrade/lab/host"
)

// SlowDisk makes each fsync and fdatasync of the host's etcd take longer by the delay, as a worn card or a busy disk does: strace
// holds the system call before it begins (lab-notes). The delay is bounded: a process that is inside one when it ends dies.
func SlowDisk(ctx context.Context, h *host.Host, delay time.Duration) (Undo, error) {
	if delay <= 0 || delay > 2*time.Second {
		return nil, fmt.Errorf("slow disk of %s: a delay of %s", h.Name(), delay)
	}
	pid, err := etcdOf(h)
	if err != nil {
		return nil, fmt.Errorf("slow disk of %s: %w", h.Name(), err)
	}
	inject := fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", delay.Microseconds())
	cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", inject, "-p", strconv.Itoa(pid))
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("slow disk of %s: %w", h.Name(), err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in what it said
		close(ended)
	}()
	select {
	case <-ended:
		return nil, fmt.Errorf("slow disk of %s: strace ended: %s", h.Name(), strings.TrimSpace(said.String()))
	case <-time.After(500 * time.Millisecond):
	case <-ctx.Done():
	}
	return once(h.Lab(), func(context.Context) error {
		// SIGTERM lets go of the process first.
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end the slow disk of %s: %w", h.Name(), err)
		}
		select {
		case <-ended:
			return nil
		case <-time.After(10 * time.Second):
			return fmt.Errorf("end the slow disk of %s: strace does not end", h.Name())
		}
	}), nil
}

// etcdOf is the process that writes the datastore: etcd's own in the stand-in, k3s itself in a real one.
func etcdOf(h *host.Host) (int, error) {
	all, err := h.Processes()
	if err != nil {
		return 0, err
	}
	server := 0
	for _, p := range all {
		switch {
		case len(p.Args) > 0 && strings.HasSuffix(p.Args[0], "etcd"):
			return p.PID, nil
		case strings.Contains(strings.Join(p.Args, " "), "k3s server"):
			server = p.PID
		}
	}
	if server == 0 {
		return 0, errors.New("no etcd and no k3s server runs")
	}
	return server, nil
}
