package parts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a component may take between SIGTERM and SIGKILL when its context ends.
const stopGrace = 15 * time.Second

// Command builds the command that runs a component as a child of this process, from its own binary. The
// child is killed when this process dies. Its output goes nowhere until the caller sets Stdout and Stderr.
// Start it with Start or StartProcess, not with cmd.Start: see Start.
func Command(name string, args ...string) *exec.Cmd {
	cmd := &exec.Cmd{
		Path:        selfPath(),
		Args:        append([]string{name}, args...),
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	return cmd
}

// selfPath is the stand-in's own binary. The link under /proc still works when the file was replaced, as an
// upgrade does.
func selfPath() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	if _, err := os.Stat(path); err != nil {
		return "/proc/self/exe"
	}
	return path
}

type startRequest struct {
	cmd  *exec.Cmd
	done chan error
}

var (
	launcherOnce sync.Once
	launches     chan startRequest
)

// Start starts cmd from a thread that lives as long as this process. The parent death signal is sent when
// the *thread* that forked ends, and Go may end any thread but one that is locked to a living goroutine.
func Start(cmd *exec.Cmd) error {
	launcherOnce.Do(func() {
		launches = make(chan startRequest)
		go func() {
			runtime.LockOSThread()
			for request := range launches {
				request.done <- request.cmd.Start()
			}
		}()
	})
	request := startRequest{cmd: cmd, done: make(chan error, 1)}
	launches <- request
	return <-request.done
}

// Process is a running component.
type Process struct {
	// Name is the component's name.
	Name string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// StartProcess starts cmd and watches it. When ctx ends the process gets SIGTERM, and SIGKILL 15 s later.
func StartProcess(ctx context.Context, cmd *exec.Cmd) (*Process, error) {
	name := cmd.Args[0]
	if err := Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	go func() {
		select {
		case <-p.done:
		case <-ctx.Done():
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
			defer cancel()
			_ = p.Stop(grace)
		}
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the process to end and returns how: nil for exit status 0, else an *exec.ExitError.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Stop asks the process to end with SIGTERM and waits for it; when ctx ends first it is killed. The error is
// nil when it ended within ctx, whatever its exit status.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop %s: killed: %w", p.Name, ctx.Err())
	}
}

// Kill ends the process with SIGKILL and waits until it was reaped.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Output says where a component's output goes. The zero value discards it.
type Output struct {
	Stdout, Stderr io.Writer
}

func (o Output) apply(cmd *exec.Cmd) {
	cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
	// A grandchild that keeps the pipe open must not hold Wait.
	cmd.WaitDelay = time.Second
}

// ExitStatus is the exit status in the error of Wait: 0 for nil, 128 + signal number for a killed process,
// and -1 when the error is not about an exit.
func ExitStatus(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
