package adopt_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/adopt"
)

const join = "https://10.0.0.2:6443"

func file(t *testing.T, text string) k3s.Config {
	t.Helper()
	c, err := k3s.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A server as the install script sets it up, with flags in all three places.
func server(t *testing.T) adopt.Found {
	return adopt.Found{
		Unit:     "k3s.service",
		Commands: [][]string{{"/usr/local/bin/k3s", "server", "--cluster-init", "--tls-san", "k8s.example", "--tls-san=10.0.0.9", "--node-label", "a=b", "--disable", "traefik"}},
		Env:      map[string]string{"K3S_TOKEN": "secret", "PATH": "/bin"},
		Files: []k3s.Config{
			file(t, "tls-san: [first]\nnode-ip: 10.0.0.1\nwrite-kubeconfig-mode: \"0644\"\netcd-expose-metrics: true\n"),
			file(t, "node-label+: [c=d]\nnode-ip: 10.0.0.7\n"),
		},
	}
}

func agent(t *testing.T) adopt.Found {
	return adopt.Found{
		Unit:     "k3s-agent.service",
		Commands: [][]string{{"/usr/local/bin/k3s", "agent"}},
		Env:      map[string]string{"K3S_TOKEN": "agents", "K3S_URL": "https://10.0.0.1:6443"},
		Files:    []k3s.Config{file(t, "node-ip: 10.0.0.4\nkubelet-arg: [max-pods=50]\n")},
	}
}

func wanted() adopt.Wanted {
	return adopt.Wanted{JoinURL: join, Labels: map[string]string{"x/eligible": "true", "x/pinned": "false"}}
}

func TestAServerBecomesOneFileForEachRole(t *testing.T) {
	s, problems := adopt.Of(server(t), wanted())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := adopt.Split{
		Role: fleet.RoleServer,
		Server: k3s.Config{
			"cluster-init": {"true"}, "tls-san": {"first", "k8s.example", "10.0.0.9"}, "node-ip": {"10.0.0.7"}, "disable": {"traefik"},
			"write-kubeconfig-mode": {"0644"}, "etcd-expose-metrics": {"true"}, "node-label": {"c=d", "a=b", "x/eligible=true", "x/pinned=false"},
		},
		Agent: k3s.Config{
			"node-ip": {"10.0.0.7"}, "node-label": {"c=d", "a=b", "x/eligible=true", "x/pinned=false"}, "token": {"secret"}, "server": {join},
		},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("split (-want +got):\n%s", d)
	}
}

func TestAStandbyTakesAVotersServerFlagsAndKeepsItsOwn(t *testing.T) {
	_, voter, problems := server(t).Effective()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	w := wanted()
	w.Server, w.Names = voter, []string{"10.0.0.4"}
	s, problems := adopt.Of(agent(t), w)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	labels := []string{"x/eligible=true", "x/pinned=false"}
	want := adopt.Split{
		Role:  fleet.RoleAgent,
		Agent: k3s.Config{"node-ip": {"10.0.0.4"}, "kubelet-arg": {"max-pods=50"}, "node-label": labels},
		Server: k3s.Config{
			"node-ip": {"10.0.0.4"}, "kubelet-arg": {"max-pods=50"}, "node-label": labels, "token": {"secret"}, "server": {"https://10.0.0.1:6443"},
			"tls-san": {"first", "k8s.example", "10.0.0.9", "10.0.0.4"}, "disable": {"traefik"}, "etcd-expose-metrics": {"true"},
		},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("split (-want +got):\n%s", d)
	}
}

func TestASeparateAgentTokenIsTheAgents(t *testing.T) {
	f := server(t)
	f.Env["K3S_AGENT_TOKEN"] = "agents"
	s, problems := adopt.Of(f, wanted())
	if len(problems) > 0 || s.Agent.Get("token") != "agents" {
		t.Errorf("agent's token is %q, problems %v", s.Agent.Get("token"), problems)
	}
	_, voter, _ := f.Effective()
	w := wanted()
	w.Server = voter
	s, problems = adopt.Of(agent(t), w)
	if len(problems) > 0 || s.Server.Get("token") != "secret" || s.Server.Get("agent-token") != "agents" {
		t.Errorf("standby's tokens are %q and %q, problems %v", s.Server.Get("token"), s.Server.Get("agent-token"), problems)
	}
}

// A server that made its own token gets it written: without one beside the server to
// join it would found a cluster of its own (k3s-facts §3.2).
func TestATokenThatK3sMadeItselfIsWritten(t *testing.T) {
	f := server(t)
	delete(f.Env, "K3S_TOKEN")
	if _, problems := adopt.Of(f, wanted()); len(problems) != 1 || problems[0].Code != adopt.CodeNoToken {
		t.Errorf("without any token: %v", problems)
	}
	w := wanted()
	w.Token = "made"
	s, problems := adopt.Of(f, w)
	if len(problems) > 0 || s.Server.Get("token") != "made" || s.Agent.Get("token") != "made" {
		t.Errorf("server %v, agent %v, problems %v", s.Server, s.Agent, problems)
	}
	if changes := adopt.Changes(f, s, "/etc/rancher/k3s/server.yaml", w.Labels); len(changes) > 0 {
		t.Errorf("changes: %v", changes)
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*adopt.Found)
		code   string
	}{
		"two start commands": {func(f *adopt.Found) { f.Commands = append(f.Commands, f.Commands[0]) }, adopt.CodeStartCommand},
		"no start command":   {func(f *adopt.Found) { f.Commands = nil }, adopt.CodeStartCommand},
		"a shell around it":  {func(f *adopt.Found) { f.Commands = [][]string{{"/bin/sh", "-c", "k3s server"}} }, adopt.CodeStartCommand},
		"a flag before the role": {func(f *adopt.Found) {
			f.Commands = [][]string{{"k3s", "--debug", "server"}}
		}, adopt.CodeStartCommand},
		"another unit":         {func(f *adopt.Found) { f.Unit = "k3s-edge.service" }, adopt.CodeUnitName},
		"a variable":           {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "--node-ip=${IP}") }, adopt.CodeVariable},
		"an unknown flag":      {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "--surprise", "x") }, adopt.CodeFlag},
		"a word for a flag":    {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "surprise") }, adopt.CodeFlag},
		"an unknown key":       {func(f *adopt.Found) { f.Files = append(f.Files, k3s.Config{"surprise": {"x"}}) }, adopt.CodeFlag},
		"an agent's flag":      {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "--disable-apiserver-lb") }, adopt.CodeFlagRole},
		"a flag without value": {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "--node-ip") }, adopt.CodeFlagValue},
		"an external datastore": {func(f *adopt.Found) {
			f.Env["K3S_DATASTORE_ENDPOINT"] = "mysql://x"
		}, adopt.CodeUnsupported},
		"a node id":          {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "--with-node-id") }, adopt.CodeUnsupported},
		"control-plane only": {func(f *adopt.Found) { f.Commands[0] = append(f.Commands[0], "--disable-etcd") }, adopt.CodeUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			f := server(t)
			c.change(&f)
			s, problems := adopt.Of(f, wanted())
			if len(problems) == 0 || problems[0].Code != c.code {
				t.Fatalf("got %v, want %s", problems, c.code)
			}
			if s.Server != nil || s.Agent != nil {
				t.Errorf("refused, and split all the same: %v", s)
			}
			for _, p := range problems {
				if strings.Contains(p.Sentence, "secret") || strings.Contains(p.Sentence, "mysql") {
					t.Errorf("the sentence gives a value away: %s", p.Sentence)
				}
			}
		})
	}
}

