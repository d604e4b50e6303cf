// Package lean gives back the pages of the program's own file that only its start
// needed. The start of a program with Kubernetes' types in it touches some 30 MB of
// its file, and they count as the process's memory for as long as it runs, though
// it never looks at most of them again. What it does need comes back from the
// page cache when it is touched.
package lean

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReturnPages gives them back. Only mappings are taken that are read from the
// program's file and that nobody can have written to: giving back a page loses
// nothing. It costs the page faults of what is still needed, less than a
// millisecond, and is worth calling once after the start and now and then.
func ReturnPages() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("give back pages: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("give back pages: %w", err)
	}
	for _, m := range clean(string(maps), self) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back pages: %w", errno)
		}
	}
	return nil
}

type mapping struct{ start, end uintptr }

// clean are the mappings of a file that cannot be written to (proc(5)).
func clean(maps, file string) (out []mapping) {
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		if len(f) < 6 || strings.Join(f[5:], " ") != file || len(f[1]) != 4 || f[1][0] != 'r' || f[1][1] != '-' || f[1][3] != 'p' {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && start < end {
			out = append(out, mapping{uintptr(start), uintptr(end)})
		}
	}
	return out
}
