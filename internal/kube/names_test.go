package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
)

// The pure packages import no Kubernetes; what they take for a name is what the API
// server takes.
func TestNamesAreTheAPIServers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.StringMatching(`[a-z0-9A_.-]{0,70}`),
			rapid.StringMatching(`([a-z0-9-]{1,80}\.){0,4}[a-z0-9]{1,80}`),
			rapid.String(),
		).Draw(t, "name")
		if mine, api := fleet.CheckNamespace(name), validation.IsDNS1123Label(name); (mine == nil) != (len(api) == 0) {
			t.Errorf("as a namespace: %v, the API server: %v", mine, api)
		}
		if mine, api := fleet.CheckName(name), validation.IsDNS1123Subdomain(name); (mine == nil) != (len(api) == 0) {
			t.Errorf("as a name: %v, the API server: %v", mine, api)
		}
		if _, err := fleet.NewKeys(name + "/"); (err == nil) != (len(validation.IsQualifiedName(name+"/role-swap")) == 0) {
			t.Errorf("as a label prefix: %v", err)
		}
	})
}
