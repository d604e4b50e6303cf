package setup_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/k3s/catest"
	"github.com/exadev/regrade/internal/provision/setup"
)

// bus is a systemd that reads unit files below a root when it is told to, as the real
// one does: drop-ins by name, an empty assignment begins a list anew. Nor does it say before
// that what was enabled.
type bus struct {
	t       *testing.T
	root    string
	read    map[string]setup.Service
	active  map[string]bool
	enabled map[string]bool
	said    map[string]bool // what was enabled when it read its units last
	calls   []string
	// fail is the call that ends in an error, the first being 1; zero for none.
	fail int
	// outdated: the daemon runs a program that was replaced.
	outdated bool
}

var errBus = errors.New("the bus is gone")

func (b *bus) called(what string) error {
	b.calls = append(b.calls, what)
	if b.fail == len(b.calls) {
		return errBus
	}
	return nil
}

func (b *bus) Reload(context.Context) error {
	if err := b.called("reload"); err != nil {
		return err
	}
	b.read, b.said = map[string]setup.Service{}, maps.Clone(b.enabled)
	for _, name := range []string{"k3s.service", "k3s-agent.service", "regrade-host.service"} {
		b.read[name] = b.parse(name)
	}
	return nil
}

func (b *bus) parse(name string) setup.Service {
	dir := filepath.Join(b.root, "etc/systemd/system")
	files := []string{filepath.Join(dir, name)}
	if _, err := os.Stat(files[0]); err != nil {
		return setup.Service{}
	}
	more, err := filepath.Glob(filepath.Join(dir, name+".d", "*.conf"))
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(more)
	s := setup.Service{Unit: setup.Unit{Loaded: true}}
	for _, path := range append(files, more...) {
		raw, err := os.ReadFile(path)
		if err != nil {
			b.t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(string(raw), "\\\n", " "), "\n") {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case key == "ExecStart" && value == "":
				s.Commands = nil
			case key == "ExecStart":
				s.Commands = append(s.Commands, strings.Fields(strings.ReplaceAll(value, "'", "")))
			case key == "ExecCondition":
				s.Conditions = append(s.Conditions, value)
			case key == "Environment":
				s.Environment = append(s.Environment, value)
			case key == "EnvironmentFile":
				s.EnvironmentFiles = append(s.EnvironmentFiles, strings.TrimPrefix(strings.ReplaceAll(value, "%N", strings.TrimSuffix(name, ".service")), "-"))
			}
		}
	}
	return s
}

func (b *bus) Service(_ context.Context, name string) (setup.Service, error) {
	if b.read == nil {
		if err := (&bus{t: b.t, root: b.root, enabled: b.enabled}).fill(b); err != nil {
			return setup.Service{}, err
		}
	}
	s := b.read[name]
	s.Active, s.Enabled, s.Outdated = b.active[name], b.said[name], b.outdated
	return s, nil
}

func (b *bus) fill(to *bus) error {
	err := b.Reload(context.Background())
	to.read, to.said = b.read, b.said
	return err
}

func (b *bus) Enable(_ context.Context, name string) error {
	err := b.called("enable " + name)
	if err == nil {
		b.enabled[name] = true
	}
	return err
}

func (b *bus) Disable(_ context.Context, name string) error {
	err := b.called("disable " + name)
	if err == nil {
		delete(b.enabled, name)
	}
	return err
}

func (b *bus) Restart(_ context.Context, name string) error {
	err := b.called("restart " + name)
	if err == nil {
		b.active[name] = true
	}
	return err
}

func (b *bus) Stop(_ context.Context, name string) error {
	err := b.called("stop " + name)
	if err == nil {
		delete(b.active, name)
	}
	return err
}

// host is one as the install script leaves it.
type host struct {
	t   *testing.T
	bus *bus
	setup.Host
}

func (h *host) plant(path, content string, mode fs.FileMode) {
	h.t.Helper()
	full := filepath.Join(h.Root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), mode); err != nil {
		h.t.Fatal(err)
	}
}

