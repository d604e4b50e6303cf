package inventory_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/inventory"
)

// wheresoever is a fleet but for the lines of its file.
var wheresoever = cmp.Options{cmpopts.IgnoreFields(inventory.Host{}, "Line"), cmpopts.IgnoreFields(inventory.Setting{}, "Line")}

// ownSettings are keys of host.yaml, each with values that a host may have.
var ownSettings = map[string][]any{
	"period": {"2s", int64(20)}, "min-free-mib": {int64(0), int64(1 << 40)}, "log-format": {"json"}, "allowed-flags": {[]any{}, []any{"a", "12", "true", ""}},
	"servers":  {[]any{"https://10.9.9.9:6443"}},
	"platform": {"command"},
	"command":  {map[string]any{"levels": []any{"/l"}, "current-level": []any{"/c", "a b"}, "apply-level": []any{"/a"}, "timeout": "10s"}},
	"levels":   {map[string]any{"enabled": true, "some": 12.5, "full": int64(3), "step-up": "automatic"}, map[string]any{"runner-selector": "a in (b, c)"}},
}

// drawn is any fleet that a file can say, with every key now and then.
func drawn(t *rapid.T) inventory.Fleet {
	f := inventory.Fleet{MaxServers: rapid.IntRange(1, 1000).Draw(t, "max-servers")}
	for _, s := range []struct {
		name   string
		values []string
	}{
		{"namespace", []string{"regrade", "12", "github-runner-platform"}}, {"label-prefix", []string{"a.example/", fleet.DefaultPrefix}},
		{"period", []string{"5", "30s", "15"}}, {"operation-timeout", []string{"600", "10s"}}, {"target", []string{"3", "5", "99"}}, {"dry-run", []string{"true", "false"}},
		{"runner-selector", []string{"a=b", "a in (b, c)"}}, {"heartbeat", []string{"# no comment", "null", "", " x ", "a: b", "two\nlines\n", "\x01", "<<", "=", "~", "0x1F", "é", "'\""}},
	} {
		if rapid.Bool().Draw(t, s.name+" set") {
			f.Settings = append(f.Settings, inventory.Setting{Name: s.name, Value: rapid.SampledFrom(s.values).Draw(t, s.name)})
		}
	}
	f.Settings = rapid.Permutation(f.Settings).Draw(t, "order")
	if len(f.Settings) == 0 {
		f.Settings = nil
	}
	for i := range rapid.IntRange(1, 7).Draw(t, "hosts") {
		h := inventory.Host{Name: fmt.Sprintf("n%d", i), Role: fleet.RoleServer, Platform: inventory.Native}
		if i > 0 && rapid.Bool().Draw(t, "agent") {
			h.Role = fleet.RoleAgent
		}
		h.Address = rapid.SampledFrom([]string{fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1), h.Name + ".example"}).Draw(t, "address")
		h.SSH = rapid.SampledFrom([]string{h.Address, "root@" + h.Name, h.Name + ":2222", fmt.Sprintf("admin@[fd00::%d]:22", i+1)}).Draw(t, "ssh")
		h.JoinURL = fmt.Sprintf("https://%s.join.example:6443", h.Name)
		h.Eligible = rapid.Bool().Draw(t, "eligible")
		h.Pinned = h.Role == fleet.RoleServer && rapid.Bool().Draw(t, "pinned")
		h.NodeIP = rapid.SampledFrom([]string{"", "10.0.0.9", "10.0.0.9, fd00::9"}).Draw(t, "node-ip")
		if rapid.Bool().Draw(t, "labels") {
			h.Labels = map[string]string{"rack": rapid.SampledFrom([]string{"", "12", "true", "a-b", "null"}).Draw(t, "label"), "b.example/x": "y"}
		}
		if rapid.Bool().Draw(t, "docker") {
			h.Platform, h.Project = inventory.Docker, rapid.SampledFrom([]string{inventory.DefaultProject, "/opt/a b"}).Draw(t, "project")
			if rapid.Bool().Draw(t, "of the project") {
				p := drawnProject(t, h.Role)
				h.Docker = &p
			}
		}
		for _, key := range slices.Sorted(maps.Keys(ownSettings)) {
			if h.Platform == inventory.Docker && (key == "platform" || key == "command") || !rapid.Bool().Draw(t, key+" set") {
				continue
			}
			if h.Settings == nil {
				h.Settings = map[string]any{}
			}
			h.Settings[key] = rapid.SampledFrom(ownSettings[key]).Draw(t, key)
		}
		if h.Settings["platform"] == "command" && h.Settings["command"] == nil {
			delete(h.Settings, "platform")
			if len(h.Settings) == 0 {
				h.Settings = nil
			}
		}
		f.Hosts = append(f.Hosts, h)
	}
	return f
}

