package bundle

import (
	"fmt"
	"io"
	"os"
)

// File is a new file for one bundle, or standard output. It takes nothing's place.
type File struct {
	io.Writer
	f *os.File
}

// Open makes a file that only its owner may read; "-" is out. A file that is there is
// left as it is, and named.
func Open(path string, out io.Writer) (*File, error) {
	if path == "-" {
		return &File{Writer: out}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the bundle: %w", err)
	}
	return &File{Writer: f, f: f}, nil
}

// Path is the file's, empty for standard output.
func (f *File) Path() string {
	if f.f == nil {
		return ""
	}
	return f.f.Name()
}

// Close ends the file; after an error, given or its own, it is taken away again.
func (f *File) Close(failed error) error {
	if f.f == nil {
		return failed
	}
	if err := f.f.Close(); err != nil && failed == nil {
		failed = fmt.Errorf("the bundle: %w", err)
	}
	if failed != nil {
		if err := os.Remove(f.f.Name()); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("%w; and what there is of it stays: %w", failed, err)
		}
	}
	return failed
}
