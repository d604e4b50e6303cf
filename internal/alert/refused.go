package alert

import "errors"

// ErrRefused is a receiver's answer that it will never take this message: what is
// wrong is the message, not the moment.
var ErrRefused = errors.New("refused for good")
