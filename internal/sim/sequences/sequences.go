// Package sequences is one table of what is done to a k3s cluster and what comes
// of it. A test of package sim plays it on the simulated cluster, a live test of
// the stand-in (lab/standin/k3s/live, a module that cannot import this one, so it
// reads the same file) on real processes: where the two differ, one of them is no
// k3s (k3s-facts §14.3).
package sequences

import (
	_ "embed" // the table
	"encoding/json"
	"fmt"
)

//go:embed sequences.json
var table []byte

// Sequence begins on a healthy cluster of the voters a, b and c, where d is a
// host whose agent runs.
type Sequence struct {
	Name  string `json:"name"`
	Steps []Step `json:"steps"`
}

// Step does one thing, or says what comes of the steps before: Until is true
// within the patience of the player, Still is true now and for Wait seconds more.
// A step of Wait alone lets time pass.
type Step struct {
	Do    string `json:"do,omitempty"`
	Until string `json:"until,omitempty"`
	Still string `json:"still,omitempty"`
	Host  string `json:"host,omitempty"`
	Wait  int    `json:"wait,omitempty"`
}

// All is the table.
func All() ([]Sequence, error) {
	var all []Sequence
	if err := json.Unmarshal(table, &all); err != nil {
		return nil, fmt.Errorf("sequences: %w", err)
	}
	return all, nil
}
