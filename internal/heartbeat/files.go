package heartbeat

import "errors"

// Files are what is published on one tick, by name. None is ever empty.
type Files map[string][]byte

// ErrTooLarge is a publisher's answer that it takes no files of this size.
var ErrTooLarge = errors.New("too large")