const serverUnit = `[Unit]
Description=Lightweight Kubernetes
[Install]
WantedBy=multi-user.target
[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/systemd/system/k3s.service.env
ExecStart=/usr/local/bin/k3s \
    server \
	'--cluster-init' \
	'--tls-san' \
	'k8s.example' \

`

func newServer(t *testing.T) *host {
	h := newHost(t)
	h.plant("etc/systemd/system/k3s.service", serverUnit, 0o644)
	h.plant("etc/systemd/system/k3s.service.env", "K3S_TOKEN='hush-server'\n", 0o600)
	h.plant("etc/rancher/k3s/config.yaml", "node-ip: 10.0.0.1\netcd-expose-metrics: true\n", 0o600)
	h.plant("etc/rancher/k3s/config.yaml.d/a.yaml", "node-label+: [a=b]\n", 0o644)
	h.plant("var/lib/rancher/k3s/server/db/etcd/member/wal/0.wal", "", 0o600)
	h.bus.active["k3s.service"], h.bus.enabled["k3s.service"] = true, true
	return h
}

func newAgent(t *testing.T) *host {
	h := newHost(t)
	h.plant("etc/systemd/system/k3s-agent.service", "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s-agent.service.env\nExecStart=/usr/local/bin/k3s agent '--node-ip=10.0.0.4'\n", 0o644)
	h.plant("etc/systemd/system/k3s-agent.service.env", "K3S_TOKEN=hush-agent\nK3S_URL=https://10.0.0.1:6443\n", 0o600)
	h.bus.active["k3s-agent.service"], h.bus.enabled["k3s-agent.service"] = true, true
	return h
}

func newHost(t *testing.T) *host {
	root := t.TempDir()
	b := &bus{t: t, root: root, active: map[string]bool{}, enabled: map[string]bool{}}
	h := &host{t: t, bus: b, Host: setup.Host{Root: root, Systemd: b}}
	h.plant("usr/local/bin/regrade", "", 0o755)
	return h
}

// state is everything of a host: files with their modes, units.
func (h *host) state() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(h.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out[strings.TrimPrefix(path, h.Root)] = info.Mode().String() + "\n" + string(raw)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	for name := range h.bus.active {
		out["active "+name] = ""
	}
	for name := range h.bus.enabled {
		out["enabled "+name] = ""
	}
	return out
}

const document = `
role: ROLE
eligible: true
labels: {rack: r1}
host:
  node: NODE
  servers: ["https://10.0.0.2:6443", "https://10.0.0.1:6443"]
join: {n1: "https://10.0.0.1:6443", n2: "https://10.0.0.2:6443", n4: "https://10.0.0.4:6443"}
kubeconfig: |
  users: [{user: {token: hush-kube}}]
voter:
  cluster-init: ["true"]
  tls-san: [k8s.example]
  token: [hush-server]
  disable: [traefik]
`

func desired(t *testing.T, role fleet.Role, node string) setup.Desired {
	t.Helper()
	d, err := setup.Parse([]byte(strings.NewReplacer("ROLE", string(role), "NODE", node).Replace(document)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run is one `regrade host setup`.
func (h *host) run(d setup.Desired) (setup.Plan, []string, error) {
	h.t.Helper()
	h.bus.calls = nil
	seen, err := h.Look(h.t.Context())
	if err != nil {
		return setup.Plan{}, nil, err
	}
	plan, problems := setup.Make(seen, d)
	if len(problems) == 0 {
		problems, err = h.Carry(h.t.Context(), plan)
	}
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code+": "+p.Sentence)
	}
	return plan, codes, err
}

func (h *host) remove() ([]string, error) {
	h.t.Helper()
	seen, err := h.Look(h.t.Context())
	if err != nil {
		return nil, err
	}
	removal, problems := setup.MakeRemoval(seen, false, false, false)
	if len(problems) == 0 {
		problems, err = h.Remove(h.t.Context(), removal)
	}
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code+": "+p.Sentence)
	}
	return codes, err
}

