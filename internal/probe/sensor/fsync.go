package sensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/internal/fitness"
)

// Fsync measures a disk as etcd uses it: appends of the size that etcd's own
// documentation has fio write, each followed by fdatasync (R-185-05).
type Fsync struct {
	// Dir is a folder on the disk that would hold the datastore.
	Dir string
	// Writes is how many appends a run has.
	Writes int
	// Pause is the least time between two appends, so that the disk is left to
	// others. It does not wait after an append that took longer.
	Pause time.Duration
	// Bound ends a run; what was written until then counts.
	Bound time.Duration
}

// Defaults of a run: ten appends make a p99 of a thousand, 2.3 MB, some ten
// seconds on a disk that is well.
const (
	appendBytes   = 2300
	DefaultWrites = 1000
	DefaultPause  = 10 * time.Millisecond
	DefaultBound  = 20 * time.Second
	// minWrites are the fewest that give a p99 a sample of its own.
	minWrites = 100
	// leftover begins the name of a file on a file system without O_TMPFILE.
	leftover = ".regrade-fsync-"
)

// DefaultFsync is a run in a folder.
func DefaultFsync(dir string) Fsync {
	return Fsync{Dir: dir, Writes: DefaultWrites, Pause: DefaultPause, Bound: DefaultBound}
}

// Run writes and measures. The file has no name where the file system can do
// that, so a kill leaves nothing behind; else it is removed right after it was
// opened. A disk that hangs holds the calling goroutine for as long as it hangs:
// nothing ends a write in the kernel.
func (f Fsync) Run(ctx context.Context) (fitness.Fsync, error) {
	file, err := nameless(f.Dir)
	if err != nil {
		return fitness.Fsync{}, diskFault(f.Dir, err)
	}
	defer func() { _ = file.Close() }()
	ctx, cancel := context.WithTimeout(ctx, f.Bound)
	defer cancel()
	took, err := f.appends(ctx, file)
	if err != nil {
		return fitness.Fsync{}, diskFault(f.Dir, err)
	}
	if len(took) < min(minWrites, f.Writes) {
		return fitness.Fsync{}, faultf(CodeTooFew, "%d appends with fdatasync in %s, too few for a p99", len(took), f.Bound)
	}
	slices.Sort(took)
	return fitness.Fsync{Count: len(took), P50: rank(took, 50), P99: rank(took, 99), Max: took[len(took)-1]}, nil
}

func (f Fsync) appends(ctx context.Context, file *os.File) ([]time.Duration, error) {
	// Not zeros: a file system may compress or skip them.
	block := []byte(strings.Repeat("regrade measures this disk. ", appendBytes/28+1))[:appendBytes]
	took := make([]time.Duration, 0, f.Writes)
	pause := time.NewTimer(f.Pause)
	defer pause.Stop()
	for range f.Writes {
		if ctx.Err() != nil {
			break
		}
		if _, err := file.Write(block); err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return nil, os.NewSyscallError("fdatasync", err)
		}
		d := time.Since(begun)
		took = append(took, d)
		pause.Reset(max(f.Pause-d, 0))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
	return took, nil
}

// rank is the nearest-rank percentile of a sorted list.
func rank(sorted []time.Duration, percent int) time.Duration {
	i := (len(sorted)*percent + 99) / 100
	return sorted[max(i, 1)-1]
}

// nameless opens a file in a folder that nobody will find there.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_APPEND, 0o600)
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), filepath.Join(dir, "(no name)")), nil
	case !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR):
		return nil, os.NewSyscallError("open", err)
	}
	file, err := os.CreateTemp(dir, leftover)
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// SweepFsync removes what an earlier life that was killed between two calls may
// have left behind.
func SweepFsync(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, leftover+"*"))
	if err != nil {
		return fmt.Errorf("sweep %s: %w", dir, err)
	}
	var problems []error
	for _, f := range files {
		problems = append(problems, os.Remove(f))
	}
	return errors.Join(problems...)
}

func diskFault(dir string, err error) *Fault {
	code := CodeDiskError
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		code = CodeNoDirectory
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = CodeDiskFull
	}
	return faultf(code, "fdatasync in %s: %v", dir, err)
}
