// Package deploy holds the shipped unit files and the Compose project for the commands
// that install them.
package deploy

import (
	"embed"
	"fmt"
)

//go:embed units
var units embed.FS

//go:embed compose
var compose embed.FS

// Unit is a shipped unit by its name.
func Unit(name string) ([]byte, error) {
	raw, err := units.ReadFile("units/" + name)
	if err != nil {
		return nil, fmt.Errorf("unit %s: %w", name, err)
	}
	return raw, nil
}

// Compose is a file of the shipped Compose project by its path in it, such as
// compose.yaml or image/Dockerfile.
func Compose(path string) ([]byte, error) {
	raw, err := compose.ReadFile("compose/" + path)
	if err != nil {
		return nil, fmt.Errorf("compose project: %w", err)
	}
	return raw, nil
}
