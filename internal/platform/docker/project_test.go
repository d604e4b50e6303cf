package docker

import (
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
)

func TestAProjectThatIsNotPlainIsRefused(t *testing.T) {
	twin := func(e *fakeEngine, service string) *box {
		b := *e.box(service)
		b.id, b.name = strings.Repeat("ef", 32), "twin"
		e.boxes = append(e.boxes, &b)
		return &b
	}
	for name, c := range map[string]struct {
		spoil func(e *fakeEngine)
		want  []string
	}{
		"another name":     {func(e *fakeEngine) { e.boxes[0].project, e.boxes[1].project = "a", "b" }, []string{"no Compose project github-runner"}},
		"nothing at all":   {func(e *fakeEngine) { e.boxes = nil }, []string{"no Compose project github-runner"}},
		"other services":   {func(e *fakeEngine) { e.boxes[0].service, e.boxes[1].service = "web", "db" }, []string{"neither k3s nor k3s-agent", "up --no-start --no-recreate"}},
		"two of one name":  {func(e *fakeEngine) { twin(e, "k3s").dir = "/home/ann/github-runner" }, []string{"two Compose projects", "/home/ann/github-runner and /srv/github-runner"}},
		"half of another":  {func(e *fakeEngine) { e.box("k3s-agent").dir = "/home/ann/github-runner" }, []string{"two Compose projects"}},
		"a scaled service": {func(e *fakeEngine) { twin(e, "k3s-agent") }, []string{"more than one container of the service k3s-agent"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.plant("/volumes/k3s-node/password", secretPassword)
			e.plant(fleet.FileRole, "agent\n")
			c.spoil(e)
			h := e.host()
			_, err := h.Observe(t.Context())
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			for _, err := range []error{h.Start(t.Context(), fleet.RoleAgent), h.Stop(t.Context(), fleet.RoleServer), h.Restart(t.Context()), h.DatastoreAside(t.Context())} {
				if err == nil {
					t.Error("an effect on a guess")
				}
			}
			if got := e.effects(); len(got) != 0 {
				t.Errorf("%v", got)
			}
		})
	}
}

// Somebody gives the project another name and brings it up: the containers of the old name
// run on, with the same role folder. The break check: ask nobody.
func TestAProjectThatWasGivenAnotherNameIsRefused(t *testing.T) { // safety rule 10
	e, _ := member(t)
	var old []*box
	for _, b := range e.boxes {
		x := *b
		x.id, x.project, x.name = strings.Repeat(x.id[:1]+"f", 32), "old", "old-"+x.service
		old = append(old, &x)
	}
	e.boxes = append(e.boxes, old...)
	h := e.host()
	if _, err := h.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "is that of the project old as well, whose container old-k3s runs") {
		t.Errorf("%v", err)
	}
	for _, err := range []error{h.Start(t.Context(), fleet.RoleServer), h.Stop(t.Context(), fleet.RoleServer), h.Restart(t.Context()), h.DatastoreAside(t.Context())} {
		if err == nil {
			t.Error("an effect beside another daemon")
		}
	}
	if got := e.effects(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	old[0].service, old[0].readOnly = "watch", true
	look(t, h) // something else, that reads there
	old[0].service, old[0].readOnly = "k3s", false
	e.down(old[0])
	look(t, e.host()) // the old ones are at rest
}

func TestContainersOfNoConcernAreLeftOut(t *testing.T) {
	e := newEngine(t)
	e.plant("/volumes/k3s-node/password", secretPassword)
	once := *e.box("k3s")
	once.id, once.oneOff, once.dir = strings.Repeat("ef", 32), true, "/elsewhere"
	foreign := *e.box("k3s")
	foreign.id, foreign.project = strings.Repeat("fe", 32), "other"
	all := e.boxes
	e.boxes = append([]*box{&once, &foreign}, all...)
	p, err := e.host().pair(t.Context())
	if err != nil || p.server.ID != all[0].id {
		t.Errorf("%+v %v", p.server.ID, err)
	}
	// A removal that failed on a busy disk, and what Compose has made beside it. The break
	// check: count each.
	for _, state := range []string{"dead", "removing"} {
		left := *all[0]
		left.id, left.name, left.state, left.dir = strings.Repeat("ab", 32), "left", state, "/elsewhere"
		for _, boxes := range [][]*box{append([]*box{&left}, all...), append(slices.Clone(all), &left)} {
			e.boxes = boxes
			if p, err := e.host().pair(t.Context()); err != nil || p.server.ID != all[0].id {
				t.Errorf("%s: %+v %v", state, p.server.ID, err)
			}
		}
		e.boxes = []*box{&left, all[1]}
		left.dir = all[1].dir
		if p, err := e.host().pair(t.Context()); err != nil || p.server.State != state {
			t.Errorf("%s, and no other: %+v %v", state, p.server, err)
		}
	}
}

