package project_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/k3s/catest"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/project/projecttest"
	"github.com/exadev/regrade/internal/provision/setup"
)

func founds(d *setup.Desired) { d.Docker.Founder, d.Voter, d.Kubeconfig = true, nil, "" }

var kinds = map[string]struct {
	role    fleet.Role
	change  func(*setup.Desired)
	service string
	other   string
	wants   []string // a path, then what is in it
}{
	"a server that joins": {fleet.RoleServer, func(*setup.Desired) {}, "k3s", "k3s-agent", []string{
		"/srv/k3s/.env", "-rw-------", "COMPOSE_PROJECT_NAME=regrade\n", "\nCOMPOSE_FILE=compose.yaml:rights.yaml\n", "\nK3S_NODE_NAME=n1\n", "\nFLEET_ROLE_INVENTORY_ROLE=server\n",
		"\nK3S_TOKEN=hush-server\n", "\nK3S_AGENT_TOKEN=hush-agent\n", "\nK3S_JOIN_SERVER_URL=https://10.0.0.2:6443\n", "\nK3S_AGENT_SERVER_URL=https://10.0.0.2:6443\n", "\nK3S_CLUSTER_INIT=\n",
		"\nK3S_REGRADE_IMAGE=k3s-regrade:v1.36.3-k3s1-v1\n",
		"/srv/k3s/k3s", "drwx------",
		"/srv/k3s/k3s/server.yaml", "-rw-------", "node-ip:\n- 10.0.0.1\n", "disable:\n- traefik\n", "tls-san:\n- k8s.example\n- 10.0.0.1\n", "node-label:\n- rack=r1\n",
		"/srv/k3s/k3s/agent.yaml", "-rw-------", "node-ip:\n- 10.0.0.1\n",
		"/srv/k3s/k3s/fleet-role-actuator.kubeconfig", "-rw-------", "hush-kube",
		"/srv/k3s/regrade/host.yaml", "-rw-r--r--", "platform: docker\n",
		"/srv/k3s/regrade/join.yaml", "n4: https://10.0.0.4:6443\n",
		"/srv/k3s/fleet-role.d/role", "-rw-r--r--", "server\n",
		"/srv/k3s/compose.yaml", "container_name:",
		"/srv/k3s/rights.yaml", "cap_add:",
		"/srv/k3s/image/Dockerfile", "FROM ${K3S_IMAGE}",
		"/etc/modules-load.d/regrade.conf", "br_netfilter\noverlay\n",
	}},
	"the first server": {fleet.RoleServer, founds, "k3s", "k3s-agent", []string{
		"/srv/k3s/.env", "\nK3S_JOIN_SERVER_URL=\n", "\nK3S_AGENT_SERVER_URL=https://10.0.0.2:6443\n", "\nK3S_CLUSTER_INIT=\n", // R-228-14
		"/srv/k3s/k3s/server.yaml", "tls-san:\n- 10.0.0.1\n",
	}},
	"a standby": {fleet.RoleAgent, func(*setup.Desired) {}, "k3s-agent", "k3s", []string{
		"/srv/k3s/fleet-role.d/role", "agent\n",
		"/srv/k3s/.env", "\nFLEET_ROLE_INVENTORY_ROLE=agent\n",
		"/srv/k3s/k3s/server.yaml", "disable:\n- traefik\n",
	}},
}

// R-C-01, R-C-03, R-C-04: one .env for both, the role once, and what runs goes by it.
func TestABareHostIsSetUp(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			d := desired(t, k.role, "n1", k.change)
			plan := m.setUp(d)
			state, at := m.State(), ""
			for _, w := range k.wants {
				if strings.HasPrefix(w, "/") {
					if at = w; state[at] == "" {
						t.Errorf("%s is missing", at)
					}
					continue
				}
				if !strings.Contains(state[at], w) {
					t.Errorf("%s lacks %q:\n%s", at, w, state[at])
				}
			}
			for _, never := range []string{"cluster-init", "data-dir", "hush", "server:"} {
				for _, path := range []string{"/srv/k3s/k3s/server.yaml", "/srv/k3s/k3s/agent.yaml"} {
					if strings.Contains(state[path], never) {
						t.Errorf("%s has %q:\n%s", path, never, state[path])
					}
				}
			}
			if _, ok := state["/srv/k3s/identity.yaml"]; ok {
				t.Error("identity.yaml is there, and nobody asked for it")
			}
			if !m.Box(k.service).K3s() || m.Box(k.other).State != "created" || m.Box("regrade-host").State != "running" {
				t.Errorf("containers: %v", state)
			}
			want := []string{
				"docker build -q --build-arg K3S_IMAGE=rancher/k3s:v1.36.3-k3s1 --build-arg REGRADE_IMAGE=regrade:v1 -t k3s-regrade:v1.36.3-k3s1-v1 -",
				"modprobe br_netfilter",
				"cd /srv/k3s && docker compose --profile server --profile agent up --no-start --no-recreate",
				"cd /srv/k3s && docker compose --profile " + string(k.role) + " up -d --no-recreate " + k.service,
				"cd /srv/k3s && docker compose up -d --no-deps regrade-host",
			}
			if d := cmp.Diff(want, m.Calls); d != "" {
				t.Errorf("commands:\n%s", d)
			}
			var shown bytes.Buffer
			plan.Show(&shown)
			if strings.Contains(shown.String()+strings.Join(m.Calls, "\n"), "hush") {
				t.Errorf("a secret is shown:\n%s", &shown)
			}
			before := m.State()
			if plan := m.setUp(d); !plan.Empty() || len(m.Calls) > 0 {
				t.Errorf("the second run: %+v, %v", plan, m.Calls)
			}
			if d := cmp.Diff(before, m.State()); d != "" {
				t.Errorf("the second run changed something:\n%s", d)
			}
		})
	}
}

