package embedded

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a running member as its parent sees it.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
}

// Start runs command with spec as its last argument; that process must call
// Main. Its stderr goes to the end of the member's log.
func Start(command []string, s Spec) (*Process, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("start member %s: %w", s.Name, err)
	}
	p := &Process{done: make(chan struct{})}
	p.cmd = exec.Command(command[0], append(command[1:], string(raw))...)
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start member %s: %w", s.Name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stderr, p.cmd.Stdout = log, log
	// Its own process group: Ctrl-C reaches the parent alone, which then ends
	// the members in order. Stdin ends with the parent, however that ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start member %s: %w", s.Name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start member %s: %w", s.Name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid is the member's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends it at once, as a power cut does.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Stop asks it to end and returns. What has not ended after grace is killed.
func (p *Process) Stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	go func() {
		select {
		case <-p.done:
		case <-time.After(grace):
			p.Kill()
		}
	}()
}
