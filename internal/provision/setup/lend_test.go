package setup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/setup"
)

// R-K-03: what a server lends, before it is one of the fleet and after, makes a standby's
// server of an agent.
func TestAServerLendsAStandbyItsFlagsAndToken(t *testing.T) {
	server := newServer(t)
	lend := func() setup.Lent {
		t.Helper()
		seen, err := server.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lent, problems := setup.Lend(seen)
		if len(problems) > 0 {
			t.Fatalf("%v", problems)
		}
		raw, err := lent.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := setup.ParseLent(raw)
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	before := lend()
	if _, problems, err := server.run(desired(t, fleet.RoleServer, "n1")); err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	after := lend()
	delete(after.Voter, "node-label")
	delete(before.Voter, "node-label")
	if diff := cmp.Diff(before.Voter, after.Voter); diff != "" || before.Token.Reveal() != after.Token.Reveal() {
		t.Errorf("a server of the fleet lends something else (-before +after):\n%s", diff)
	}

	standby := newAgent(t)
	d := desired(t, fleet.RoleAgent, "n4")
	d.Voter, d.Token = after.Voter, after.Token
	raw, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d, err = setup.Parse(raw); err != nil {
		t.Fatal(err)
	}
	if _, problems, err := standby.run(d); err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	made := standby.state()[fleet.FileServerConf]
	for _, want := range []string{"token: hush-server", "- k8s.example", `etcd-expose-metrics: "true"`, "node-ip:\n- 10.0.0.4"} {
		if !strings.Contains(made, want) {
			t.Errorf("the standby's server has no %q:\n%s", want, made)
		}
	}
	if strings.Contains(made, "cluster-init") {
		t.Errorf("the standby would found a cluster:\n%s", made)
	}
}

func TestWhoCannotLendSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		host *host
		do   func(h *host)
		want string
	}{
		"an agent":                 {newAgent(t), func(*host) {}, setup.CodeNoK3s},
		"a server at etcd-only":    {newServer(t), func(h *host) { h.plant("etc/rancher/k3s/config.yaml.d/b.yaml", "disable-apiserver: true\n", 0o600) }, "FlagUnsupported"},
		"a server without etcd":    {newServer(t), func(h *host) { h.plant("etc/rancher/k3s/config.yaml.d/b.yaml", "datastore-endpoint: hush\n", 0o600) }, "FlagUnsupported"},
		"a flag that nobody knows": {newServer(t), func(h *host) { h.plant("etc/rancher/k3s/config.yaml.d/b.yaml", "no-such-flag: hush\n", 0o600) }, "FlagUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			test.do(test.host)
			seen, err := test.host.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lent, problems := setup.Lend(seen)
			if len(problems) == 0 || problems[0].Code != test.want || strings.Contains(problems[0].Sentence, "hush") || len(lent.Voter) > 0 {
				t.Errorf("%+v, %v", lent, problems)
			}
		})
	}
}

// Safety rule 31.
func TestNothingOfWhatIsLentIsInAnError(t *testing.T) {
	for _, raw := range []string{"", "{", `{"voter":{},"token":"hush"}`, `{"voter":{"token":["hush"]}}`, `{"voter":["hush"],"token":"hush"}`} {
		if _, err := setup.ParseLent([]byte(raw)); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// A daemon that runs the program of before a replacement is started anew, once.
func TestADaemonOfAReplacedProgramIsStartedAnew(t *testing.T) {
	h := newServer(t)
	d := desired(t, fleet.RoleServer, "n1")
	for _, test := range []struct {
		name     string
		outdated bool
		restarts bool
	}{{"set up", false, true}, {"again", false, false}, {"replaced", true, true}} {
		h.bus.outdated = test.outdated
		plan, problems, err := h.run(d)
		if err != nil || len(problems) > 0 || plan.Restart != test.restarts {
			t.Errorf("%s: restart %v, %v, %v", test.name, plan.Restart, problems, err)
		}
	}
}

// The level half of the daemon has a credential of its own, which nothing shows, and which a
// removal takes away.
func TestALevelCredentialIsWrittenAndTakenAway(t *testing.T) {
	h := newServer(t)
	d := desired(t, fleet.RoleServer, "n1")
	d.LevelKubeconfig = "hush-level"
	plan, problems, err := h.run(d)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	var b strings.Builder
	plan.Show(&b)
	if got := h.state()[fleet.FileLevelKube]; got != "-rw-------\nhush-level" || strings.Contains(b.String(), "hush") {
		t.Errorf("%q, shown:\n%s", got, b.String())
	}
	if problems, err := h.remove(); err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	if _, there := h.state()[fleet.FileLevelKube]; there {
		t.Error("it is left")
	}
}