var kinds = map[string]struct {
	make func(*testing.T) *host
	role fleet.Role
	node string
}{
	"a server":  {newServer, fleet.RoleServer, "n1"},
	"a standby": {newAgent, fleet.RoleAgent, "n4"},
}

// R-K-01, R-K-03: both units with their conditions and configurations, one able to start.
func TestAHostOfTheInstallScriptIsSetUp(t *testing.T) {
	want := map[string][]string{
		"a server": {
			"/etc/rancher/k3s/agent.yaml", "-rw-------", "node-ip:\n- 10.0.0.1\n", "- a=b\n- github-runner.exadev.com/voter-eligible=true\n", "server: https://10.0.0.2:6443\ntoken: hush-server\n",
			"/etc/rancher/k3s/server.yaml", "-rw-------", "cluster-init: \"true\"\n", "tls-san:\n- k8s.example\n",
			"/etc/github-runner/role", "-rw-r--r--", "server\n",
			"/etc/systemd/system/k3s-agent.service", "-rw-r--r--", "ExecStart=/usr/local/bin/k3s agent\n", "EnvironmentFile=-/etc/systemd/system/k3s-agent.service.env\n",
			"/etc/systemd/system/k3s-agent.service.d/10-regrade.conf", "-rw-r--r--", "ExecCondition=/usr/local/bin/regrade host role-is agent\n",
			"/etc/rancher/k3s/fleet-role-actuator.kubeconfig", "-rw-------", "hush-kube",
		},
		"a standby": {
			"/etc/rancher/k3s/server.yaml", "-rw-------", "token: hush-server\n", "server: https://10.0.0.1:6443\n", "- k8s.example\n- 10.0.0.4\n", "disable:\n- traefik\n",
			"/etc/rancher/k3s/agent.yaml", "-rw-------", "node-ip:\n- 10.0.0.4\n",
			"/etc/github-runner/role", "-rw-r--r--", "agent\n",
			"/etc/systemd/system/k3s.service.d/10-regrade.conf", "-rw-r--r--", "role-is server\n",
		},
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			h := k.make(t)
			_, problems, err := h.run(desired(t, k.role, k.node))
			if err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			state := h.state()
			at := ""
			for _, w := range want[name] {
				if strings.HasPrefix(w, "/") {
					at = w
				}
				if !strings.Contains(at+"\n"+state[at], w) {
					t.Errorf("%s lacks %q:\n%s", at, w, state[at])
				}
			}
			for _, unit := range []string{"k3s.service", "k3s-agent.service", "regrade-host.service"} {
				if _, ok := state["enabled "+unit]; !ok {
					t.Errorf("%s is not enabled", unit)
				}
			}
			if slices.ContainsFunc(h.bus.calls, func(c string) bool { return strings.Contains(c, " k3s") && !strings.HasPrefix(c, "enable") }) {
				t.Errorf("k3s was touched: %v", h.bus.calls)
			}
			before := h.state()
			plan, problems, err := h.run(desired(t, k.role, k.node))
			if err != nil || len(problems) > 0 || !plan.Empty() || len(h.bus.calls) > 0 {
				t.Errorf("the second run: %+v, %v, %v, %v", plan, problems, err, h.bus.calls)
			}
			if d := cmp.Diff(before, h.state()); d != "" {
				t.Errorf("the second run changed something:\n%s", d)
			}
		})
	}
}

// The host afterwards is the host before, byte for byte.
func TestARemovalLeavesK3sAsItWasFound(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			h := k.make(t)
			before := h.state()
			if _, problems, err := h.run(desired(t, k.role, k.node)); err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			h.plant(fleet.FileJoinDropIn, "server: x\n", 0o600) // as the daemon writes it
			if problems, err := h.remove(); err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			if d := cmp.Diff(before, h.state()); d != "" {
				t.Errorf("left behind, or lost:\n%s", d)
			}
			problems, err := h.remove()
			if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeNotSetUp) {
				t.Errorf("the second removal: %v, %v", problems, err)
			}
		})
	}
}

