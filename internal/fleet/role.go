package fleet

import "fmt"

// Role is what k3s runs as on a host: a server (an etcd voter once promoted)
// or an agent.
type Role string

// The two roles. The zero value is neither: a host whose role nobody has read.
const (
	RoleServer Role = "server"
	RoleAgent  Role = "agent"
)

// ParseRole reads a role as it stands in a role file or label.
func ParseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case RoleServer, RoleAgent:
		return r, nil
	}
	return "", fmt.Errorf("role %q: want %q or %q", s, RoleServer, RoleAgent)
}

// Level is how much of a server runs (R-112-01). A level never changes the vote.
type Level string

// Levels from most to least. A Node without a level label is at LevelFull.
const (
	LevelFull         Level = "full"
	LevelControlPlane Level = "control-plane"
	LevelEtcdOnly     Level = "etcd-only"
)

// ParseLevel reads a level label or file; the empty string is LevelFull.
func ParseLevel(s string) (Level, error) {
	switch l := Level(s); l {
	case "":
		return LevelFull, nil
	case LevelFull, LevelControlPlane, LevelEtcdOnly:
		return l, nil
	}
	return "", fmt.Errorf("level %q: want full, control-plane or etcd-only", s)
}
