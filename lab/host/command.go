package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Result is what a command left behind.
type Result struct {
	Stdout string
	Stderr string
	// Code is the exit status; -1 when the command did not end by itself.
	Code int
}

// Err is nil for exit status 0 and otherwise names the status and what the command wrote to stderr.
func (r Result) Err() error {
	if r.Code == 0 {
		return nil
	}
	said := strings.TrimSpace(r.Stderr)
	if said == "" {
		said = strings.TrimSpace(r.Stdout)
	}
	return fmt.Errorf("exit status %d: %s", r.Code, said)
}

// run starts a command on the machine and waits for it. An error means that the command could not run to an end of its
// own; an exit status other than 0 is in the result.
func run(ctx context.Context, cmd *exec.Cmd) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// nsenter forks to enter a PID namespace; ending it alone would leave the command behind, holding the pipes open.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		result.Code = -1
		return result, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), ctx.Err())
	case errors.As(err, &exit):
		result.Code = exit.ExitCode()
		return result, nil
	default:
		result.Code = -1
		return result, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
}

// machine runs a command on the machine itself and turns any status but 0 into an error that holds the whole command.
func (l *Lab) machine(ctx context.Context, argv ...string) (string, error) {
	l.trace(argv)
	result, err := run(ctx, exec.CommandContext(ctx, argv[0], argv[1:]...))
	if err != nil {
		return "", err
	}
	if err := result.Err(); err != nil {
		return result.Stdout, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return result.Stdout, nil
}

func (l *Lab) trace(argv []string) {
	if l.options.Trace != nil {
		l.options.Trace("+ %s", strings.Join(argv, " "))
	}
}
