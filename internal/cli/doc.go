// Package cli is regrade's command line: cobra commands made by constructors,
// which read settings from flags and FLEET_ROLE_* variables, call the packages
// that do the work, and turn the outcome into words and an exit status. What
// -o json prints is an interface: docs/cli-json.md.
package cli
