package scenarios

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/lab/cluster"
)

// asPeopleHaveOne is three servers and two agents as k3s's install script leaves them, with an sshd, and nothing of regrade.
func asPeopleHaveOne() cluster.Spec {
	spec := cluster.Standard()
	spec.Hosts = append(spec.Hosts, cluster.HostSpec{Name: "n5", Role: cluster.Agent})
	spec.AsInstalled, spec.Untouched, spec.SSH = true, true, true
	return spec
}

// adoption is such a cluster, with what its hosts were like.
type adoption struct {
	*scenario
	all, takes []string
	files      map[string]string
	args       map[string]k3s.Config
	pids       map[string]int
}

func adopting(t *testing.T, spec cluster.Spec) *adoption {
	t.Helper()
	c := shared.own(t, spec)
	a := &adoption{scenario: &scenario{Cluster: c, t: t}, files: map[string]string{}, args: map[string]k3s.Config{}, pids: map[string]int{}}
	for _, h := range spec.Hosts {
		if h.Bare {
			continue
		}
		a.all = append(a.all, h.Name)
		if h.Role == cluster.Server || h.Standby {
			a.takes = append(a.takes, h.Name)
		}
		if !h.Docker {
			a.files[h.Name], a.args[h.Name], a.pids[h.Name] = a.setting(h.Name), a.scenario.args(h.Name), a.k3sPID(t, h.Name)
		}
	}
	return a
}

// fleetFile is what init writes, with n4 made a standby as it says to, and what the lab needs: its label, no pods.
func (a *adoption) fleetFile() string {
	a.t.Helper()
	o, err := a.CLI(a.t.Context(), "init")
	a.must(err)
	if o.Code != 0 {
		a.t.Fatalf("init: exit %d: %s", o.Code, o.Stderr)
	}
	text := o.Stdout
	if !a.IsDocker(a.Host("n4")) { // whose .env says that it is, and so its Node
		text = eligible(a.t, text, "n4")
	}
	before, after, found := strings.Cut(text, "\nsettings:\n")
	if !found {
		a.t.Fatalf("init writes no settings:\n%s", text)
	}
	return before + "\nsettings:\n  period: 4s\n" + after
}

// eligible is the file with one host's eligible: false turned, as a person would.
func eligible(t *testing.T, text, name string) string {
	t.Helper()
	i := strings.Index(text, "name: "+name+"\n")
	if i < 0 {
		t.Fatalf("init does not name %s:\n%s", name, text)
	}
	head, tail := text[:i], text[i:]
	turned := strings.Replace(tail, "eligible: false", "eligible: true", 1)
	if turned == tail {
		t.Fatalf("init does not say that %s is not eligible:\n%s", name, text)
	}
	return head + turned
}

func (a *adoption) apply(file string, more ...string) cluster.Outcome {
	a.t.Helper()
	o, err := a.Operator(a.t.Context(), file, append([]string{"apply"}, more...)...)
	a.must(err)
	for _, secret := range []string{cluster.ServerToken, cluster.AgentToken} {
		if strings.Contains(o.Stdout+o.Stderr, secret) {
			a.t.Errorf("apply %v shows a secret:\n%s%s", more, o.Stdout, o.Stderr)
		}
	}
	return o
}

func (a *adoption) mustApply(file string, more ...string) cluster.Outcome {
	a.t.Helper()
	began := time.Now()
	o := a.apply(file, more...)
	if o.Code != 0 {
		a.t.Fatalf("apply %v: exit %d: %s%s", more, o.Code, o.Stdout, o.Stderr)
	}
	a.Logf("apply %v: %.1f s", more, time.Since(began).Seconds())
	return o
}

func (a *adoption) untouched(what string, names ...string) {
	a.t.Helper()
	for _, name := range names {
		if diff := cmp.Diff(a.files[name], a.setting(name)); diff != "" {
			a.t.Errorf("%s changed %s (-before +after):\n%s", what, name, diff)
		}
		if out, err := a.Host(name).Run(a.t.Context(), "sh", "-c", "ls -A /usr/local/bin | grep regrade || :"); err != nil || out != "" {
			a.t.Errorf("%s left on %s: %q, %v", what, name, out, err)
		}
		a.stillRuns(what, name)
	}
}

func (a *adoption) stillRuns(what, name string) {
	a.t.Helper()
	if pid := a.k3sPID(a.t, name); pid != a.pids[name] {
		a.t.Errorf("%s: k3s of %s was started anew: process %d, was %d", what, name, pid, a.pids[name])
	}
}

