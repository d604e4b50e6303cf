package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// spaces tells whose a process is by its PID namespace: a host's own, or one below it, which a container has. It is good for one
// look; a namespace's number is used again once it is gone.
type spaces struct{ hosts map[string]*Host }

func newSpaces(hosts map[string]*Host) spaces { return spaces{hosts: hosts} }

// pidSpace names the PID namespace of a process, empty when the process is gone.
func pidSpace(pid int) string {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return ""
	}
	return space
}

// owner is the host on which the process runs, nil for one of none of them.
func (s spaces) owner(pid int) *Host {
	space := pidSpace(pid)
	if space == "" {
		return nil
	}
	if h, known := s.hosts[space]; known {
		return h
	}
	h := s.above(pid)
	s.hosts[space] = h
	return h
}

// above looks for a host's namespace among those above that of the process. The kernel tells no more of what is above the
// lab's own.
func (s spaces) above(pid int) *Host {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/pid", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	for {
		up, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		_ = unix.Close(fd)
		if err != nil {
			return nil
		}
		fd = up
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			_ = unix.Close(fd)
			return nil
		}
		if h := s.hosts[fmt.Sprintf("pid:[%d]", stat.Ino)]; h != nil {
			_ = unix.Close(fd)
			return h
		}
	}
}
