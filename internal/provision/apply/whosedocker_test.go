package apply_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s/catest"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Two Docker hosts' addresses that are swapped in fleet.yaml, or a kubeconfig of another cluster:
// nothing is written anywhere, as with native hosts (TestAHostThatIsAnotherOneRefusesAllOfIt).
func TestADockerHostThatIsAnotherOneRefusesAllOfIt(t *testing.T) {
	mine, other := catest.New(t, "ca", nil), catest.New(t, "ca", nil)
	own, foreign := string(catest.Bundle(mine)), string(catest.Bundle(other))
	cert := func(node string) string { return string(mine.Kubelet(t, node)) }
	const env = "K3S_NODE_NAME='n3'\nK3S_TOKEN=hush-env\n"
	for name, test := range map[string]struct {
		disk func(*disk)
		// on is the host whose machine it is.
		on, want, says string
	}{
		"its own":               {func(d *disk) { d.project("regrade", "/srv/k3s", cert("n1"), own) }, "n1", "", ""},
		"another Node":          {func(d *disk) { d.project("regrade", "/srv/k3s", cert("n3"), own) }, "n1", setup.CodeOtherNode, `the Node "n3" by its kubelet's certificate`},
		"another cluster":       {func(d *disk) { d.project("regrade", "/srv/k3s", cert("n1"), foreign) }, "n1", setup.CodeOtherCA, "their CAs differ"},
		"a project of any name": {func(d *disk) { d.project("mine", "/srv/k3s", cert("n3"), own) }, "n1", setup.CodeOtherNode, ""},
		"the name of its .env": {func(d *disk) {
			d.plant("/srv/k3s/.env", "COMPOSE_PROJECT_NAME=mine\n")
			d.project("mine", "/moved", cert("n3"), own)
		}, "n1", setup.CodeOtherNode, ""},
		"its containers are stopped": {func(d *disk) {
			d.project("regrade", "/srv/k3s", cert("n3"), own)
			for i := range d.Engine.Containers {
				d.Engine.Containers[i].State.Status = "exited"
			}
		}, "n1", setup.CodeOtherNode, ""},
		"its containers are gone": {func(d *disk) {
			d.project("regrade", "/srv/k3s", cert("n3"), own)
			d.Engine.Containers = nil
		}, "n1", setup.CodeOtherNode, ""},
		"another cluster, its containers gone": {func(d *disk) {
			d.project("regrade", "/srv/k3s", cert("n1"), foreign)
			d.Engine.Containers = nil
		}, "n1", setup.CodeOtherCA, ""},
		"its k3s never ran": {func(d *disk) {
			d.project("regrade", "/srv/k3s", "", "")
			d.plant("/srv/k3s/.env", env)
		}, "n1", setup.CodeOtherNode, `the Node "n3" by the .env in /srv/k3s`},
		"its volume is out of reach": {func(d *disk) {
			d.project("regrade", "/srv/k3s", cert("n3"), own)
			d.Engine.Containers, d.Engine.Volumes = nil, nil
			d.plant("/srv/k3s/.env", env)
		}, "n1", setup.CodeOtherNode, "by the .env"},
		"another host's project in another place":    {func(d *disk) { d.project("mine", "/share/k3s", cert("n3"), own) }, "n1", setup.CodeOtherNode, "mine_k3s-data"},
		"a native host's machine":                    {func(d *disk) { d.ran(fleet.DefaultDataDir, cert("n2"), own) }, "n1", setup.CodeOtherNode, fleet.DefaultDataDir},
		"a Docker host's machine for a native":       {func(d *disk) { d.project("regrade", "/srv/k3s", cert("n1"), own) }, "n2", setup.CodeOtherNode, ""},
		"a Docker host's machine for a new one":      {func(d *disk) { d.project("mine", "/share/k3s", cert("n1"), own) }, "n4", setup.CodeOtherNode, ""},
		"nothing, a new host":                        {func(*disk) {}, "n4", "", ""},
		"a new host with somebody's k3s":             {func(d *disk) { d.project("test", "/opt/test", cert("k"), foreign) }, "n4", "", ""},
		"a Node of the same name in another cluster": {func(d *disk) { d.project("test", "/opt/test", cert("n3"), foreign) }, "n4", "", ""},
		"a new host that a broken turn has left": {func(d *disk) {
			d.project("regrade", "/srv/k3s", "", "")
			d.plant("/srv/k3s/.env", "K3S_NODE_NAME=n4\n")
		}, "n4", "", ""},
		"a native host without an engine that speaks": {func(d *disk) { d.Engine.Down = true }, "n2", "", ""},
	} {
		for what, do := range turns {
			t.Run(what+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newMixed(t)
					s.c.ca = []byte(own)
					d := newDisk(t)
					test.disk(d)
					s.machines[test.on].disk = d
					before := s.state()
					s.c.writes = nil
					_, err := do(s.turn(image), t.Context())
					if test.want == "" {
						if err != nil {
							t.Error(err)
						}
						return
					}
					r, ok := errors.AsType[*apply.Refusal](err)
					if !ok || len(r.Problems) != 1 || r.Problems[0].Code != test.want || !strings.HasPrefix(r.Problems[0].Sentence, test.on+": the ") || !strings.Contains(r.Problems[0].Sentence, test.says) {
						t.Errorf("got %v", err)
					}
					if !maps.Equal(before, s.state()) || len(s.c.writes) > 0 {
						t.Errorf("changed all the same: %v", s.c.writes)
					}
					if strings.Contains(s.out.String(), "hush") {
						t.Errorf("a secret is shown:\n%s", s.out.String())
					}
				})
			})
		}
	}
}

// An engine that does not answer keeps its own host out of a turn, and nothing is written there:
// which Node it is cannot be told.
func TestADockerHostWhoseEngineIsSilentIsLeftOut(t *testing.T) {
	s := newMixed(t)
	d := newDisk(t)
	d.Engine.Down = true
	s.machines["n1"].disk = d
	out, err := s.turn(image).Apply(t.Context())
	if err != nil || len(out.Problems) != 1 || out.Problems["n1"].Code != apply.CodeHostFailed || !strings.Contains(out.Problems["n1"].Sentence, "Is the docker daemon running?") {
		t.Errorf("%+v, %v", out, err)
	}
	if s.machines["n1"].setUp || s.machines["n1"].files["/usr/local/bin/regrade"] != "" || !s.machines["n3"].setUp {
		t.Error("n1 was written to, or another one was not")
	}
}

// One that hangs is not waited for, and is no concern of a native host's.
func TestAnEngineThatHangsHoldsNoTurnUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMixed(t)
		s.machines["n1"].hangs, s.machines["n2"].hangs = true, true
		began := time.Now()
		out, err := s.turn(image).Apply(t.Context())
		if err != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems["n1"].Sentence, "its engine has not answered in 30s") {
			t.Errorf("%+v, %v", out, err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		if s.machines["n1"].setUp || !s.machines["n2"].setUp || !s.machines["n3"].setUp {
			t.Error("n1 was written to, or another one was not")
		}
	})
}