// Issue 7, adopt: R-K-01 to R-K-03, R-C-07, R-C-08, R-D1-10 to R-D1-13, R-185-34, R-185-35. A cluster of five hosts as the
// install script makes it becomes a fleet from outside, swaps a vote there and back, and is given back as it was.
func Test_adopt(t *testing.T) {
	long(t)
	beside(t)
	a := adopting(t, asPeopleHaveOne())
	file := a.fleetFile()

	began := time.Now()
	look := a.mustApply(file, "--check")
	a.untouched("apply --check", a.all...)
	for _, want := range []string{"+ExecCondition=", "Deployment github-runner-platform/fleet-role: new", "n4: would be set up"} {
		if !strings.Contains(look.Stdout, want) {
			t.Errorf("apply --check does not show %q:\n%s", want, look.Stdout)
		}
	}
	a.mustApply(file)
	a.Logf("from init to a fleet: %.1f s", time.Since(began).Seconds())
	a.untouched("apply", "n5")
	once := map[string]string{}
	for _, name := range a.takes {
		a.stillRuns("apply", name)
		once[name] = withoutIdentity(a.setting(name))
	}
	if o := a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("the second apply:\n%s", o.Stdout)
	}
	for _, name := range a.takes {
		a.stillRuns("the second apply", name)
		if diff := cmp.Diff(once[name], withoutIdentity(a.setting(name))); diff != "" {
			t.Errorf("the second apply changed %s:\n%s", name, diff)
		}
	}
	if l := a.node("n5").Labels; l[keys.Eligible()] != "" {
		t.Errorf("a host that takes no part is labelled (R-185-35): %v", l)
	}

	s := beginOn(t, a.Cluster, []string{}, "n2", "n3")
	s.restarted("n1")
	want := maps.Clone(a.args["n1"])
	want["config"] = []string{fleet.FileServerConf}
	want["node-label"] = append(withoutOurs(want["node-label"]), keys.Eligible()+"=true", keys.Pinned()+"=false")
	if diff := cmp.Diff(want, s.args("n1")); diff != "" {
		t.Errorf("k3s of n1 runs with other flags (-before +now):\n%s", diff)
	}
	s.mustSwap("n1", "n4")
	s.checkAgent("n1")

	// apply_after_swap: the roles are the hosts' own by now, whatever the file says.
	if o := a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("apply after a swap:\n%s", o.Stdout)
	}
	s.must(s.AwaitVoters(t.Context(), soon, "n2", "n3", "n4"))
	if o := a.remove(file); o.Code != fleet.ExitRefused || !strings.Contains(o.Stderr, "RoleChanged") {
		t.Errorf("remove after a swap: exit %d: %s", o.Code, o.Stderr)
	}
	s.mustSwap("n4", "n1")
	s.checkAgent("n4")
	s.checkWrites()
	s.must(s.controller.Stop())

	if o := a.remove(file, "--check"); o.Code != 0 {
		t.Fatalf("remove --check: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	if o := a.remove(file); o.Code != 0 {
		t.Fatalf("remove: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	for _, name := range a.takes {
		if diff := cmp.Diff(a.files[name], a.setting(name)); diff != "" {
			t.Errorf("%s is not as it was found (-before +after):\n%s", name, diff)
		}
		if labels := slices.Sorted(maps.Keys(a.node(name).Labels)); slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(l, keys.Prefix()) }) {
			t.Errorf("labels of %s are left: %v", name, labels)
		}
		s.restarted(name)
		if name != "n4" { // an agent's flags are written down at its own time
			if diff := cmp.Diff(a.args[name], s.args(name)); diff != "" {
				t.Errorf("k3s of %s runs with other flags than before regrade (-before +after):\n%s", name, diff)
			}
		}
	}
	s.must(s.AwaitVoters(t.Context(), soon, "n1", "n2", "n3"))
	if o := a.remove(file); o.Code != 0 || !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("a second remove: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
}

func (a *adoption) remove(file string, more ...string) cluster.Outcome {
	a.t.Helper()
	o, err := a.Operator(a.t.Context(), file, append([]string{"remove"}, more...)...)
	a.must(err)
	return o
}