// Killed or failed at each command, and after each file: the next run completes.
func TestASetupThatWasInterruptedIsCompleted(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			d := desired(t, k.role, "n1", k.change)
			whole := newMachine(t)
			plan := whole.setUp(d)
			calls, want := len(whole.Calls), whole.State()
			for cut := range len(plan.Files) + 1 {
				m := newMachine(t)
				h := m.Host()
				part := plan
				part.Files = plan.Files[:cut]
				if err := h.Bring(t.Context(), part); err != nil {
					t.Fatal(err)
				}
				m.Fail = len(m.Calls) + 1
				if err := h.Carry(t.Context(), part); !errors.Is(err, projecttest.ErrPower) {
					t.Fatal(err)
				}
				m.Fail = 0
				m.setUp(d)
				if d := cmp.Diff(want, m.State()); d != "" {
					t.Fatalf("after %d files:\n%s", cut, d)
				}
			}
			for call := 1; call <= calls; call++ {
				m := newMachine(t)
				m.Fail = call
				if _, _, err := m.run(d); !errors.Is(err, projecttest.ErrPower) {
					t.Fatalf("call %d: %v", call, err)
				}
				m.Fail = 0
				m.setUp(d)
				if d := cmp.Diff(want, m.State()); d != "" {
					t.Fatalf("after call %d:\n%s", call, d)
				}
				if plan := m.setUp(d); !plan.Empty() {
					t.Fatalf("after call %d there is still to do: %+v", call, plan)
				}
			}
		})
	}
}

// R-C-08, R-K-02: a swap has changed the role; the document's counts no more, and k3s of the
// recorded one is what is started where the containers are new.
func TestARecordedRoleIsKept(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	m.Stop(m.Box("k3s"))
	m.Plant("/srv/k3s/fleet-role.d/role", "agent\n", 0o644)
	m.Start(m.Box("k3s-agent"))
	before := m.State()
	if plan := m.setUp(d); !plan.Empty() {
		t.Errorf("there is to do: %+v", plan)
	}
	d.Role = fleet.RoleAgent // somebody has put the file right; the .env stays as it is
	if plan := m.setUp(d); !plan.Empty() {
		t.Errorf("there is to do: %+v", plan)
	}
	if d := cmp.Diff(before, m.State()); d != "" {
		t.Error(d)
	}
	d.Role = fleet.RoleServer
	m.Boxes = nil // `down`
	m.setUp(d)
	if m.Box("k3s").State != "created" || !m.Box("k3s-agent").K3s() {
		t.Errorf("%v", m.State())
	}
}

// A person who has stopped k3s finds it stopped.
func TestWhatAPersonHasStoppedStaysStopped(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	m.Stop(m.Box("k3s"))
	d.Host["log-level"] = "debug"
	m.setUp(d)
	if m.Box("k3s").State != "exited" {
		t.Errorf("k3s was started: %v", m.Calls)
	}
	if want := []string{"docker restart regrade-regrade-host"}; !slices.Equal(m.Calls, want) {
		t.Errorf("did %v, want %v", m.Calls, want)
	}
}