// Killed or failed at each call of systemd, and at each file: the next run completes.
func TestASetupThatWasInterruptedIsCompleted(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			whole := k.make(t)
			plan, _, err := whole.run(desired(t, k.role, k.node))
			if err != nil {
				t.Fatal(err)
			}
			want := whole.state()
			for cut := range len(plan.Files) + 1 {
				h := k.make(t)
				part := plan
				part.Files = plan.Files[:cut]
				h.bus.active["regrade-host.service"], h.bus.fail = true, 1
				if _, err := h.Carry(t.Context(), part); !errors.Is(err, errBus) {
					t.Fatal(err)
				}
				h.bus.fail = 0
				if _, problems, err := h.run(desired(t, k.role, k.node)); err != nil || len(problems) > 0 {
					t.Fatalf("after %d files: %v, %v", cut, problems, err)
				}
				if !slices.Contains(h.bus.calls, "restart regrade-host.service") {
					t.Fatalf("after %d files the daemon runs on: %v", cut, h.bus.calls)
				}
				if d := cmp.Diff(want, h.state()); d != "" {
					t.Fatalf("after %d files:\n%s", cut, d)
				}
			}
			for call := 1; call <= len(whole.bus.calls); call++ {
				h := k.make(t)
				h.bus.fail = call
				if _, _, err := h.run(desired(t, k.role, k.node)); !errors.Is(err, errBus) {
					t.Fatalf("call %d: %v", call, err)
				}
				h.bus.fail = 0
				if _, problems, err := h.run(desired(t, k.role, k.node)); err != nil || len(problems) > 0 {
					t.Fatalf("after call %d: %v, %v", call, problems, err)
				}
				if d := cmp.Diff(want, h.state()); d != "" {
					t.Fatalf("after call %d:\n%s", call, d)
				}
			}
		})
	}
}

func TestWhatASetupRefusesChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		kind   string
		change func(*host, *setup.Desired)
		want   string
	}{
		"both units run": {"a server", func(h *host, _ *setup.Desired) {
			h.plant("etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n", 0o644)
			h.bus.active["k3s-agent.service"] = true
		}, setup.CodeTwoK3s},
		"no k3s runs":           {"a server", func(h *host, _ *setup.Desired) { delete(h.bus.active, "k3s.service") }, setup.CodeNoK3s},
		"another role":          {"a server", func(_ *host, d *setup.Desired) { d.Role = fleet.RoleAgent }, setup.CodeRole},
		"another recorded role": {"a server", func(h *host, _ *setup.Desired) { h.plant(fleet.FileRole, "agent\n", 0o644) }, setup.CodeRole},
		"no datastore":          {"a server", func(h *host, _ *setup.Desired) { _ = os.RemoveAll(filepath.Join(h.Root, "var/lib/rancher/k3s/server")) }, setup.CodeNotEtcd},
		"a file in the way":     {"a server", func(h *host, _ *setup.Desired) { h.plant(fleet.FileServerConf, "token: mine\n", 0o600) }, setup.CodeInTheWay},
		"no program":            {"a server", func(h *host, _ *setup.Desired) { _ = os.Remove(filepath.Join(h.Root, "usr/local/bin/regrade")) }, setup.CodeProgram},
		"no kubeconfig":         {"a server", func(_ *host, d *setup.Desired) { d.Kubeconfig = "" }, setup.CodeNoKube},
		"k3s in another place":  {"a server", func(_ *host, d *setup.Desired) { d.Host = with(d.Host, "k3s", "/opt/k3s") }, setup.CodeElsewhere},
		"another configuration file by a variable": {"a server", func(h *host, _ *setup.Desired) {
			h.plant("etc/default/k3s", "K3S_CONFIG_FILE=/etc/k3s.yaml\n", 0o644)
		}, setup.CodeElsewhere},
		"one for the other role": {"a server", func(h *host, _ *setup.Desired) {
			h.plant("etc/systemd/system/k3s-agent.service", "[Service]\nEnvironmentFile=-/etc/default/%N\nExecStart=/usr/local/bin/k3s agent\n", 0o644)
			h.plant("etc/default/k3s-agent", "K3S_CONFIG_FILE=/etc/k3s.yaml\n", 0o644)
		}, setup.CodeElsewhere},
		"an agent of no interest": {"a standby", func(_ *host, d *setup.Desired) { d.Eligible = false }, setup.CodeNotNeeded},
		"no voter to copy":        {"a standby", func(_ *host, d *setup.Desired) { d.Voter = nil }, "NoVoterConfig"},
		"another's drop-in has the last word": {"a server", func(h *host, _ *setup.Desired) {
			h.plant("etc/systemd/system/k3s.service.d/99-mine.conf", "[Service]\nExecStart=\nExecStart=/usr/local/bin/k3s server --cluster-init\n", 0o644)
		}, setup.CodeOverridden},
	} {
		t.Run(name, func(t *testing.T) {
			k := kinds[c.kind]
			h := k.make(t)
			d := desired(t, k.role, k.node)
			c.change(h, &d)
			before := h.state()
			_, problems, err := h.run(d)
			if err != nil || len(problems) == 0 || !strings.HasPrefix(problems[0], c.want+":") {
				t.Errorf("got %v, %v, want %s", problems, err, c.want)
			}
			if d := cmp.Diff(before, h.state()); d != "" {
				t.Errorf("changed all the same:\n%s", d)
			}
			if s := strings.Join(problems, " "); strings.Contains(s, "hush") {
				t.Errorf("a secret is shown: %s", s)
			}
		})
	}
}

