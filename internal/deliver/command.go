package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/alert"
)

// Command gives a message to a program: the JSON on its standard input, its parts in
// its environment. It is delivered when the program ends with status 0.
type Command struct{ Path string }

// Name of the receiver.
func (Command) Name() string { return "command" }

// maxSaid is how much of what a program prints is kept for the error.
const maxSaid = 1024

// Send implements a receiver. The program gets none of this process's own
// environment but the path: tokens are in it. Past the context all that it has
// started is ended with it.
func (c Command) Send(ctx context.Context, m alert.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("command: %w", err)
	}
	cmd := exec.CommandContext(ctx, c.Path)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"REGRADE_ALERT_ID=" + m.ID, "REGRADE_ALERT_EVENT=" + string(m.Event), "REGRADE_ALERT_KIND=" + string(m.Kind), "REGRADE_ALERT_SUBJECT=" + m.Subject,
		"REGRADE_ALERT_SEVERITY=" + string(m.Severity), "REGRADE_ALERT_TITLE=" + m.Title, "REGRADE_ALERT_SENTENCE=" + m.Sentence,
	}
	cmd.Stdin = bytes.NewReader(body)
	var said capped
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		// It ended with status 0. A child that it left behind may hold its output open
		// for as long as it likes: the message is taken, and to send it again would tell
		// it twice.
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("command: %s did not end in time", c.Path)
	}
	return fmt.Errorf("command: %s: %w: %s", c.Path, err, bytes.TrimSpace(said.b))
}

// capped keeps the beginning of what is written to it.
type capped struct{ b []byte }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxSaid - len(c.b); room > 0 {
		c.b = append(c.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