// R-C-09: the same words, no container anew; and a hand-written .env is kept as it is.
func TestAHostThatWasSetUpByHandIsAdopted(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	if err := os.Remove(m.At(fleet.FileInstalled)); err != nil {
		t.Fatal(err)
	}
	env := "# mine\nexport K3S_NODE_NAME=\"n1\" # me\nCOMPOSE_PROJECT_NAME=regrade\nCOMPOSE_FILE=compose.yaml:rights.yaml\nK3S_TOKEN='hush-server'\nK3S_AGENT_TOKEN=hush-agent\n" +
		"K3S_JOIN_SERVER_URL=https://10.0.0.2:6443\nK3S_AGENT_SERVER_URL=https://10.0.0.2:6443\nFLEET_ROLE_INVENTORY_ROLE=server\nFLEET_ROLE_ELIGIBLE=true\nFLEET_ROLE_PINNED=false\n" +
		"K3S_IMAGE=rancher/k3s:v1.36.3-k3s1\nREGRADE_IMAGE=regrade:v1\nK3S_REGRADE_IMAGE=k3s-regrade:v1.36.3-k3s1-v1\nMINE=1\n"
	m.Plant("/srv/k3s/.env", env, 0o644)
	m.Plant("/srv/k3s/compose.yaml", "# a comment of mine\n"+m.Read("/srv/k3s/compose.yaml"), 0o644)
	m.Plant("/srv/k3s/regrade/host.yaml", "# mine\nnode: n1\nplatform: docker\nservers:\n- https://10.0.0.2:6443\n- https://10.0.0.3:6443\n", 0o644)
	m.Plant("/srv/k3s/k3s/server.yaml", "# mine\nnode-ip: 10.0.0.1\nnode-label: rack=r1\n", 0o600)
	ids := map[string]string{}
	for _, b := range m.Boxes {
		ids[b.Service] = b.ID
	}
	// The document says less than the host has, names a server's token in k3s's own long
	// form, and other servers first.
	d.Docker = nil
	d.Token = k3s.Secret("K10" + strings.Repeat("a", 64) + "::server:hush-server")
	d.Host["servers"] = []any{"https://10.0.0.3:6443"}
	before := m.State()
	d2 := d
	d2.Host = map[string]any{"node": "n1", "platform": "docker", "servers": []any{"https://10.0.0.2:6443", "https://10.0.0.3:6443"}}
	plan := m.setUp(d2)
	if len(m.Calls) > 0 || len(plan.Files) > 0 || len(plan.Closed) != 1 {
		t.Errorf("did %v, wrote %v %v", m.Calls, plan.Files, plan.Closed)
	}
	after := m.State()
	if !strings.HasPrefix(after["/srv/k3s/.env"], "-rw-------") {
		t.Errorf("others may read the .env: %s", after["/srv/k3s/.env"][:10])
	}
	for _, path := range []string{"/srv/k3s/.env", fleet.FileInstalled, "/etc/regrade"} {
		delete(before, path)
		delete(after, path)
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Error(d)
	}
	if m.Read("/srv/k3s/.env") != env {
		t.Error("the .env is another")
	}
	// Other servers are the daemon's business alone.
	m.setUp(d)
	if want := []string{"docker restart regrade-regrade-host"}; !slices.Equal(m.Calls, want) {
		t.Errorf("did %v, want %v", m.Calls, want)
	}
	if plan := m.setUp(d); !plan.Empty() {
		t.Errorf("there is still to do: %+v", plan)
	}
	for _, b := range m.Boxes {
		if ids[b.Service] != b.ID {
			t.Errorf("%s was made anew", b.Names[0])
		}
	}
}

// R-C-09: what would make a container anew in which k3s runs is refused, each by its name,
// and nothing is changed. The break check: leave a key out of `given`, or put one into
// `daemonOnly`.
func TestAContainerInWhichK3sRunsIsNotMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine, *setup.Desired)
		want   string
	}{
		"another image of k3s": {func(_ *machine, d *setup.Desired) { d.Docker.Images.K3s = "rancher/k3s:v1.37.0-k3s1" }, "K3S_IMAGE"},
		"another regrade with Compose 1": {func(m *machine, d *setup.Desired) {
			m.Plugin, m.Have["docker-compose"] = false, true
			d.Docker.Images.Regrade = "regrade:v2"
			m.Images["regrade:v2"] = "sha256:new"
		}, "REGRADE_IMAGE"},
		"another pair":        {func(_ *machine, d *setup.Desired) { d.Docker.Images.Both = "k3s-regrade:other" }, "K3S_REGRADE_IMAGE"},
		"another token":       {func(_ *machine, d *setup.Desired) { d.Token = "hush-other" }, "K3S_TOKEN"},
		"another agent token": {func(_ *machine, d *setup.Desired) { d.Docker.AgentToken = "hush-other" }, "K3S_AGENT_TOKEN"},
		"a token in a file":   {func(_ *machine, d *setup.Desired) { d.Docker.TokenFile = "/etc/rancher/k3s/token" }, "K3S_TOKEN_FILE"},
		"pinned":              {func(_ *machine, d *setup.Desired) { d.Pinned = true }, "FLEET_ROLE_PINNED"},
		"not eligible":        {func(_ *machine, d *setup.Desired) { d.Eligible = false }, "FLEET_ROLE_ELIGIBLE"},
		"another server":      {func(_ *machine, d *setup.Desired) { d.Docker.JoinServer = "https://10.0.0.3:6443" }, "K3S_JOIN_SERVER_URL"},
		"another agent's":     {func(_ *machine, d *setup.Desired) { d.Docker.AgentServer = "https://10.0.0.3:6443" }, "K3S_AGENT_SERVER_URL"},
		"another network":     {func(_ *machine, d *setup.Desired) { d.Docker.Network = "container:mesh" }, "REGRADE_NETWORK"},
		"another log driver":  {func(_ *machine, d *setup.Desired) { d.Docker.LogDriver = "journald" }, "REGRADE_LOG_DRIVER"},
		"another program":     {func(_ *machine, d *setup.Desired) { d.Docker.Program = "/bin/mesh" }, "FLEET_ROLE_K3S"},
		"other files":         {func(_ *machine, d *setup.Desired) { d.Docker.Files = []string{"compose.yaml"} }, "COMPOSE_FILE"},
		"identity apart":      {func(_ *machine, d *setup.Desired) { d.Docker.Identity = true }, "COMPOSE_FILE"},
		"another prefix":      {func(_ *machine, d *setup.Desired) { d.Host["label-prefix"] = "x.example/" }, "FLEET_ROLE_LABEL_PREFIX"},
		"an older project": {func(m *machine, _ *setup.Desired) {
			m.Plant("/srv/k3s/compose.yaml", strings.Replace(m.Read("/srv/k3s/compose.yaml"), "60s", "50s", 1), 0o644)
		}, "compose.yaml"},
		"an .env that was changed and not taken up": {func(m *machine, d *setup.Desired) {
			m.Plant("/srv/k3s/.env", strings.Replace(m.Read("/srv/k3s/.env"), "FLEET_ROLE_PINNED=false", "FLEET_ROLE_PINNED=true", 1), 0o600)
			d.Pinned = true
		}, "otherwise than the .env"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.setUp(desired(t, fleet.RoleServer, "n1"))
			d := desired(t, fleet.RoleServer, "n1")
			m.Registry["rancher/k3s:v1.37.0-k3s1"] = true
			c.change(m, &d)
			before := m.State()
			_, problems, err := m.run(d)
			if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], project.CodeRecreate) || !strings.Contains(problems[0], c.want) {
				t.Errorf("%q, %v; want %s", problems, err, c.want)
			}
			if strings.Contains(strings.Join(problems, ""), "hush") {
				t.Errorf("a secret is shown: %q", problems)
			}
			if d := cmp.Diff(before, m.State()); d != "" || len(m.Killed) > 0 {
				t.Errorf("changed: %s%v", d, m.Killed)
			}
			// With k3s at rest on both sides it is done, and k3s started again.
			for _, b := range m.Boxes {
				m.Stop(b)
			}
			if name == "another log driver" {
				m.setUp(d)
				if !m.Box("k3s").K3s() || len(m.Killed) > 0 {
					t.Errorf("%v", m.State())
				}
			}
		})
	}
}

