package host

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupParent is the folder of all labs in every cgroup hierarchy.
const cgroupParent = "regrade-lab"

// hierarchies gives the mount point of every cgroup hierarchy of the machine: each v1 controller, the named systemd
// hierarchy and the v2 one, or the v2 one alone.
func hierarchies() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	defer func() { _ = file.Close() }()
	var mounts []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		if !found || !strings.HasPrefix(after, "cgroup") {
			continue
		}
		// A hierarchy of a nested container that is mounted below a host's root is not the machine's own.
		if fields := strings.Fields(before); len(fields) > 4 && fields[3] == "/" && strings.HasPrefix(fields[4], "/sys/fs/cgroup") {
			mounts = append(mounts, fields[4])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	if len(mounts) == 0 {
		return nil, errors.New("list cgroup hierarchies: none is mounted below /sys/fs/cgroup")
	}
	return mounts, nil
}

// makeCgroup makes the folder in every hierarchy and gives the folders. Without a folder of its own in every hierarchy a
// host shares cgroups with the others, and a kubelet finds the pods of its neighbours.
func makeCgroup(name ...string) ([]string, error) {
	mounts, err := hierarchies()
	if err != nil {
		return nil, err
	}
	folders := make([]string, 0, len(mounts))
	for _, mount := range mounts {
		folder := mount
		for _, part := range append([]string{cgroupParent}, name...) {
			parent := folder
			folder = filepath.Join(folder, part)
			if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make cgroup: %w", err)
			}
			// A new v1 cpuset has neither CPUs nor memory nodes, and no process can enter it.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(filepath.Join(parent, file), filepath.Join(folder, file)); err != nil {
					return nil, fmt.Errorf("make cgroup: %w", err)
				}
			}
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

func inherit(from, to string) error {
	have, err := os.ReadFile(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(have)) != "" {
		return nil
	}
	value, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(value)) == "" {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, value, 0o644)
}

// killCgroup ends every process below the folder in any hierarchy and removes the folders. It waits up to 10 s.
func killCgroup(name ...string) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		var left []int
		for _, mount := range mounts {
			left = append(left, processesIn(filepath.Join(append([]string{mount, cgroupParent}, name...)...))...)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end the processes of %s: %d are still there, the first is %d", strings.Join(name, "/"), len(left), left[0])
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		// A paused container is frozen, and what is frozen does not die.
		for _, mount := range mounts {
			thaw(filepath.Join(append([]string{mount, cgroupParent}, name...)...))
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, mount := range mounts {
		if err := removeCgroup(filepath.Join(append([]string{mount, cgroupParent}, name...)...)); err != nil {
			return err
		}
	}
	return nil
}

// thaw lets what is frozen in the folder and below run on, of v1's freezer and of v2's.
func thaw(folder string) {
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a cgroup that vanished has nothing frozen in it
		}
		switch entry.Name() {
		case "freezer.state":
			_ = os.WriteFile(path, []byte("THAWED"), 0o644)
		case "cgroup.freeze":
			_ = os.WriteFile(path, []byte("0"), 0o644)
		}
		return nil
	})
}

// processesIn lists the processes in the cgroup folder and below.
func processesIn(folder string) []int {
	var pids []int
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // a cgroup that vanished has no processes
		}
		content, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// removeCgroup removes the folder and those below it, deepest first.
func removeCgroup(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	// The kernel takes a moment to let go of the last process.
	for tries := 0; ; tries++ {
		err := os.Remove(folder)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if tries == 100 {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
