package setup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Secrets print as ***; the document that goes to a host has them all the same.
func TestADocumentIsReadAsItWasWritten(t *testing.T) {
	native := desired(t, fleet.RoleServer, "n1")
	docker := desired(t, fleet.RoleServer, "n1")
	docker.Host["platform"] = "docker"
	docker.Token = "hush-server"
	docker.Docker = &setup.Docker{Folder: "/opt/k3s", AgentToken: "hush-agents", Images: setup.Images{K3s: "a/b:c"}, Files: []string{"compose.yaml"}}
	for name, d := range map[string]setup.Desired{"a native host": native, "a Docker host": docker} {
		t.Run(name, func(t *testing.T) {
			raw, err := d.Encode()
			if err != nil {
				t.Fatal(err)
			}
			back, err := setup.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d, back); diff != "" || strings.Contains(string(raw), "***") {
				t.Errorf("%s", diff)
			}
			if d.Docker != nil && back.Docker.AgentToken.Reveal() != "hush-agents" || back.Token.Reveal() != d.Token.Reveal() || back.Kubeconfig.Reveal() != d.Kubeconfig.Reveal() {
				t.Error("a secret is another")
			}
		})
	}
}
