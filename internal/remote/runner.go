package remote

import (
	"context"
	"io"
	"io/fs"
)

// Runner runs commands as root on one host. Safe for use by one caller at a time.
type Runner interface {
	// Run runs a command to its end, in the folder /. A command that ran and failed is a
	// Result with its status and no error, and so is one that the host does not have (127)
	// or may not run (126). An error means that nobody knows whether it ran, or how far.
	// Where ctx ends first, or the output gets too long, the command and what it started are
	// sent SIGTERM, and SIGKILL three seconds later.
	Run(ctx context.Context, c Command) (Result, error)
	// Put writes a file at once, by a rename: a connection that breaks, a full disk and a
	// reader that fails leave what was there. The file is root's, with just this mode. A
	// missing folder is an error. Content that cannot seek is read into memory first.
	Put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error
	Close() error
}

// Command is a program and its arguments, of which none is a secret: every user of the
// host sees them. In is its standard input, nil for none; a failure of it ends the command.
type Command struct {
	Argv []string
	In   io.Reader
}

// MaxOutput is how many bytes each of a command's two outputs may have.
const MaxOutput = 8 << 20

// Result is how a command ended. Code is 128 and the number of the signal where one ended
// it, whose name is then Signal, without SIG. Out and Err hold MaxOutput at most.
type Result struct {
	Code     int
	Signal   string
	Out, Err []byte
}