// What the owner has put into a configuration since is not lost, nor taken for ours by a
// later setup that changes the labels in it.
func TestARemovalKeepsAConfigurationThatWasChanged(t *testing.T) {
	h := newServer(t)
	before := h.state()
	d := desired(t, fleet.RoleServer, "n1")
	if _, problems, err := h.run(d); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	raw, err := os.ReadFile(filepath.Join(h.Root, fleet.FileServerConf))
	if err != nil {
		t.Fatal(err)
	}
	h.plant(fleet.FileServerConf, string(raw)+"disable: [servicelb]\n", 0o600)
	d.Pinned = true
	if _, problems, err := h.run(d); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if problems, err := h.remove(); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	after := h.state()
	kept := after[fleet.FileServerConf+".before-removal"]
	if !strings.HasPrefix(kept, "-rw-------") || !strings.Contains(kept, "servicelb") {
		t.Errorf("kept: %q", kept)
	}
	delete(after, fleet.FileServerConf+".before-removal")
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("left behind, or lost:\n%s", d)
	}
}

// Failed at each call of systemd: the next removal completes.
func TestARemovalThatWasInterruptedIsCompleted(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			for call := 1; call <= 5; call++ {
				h := k.make(t)
				before := h.state()
				if _, problems, err := h.run(desired(t, k.role, k.node)); err != nil || len(problems) > 0 {
					t.Fatal(problems, err)
				}
				h.bus.calls, h.bus.fail = nil, call
				_, err := h.remove()
				if call <= 4 && !errors.Is(err, errBus) {
					t.Fatalf("call %d: %v", call, err)
				}
				h.bus.fail = 0
				if err != nil {
					if problems, err := h.remove(); err != nil || len(problems) > 0 {
						t.Fatalf("after call %d: %v, %v", call, problems, err)
					}
				}
				if d := cmp.Diff(before, h.state()); d != "" {
					t.Fatalf("after call %d:\n%s", call, d)
				}
			}
		})
	}
}

func TestARoleThatChangedKeepsRegradeOnTheHost(t *testing.T) {
	h := newAgent(t)
	if _, problems, err := h.run(desired(t, fleet.RoleAgent, "n4")); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	h.plant(fleet.FileRole, "server\n", 0o644)
	before := h.state()
	problems, err := h.remove()
	if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeSwapped) {
		t.Errorf("got %v, %v", problems, err)
	}
	if d := cmp.Diff(before, h.state()); d != "" {
		t.Errorf("changed all the same:\n%s", d)
	}
}

