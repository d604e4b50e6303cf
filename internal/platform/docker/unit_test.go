package docker

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// member is a host whose server runs.
func member(t *testing.T) (*fakeEngine, *Host) {
	e := newEngine(t)
	e.plant("/volumes/k3s-node/password", secretPassword)
	e.promoted()
	h := e.host()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	e.reset()
	return e, h
}

func TestWhatAContainerMeans(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(b *box)
		state   platform.State
		process bool
	}{
		"k3s runs, no health check":         {func(*box) {}, platform.StateActive, true},
		"k3s runs and is healthy":           {func(b *box) { b.health = "healthy" }, platform.StateActive, true},
		"k3s was started a moment ago":      {func(b *box) { b.health = "starting" }, platform.StateActivating, true},
		"the container is paused":           {func(b *box) { b.state = "paused" }, platform.StateActive, true},
		"the engine starts it again":        {func(b *box) { b.state = "restarting" }, platform.StateActivating, false},
		"k3s has ended":                     {func(b *box) { b.state = "exited" }, platform.StateInactive, false},
		"k3s has ended with an error":       {func(b *box) { b.state, b.exit = "exited", 1 }, platform.StateFailed, false},
		"it is being removed":               {func(b *box) { b.state = "removing" }, platform.StateDeactivating, false},
		"its entrypoint waits":              {func(b *box) { b.main = b.command }, platform.StateActivating, false},
		"k3s is a zombie":                   {func(b *box) { b.main = b.command; b.more = []string{"101 100 Z k3s-server k3s"} }, platform.StateActivating, false},
		"a pod tests k3s":                   {func(b *box) { b.main = b.command; b.more = pod }, platform.StateActivating, false},
		"k3s's first process holds another": {func(b *box) { b.main = b.command; b.more = []string{"101 100 Sl k3s-server /bin/k3s server"} }, platform.StateActive, true},
		"an agent in the server's place":    {func(b *box) { b.main = []string{"/bin/k3s", "agent"} }, platform.StateActivating, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, h := member(t)
			c.change(e.box("k3s"))
			f := look(t, h)
			u := f.Server
			if u.State != c.state || u.Process != c.process {
				t.Errorf("%s, process %t; want %s, %t", u.State, u.Process, c.state, c.process)
			}
			if want := map[bool]fleet.Level{true: fleet.LevelFull}[c.process]; u.Level != want {
				t.Errorf("level %q, want %q", u.Level, want)
			}
		})
	}
}

// A k3s of `docker compose run k3s`, or of a project that was given another name: the
// containers of the project are at rest. The break checks: do not ask before the datastore
// is moved; nor before a start.
func TestAK3sInAThirdContainerIsNotTakenForRest(t *testing.T) { // safety rule 10
	e, h := standby(t)
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	letGo := e.stranger(fleet.RoleServer)
	e.reset()
	wal := fleet.DefaultDataDir + "/server/db/etcd/member/wal/0.wal"
	e.plant(wal, "x")
	if err := h.DatastoreAside(t.Context()); err == nil || !strings.Contains(err.Error(), "k3s server runs on this host's data in a container that is none of the two of the project github-runner") || e.read(wal) != "x" {
		t.Errorf("%v, %q", err, e.read(wal))
	}
	if err := h.Start(t.Context(), fleet.RoleServer); err == nil || !strings.Contains(err.Error(), "k3s server runs on this host's data") {
		t.Errorf("%v", err)
	}
	settle(t, h)
	if got := e.effects(); len(got) != 0 || e.read("/volumes/k3s-node/password") != "of an earlier life" {
		t.Errorf("%v", got)
	}
	letGo()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if u := look(t, h).Server; !u.Process {
		t.Errorf("%+v", u)
	}
}

// A boot has started the agent of a host that was about to move its datastore aside: the
// lock is that agent's. The break check: take each lock for a stranger's.
func TestADatastoreIsMovedAsideBesideTheOwnAgent(t *testing.T) {
	e, h := standby(t)
	e.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "x")
	e.stranger(fleet.RoleAgent)
	must(t, h.DatastoreAside(t.Context()))
	if e.read(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal") != "" {
		t.Error("it is there still")
	}
}

// stranger is another process that has the data volume.
func (e *fakeEngine) stranger(role fleet.Role) (letGo func()) {
	e.t.Helper()
	self, err := os.Executable()
	must(e.t, err)
	c := exec.Command(self, "hold", e.root, string(role))
	out, err := c.StdoutPipe()
	must(e.t, err)
	must(e.t, c.Start())
	letGo = sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait() })
	e.t.Cleanup(letGo)
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != " <nil>\n" {
		e.t.Fatalf("the volume is not locked: %q %v", said, err)
	}
	return letGo
}

