package project

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Programs runs programs of the host, such as docker and modprobe.
type Programs interface {
	// Has says whether there is one of that name.
	Has(name string) bool
	// Run runs one to its end. One that ran and failed has a status and no error.
	Run(ctx context.Context, c Command) (Output, error)
}

// Command is a program with its arguments, of which none is a secret. In is what it reads.
type Command struct {
	Dir  string
	Argv []string
	In   []byte
}

// String is what a person would type.
func (c Command) String() string {
	line := strings.Join(c.Argv, " ")
	if c.Dir != "" {
		line = "cd " + c.Dir + " && " + line
	}
	return line
}

// Output is how it ended; Text is the end of what it printed, both ways.
type Output struct {
	Code int
	Text string
}

const (
	// maxOutput bounds what is kept of an output, commandTimeout a command: a board builds
	// an image in minutes.
	maxOutput      = 16 << 10
	commandTimeout = time.Hour
)

// OfHost are the host's programs, with the engine at a socket.
type OfHost struct{ Socket string }

// Has implements Programs.
func (OfHost) Has(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// Run implements Programs. The environment is its own: a variable of whoever calls would
// come before the project's .env, and another builder than the engine's sees none of its
// images.
func (h OfHost) Run(ctx context.Context, c Command) (Output, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.WaitDelay = c.Dir, 10*time.Second
	cmd.Env = []string{"DOCKER_HOST=unix://" + h.Socket, "COMPOSE_INTERACTIVE_NO_CLI=1", "BUILDX_BUILDER=default"}
	for _, name := range []string{"PATH", "HOME", "DOCKER_CONFIG", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v := os.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	if c.In != nil {
		cmd.Stdin = bytes.NewReader(c.In)
	}
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() >= 0 {
		return Output{Code: ended.ExitCode(), Text: out.String()}, nil
	}
	if err != nil {
		return Output{}, fmt.Errorf("run %s: %w", c.Argv[0], err)
	}
	return Output{Text: out.String()}, nil
}

// tail keeps the end of what is written.
type tail struct{ bytes.Buffer }

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if n > maxOutput {
		p = p[n-maxOutput:]
	}
	if over := t.Len() + len(p) - maxOutput; over > 0 {
		t.Next(over)
	}
	_, _ = t.Buffer.Write(p)
	return n, nil
}