// R-C-08: a swap may have changed the role; the next setup keeps it.
func TestARecordedRoleIsKept(t *testing.T) {
	h := newAgent(t)
	if _, problems, err := h.run(desired(t, fleet.RoleAgent, "n4")); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	h.plant(fleet.FileRole, "server\n", 0o644)
	h.plant(fleet.FileJoinDropIn, "server: https://10.0.0.2:6443\n", 0o600)
	h.plant("var/lib/rancher/k3s/server/db/etcd/member/wal/0.wal", "", 0o600)
	delete(h.bus.active, "k3s-agent.service")
	h.bus.active["k3s.service"] = true
	before := h.state()
	plan, problems, err := h.run(desired(t, fleet.RoleAgent, "n4"))
	if err != nil || len(problems) > 0 || !plan.Empty() {
		t.Errorf("%+v, %v, %v", plan, problems, err)
	}
	if d := cmp.Diff(before, h.state()); d != "" {
		t.Errorf("changed:\n%s", d)
	}
}

func TestAPlanShowsNoSecret(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			h := k.make(t)
			plan, _, err := h.run(desired(t, k.role, k.node))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			plan.Show(&b)
			if s := b.String(); strings.Contains(s, "hush") || !strings.Contains(s, "+token: ***") || !strings.Contains(s, "+ExecCondition=") {
				t.Errorf("shown:\n%s", s)
			}
		})
	}
}

// A document for another host, or from another cluster, is refused before anything is written.
func TestADocumentForAnotherHostIsRefused(t *testing.T) {
	mine, other := catest.New(t, "ca", nil), catest.New(t, "ca", nil)
	kubeconfig := func(ca *catest.Authority) k3s.Secret {
		return k3s.Secret("clusters: [{cluster: {certificate-authority-data: " + base64.StdEncoding.EncodeToString(catest.Bundle(ca)) + "}}]\n")
	}
	for name, k := range kinds {
		for what, test := range map[string]struct {
			node string
			ca   *catest.Authority
			want string
		}{
			"another Node":    {"n9", mine, setup.CodeOtherNode},
			"another cluster": {k.node, other, setup.CodeOtherCA},
			"its own":         {k.node, mine, ""},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				h := k.make(t)
				h.plant("var/lib/rancher/k3s/"+k3s.FileKubeletCert, string(mine.Kubelet(t, test.node)), 0o644)
				h.plant("var/lib/rancher/k3s/"+k3s.FileAgentCA, string(catest.Bundle(mine)), 0o644)
				before := h.state()
				d := desired(t, k.role, k.node)
				d.Kubeconfig = kubeconfig(test.ca)
				_, problems, err := h.run(d)
				if test.want == "" {
					if err != nil || len(problems) > 0 {
						t.Error(problems, err)
					}
					return
				}
				if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], test.want+":") {
					t.Errorf("got %v, %v", problems, err)
				}
				if d := cmp.Diff(before, h.state()); d != "" {
					t.Errorf("changed all the same:\n%s", d)
				}
			})
		}
	}
}

// A role file that was lost hides that a swap has made an agent of the server: what was found
// would be started in the other role, as a server beside the cluster.
func TestALostRoleFileHidesNoOtherRole(t *testing.T) {
	h := newServer(t)
	if _, problems, err := h.run(desired(t, fleet.RoleServer, "n1")); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if err := os.Remove(filepath.Join(h.Root, fleet.FileRole)); err != nil {
		t.Fatal(err)
	}
	delete(h.bus.active, "k3s.service")
	h.bus.active["k3s-agent.service"] = true
	before := h.state()
	problems, err := h.remove()
	if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeSwapped) {
		t.Errorf("got %v, %v", problems, err)
	}
	if d := cmp.Diff(before, h.state()); d != "" {
		t.Errorf("changed all the same:\n%s", d)
	}
}