// An engine's ps that does not see the container's processes gives an empty list and no
// error. The break check: believe each list.
func TestAListWithoutTheContainersFirstProcessSaysNothing(t *testing.T) { // safety rule 10
	for name, more := range map[string][]string{"an empty list": nil, "processes of something else": {"4711 1 Ss sh sh"}} {
		t.Run(name, func(t *testing.T) {
			e, h := member(t)
			b := e.box("k3s")
			b.unseen, b.more = true, more
			e.plant(fleet.FileRole, "agent\n")
			must(t, os.RemoveAll(e.at(fleet.DefaultDataDir+"/server/db/etcd/member")))
			e.plant(fleet.DefaultDataDir+"/server/db/etcd/tombstone", "x")
			if _, err := h.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be told: the engine's list of its processes lacks its first one") {
				t.Errorf("a look: %v", err)
			}
			if err := h.DatastoreAside(t.Context()); err == nil || e.read(fleet.DefaultDataDir+"/server/db/etcd/tombstone") != "x" {
				t.Errorf("moved away under it: %v", err)
			}
			e.reset()
			if err := h.Start(t.Context(), fleet.RoleAgent); err == nil {
				t.Error("an agent was started beside it")
			}
			settle(t, h)
			if got := e.effects(); len(got) != 0 {
				t.Errorf("%v", got)
			}
		})
	}
}

var pod = []string{
	"101 100 Sl containerd-shim /var/lib/rancher/k3s/data/abc/bin/containerd-shim-runc-v2 -namespace k8s.io",
	"102 101 Ss sh sh -c k3s",
	"103 102 Sl k3s-server k3s server",
}

// R-A-05, R-A-06: the idle container of a removed server runs on for ever; promoted
// again, the host needs a start that its entrypoint asks anew in.
func TestAnIdleContainerIsAtRestAndAStartAsksAgain(t *testing.T) {
	e, h := standby(t)
	e.up(e.box("k3s"))
	if u := look(t, h).Server; !u.Gone() || u.Rising() {
		t.Errorf("idle: %+v", u)
	}
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	if u := look(t, h).Server; !u.Gone() {
		t.Errorf("still idle, its reason has gone away: %+v", u)
	}
	e.reset()
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if got, want := e.effects(), []string{"stop k3s", "start k3s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if u := look(t, h).Server; !u.Process {
		t.Errorf("%+v", u)
	}
}

func TestAnEntrypointThatWaitsIsNotStartedAgain(t *testing.T) { // R-A-09
	e, h := standby(t)
	stop(t, h, fleet.RoleAgent)
	e.promoted()
	e.waits = true
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if u := look(t, h).Server; !u.Rising() || u.Process {
		t.Errorf("%+v", u)
	}
	e.reset()
	h = e.host() // another process
	if u := look(t, h).Server; !u.Rising() {
		t.Errorf("%+v", u)
	}
	must(t, h.Start(t.Context(), fleet.RoleServer))
	settle(t, h)
	if got := e.effects(); len(got) != 0 {
		t.Errorf("the wait was cut short: %v", got)
	}
	stop(t, h, fleet.RoleServer)
	if u := look(t, h).Server; !u.Gone() {
		t.Errorf("%+v", u)
	}
}

func TestTheLastStartIsReportedAgainWhateverBecameOfTheContainer(t *testing.T) { // R-228-41
	e, h := standby(t)
	since := look(t, h).Agent.Since
	if since.IsZero() {
		t.Fatal("no start")
	}
	for range 2 {
		must(t, h.Start(t.Context(), fleet.RoleAgent)) // the step, repeated
		if got := look(t, h).Agent.Since; !got.Equal(since) {
			t.Errorf("%s, want %s", got, since)
		}
	}
	b := e.box("k3s-agent")
	b.id, b.state, b.main, b.started = strings.Repeat("cd", 32), "created", nil, b.started.AddDate(-3000, 0, 0)
	if got := look(t, e.host()).Agent.Since; got.IsZero() || since.Sub(got).Abs().Minutes() > 1 {
		t.Errorf("made anew: %s, want about %s", got, since)
	}
}

