package status

import "github.com/exadev/regrade/internal/fleet"

// Level is what `regrade level` prints of a host.
type Level struct {
	Protocol int    `json:"protocol"`
	Node     string `json:"node"`
	// Enabled: host.yaml switches the level half on.
	Enabled bool `json:"enabled"`
	// Level is what the host's files say, Runs what the server was started with, empty
	// when it does not run or that was not noted; Label what its Node says, empty for full.
	Level fleet.Level `json:"level"`
	Runs  fleet.Level `json:"runs,omitempty"`
	Label string      `json:"label,omitempty"`

	Memory *LevelMemory `json:"memory,omitempty"`
	// Last is the step under way, or the last one.
	Last *Regrade `json:"last,omitempty"`
	// Steps are those that are one level away, or the one that was asked for.
	Steps []LevelStep `json:"steps,omitempty"`
	// Problem says why the cluster could not be read.
	Problem string `json:"problem,omitempty"`
}

// LevelMemory is the host's memory now, by the limits of host.yaml.
type LevelMemory struct {
	SomeAvg10      *float64 `json:"some_avg10,omitempty"` // percent; absent on a kernel without PSI
	SomeAvg60      *float64 `json:"some_avg60,omitempty"`
	FullAvg10      *float64 `json:"full_avg10,omitempty"`
	FullAvg60      *float64 `json:"full_avg60,omitempty"`
	AvailableBytes uint64   `json:"available_bytes,omitempty"`
	TotalBytes     uint64   `json:"total_bytes,omitempty"`
	// Short: over a limit now; Plenty: what a step up asks for, now.
	Short   bool     `json:"short"`
	Plenty  bool     `json:"plenty"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// LevelStep is a step and all that speaks against it now.
type LevelStep struct {
	To      fleet.Level `json:"to"`
	Open    bool        `json:"open"`
	Reasons []Reason    `json:"reasons,omitempty"`
}