// R-D1-17's other half: what was never made is not staged.
func TestAServerThatWasNeverMadeIsNotStaged(t *testing.T) {
	e := newEngine(t)
	e.plant("/volumes/k3s-node/password", secretPassword)
	e.plant(fleet.FileRole, "agent\n")
	agent := e.box("k3s-agent")
	e.boxes = []*box{agent}
	h := e.host()
	must(t, h.Start(t.Context(), fleet.RoleAgent))
	settle(t, h)
	f := look(t, h)
	if f.Staged || !f.Agent.Process || !f.Server.Gone() || !f.Server.Conditioned {
		t.Errorf("%+v", f)
	}
	s, err := h.Staging(t.Context())
	if err != nil || !strings.Contains(s.Absent, "up --no-start --no-recreate") {
		t.Errorf("%+v %v", s, err)
	}
	// Somebody else's container has the name, so that Compose cannot make it.
	e.boxes = append(e.boxes, &box{id: strings.Repeat("ef", 32), name: "github-runner-k3s", state: "exited", command: []string{"sleep"}})
	if s, err := h.Staging(t.Context()); err != nil || !strings.Contains(s.Absent, "once the container efefefefefef, whose name is github-runner-k3s") {
		t.Errorf("%+v %v", s, err)
	}
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	if err := h.Start(t.Context(), fleet.RoleServer); err == nil || !strings.Contains(err.Error(), "no container of the service k3s") {
		t.Errorf("%v", err)
	}
	if slices.Contains(e.effects(), "start k3s") {
		t.Error("started")
	}
}

func TestAnAgentThatWasNeverMadeIsSaidOfAVoter(t *testing.T) {
	e, h := member(t)
	e.boxes = []*box{e.box("k3s")}
	f := look(t, h)
	if !strings.Contains(f.AgentProblem, "no container of the service k3s-agent") || !f.Server.Process {
		t.Errorf("%q %+v", f.AgentProblem, f.Server)
	}
	// Its member comes back all the same.
	stop(t, h, fleet.RoleServer)
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if !look(t, h).Server.Process {
		t.Error("a voter is down for want of an agent's container")
	}
}

func TestAnAgentThatCouldNotStartIsSaid(t *testing.T) { // safety rule 15
	for name, c := range map[string]struct {
		spoil func(e *fakeEngine)
		want  string
	}{
		"no token":        {func(e *fakeEngine) { e.box("k3s-agent").env = nil }, "no token"},
		"a server's key":  {func(e *fakeEngine) { e.plant(fleet.FileAgentConf, "tls-san: a\n") }, "dies"},
		"no URL at all":   {func(e *fakeEngine) { e.box("k3s-agent").env = e.box("k3s-agent").env[:1] }, ""}, // a step writes it
		"nothing amiss":   {func(*fakeEngine) {}, ""},
		"a URL that is n": {func(e *fakeEngine) { e.box("k3s-agent").env[1] = "K3S_AGENT_SERVER_URL=http://x" }, "want https"},
	} {
		t.Run(name, func(t *testing.T) {
			e, h := member(t)
			c.spoil(e)
			if p := look(t, h).AgentProblem; c.want == "" && p != "" || !strings.Contains(p, c.want) {
				t.Errorf("%q, want %q", p, c.want)
			}
		})
	}
}

func TestTheProjectIsTheOneOfTheDaemonsContainer(t *testing.T) {
	e := newEngine(t)
	e.plant("/volumes/k3s-node/password", secretPassword)
	e.self(e.box("k3s").mounts)
	for _, b := range e.boxes {
		b.project = "edge"
	}
	self := func(o *Options) {
		o.Self = func() string { return mountinfoOf(e.box("regrade-host"), e.box("regrade-host")) }
	}
	if f := look(t, e.host(self)); !f.Staged {
		t.Errorf("%+v", f)
	}
	if _, err := e.host(self, func(o *Options) { o.Project = "other" }).Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "no Compose project other") {
		t.Errorf("a setting is left aside: %v", err)
	}
}

func TestTheStagingIsWhatTheServerTakes(t *testing.T) { // safety rule 17
	e := newEngine(t)
	e.plant("/volumes/k3s-node/password", secretPassword)
	e.plant(fleet.FileServerConf, "flannel-backend: none\n")
	b := e.box("k3s")
	b.env = append(b.env, "K3S_NODE_NAME=n7", "K3S_JOIN_SERVER_URL=https://10.0.0.1:6443")
	h := e.host()
	s, err := h.Staging(t.Context())
	if err != nil || s.Config.Get("flannel-backend") != "none" || s.Config.Get("node-name") != "n7" || s.Join.URL != "https://10.0.0.1:6443" || s.Join.Token.Reveal() != secretToken || s.HostName != "n1" {
		t.Errorf("%+v %v", s, err)
	}
	e.plant(fleet.FileJoinURL, "https://10.0.0.3:6443\n") // R-A-08
	e.plant(fleet.FileServerConf, "node-name: n8\n")
	if s, err = h.Staging(t.Context()); err != nil || s.Join.URL != "https://10.0.0.3:6443" || s.Config.Get("node-name") != "n8" {
		t.Errorf("%+v %v", s, err)
	}
	e.plant(fleet.FileServerConf, "[")
	if s, err = h.Staging(t.Context()); err != nil || s.ConfigError == nil {
		t.Errorf("%+v %v", s, err)
	}
	// A configuration that the daemon has from elsewhere says nothing of the server's.
	e.plant(fleet.FileServerConf, "node-name: n8\n")
	b.mounts = append(b.mounts, [2]string{e.at("/elsewhere"), "/etc/rancher/k3s"})
	if s, err = h.Staging(t.Context()); err != nil || s.ConfigError == nil {
		t.Errorf("%+v %v", s, err)
	}
}
