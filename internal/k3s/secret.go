package k3s

import "log/slog"

// Secret is text that nothing prints, logs or marshals (safety rule 31).
type Secret string

const hidden = "***"

// String is never the secret.
func (Secret) String() string { return hidden }

// GoString is never the secret.
func (Secret) GoString() string { return hidden }

// LogValue is never the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText never gives the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Reveal is the secret itself, for the one place that sends it.
func (s Secret) Reveal() string { return string(s) }
