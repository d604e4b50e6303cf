package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// unmountBelow unmounts everything mounted at or below the folder, innermost first.
func unmountBelow(folder string) error {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("unmount %s: %w", folder, err)
	}
	defer func() { _ = file.Close() }()
	var points []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		// Folders of the lab hold no character that the kernel writes as an escape.
		if point := fields[4]; point == folder || strings.HasPrefix(point, folder+"/") {
			points = append(points, point)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("unmount %s: %w", folder, err)
	}
	for _, point := range slices.Backward(points) {
		// Detached: a process in another mount namespace must not keep a lab from being taken down.
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// discardTree removes a folder after nothing is mounted in it any more; removing through a bind mount would empty what
// is mounted there.
func discardTree(folder string) error {
	if err := unmountBelow(folder); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove %s: %w", folder, err)
	}
	return nil
}