// Issue 7: a host that cannot be done is named and the others are, and the exit status says so; the next run does it.
func Test_apply_troubled(t *testing.T) {
	long(t)
	beside(t)
	a := adopting(t, asPeopleHaveOne())
	ctx, file := t.Context(), a.fleetFile()

	trouble := map[string]struct{ code, begin, end string }{
		"n2": {"DiskFull", "mount -t tmpfs -o size=1m tmpfs /usr/local/bin && cp /bin/true /usr/local/bin/k3s", "umount -l /usr/local/bin"},
		"n3": {"ReadOnly", "mount --bind /usr/local/bin /usr/local/bin && mount -o remount,ro,bind /usr/local/bin", "umount -l /usr/local/bin"},
	}
	for name, x := range trouble {
		_, err := a.Host(name).Run(ctx, "sh", "-c", x.begin)
		a.must(err)
	}
	// n1 has another key than the operator knows.
	known, err := a.Host("n1").ReadFile("/etc/ssh/ssh_host_ed25519_key")
	a.must(err)
	public, err := a.Host("n1").ReadFile("/etc/ssh/ssh_host_ed25519_key.pub")
	a.must(err)
	a.must(a.NewHostKey(a.Host("n1")))
	_, err = a.Host("n1").Systemctl(ctx, "restart", "ssh.service")
	a.must(err)

	o := a.apply(file)
	if o.Code != fleet.ExitFailed {
		t.Errorf("exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	for name, code := range map[string]string{"n1": "HostKeyChanged", "n2": "DiskFull", "n3": "ReadOnly", "n4": "NobodyLends"} {
		if !strings.Contains(o.Stderr, "- "+name+": ") || !strings.Contains(o.Stderr, "("+code+")") {
			t.Errorf("%s is not named with %s:\n%s", name, code, o.Stderr)
		}
	}
	for name, x := range trouble {
		_, err := a.Host(name).Run(ctx, "sh", "-c", x.end)
		a.must(err)
	}
	a.untouched("a run that could do nothing", "n1", "n2", "n3", "n5")

	// n3 is down, n1 still a stranger: n2 and n4 are done.
	a.must(a.Host("n3").Crash(ctx, true))
	o = a.apply(file)
	if o.Code != fleet.ExitFailed || !strings.Contains(o.Stderr, "(HostDown)") || strings.Contains(o.Stderr, "- n2:") || strings.Contains(o.Stderr, "- n4:") {
		t.Errorf("exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	a.must(a.Host("n1").WriteFile("/etc/ssh/ssh_host_ed25519_key", known, 0o600))
	a.must(a.Host("n1").WriteFile("/etc/ssh/ssh_host_ed25519_key.pub", public, 0o644))
	_, err = a.Host("n1").Systemctl(ctx, "restart", "ssh.service")
	a.must(err)
	a.must(a.Host("n3").Boot(ctx))
	a.must(a.AwaitVoters(ctx, soon, "n1", "n2", "n3"))
	a.mustApply(file)
	for _, name := range []string{"n1", "n2", "n4"} {
		a.stillRuns("apply", name)
	}
	a.must(a.AwaitUnit(ctx, soon, a.Host("n3"), cluster.HostUnit, "active"))
}

// Issue 7, new_standby: a bare Debian host becomes a standby by a line in fleet.yaml, gets a vote, gives it back.
func Test_new_standby(t *testing.T) {
	long(t)
	beside(t)
	spec := asPeopleHaveOne()
	spec.Hosts = append(spec.Hosts, cluster.HostSpec{Name: "n6", Role: cluster.Agent, Standby: true, Bare: true})
	a := adopting(t, spec)
	h := a.Host("n6")
	line := fmt.Sprintf("hosts:\n  - {name: n6, address: %s, role: agent, eligible: true}\n", h.IP())
	file := strings.Replace(a.fleetFile(), "hosts:\n", line, 1)

	look := a.mustApply(file, "--check")
	if !strings.Contains(look.Stdout, "n6: new: k3s version ") {
		t.Errorf("apply --check says nothing of a new host:\n%s", look.Stdout)
	}
	if out, err := h.Run(t.Context(), "sh", "-c", "ls -A /usr/local/bin | grep -i 'k3s\\|regrade' || :"); err != nil || out != "" {
		t.Errorf("apply --check left: %q, %v", out, err)
	}
	a.mustApply(file)
	if o := a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("the second apply:\n%s", o.Stdout)
	}
	s := beginOn(t, a.Cluster, []string{}, "n2", "n3")
	o, err := s.HostCLI(t.Context(), h, "preflight")
	s.must(err)
	if o.Code != 0 {
		t.Errorf("preflight of the new standby: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	s.mustSwap("n1", "n6")
	s.checkAgent("n1")
	s.must(s.AwaitVoters(t.Context(), soon, "n2", "n3", "n6"))
	s.mustSwap("n6", "n1")
	s.checkAgent("n6")
	s.checkWrites()
	a.checked(file)
}

// checked holds what doctor says of a fleet that is well, and what goes into a support bundle of it.
func (a *adoption) checked(file string) {
	a.t.Helper()
	ctx := a.t.Context()
	o, err := a.Operator(ctx, file, "doctor")
	a.must(err)
	if o.Code != 0 {
		a.t.Errorf("doctor: exit %d:\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
	bundle := filepath.Join(a.t.TempDir(), "bundle.tar.gz")
	if o, err = a.Operator(ctx, file, "support-bundle", "--output", bundle); err != nil || o.Code != 0 {
		a.t.Fatalf("support-bundle: %v, exit %d: %s%s", err, o.Code, o.Stdout, o.Stderr)
	}
	packed, err := exec.CommandContext(ctx, "tar", "-xzOf", bundle).Output()
	a.must(err)
	for _, name := range a.takes {
		if !bytes.Contains(packed, []byte("host daemon started host="+name)) && !bytes.Contains(packed, []byte("host="+name)) {
			a.t.Errorf("the bundle has nothing of the daemon of %s", name)
		}
	}
	for _, secret := range []string{cluster.ServerToken, cluster.AgentToken, "BEGIN RSA PRIVATE", "BEGIN EC PRIVATE", "eyJhbGciOi"} {
		if bytes.Contains(packed, []byte(secret)) {
			a.t.Errorf("the bundle holds a secret: %s", secret)
		}
	}
}

// Issue 7, apply_interrupted and apply_during_swap: apply is killed in each of its phases, at their beginnings and a moment
// later, and the next run completes; while a swap is under way it changes nothing (R-C-07).
func Test_apply_interrupted(t *testing.T) {
	long(t)
	beside(t)
	a := adopting(t, asPeopleHaveOne())
	ctx, file := t.Context(), a.fleetFile()

	o := a.mustApply(file, "--check")
	var phases []string
	for line := range strings.Lines(o.Stdout) {
		if strings.HasPrefix(line, "== ") {
			phases = append(phases, strings.TrimSpace(line))
		}
	}
	phases = append(phases, "== reports")
	for _, after := range []time.Duration{0, 300 * time.Millisecond} {
		for _, phase := range phases {
			killed, err := a.OperatorKilled(ctx, phase, after, file, "apply")
			a.must(err)
			a.Logf("killed %s after %q began: %v", after, phase, killed)
			for _, name := range a.all {
				a.stillRuns("a kill in "+phase, name)
			}
		}
	}
	a.mustApply(file)
	if o := a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("apply after apply:\n%s", o.Stdout)
	}
	for _, name := range a.takes {
		a.stillRuns("apply", name)
		if out, err := a.Host(name).Run(ctx, "sh", "-c", "ls -A /usr/local/bin | grep '^[.]' || :"); err != nil || out != "" {
			t.Errorf("left on %s: %q, %v", name, out, err)
		}
	}

	s := beginOn(t, a.Cluster, []string{}, "n2", "n3")
	s.must(s.RunRunner(ctx, "hold", "n1"))
	s.ask("n1", "n4")
	s.awaitState("wait")
	settings := map[string]string{}
	for _, name := range a.all {
		settings[name] = withoutIdentity(a.setting(name))
	}
	other := strings.Replace(file, "  period: 4s\n", "  period: 5s\n", 1)
	for _, command := range []string{"apply", "remove"} {
		o, err := a.Operator(ctx, other, command)
		a.must(err)
		if o.Code != fleet.ExitRefused || !strings.Contains(o.Stderr, "SwapUnderWay") {
			t.Errorf("%s during a swap: exit %d: %s%s", command, o.Code, o.Stdout, o.Stderr)
		}
	}
	for _, name := range a.all {
		if diff := cmp.Diff(settings[name], withoutIdentity(a.setting(name))); diff != "" {
			t.Errorf("a command during a swap changed %s:\n%s", name, diff)
		}
	}
	s.must(s.EndPod(ctx, "hold"))
	if last := s.ended("n1", "n4"); last.Outcome != fleet.OutcomeCompleted {
		t.Errorf("the swap ended %+v", last)
	}
	s.backAsAgent("n1")
	// With another period every daemon is told, and the roles stay.
	if o := a.mustApply(other); strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("apply of another period:\n%s", o.Stdout)
	}
	s.must(s.AwaitVoters(ctx, soon, "n2", "n3", "n4"))
	s.checkWrites()
}
