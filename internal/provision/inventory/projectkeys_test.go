package inventory_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
)

// A key that a Docker host's document gets is one of fleet.yaml too, or is named here as one
// that apply gives: else nobody could ever set it.
func TestFleetYamlHasEachKeyOfADockerHostsDocument(t *testing.T) {
	given := []string{"folder", "usual", "archive", "agent-token"}
	file, document := jsonKeys(reflect.TypeFor[inventory.Project]()), jsonKeys(reflect.TypeFor[setup.Docker]())
	for _, key := range document {
		if slices.Contains(file, key) == slices.Contains(given, key) {
			t.Errorf("%s: in fleet.yaml %v, given by apply %v", key, slices.Contains(file, key), slices.Contains(given, key))
		}
	}
	for _, key := range file {
		if !slices.Contains(document, key) {
			t.Errorf("%s goes nowhere", key)
		}
	}
}

func jsonKeys(t reflect.Type) (out []string) {
	for f := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(f).Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}