// A host that was set up by hand before keeps its start conditions, and so they must have
// their role file: without it k3s would not start after the next boot.
func TestAHostThatWasSetUpByHandIsNotTakenOff(t *testing.T) {
	h := newServer(t)
	if _, problems, err := h.run(desired(t, fleet.RoleServer, "n1")); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if err := os.Remove(filepath.Join(h.Root, fleet.FileInstalled)); err != nil {
		t.Fatal(err)
	}
	d := desired(t, fleet.RoleServer, "n1")
	d.Pinned = true
	if _, problems, err := h.run(d); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	before := h.state()
	problems, err := h.remove()
	if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeByHand) {
		t.Errorf("got %v, %v", problems, err)
	}
	if d := cmp.Diff(before, h.state()); d != "" {
		t.Errorf("changed all the same:\n%s", d)
	}
}

// What the unit that runs has beside k3s's flags the other one needs as well: a host behind a
// proxy would pull no image after its first change of role.
func TestTheOtherUnitHasTheProxyToo(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			h := k.make(t)
			mine, other := "k3s.service", "k3s-agent.service"
			if k.role == fleet.RoleAgent {
				mine, other = other, mine
			}
			file := filepath.Join(h.Root, "etc/systemd/system", mine+".env")
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h.plant("etc/systemd/system/"+mine+".env", string(raw)+"HTTPS_PROXY='http://me:hush@proxy:3128'\nNO_PROXY=10.0.0.0/8\n", 0o600)
			before := h.state()
			plan, problems, err := h.run(desired(t, k.role, k.node))
			if err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			var shown bytes.Buffer
			plan.Show(&shown)
			want := "-rw-------\nHTTPS_PROXY=\"http://me:hush@proxy:3128\"\nNO_PROXY=\"10.0.0.0/8\"\n"
			if got := h.state()["/etc/systemd/system/"+other+".env"]; got != want || strings.Contains(shown.String(), "hush") {
				t.Errorf("got %q\n%s", got, &shown)
			}
			if plan, _, err := h.run(desired(t, k.role, k.node)); err != nil || !plan.Empty() {
				t.Errorf("the second run: %+v, %v", plan, err)
			}
			if problems, err := h.remove(); err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			if d := cmp.Diff(before, h.state()); d != "" {
				t.Errorf("left behind, or lost:\n%s", d)
			}
		})
	}
}

// A swap has the host join a server that its unit's drop-in names; the next apply has nothing to do with that.
func TestTheServerOfASwapStaysInItsDropIn(t *testing.T) { // safety rule 15
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			h := k.make(t)
			if _, problems, err := h.run(desired(t, k.role, k.node)); err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			dropIn := map[fleet.Role]string{fleet.RoleServer: fleet.FileUnitJoin, fleet.RoleAgent: fleet.FileAgentUnit}[k.role]
			h.plant(dropIn, "[Service]\nEnvironment="+fleet.EnvJoinHost+"=10.0.0.2\n", 0o644)
			h.bus.read = nil // H had systemd read its units
			before := h.state()
			plan, problems, err := h.run(desired(t, k.role, k.node))
			if err != nil || len(problems) > 0 || !plan.Empty() {
				t.Errorf("%+v, %v, %v", plan, problems, err)
			}
			if d := cmp.Diff(before, h.state()); d != "" {
				t.Errorf("changed:\n%s", d)
			}
		})
	}
}

// Safety rule 31: a unit may have the token in its command line, and the record keeps that.
func TestTheRecordOfASecretIsNobodyElsesToRead(t *testing.T) {
	h := newServer(t)
	h.plant("etc/systemd/system/k3s.service", strings.Replace(serverUnit, "'--cluster-init'", "'--token' 'hush'", 1), 0o600)
	if _, problems, err := h.run(desired(t, fleet.RoleServer, "n1")); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	for path, content := range h.state() {
		if path != "/etc/systemd/system/k3s.service" && strings.Contains(content, "hush") && !strings.HasPrefix(content, "-rw-------") {
			t.Errorf("%s: %s", path, content)
		}
	}
}

func with(m map[string]any, key string, v any) map[string]any {
	m = maps.Clone(m)
	m[key] = v
	return m
}
