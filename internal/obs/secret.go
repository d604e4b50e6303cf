package obs

import (
	"fmt"
	"log/slog"
)

// Secret is text that nothing prints, logs or marshals (safety rule 31).
type Secret string

const hidden = "***"

// String is never the secret.
func (Secret) String() string { return hidden }

// GoString is never the secret.
func (Secret) GoString() string { return hidden }

// Format is never the secret, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue is never the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText is never the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Reveal is the secret, for the one place that sends it.
func (s Secret) Reveal() string { return string(s) }
