// Package env holds what every command line of regrade is given and gives
// back: the process's streams, clock and environment in, an exit status out;
// and flags that can be set by an environment variable too.
package env

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Env is what a command may touch of its process.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Now      func() time.Time
}

// Exit is an error with the exit status it stands for. A nil Err prints nothing:
// the command has said what there is to say.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap gives the reason.
func (e *Exit) Unwrap() error { return e.Err }

// Usage is a mistake in how a command was called: exit status 2 (R-E2-04).
func Usage(format string, args ...any) error {
	return &Exit{Code: fleet.ExitRefused, Err: fmt.Errorf(format, args...)}
}

// Failed is exit status 1.
func Failed(err error) error { return &Exit{Code: fleet.ExitFailed, Err: err} }

// Status maps an error to the exit status, and says what to print. An error
// that no command made its own is one of cobra's: a wrong flag or command.
func Status(err error) (code int, message string) {
	if err == nil {
		return fleet.ExitDone, ""
	}
	x, ok := errors.AsType[*Exit](err)
	switch {
	case !ok:
		return fleet.ExitRefused, err.Error()
	case x.Err == nil:
		return x.Code, ""
	}
	return x.Code, x.Err.Error()
}
