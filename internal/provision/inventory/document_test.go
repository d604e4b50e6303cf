package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/swap"
)

// taken holds a host's document to what reads it on the host: the daemon and the setup.
func taken(t rapid.TB, f inventory.Fleet, h inventory.Host) {
	t.Helper()
	d := f.Document(h)
	raw, err := yaml.Marshal(d.Host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Parse(raw); err != nil {
		t.Fatalf("%s: the daemon refuses %s: %v", h.Name, raw, err)
	}
	raw, err = yaml.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setup.Parse(raw); err != nil {
		t.Fatalf("%s: the setup refuses %s: %v", h.Name, raw, err)
	}
}

// R-216-01, R-D1-12, R-D1-13: one list gives the API candidates and the join URLs, the
// other servers first, then the other eligible hosts, each in the order of the file.
func TestAHostIsToldTheOtherServersThenTheOtherEligibleHosts(t *testing.T) {
	f := parsed(t, `hosts:
  - {name: n4, address: 10.0.0.4, role: agent, eligible: true}
  - {name: n2, address: 10.0.0.2, role: server}
  - {name: n5, address: 10.0.0.5, role: agent}
  - {name: n1, address: 10.0.0.1, role: server, eligible: false, labels: {rack: a}}
`)
	join := map[string]string{"n1": "https://10.0.0.1:6443", "n2": "https://10.0.0.2:6443", "n4": "https://10.0.0.4:6443"}
	want := setup.Desired{
		Role: fleet.RoleServer, Labels: map[string]string{"rack": "a"}, Join: join,
		Host: map[string]any{"node": "n1", "servers": []string{"https://10.0.0.2:6443", "https://10.0.0.4:6443"}},
	}
	if d := cmp.Diff(want, f.Document(f.Hosts[3])); d != "" {
		t.Error(d)
	}
	want = setup.Desired{
		Role: fleet.RoleAgent, Eligible: true, Join: join,
		Host: map[string]any{"node": "n4", "servers": []string{"https://10.0.0.2:6443", "https://10.0.0.1:6443"}},
	}
	if d := cmp.Diff(want, f.Document(f.Hosts[0])); d != "" {
		t.Error(d)
	}
}

func TestAHostThatIsAloneAsksItself(t *testing.T) {
	f := parsed(t, "hosts: [{name: n1, address: 10.0.0.1, role: server}]")
	if d := cmp.Diff([]string{"https://10.0.0.1:6443"}, f.Document(f.Hosts[0]).Host["servers"]); d != "" {
		t.Error(d)
	}
	taken(t, f, f.Hosts[0])
}

func TestWhatDaemonsAndControllerMustAgreeOnFollowsFromTheFleet(t *testing.T) {
	const hosts = `hosts:
  - {name: n1, address: 10.0.0.1, role: server, settings: {period: 20s, levels: {enabled: true, voters: 3}}}
  - {name: n2, address: 10.0.0.2, role: server, platform: docker, settings: {levels: {enabled: true}}}
`
	f := parsed(t, hosts+"settings: {namespace: x, label-prefix: x.example/, actuator-configmap: y, period: 10, operation-timeout: 10m, target: 5, runner-selector: a=b}\n")
	want := map[string]any{
		"node": "n1", "servers": []string{"https://10.0.0.2:6443"}, "namespace": "x", "label-prefix": "x.example/", "actuator-configmap": "y",
		"period": "20s", "operation-timeout": "10m0s", "levels": map[string]any{"enabled": true, "voters": int64(3), "runner-selector": "a=b"},
	}
	if d := cmp.Diff(want, f.Document(f.Hosts[0]).Host); d != "" {
		t.Error(d)
	}
	want = map[string]any{
		"node": "n2", "servers": []string{"https://10.0.0.1:6443"}, "namespace": "x", "label-prefix": "x.example/", "actuator-configmap": "y", "platform": "docker",
		"period": "10s", "operation-timeout": "10m0s", "levels": map[string]any{"enabled": true, "voters": 5, "runner-selector": "a=b"},
	}
	if d := cmp.Diff(want, f.Document(f.Hosts[1]).Host); d != "" {
		t.Error(d)
	}
	usual := parsed(t, hosts+"settings: {namespace: github-runner-platform, label-prefix: github-runner.exadev.com/, actuator-configmap: fleet-role-actuators, period: 15, operation-timeout: 5m, target: 3}\n")
	want = map[string]any{"node": "n2", "servers": []string{"https://10.0.0.1:6443"}, "platform": "docker", "levels": map[string]any{"enabled": true}}
	if d := cmp.Diff(want, usual.Document(usual.Hosts[1]).Host); d != "" {
		t.Errorf("what is the default is left out: %s", d)
	}
}

// R-185-31, R-185-33: the controller's own rule, asked of the file.
func TestATargetThatTheFleetCannotHaveIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		yaml   string
		target int
		want   []string
	}{
		"three of four":             {least, 3, nil},
		"even":                      {least, 4, []string{swap.CodeTarget}},
		"under three":               {least, 1, []string{swap.CodeTarget}},
		"more than are eligible":    {least + "max-servers: 7\n", 5, []string{decide.CodeFewEligible}},
		"no place for one more":     {least + "max-servers: 3\n", 3, []string{decide.CodeNoHeadroom}},
		"a place for just one more": {least + "max-servers: 4\n", 3, nil},
		"none is eligible":          {"hosts: [{name: n1, address: 10.0.0.1, role: server, eligible: false}]", 3, nil},
		"all of it":                 {"max-servers: 4\nhosts: [{name: n1, address: 10.0.0.1, role: server}]", 4, []string{swap.CodeTarget, decide.CodeNoHeadroom, decide.CodeFewEligible}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range inventory.Check(parsed(t, c.yaml), c.target) {
				got = append(got, p.Code)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
