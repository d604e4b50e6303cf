package obs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
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

// ReadSecret reads a file that holds a secret, one byte more than limit at most. No
// error says which path was tried: where a file's name is wanted, people put the
// secret itself.
func ReadSecret(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the file that it names: %w", unnamed(err))
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the file that it names: %w", unnamed(err))
	}
	return raw, nil
}

// unnamed is what is wrong, without the path.
func unnamed(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