// A new regrade is the daemon's at once, and k3s's at its next time.
func TestANewRegradeMakesTheDaemonAnewAlone(t *testing.T) {
	m := newMachine(t)
	m.setUp(desired(t, fleet.RoleServer, "n1"))
	id, old := m.Box("k3s").ID, m.Box("regrade-host").ID
	m.Images["regrade:v2"] = "sha256:new"
	d := desired(t, fleet.RoleServer, "n1", func(d *setup.Desired) { d.Docker.Images.Regrade = "regrade:v2" })
	m.setUp(d)
	if m.Box("k3s").ID != id || m.Box("regrade-host").ID == old || m.Box("regrade-host").Image != "sha256:new" || len(m.Killed) > 0 {
		t.Errorf("%v %v", m.Calls, m.State())
	}
	if plan := m.setUp(d); !plan.Empty() {
		t.Errorf("there is still to do: %+v", plan)
	}
	m.Images["regrade:v2"] = "sha256:newer" // the name was given to another image
	m.setUp(d)
	if want := []string{"cd /srv/k3s && docker compose up -d --no-deps regrade-host"}; !slices.Equal(m.Calls, want) || m.Box("regrade-host").Image != "sha256:newer" {
		t.Errorf("did %v, want %v", m.Calls, want)
	}
}

// A container that was pruned is made again beside the one that runs.
func TestTheContainerOfTheRoleThatRestsIsMadeAgain(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	id := m.Box("k3s").ID
	m.Boxes = slices.DeleteFunc(m.Boxes, func(b *projecttest.Box) bool { return b.Service == "k3s-agent" })
	m.setUp(d)
	want := []string{"cd /srv/k3s && docker compose --profile server --profile agent up --no-start --no-recreate"}
	if !slices.Equal(m.Calls, want) || m.Box("k3s").ID != id || !m.Box("k3s").K3s() || m.Box("k3s-agent").State != "created" {
		t.Errorf("did %v; %v", m.Calls, m.State())
	}
}

// Compose is not taken at its word.
func TestAComposeThatMakesARunningContainerAnewIsSaid(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	m.Boxes = slices.DeleteFunc(m.Boxes, func(b *projecttest.Box) bool { return b.Service == "k3s-agent" })
	m.Broken = true
	m.Box("k3s").Hash = "of another Compose"
	if _, _, err := m.run(d); err == nil || !strings.Contains(err.Error(), "was made anew") {
		t.Errorf("%v", err)
	}
}

func TestWhatACommandPrintedIsKeptWithoutSecrets(t *testing.T) {
	m := newMachine(t)
	m.Fail, m.Says = 3, "cannot mount; K3S_TOKEN=hush-server"
	_, _, err := m.run(desired(t, fleet.RoleServer, "n1"))
	if err == nil || !strings.Contains(err.Error(), "cannot mount") || !strings.Contains(err.Error(), "up --no-start") || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}

