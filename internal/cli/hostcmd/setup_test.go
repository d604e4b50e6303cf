package hostcmd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/provision/setup"
)

// units is a systemd with a k3s agent of the install script, and with the two units of a
// host that was set up once they were written.
type units struct {
	root    string
	calls   []string
	enabled bool
}

func (u *units) Service(_ context.Context, name string) (setup.Service, error) {
	drop, err := os.ReadFile(filepath.Join(u.root, "/etc/systemd/system", name+".d/10-regrade.conf"))
	role := map[string]string{"k3s.service": "server", "k3s-agent.service": "agent"}[name]
	s := setup.Service{Unit: setup.Unit{Enabled: u.enabled}}
	s.Loaded, s.Active = name == "k3s-agent.service", name == "k3s-agent.service"
	s.Environment = []string{"K3S_TOKEN=hush", "K3S_URL=https://10.0.0.2:6443"}
	s.Commands = [][]string{{"/usr/local/bin/k3s", role}}
	if err == nil && len(drop) > 0 {
		s.Loaded = true
		s.Commands = [][]string{{"/usr/local/bin/k3s", role, "--config", "/etc/rancher/k3s/" + role + ".yaml"}}
		s.Conditions = []string{"/usr/local/bin/regrade host role-is " + role}
	}
	return s, nil
}

func (u *units) call(what string) error                       { u.calls = append(u.calls, what); return nil }
func (u *units) Enable(_ context.Context, name string) error  { return u.call("enable " + name) }
func (u *units) Disable(_ context.Context, name string) error { return u.call("disable " + name) }
func (u *units) Restart(_ context.Context, name string) error { return u.call("restart " + name) }
func (u *units) Stop(_ context.Context, name string) error    { return u.call("stop " + name) }
func (u *units) Reload(context.Context) error                 { return u.call("reload") }

const hostDocument = `
role: agent
eligible: true
host: {node: d, servers: ["https://10.0.0.2:6443"], log-level: error}
join: {b: "https://10.0.0.2:6443", d: "https://10.0.0.4:6443"}
kubeconfig: hush-kube
voter: {disable: [traefik]}
token: hush
`

// setupRig is a host of the install script: no settings of regrade's yet.
func setupRig(t *testing.T) (*rig, string) {
	r := newRig(t, "d")
	for _, path := range []string{fleet.FileHostConfig, fleet.FileJoinConfig} {
		if err := os.Remove(filepath.Join(r.root, path)); err != nil {
			t.Fatal(err)
		}
	}
	r.plant("/usr/local/bin/regrade", "")
	if err := os.Chmod(filepath.Join(r.root, "/usr/local/bin/regrade"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.units = &units{root: r.root}
	doc := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(doc, []byte(hostDocument), 0o600); err != nil {
		t.Fatal(err)
	}
	return r, doc
}

func TestSetupShowsDoesAndFindsNothingMoreToDo(t *testing.T) {
	r, doc := setupRig(t)
	r.want(fleet.ExitDone, "+ExecCondition=/usr/local/bin/regrade host role-is agent", "setup", "--check", "-f", doc)
	if len(r.units.calls) > 0 {
		t.Errorf("--check did %v", r.units.calls)
	}
	if _, err := os.Stat(filepath.Join(r.root, fleet.FileRole)); err == nil {
		t.Error("--check wrote the role file")
	}
	if strings.Contains(r.out.String(), "hush") {
		t.Errorf("a secret is shown:\n%s", &r.out)
	}
	r.want(fleet.ExitDone, "enable regrade-host.service", "setup", "-f", doc)
	r.want(fleet.ExitDone, "delete /etc/rancher/k3s/server.yaml", "remove", "--check")
	r.want(fleet.ExitDone, "k3s goes on running", "remove")
	r.want(fleet.ExitRefused, "(NotSetUp)", "remove", "--local")
}

// R-C-07, R-C-11: while a swap holds the Lease, or nobody says that none does.
func TestSetupAndRemoveKeepAwayFromASwap(t *testing.T) {
	for _, command := range []string{"setup", "remove"} {
		r, doc := setupRig(t)
		r.want(fleet.ExitDone, "", "setup", "-f", doc)
		args := []string{command}
		if command == "setup" {
			args = append(args, "-f", doc)
		}
		r.order("promote")
		r.units.calls = nil
		r.want(fleet.ExitRefused, "LeaseHeld: swap "+string(id)+" is under way", args...)
		r.want(fleet.ExitRefused, "LeaseHeld", append(args, "--check")...)
		r.noAPI = true
		r.want(fleet.ExitFailed, "--local", args...)
		if len(r.units.calls) > 0 {
			t.Errorf("%s did %v", command, r.units.calls)
		}
		r.want(fleet.ExitDone, "", append(args, "--local")...)
	}
}

// The Lease is a node's while its level changes; and a swap whose controller is gone is still
// one, which a host that loses its daemon would be left in.
func TestNothingIsChangedDuringALevelStepNorLeftInASwap(t *testing.T) {
	r, doc := setupRig(t)
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	r.lease = lease.Lease{Exists: true, Holder: "b", RenewTime: r.now, Duration: time.Hour}
	r.want(fleet.ExitRefused, "LeaseHeld: the Lease is held by b", "setup", "-f", doc)
	r.want(fleet.ExitRefused, "LeaseHeld: the Lease is held by b", "remove")
	r.order("promote")
	r.now = r.now.Add(2 * time.Hour)
	r.want(fleet.ExitRefused, "LeaseHeld: swap "+string(id)+" is under way", "remove")
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
}

// The Secret of the daemons' token may have been made anew: what the host has is refused
// then, and the document brings the new one.
func TestANewCredentialIsAskedWhereTheOldOneIsRefused(t *testing.T) {
	r, doc := setupRig(t)
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	r.good = "hush-new"
	r.want(fleet.ExitFailed, "no API server says", "setup", "-f", doc)
	raw := strings.Replace(hostDocument, "hush-kube", "hush-new", 1)
	if err := os.WriteFile(doc, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	r.order("promote")
	r.want(fleet.ExitRefused, "LeaseHeld", "setup", "-f", doc)
	r.lease = lease.Lease{}
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	if left, err := filepath.Glob(filepath.Join(r.root, "run/regrade-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestADocumentThatIsWrongChangesNothing(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"an unknown key":        {"eligible:", "elligible:", `unknown field "elligible"`},
		"an unknown setting":    {"log-level:", "loglevel:", `unknown field "loglevel"`},
		"no role":               {"role: agent", "", `role: ""`},
		"no node":               {"node: d, ", "", "node:"},
		"a bad join URL":        {`b: "https://10.0.0.2:6443"`, `b: "10.0.0.2"`, "join: b:"},
		"itself not to join":    {`, d: "https://10.0.0.4:6443"`, "", "join: d itself is missing"},
		"an agent pinned":       {"eligible: true", "eligible: true\npinned: true", "pinned:"},
		"a platform of nowhere": {"log-level: error", "platform: podman", "platform:"},
		"not YAML":              {"role:", "\t", "host document:"},
	} {
		t.Run(name, func(t *testing.T) {
			r, doc := setupRig(t)
			if err := os.WriteFile(doc, []byte(strings.Replace(hostDocument, c.old, c.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			r.want(fleet.ExitRefused, c.want, "setup", "-f", doc)
			if len(r.units.calls) > 0 {
				t.Errorf("did %v", r.units.calls)
			}
		})
	}
	r, _ := setupRig(t)
	r.want(fleet.ExitRefused, "no such file", "setup", "-f", filepath.Join(r.root, "nowhere"))
}