// drawnProject is what a file may say of a project, something at least.
func drawnProject(t *rapid.T, role fleet.Role) inventory.Project {
	p := inventory.Project{Network: rapid.SampledFrom([]string{"host", "container:mesh"}).Draw(t, "network")}
	maybe := func(what string) bool { return rapid.Bool().Draw(t, what) }
	if maybe("names") {
		p.Project, p.LogDriver, p.Socket, p.Program = "k-3_s", "journald", "/run/d.sock", "/bin/mesh"
	}
	if maybe("images") {
		p.Images.K3s, p.Images.Regrade = "rancher/k3s:v1.34.2-k3s1", rapid.SampledFrom([]string{"", "r.example:5000/regrade@sha256:0f"}).Draw(t, "image")
	}
	if maybe("token files") {
		p.TokenFile, p.AgentTokenFile = "/etc/rancher/k3s/token", "/etc/rancher/k3s/agent-token"
	}
	switch p.Founder = role == fleet.RoleServer && maybe("founder"); {
	case p.Founder:
		p.ClusterInit = maybe("cluster-init")
	case maybe("join"):
		p.JoinServer, p.AgentServer = "https://10.8.8.8:6443", "https://10.8.8.9:6443"
	}
	if maybe("flags") {
		p.Flags = k3s.Config{"disable": {"traefik", "012"}, "protect-kernel-defaults": {"true"}, "kubelet-arg": {"v=1.10"}}
	}
	if p.Identity = maybe("identity"); maybe("files") {
		p.Files = []string{"compose.yaml", "mine/a.yaml"}
	}
	return p
}

func printed(t rapid.TB, f inventory.Fleet, usual ...inventory.Setting) string {
	t.Helper()
	var b strings.Builder
	if err := inventory.Print(&b, f, usual...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What is printed is read as the same fleet, and what each of its hosts is told is taken
// there.
func TestAFleetIsPrintedAsItIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawn(t)
		text := printed(t, f, inventory.Setting{Name: "cooldown", Value: "30m"}, inventory.Setting{Name: "image", Value: "\n# x\n"})
		read, err := inventory.Parse([]byte(text), flags)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := cmp.Diff(f, read, wheresoever); d != "" {
			t.Fatalf("%s\n%s", d, text)
		}
		for _, h := range read.Hosts {
			taken(t, read, h)
		}
	})
}

func TestEveryDefaultIsPrinted(t *testing.T) {
	got := printed(t, parsed(t, "settings: {dry-run: false}\nhosts: [{name: n1, address: fd00::1, role: server}, {name: n2, address: 10.0.0.2, role: agent, platform: docker}]"),
		inventory.Setting{Name: "dry-run", Value: "true"}, inventory.Setting{Name: "label-prefix", Value: "x/"}, inventory.Setting{Name: "max-servers", Value: "0"}, inventory.Setting{Name: "target", Value: "3"})
	want := `hosts:
  - name: n1
    address: fd00::1
    ssh: fd00::1
    platform: native
    role: server
    eligible: true
    pinned: false
    join-url: https://[fd00::1]:6443
  - name: n2
    address: 10.0.0.2
    ssh: 10.0.0.2
    platform: docker
    role: agent
    eligible: false
    pinned: false
    join-url: https://10.0.0.2:6443
    project: /srv/k3s
max-servers: 5
settings:
  dry-run: false
  # label-prefix: x/
  # target: 3
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
