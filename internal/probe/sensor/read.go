package sensor

import (
	"fmt"
	"io"
	"io/fs"
)

// maxFile is far more than any file that is read in /proc and /sys has.
const maxFile = 1 << 20

// readFile reads a file of at most maxFile bytes.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	return raw, nil
}
