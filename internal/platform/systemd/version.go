package systemd

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A binary that does not say its version is asked again after firstRetry, then
// ever more seldom: it costs a process, and up to busTimeout, in each pass. No swap is
// made with a voter meanwhile (safety rule 9).
const (
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
)

// versionOf remembers what a binary says of its version, and that it says none.
type versionOf struct {
	mu      sync.Mutex
	file    os.FileInfo // it was asked of this one
	version string

	wait  time.Duration // before it is asked again, zero when it was never in vain
	asked time.Time

	// run asks the binary; askVersion when nil.
	run func(ctx context.Context, path string) ([]byte, error)
}

func (v *versionOf) of(ctx context.Context, path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	run := v.run
	if run == nil {
		run = askVersion
	}
	if v.file == nil || !same(v.file, info) {
		v.file, v.version, v.wait = info, "", 0
	}
	if v.version != "" || v.wait > 0 && time.Since(v.asked) < v.wait {
		return v.version
	}
	out, err := run(ctx, path)
	if err == nil {
		v.version = ParseVersion(string(out))
	}
	switch {
	case v.version != "":
		v.wait = 0
	case ctx.Err() == nil: // who gave up waiting says nothing of the binary
		v.asked, v.wait = time.Now(), min(max(firstRetry, 2*v.wait), lastRetry)
	}
	return v.version
}

// same says that nobody has put another file in its place. Where a system is built
// reproducibly each file has the time 1, and a wrapper of one length in every version.
func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func askVersion(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	return exec.CommandContext(ctx, path, "--version").Output()
}

// ParseVersion reads `k3s --version`: "k3s version v1.36.3+k3s1 (…)".
func ParseVersion(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		if rest, ok := strings.CutPrefix(line, "k3s version "); ok {
			v, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return v
		}
	}
	return ""
}