// An .env may hold whatever its project's owner has in it.
func TestWhatIsInAnEnvIsShownToNobody(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	const secrets = "# K3S_TOKEN=hush-old\nTS_AUTHKEY=hush-mesh\nexport DB_PASSWORD='hush-base'\n"
	env := m.Read("/srv/k3s/.env")
	for _, line := range []string{"REGRADE_IMAGE=", "COMPOSE_FILE="} {
		env = strings.Replace(env, "\n"+line, "\n"+secrets+line, 1)
	}
	m.Plant("/srv/k3s/.env", env, 0o600)
	if plan := m.setUp(d); !plan.Empty() {
		t.Errorf("there is still to do: %+v", plan)
	}
	d.Docker.Images.Regrade = "regrade:v2"
	m.Images["regrade:v2"] = "sha256:v2"
	seen, err := m.Host().Look(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	plan, problems := project.Make(seen, d)
	var shown bytes.Buffer
	plan.Show(&shown)
	off, err := m.Host().LookForRemoval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removal, more := project.MakeRemoval(off)
	removal.Show(&shown)
	for _, want := range []string{"+REGRADE_IMAGE=regrade:v2", "+COMPOSE_FILE=compose.yaml:rights.yaml:without-regrade.yaml", " TS_AUTHKEY=***\n", " DB_PASSWORD=***\n", " # ***\n"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("%q is not in it: %v %v", want, problems, more)
		}
	}
	m.Calls, m.Fail, m.Says = nil, 1, "invalid interpolation: hush-mesh, hush-base"
	err = m.Host().Carry(t.Context(), plan)
	if err == nil || !strings.Contains(err.Error(), "invalid interpolation: ***, ***") {
		t.Fatal(err)
	}
	if strings.Contains(shown.String()+err.Error(), "hush") {
		t.Errorf("a secret is shown: %v\n%s", err, &shown)
	}
}

