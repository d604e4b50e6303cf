package remote

import (
	"context"
	"io"
	"io/fs"
)

// Runner runs commands as root on one host. Safe for use by one caller at a time.
type Runner interface {
	// Run runs a command to its end. A command that ran and failed is a Result with its
	// status and no error; an error means that nobody knows whether it ran.
	Run(ctx context.Context, c Command) (Result, error)
	// Put writes a file at once, by a rename: a connection that breaks leaves what was
	// there. Missing folders are an error.
	Put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error
	Close() error
}

// Command is a program and its arguments, of which none is a secret: every user of the
// host sees them. In is its standard input, nil for none.
type Command struct {
	Argv []string
	In   io.Reader
}

// Result is how a command ended. Out and Err are bounded.
type Result struct {
	Code     int
	Out, Err []byte
}