func TestAContainerThatWouldNotAskIsNoConditionedUnit(t *testing.T) { // safety rule 10
	for name, c := range map[string]struct {
		spoil func(e *fakeEngine, b *box)
		want  string
	}{
		"plain k3s":                    {func(_ *fakeEngine, b *box) { b.command = []string{"/bin/k3s", "server"} }, "does not run `regrade entrypoint server`"},
		"the other role":               {func(_ *fakeEngine, b *box) { b.command = []string{"/regrade", "entrypoint", "agent"} }, "does not run `regrade entrypoint server`"},
		"no role directory":            {func(_ *fakeEngine, b *box) { b.mounts = b.mounts[1:] }, "the role directory, is not mounted at /etc/github-runner"},
		"another role directory":       {func(e *fakeEngine, b *box) { b.mounts[0][0] = e.at("/elsewhere") }, "is another"},
		"joins confirmed elsewhere":    {func(e *fakeEngine, b *box) { b.mounts[1][0] = e.at("/elsewhere") }, "the folder of a confirmed join"},
		"data of its own":              {func(e *fakeEngine, b *box) { b.mounts[2][0] = e.at("/elsewhere") }, "k3s's data"},
		"no restart":                   {func(_ *fakeEngine, b *box) { b.restart = "no" }, "restart policy"},
		"restart on a bad status only": {func(_ *fakeEngine, b *box) { b.restart = "on-failure" }, "restart policy"},
	} {
		t.Run(name, func(t *testing.T) {
			e, h := member(t)
			c.spoil(e, e.box("k3s"))
			f := look(t, h)
			if f.Server.Conditioned || !strings.Contains(f.Server.ConditionProblem, c.want) {
				t.Errorf("%t %q, want %q", f.Server.Conditioned, f.Server.ConditionProblem, c.want)
			}
			if !f.Agent.Conditioned {
				t.Errorf("the agent too: %s", f.Agent.ConditionProblem)
			}
		})
	}
}

func TestTheVersionIsThatOfTheServersImage(t *testing.T) {
	e, h := standby(t)
	if v := look(t, h).K3sVersion; v != "v1.36.3+k3s1" {
		t.Errorf("%q", v)
	}
	e.text = "k3s version v9 (x)\n"
	if v := look(t, h).K3sVersion; v != "v1.36.3+k3s1" {
		t.Errorf("asked again: %q", v)
	}
	stop(t, h, fleet.RoleAgent) // what it knows is noted with the effect
	if v := look(t, e.host()).K3sVersion; v != "v1.36.3+k3s1" {
		t.Errorf("forgotten in the middle of a switch: %q", v)
	}
	e.box("k3s").image = "sha256:another"
	if v := look(t, e.host()).K3sVersion; v != "" {
		t.Errorf("of another image: %q", v)
	}
}

// Until k3s has said its version no swap is made with the host: an engine that is slow once holds none up for a minute.
func TestAK3sThatDidNotSayItsVersionIsAskedAgainSoon(t *testing.T) { // safety rule 9
	e, h := standby(t)
	later := func(d time.Duration) {
		for image, a := range h.asked {
			a.at = a.at.Add(-d)
			h.asked[image] = a
		}
	}
	said := e.text
	e.box("k3s").image, e.box("k3s-agent").image = "sha256:another", "sha256:another" // of which nothing is known
	silent := func() { e.text = "Error: not yet\n" }
	speaks := func() { e.text = said }
	silent()
	for _, wait := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		if v := look(t, h).K3sVersion; v != "" {
			t.Fatalf("%q", v)
		}
		speaks()
		later(wait - time.Second)
		if v := look(t, h).K3sVersion; v != "" {
			t.Errorf("asked again in less than %s", wait)
		}
		later(time.Second)
		silent()
	}
	speaks()
	if v := look(t, h).K3sVersion; v != "v1.36.3+k3s1" {
		t.Errorf("%q", v)
	}
}

// A glance has half a second, and on a slow engine a look has little left for the version: k3s is asked once all the same,
// and its answer is there for the next look.
func TestAnAnswerThatOutlastsTheLookIsThereForTheNext(t *testing.T) { // safety rule 9
	e, h := standby(t)
	e.box("k3s").image, e.box("k3s-agent").image = "sha256:another", "sha256:another"
	letGo := e.hang("exec")
	e.reset()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		f, err := h.Observe(ctx)
		cancel()
		if err != nil || f.K3sVersion != "" {
			t.Fatalf("%q, %v", f.K3sVersion, err)
		}
	}
	letGo()
	for deadline := time.Now().Add(firstAgain - time.Second); look(t, h).K3sVersion != "v1.36.3+k3s1"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the answer was lost with the look that asked")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(e.calls), func(c string) bool { return !strings.HasPrefix(c, "exec") })); n != 1 {
		t.Errorf("asked %d times: %v", n, e.calls)
	}
}