func TestWhatASetupRefusesChangesNothing(t *testing.T) {
	stranger := func(change func(*projecttest.Box)) func(*machine, *setup.Desired) {
		return func(m *machine, _ *setup.Desired) {
			b := &projecttest.Box{Listed: docker.Listed{ID: "x", Names: []string{"mine-k3s-1"}, Project: "mine", Service: "k3s", Dir: "/opt/mine", State: "running"}, PID: 5}
			b.Process = []docker.Process{{PID: 5, Name: "k3s-server", Args: []string{"k3s", "server"}}}
			change(b)
			m.Boxes = append(m.Boxes, b)
		}
	}
	old := func(t *testing.T, m *machine) { m.setUp(desired(t, fleet.RoleServer, "n1")) }
	mine, other := catest.New(t, "ca", nil), catest.New(t, "ca", nil)
	for name, c := range map[string]struct {
		before func(*testing.T, *machine)
		change func(*machine, *setup.Desired)
		want   string
	}{
		"no docker":            {nil, func(m *machine, _ *setup.Desired) { m.Have["docker"] = false }, project.CodeTools + ": the host lacks the docker program"},
		"no Compose":           {nil, func(m *machine, _ *setup.Desired) { m.Plugin = false }, project.CodeTools},
		"no ps":                {nil, func(m *machine, _ *setup.Desired) { m.Have["ps"] = false }, project.CodeTools},
		"a Compose of 2.37.1":  {nil, func(m *machine, _ *setup.Desired) { m.Version = "2.37.1" }, docker.CodeComposeVersion},
		"a Compose of 2.38.2":  {nil, func(m *machine, _ *setup.Desired) { m.Version = "2.38.2" }, docker.CodeComposeVersion},
		"a Compose of 1.28":    {nil, func(m *machine, _ *setup.Desired) { m.Version = "1.28.6" }, docker.CodeComposeVersion},
		"a Compose of nowhere": {nil, func(m *machine, _ *setup.Desired) { m.Version = "dev" }, docker.CodeComposeVersion},
		"k3s of another project": {nil, stranger(func(*projecttest.Box) {}),
			project.CodeOutside + ": k3s server runs in the container mine-k3s-1 of the Compose project mine in /opt/mine"},
		"k3s of docker run":      {nil, stranger(func(b *projecttest.Box) { b.Project, b.Service, b.Dir = "", "", "" }), project.CodeOutside},
		"k3s of compose run":     {old, stranger(func(b *projecttest.Box) { b.Project, b.Dir, b.OneOff = "regrade", "/srv/k3s", true }), project.CodeOutside},
		"the project elsewhere":  {nil, stranger(func(b *projecttest.Box) { b.Project, b.Process[0].Name, b.Process[0].Args = "regrade", "sh", nil }), project.CodeProject + ": the Compose project regrade is in /opt/mine"},
		"the folder's other one": {nil, stranger(func(b *projecttest.Box) { b.Dir, b.Process[0].Name, b.Process[0].Args = "/srv/k3s", "sh", nil }), project.CodeProject + ": the project in /srv/k3s is called mine"},
		"k3s of no container": {nil, func(m *machine, _ *setup.Desired) {
			m.Plant("/proc/77/stat", "77 (k3s-server) S 1 77", 0o644)
			m.Plant("/proc/77/cmdline", "/usr/local/bin/k3s server\x00", 0o644)
		}, project.CodeOutside + ": k3s server runs on this host itself"},
		"another project's folder": {nil, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/compose.yaml", "services: {}\n", 0o644) }, setup.CodeInTheWay},
		"another name":             {old, func(_ *machine, d *setup.Desired) { d.Docker.Project = "other" }, project.CodeProject},
		"another name where only volumes are left": {func(t *testing.T, m *machine) {
			old(t, m)
			m.Boxes = nil
			if err := os.Remove(m.At(fleet.FileInstalled)); err != nil {
				t.Fatal(err)
			}
		}, func(_ *machine, d *setup.Desired) { d.Docker.Project = "other" }, project.CodeProject + ": the project in /srv/k3s is called regrade by its .env"},
		"another folder": {old, func(_ *machine, d *setup.Desired) { d.Docker.Folder = "/opt/k3s" }, project.CodeProject},
		"another Node":   {old, func(_ *machine, d *setup.Desired) { d.Host["node"] = "n2" }, project.CodeProject},
		"a volume that is nowhere": {old, func(m *machine, _ *setup.Desired) {
			m.Box("k3s").Data, m.Box("k3s-agent").Data = "/nowhere", "/nowhere"
		}, project.CodeVolume},
		"a swap":                        {old, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/fleet-role.d/leaving", "x\n", 0o644) }, setup.CodeUnderway},
		"the recorded role contradicts": {old, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/fleet-role.d/role", "agent\n", 0o644) }, setup.CodeRole},
		"an empty role file":            {old, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/fleet-role.d/role", "", 0o644) }, setup.CodeRole},
		"both run": {old, func(m *machine, _ *setup.Desired) {
			b := m.Box("k3s-agent")
			b.State, b.PID = "running", 9
			b.Process = []docker.Process{{PID: 9, Name: "k3s-agent"}}
		}, setup.CodeTwoK3s},
		"a datastore of an agent": {nil, func(m *machine, d *setup.Desired) {
			m.Plant(data+"/server/db/etcd/member/wal/0.wal", "", 0o600)
			d.Role = fleet.RoleAgent
		}, setup.CodeRole},
		"a former member without its folder": {nil, func(m *machine, _ *setup.Desired) { m.Plant(data+"/server/db.demoted/x", "", 0o600) }, setup.CodeRole},
		"an agent of no interest":            {nil, func(_ *machine, d *setup.Desired) { d.Role, d.Eligible = fleet.RoleAgent, false }, setup.CodeNotNeeded},
		"no token":                           {nil, func(_ *machine, d *setup.Desired) { d.Token = "" }, "NoToken"},
		"a token that no .env carries":       {nil, func(_ *machine, d *setup.Desired) { d.Token = "it's" }, project.CodeEnv},
		"an .env with a variable in it":      {nil, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/.env", "K3S_TOKEN=${X}\n", 0o600) }, project.CodeEnv + ": /srv/k3s/.env: K3S_TOKEN has"},
		"sqlite":                             {nil, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/.env", "K3S_DATASTORE=sqlite\n", 0o600) }, setup.CodeNotEtcd},
		"nobody to join": {nil, func(_ *machine, d *setup.Desired) {
			d.Join = map[string]string{"n1": "https://10.0.0.1:6443"}
			d.Host["servers"] = []any{"https://10.0.0.1:6443"}
		}, "NoServerToJoin"},
		"no voter to copy":         {nil, func(_ *machine, d *setup.Desired) { d.Voter = nil }, "NoVoterConfig"},
		"no kubeconfig":            {nil, func(_ *machine, d *setup.Desired) { d.Kubeconfig = "" }, setup.CodeNoKube},
		"no node-ip":               {nil, func(_ *machine, d *setup.Desired) { d.Docker.Flags = nil }, project.CodeNodeIP},
		"no images named":          {nil, func(_ *machine, d *setup.Desired) { d.Docker.Images = setup.Images{} }, project.CodeImage},
		"an image that is nowhere": {nil, func(m *machine, _ *setup.Desired) { delete(m.Images, "regrade:v1") }, project.CodeImage + ": the image regrade:v1 is missing"},
		"an archive without it": {nil, func(m *machine, d *setup.Desired) {
			delete(m.Images, "regrade:v1")
			d.Docker.Archive = "/images.tar"
			projecttest.Saved(m.t, m.At("/images.tar"), "x:1")
		}, project.CodeImage},
		"an archive that is none": {nil, func(m *machine, d *setup.Desired) {
			delete(m.Images, "regrade:v1")
			d.Docker.Archive = "/images.tar"
			m.Plant("/images.tar", "no tar", 0o600)
		}, project.CodeImage},
		"a file of the project that is not there": {nil, func(_ *machine, d *setup.Desired) { d.Docker.Files = []string{"compose.yaml", "mine/rights.yaml"} }, setup.CodeInTheWay},
		"founding in a file": {nil, func(m *machine, _ *setup.Desired) {
			m.Plant("/srv/k3s/k3s/server.yaml", "cluster-init: true\nnode-ip: 10.0.0.1\n", 0o600)
		}, project.CodeFlagPlace},
		"a file that cannot be read": {nil, func(m *machine, _ *setup.Desired) { m.Plant("/srv/k3s/k3s/agent.yaml", "a: {b: c}\n", 0o600) }, setup.CodeConfig},
		"a Node by its kubelet": {nil, func(m *machine, _ *setup.Desired) {
			m.Plant(data+"/agent/client-kubelet.crt", string(mine.Kubelet(m.t, "n9")), 0o600)
		}, setup.CodeOtherNode},
		"another cluster": {old, func(m *machine, d *setup.Desired) {
			m.Plant(data+"/agent/server-ca.crt", string(catest.Bundle(mine)), 0o600)
			d.Kubeconfig = k3s.Secret("clusters: [{cluster: {certificate-authority-data: " + base64.StdEncoding.EncodeToString(catest.Bundle(other)) + "}}]\n")
		}, setup.CodeOtherCA},
		"a native host": {nil, func(m *machine, _ *setup.Desired) { m.Plant(fleet.FileInstalled, `{"role":"server"}`, 0o644) }, setup.CodePlatform},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if c.before != nil {
				c.before(t, m)
			}
			d := desired(t, fleet.RoleServer, "n1")
			c.change(m, &d)
			before := m.State()
			_, problems, err := m.run(d)
			if err != nil || !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, c.want) }) {
				t.Errorf("%q, %v; want %s", problems, err, c.want)
			}
			if d := cmp.Diff(before, m.State()); d != "" || len(m.Calls) > 0 {
				t.Errorf("changed: %s%v", d, m.Calls)
			}
			if strings.Contains(strings.Join(problems, ""), "hush") {
				t.Errorf("a secret is shown: %q", problems)
			}
		})
	}
}

const data = "/var/lib/docker/volumes/regrade_k3s-data/_data"

// R-C-06, R-C-11: a host that is not eligible has no role file, so what runs has to be what
// the document says.
func TestAHostThatIsNotEligibleHasToRunWhatTheDocumentSays(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1", func(d *setup.Desired) { d.Eligible = false })
	m.setUp(d)
	if _, err := os.Stat(m.At("/srv/k3s/fleet-role.d/role")); err == nil {
		t.Error("it has a role file")
	}
	m.Stop(m.Box("k3s"))
	b := m.Box("k3s-agent")
	b.State, b.PID, b.Process = "running", 9, []docker.Process{{PID: 9, Name: "k3s-agent", Args: []string{"k3s", "agent"}}}
	_, problems, err := m.run(d)
	if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeRole+": the agent's k3s runs here and the inventory says server") {
		t.Errorf("%q, %v", problems, err)
	}
	m.Plant("/srv/k3s/fleet-role.d/role", "agent\n", 0o644) // as the daemon writes down what runs
	_, problems, err = m.run(d)
	if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeRole+": the host is not eligible") {
		t.Errorf("%q, %v", problems, err)
	}
}

