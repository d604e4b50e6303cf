// Package obs holds what logs are made of: the keys, so that one thing has one
// name in every line, and the handlers a process starts with.
package obs

import (
	"fmt"
	"io"
	"log/slog"
)

// Keys of log attributes.
const (
	Controller = "controller"
	Node       = "node"
	Role       = "role"
	Path       = "path"
	Host       = "host"
	Swap       = "swap"
	Step       = "step"
	Phase      = "phase"
	State      = "state"
	Action     = "action"
	Code       = "code"
	Sentence   = "sentence"
	Wait       = "wait"
	Server     = "server"
	Publisher  = "publisher"
	Receiver   = "receiver"
	Kind       = "kind"
	Subject    = "subject"
	Err        = "err"
)

// NewLogger writes to w as "text" or "json" at a level that slog can parse.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}
