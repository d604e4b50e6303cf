// Package deploy holds the shipped unit files for the commands that install them.
package deploy

import "embed"

//go:embed units
var units embed.FS

// Unit is a shipped unit by its name. It panics on a name that is not shipped.
func Unit(name string) []byte {
	raw, err := units.ReadFile("units/" + name)
	if err != nil {
		panic(err)
	}
	return raw
}
