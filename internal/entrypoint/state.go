package entrypoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// State is what the last start of the container came to. It stands in the
// container's own /run, for Health: once k3s is there, nothing else could tell.
type State struct {
	Kind Kind       `json:"kind"`
	Role fleet.Role `json:"role"`
	Why  string     `json:"why"`
}

func say(root string, s State) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join("/", root, fleet.FileEntrypoint), append(raw, '\n'), 0o644)
}

// Health is the container's health: true once k3s was executed, which is all
// there is to tell an idle container by in `docker ps`. Whether k3s is well is
// for k3s's own probes to say: a voter whose API is slow is not to be restarted
// by whoever watches health.
func Health(root string) (healthy bool, sentence string, err error) {
	raw, err := os.ReadFile(filepath.Join("/", root, fleet.FileEntrypoint))
	if err != nil {
		return false, "", fmt.Errorf("health: %w", err)
	}
	var s State
	if err := json.Unmarshal(raw, &s); err != nil {
		return false, "", fmt.Errorf("health: %s: %w", fleet.FileEntrypoint, err)
	}
	if s.Kind == Exec {
		return true, fmt.Sprintf("k3s %s started: %s", s.Role, s.Why), nil
	}
	return false, fmt.Sprintf("%s: %s", s.Kind, s.Why), nil
}