func TestImagesAreBroughtFromWhereTheyAre(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine, *setup.Desired)
		want   []string
	}{
		"a registry": {func(m *machine, d *setup.Desired) {
			d.Docker.Images.Regrade = "registry.example/regrade:v1"
			m.Registry["registry.example/regrade:v1"] = true
		}, []string{"docker pull -q registry.example/regrade:v1", "docker build"}},
		"a registry that the engine asks without TLS": {func(m *machine, d *setup.Desired) {
			d.Docker.Images.Regrade, m.Insecure = "nas.lan:5000/regrade:v1", []string{"nas.lan:5000"}
			m.Registry["nas.lan:5000/regrade:v1"] = true
		}, []string{"docker pull -q nas.lan:5000/regrade:v1", "docker build"}},
		"a registry of such a network": {func(m *machine, d *setup.Desired) {
			d.Docker.Images.Regrade, m.Insecure = "10.0.0.9:5000/regrade:v1", []string{"10.0.0.0/8"}
			m.Registry["10.0.0.9:5000/regrade:v1"] = true
		}, []string{"docker pull -q 10.0.0.9:5000/regrade:v1", "docker build"}},
		"an archive with both": {func(m *machine, d *setup.Desired) {
			m.Images = map[string]string{}
			m.Archive = []string{"regrade:v1", "k3s-regrade:v1.36.3-k3s1-v1"}
			d.Docker.Archive = "/images.tar"
			projecttest.Saved(m.t, m.At("/images.tar"), m.Archive...)
		}, []string{"docker load -q -i /images.tar"}},
		"an archive and a registry": {func(m *machine, d *setup.Desired) {
			m.Images = map[string]string{}
			m.Registry["rancher/k3s:v1.36.3-k3s1"] = true
			m.Archive = []string{"regrade:v1"}
			d.Docker.Archive = "/images.tar"
			projecttest.Saved(m.t, m.At("/images.tar"), m.Archive...)
		}, []string{"docker load -q -i /images.tar", "docker pull -q rancher/k3s:v1.36.3-k3s1", "docker build"}},
		"all there": {func(m *machine, d *setup.Desired) {
			m.Images["k3s-regrade:v1.36.3-k3s1-v1"] = "sha256:both"
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			d := desired(t, fleet.RoleServer, "n1")
			c.change(m, &d)
			plan := m.setUp(d)
			if len(plan.Images) != len(c.want) {
				t.Fatalf("%v, want %v", plan.Images, c.want)
			}
			for i, w := range c.want {
				if !strings.HasPrefix(plan.Images[i].String(), w) {
					t.Errorf("%s, want %s", plan.Images[i], w)
				}
			}
			if !m.Box("k3s").K3s() {
				t.Error("k3s does not run")
			}
		})
	}
}