func TestAFlagThatIsSwitchedOffIsNoReasonToRefuse(t *testing.T) {
	f := server(t)
	f.Files = append(f.Files, k3s.Config{"with-node-id": {"false"}})
	if _, problems := adopt.Of(f, wanted()); len(problems) > 0 {
		t.Error(problems)
	}
}

// Wherever flags are told, the file that comes of them gives k3s the same.
func TestK3sRunsWithTheSameFlagsAfterwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		role := rapid.SampledFrom([]fleet.Role{fleet.RoleServer, fleet.RoleAgent}).Draw(t, "role")
		unit := map[fleet.Role]string{fleet.RoleServer: "k3s.service", fleet.RoleAgent: "k3s-agent.service"}[role]
		f := adopt.Found{Unit: unit, Commands: [][]string{{"/k3s", string(role)}}, Env: map[string]string{"K3S_TOKEN": "secret", "K3S_URL": join}, Files: []k3s.Config{{}, {}, {}}}
		text := rapid.StringMatching(`[ -#%-~]{1,12}`)
		scalars := []string{"node-name", "flannel-iface", "data-dir", "log", "token", "snapshotter"}
		lists := []string{"node-label", "kubelet-arg", "node-ip", "node-taint"}
		truths := []string{"selinux", "debug"}
		if role == fleet.RoleServer {
			scalars = append(scalars, "cluster-domain", "etcd-snapshot-name", "agent-token")
			lists = append(lists, "tls-san", "disable", "etcd-arg")
			truths = append(truths, "cluster-init", "secrets-encryption")
		}
		all := slices.Concat(scalars, lists, truths)
		for range rapid.IntRange(0, 12).Draw(t, "flags") {
			key := rapid.SampledFrom(all).Draw(t, "flag")
			v := text.Draw(t, "value")
			if slices.Contains(truths, key) {
				v = rapid.SampledFrom([]string{"true", "false"}).Draw(t, "truth")
			}
			at := rapid.IntRange(0, 3).Draw(t, "place")
			switch {
			case at < 3:
				name := key
				if slices.Contains(lists, key) && rapid.Bool().Draw(t, "appended") {
					name += "+"
				}
				f.Files[at][name] = append(f.Files[at][name], v)
			case slices.Contains(truths, key) || rapid.Bool().Draw(t, "one word"):
				f.Commands[0] = append(f.Commands[0], "--"+key+"="+v)
			default:
				f.Commands[0] = append(f.Commands[0], "--"+key, v)
			}
		}
		w := adopt.Wanted{JoinURL: join, Labels: map[string]string{"x/eligible": "true"}, Server: k3s.Config{"token": {"secret"}}}
		s, problems := adopt.Of(f, w)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for _, c := range []*k3s.Config{&s.Server, &s.Agent} {
			raw, err := adopt.Render(*c, "Written by a test.")
			if err != nil {
				t.Fatal(err)
			}
			read, err := k3s.ParseConfig(raw)
			if err != nil {
				t.Fatalf("%v\n%s", err, raw)
			}
			if d := cmp.Diff(*c, read); d != "" {
				t.Fatalf("the file says otherwise (-meant +read):\n%s", d)
			}
		}
		if changes := adopt.Changes(f, s, "/etc/rancher/k3s/x.yaml", w.Labels); len(changes) > 0 {
			t.Fatalf("%v", changes)
		}
		for key := range s.Agent {
			if slices.Contains([]string{"tls-san", "disable", "cluster-init", "agent-token"}, key) || strings.HasPrefix(key, "etcd-") {
				t.Fatalf("the agent would die on %s", key)
			}
		}
	})
}

// What would be lost is said: the check is not a formality.
func TestAChangeOfAFlagIsSaid(t *testing.T) {
	f := server(t)
	s, problems := adopt.Of(f, wanted())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	s.Server = maps.Clone(s.Server)
	delete(s.Server, "disable")
	s.Server["node-ip"] = []string{"10.0.0.8"}
	var said []string
	for _, p := range adopt.Changes(f, s, "/etc/rancher/k3s/server.yaml", wanted().Labels) {
		said = append(said, p.Code+": "+p.Sentence)
	}
	want := []string{"FlagsWouldChange: k3s server would run with another disable than now", "FlagsWouldChange: k3s server would run with another node-ip than now"}
	if d := cmp.Diff(want, said); d != "" {
		t.Error(d)
	}
}
