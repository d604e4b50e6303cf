// Package deploy holds the shipped unit files for the commands that install them.
package deploy

import (
	"embed"
	"fmt"
)

//go:embed units
var units embed.FS

// Unit is a shipped unit by its name.
func Unit(name string) ([]byte, error) {
	raw, err := units.ReadFile("units/" + name)
	if err != nil {
		return nil, fmt.Errorf("unit %s: %w", name, err)
	}
	return raw, nil
}
