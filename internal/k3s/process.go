package k3s

import (
	"path/filepath"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// ProcessRole tells k3s's main processes, by the kernel's name of a process and its
// arguments; empty for any other process. k3s executes itself under the names
// k3s-server and k3s-agent and overwrites its arguments with "<path> server" in one
// piece (k3s hides them, R-112-16).
func ProcessRole(comm string, args []string) fleet.Role {
	args = TitleSplit(args)
	base := ""
	if len(args) > 0 {
		base = filepath.Base(args[0])
	}
	switch {
	case comm == "k3s-server" || base == "k3s-server":
		return fleet.RoleServer
	case comm == "k3s-agent" || base == "k3s-agent":
		return fleet.RoleAgent
	case base == "k3s" && len(args) > 1 && args[1] == "server":
		return fleet.RoleServer
	case base == "k3s" && len(args) > 1 && args[1] == "agent":
		return fleet.RoleAgent
	}
	return ""
}

// TitleSplit splits a process title that stands in one piece in the first argument.
func TitleSplit(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	path, rest, ok := strings.Cut(args[0], " ")
	if !ok {
		return args
	}
	return append(append([]string{path}, strings.Fields(rest)...), args[1:]...)
}