// An engine whose list of processes is of another pid namespace says nothing of k3s.
func TestAListWithoutTheFirstProcessProvesNothing(t *testing.T) {
	m := newMachine(t)
	d := desired(t, fleet.RoleServer, "n1")
	m.setUp(d)
	m.Box("k3s").Process = nil
	if _, _, err := m.run(d); err == nil || !strings.Contains(err.Error(), "cannot be told") {
		t.Errorf("%v", err)
	}
}

// The daemon goes, k3s does not: not even to the next `up`.
func TestARemovalTakesTheDaemonAndLeavesK3s(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			d := desired(t, k.role, "n1", k.change)
			m.setUp(d)
			id := m.Box(k.service).ID
			for fail := 1; fail >= 0; fail-- { // interrupted, and done
				m.Fail = fail
				problems, err := m.remove()
				if len(problems) > 0 || (fail == 0) != (err == nil) {
					t.Fatal(problems, err)
				}
			}
			up := project.Command{Dir: "/srv/k3s", Argv: []string{"docker", "compose", "--profile", string(k.role), "up", "-d"}}
			if out, err := m.Run(t.Context(), up); err != nil || out.Code != 0 {
				t.Fatal(out, err)
			}
			if m.Box("regrade-host") != nil || m.Box(k.service).ID != id || !m.Box(k.service).K3s() || len(m.Killed) > 0 {
				t.Errorf("%v", m.State())
			}
			for _, path := range []string{"/srv/k3s/k3s/fleet-role-actuator.kubeconfig", "/srv/k3s/regrade/host.yaml", "/srv/k3s/regrade/join.yaml", fleet.FileInstalled} {
				if _, err := os.Stat(m.At(path)); err == nil {
					t.Errorf("%s is left", path)
				}
			}
			if m.Read("/srv/k3s/fleet-role.d/role") != string(k.role)+"\n" {
				t.Error("the role file is another")
			}
			if problems, err := m.remove(); err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], setup.CodeNotSetUp) {
				t.Errorf("the second removal: %v, %v", problems, err)
			}
			m.setUp(d)
			if m.Box("regrade-host") == nil || m.Box(k.service).ID != id || strings.Contains(m.Read("/srv/k3s/.env"), "without-regrade") {
				t.Errorf("set up again: %v", m.State())
			}
			if plan := m.setUp(d); !plan.Empty() {
				t.Errorf("there is still to do: %+v", plan)
			}
		})
	}
}

// With one file a second one changes what Compose 1 makes of k3s's services (seen with 1.29.2).
func TestARemovalFromAProjectOfOneFileSaysWhatIsLeft(t *testing.T) {
	m := newMachine(t)
	m.setUp(desired(t, fleet.RoleServer, "n1", func(d *setup.Desired) { d.Docker.Files = []string{"compose.yaml"} }))
	env := m.Read("/srv/k3s/.env")
	seen, err := m.Host().LookForRemoval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removal, problems := project.MakeRemoval(seen)
	var shown bytes.Buffer
	removal.Show(&shown)
	if len(problems) > 0 || !strings.Contains(shown.String(), "take the service regrade-host out of compose.yaml") {
		t.Errorf("%v\n%s", problems, &shown)
	}
	if err := m.Host().Remove(t.Context(), removal); err != nil || m.Box("regrade-host") != nil || m.Read("/srv/k3s/.env") != env {
		t.Errorf("%v", err)
	}
}

func TestARemovalIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"in a swap":        {func(m *machine) { m.Plant("/srv/k3s/fleet-role.d/leaving", "x\n", 0o644) }, setup.CodeUnderway},
		"at a lower level": {func(m *machine) { m.Plant(data+"/"+fleet.FileLevel, "etcd-only\n", 0o644) }, setup.CodeLevel},
		"moved":            {func(m *machine) { m.Box("k3s").Dir = "/opt/k3s" }, project.CodeProject},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.setUp(desired(t, fleet.RoleServer, "n1"))
			c.change(m)
			before := m.State()
			problems, err := m.remove()
			if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], c.want) {
				t.Errorf("%q, %v; want %s", problems, err, c.want)
			}
			if d := cmp.Diff(before, m.State()); d != "" {
				t.Error(d)
			}
		})
	}
}
