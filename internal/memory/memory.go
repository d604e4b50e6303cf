// Package memory reads what a host says of its memory: pressure (PSI) and
// MemAvailable. It is the one reader of the probe and of the levels (R-185-06,
// R-112-04); what is too little is package level's to say.
package memory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/prometheus/procfs"

	"github.com/exadev/regrade/internal/level"
)

// DefaultPressure is the pressure of the whole machine.
const DefaultPressure = "/proc/pressure/memory"

// Reader reads a host's memory.
type Reader struct {
	// Root stands before every path; empty for the host's own.
	Root string
	// Pressure are files with memory pressure of which the first that exists is
	// read, such as a cgroup's memory.pressure; empty for DefaultPressure.
	Pressure []string
}

// Read gives what can be read. Each part that cannot is missing in the reading,
// and its error says why; a kernel without PSI is one.
func (r Reader) Read() (reading level.Reading, pressure, available error) {
	p, pressure := r.pressure()
	if pressure == nil {
		reading.Pressure = &p
	}
	reading.AvailableBytes, reading.TotalBytes, available = r.available()
	return reading, pressure, available
}

func (r Reader) path(name string) string { return filepath.Join("/", r.Root, name) }

// maxPressure is far more than two lines need.
const maxPressure = 4 << 10

func (r Reader) pressure() (level.Pressure, error) {
	files := r.Pressure
	if len(files) == 0 {
		files = []string{DefaultPressure}
	}
	var last error
	for _, name := range files {
		f, err := os.Open(r.path(name))
		if errors.Is(err, os.ErrNotExist) {
			last = fmt.Errorf("memory pressure: %s is not there: a kernel without PSI, or started with psi=0", name)
			continue
		}
		if err != nil {
			return level.Pressure{}, fmt.Errorf("memory pressure: %w", err)
		}
		raw, err := io.ReadAll(io.LimitReader(f, maxPressure))
		_ = f.Close()
		if err != nil { // the kernel has the file and answers "operation not supported" when PSI is off
			return level.Pressure{}, fmt.Errorf("memory pressure: %w", err)
		}
		p, err := ParsePressure(string(raw))
		if err != nil {
			return level.Pressure{}, fmt.Errorf("memory pressure: %s: %w", name, err)
		}
		return p, nil
	}
	return level.Pressure{}, last
}

// available are MemAvailable and MemTotal in bytes.
func (r Reader) available() (available, total uint64, err error) {
	proc, err := procfs.NewFS(r.path("proc"))
	if err != nil {
		return 0, 0, fmt.Errorf("available memory: %w", err)
	}
	m, err := proc.Meminfo()
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("available memory: /proc/meminfo: %w", err)
	case m.MemAvailableBytes == nil || m.MemTotalBytes == nil || *m.MemTotalBytes == 0:
		return 0, 0, errors.New("available memory: /proc/meminfo has no MemAvailable or no MemTotal")
	case *m.MemAvailableBytes > *m.MemTotalBytes:
		return 0, 0, fmt.Errorf("available memory: %d bytes of %d", *m.MemAvailableBytes, *m.MemTotalBytes)
	}
	return *m.MemAvailableBytes, *m.MemTotalBytes, nil
}
