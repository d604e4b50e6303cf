package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// handMade are Docker hosts whose project a person set up, without the daemon: the ids of k3s's containers, with when each
// was started.
type handMade map[string]string

func (a *adoption) handMade(names ...string) handMade {
	a.t.Helper()
	out := handMade{}
	for _, name := range names {
		out[name] = a.containers(name, "{{.Name}} {{.Id}} {{.State.StartedAt}} {{.State.Pid}}")
	}
	return out
}

func (a *adoption) containers(name, format string) string {
	a.t.Helper()
	return a.docker(name, "inspect", "-f", format, cluster.ServerContainer, cluster.AgentContainer)
}

// untouchedBy sees that no container of k3s's was made anew, started or stopped (R-C-09).
func (h handMade) untouchedBy(a *adoption, what string) {
	a.t.Helper()
	for name, before := range h {
		if diff := cmp.Diff(before, a.handMade(name)[name]); diff != "" {
			a.t.Errorf("%s touched the containers of %s (-before +after):\n%s", what, name, diff)
		}
	}
}

// projectFiles is every file of a project's folder and of those that it binds: mode, sum.
func (a *adoption) projectFiles(name string) string {
	a.t.Helper()
	text, err := a.Host(name).Run(a.t.Context(), "sh", "-c", `cd / && for d in srv/k3s etc/rancher etc/github-runner etc/regrade usr/local/bin; do
		test -d $d || continue
		find $d ! -type d ! -name k3s.yaml ! -name k3s -printf '%p %m\n'
		find $d -type f ! -name k3s.yaml ! -name k3s -exec sha256sum {} +
	done | sort`)
	a.must(err)
	return text
}

// inContainers is the file with hosts of platform docker, as a person writes it where a Node does not tell.
func inContainers(t *testing.T, text string, names ...string) string {
	t.Helper()
	for _, name := range names {
		line := "  - name: " + name + "\n"
		if !strings.Contains(text, line) {
			t.Fatalf("init does not name %s:\n%s", name, text)
		}
		text = strings.Replace(text, line, line+"    platform: docker\n", 1)
	}
	return text
}

// Issue 7, apply_docker: R-C-09, R-185-29. Four hosts whose k3s runs in the shipped Compose project, set up by hand and without a
// daemon, become a fleet from outside: no container of k3s's is made anew or started again. A swap there and back, and it is
// taken off again.
func Test_apply_docker(t *testing.T) {
	long(t)
	beside(t)
	spec := cluster.Standard().Docker()
	spec.Untouched, spec.SSH = true, true
	a := adopting(t, spec)
	ctx, all := t.Context(), []string{"n1", "n2", "n3", "n4"}
	file := inContainers(t, a.fleetFile(), all...)
	made, files := a.handMade(all...), map[string]string{}
	for _, name := range all {
		files[name] = a.projectFiles(name)
	}

	look := a.mustApply(file, "--check")
	made.untouchedBy(a, "apply --check")
	for _, name := range all {
		if diff := cmp.Diff(files[name], a.projectFiles(name)); diff != "" {
			t.Errorf("apply --check changed files of %s:\n%s", name, diff)
		}
		for _, want := range []string{name + ": would be set up", "the container of k3s stays as it is", "up -d --no-deps regrade-host"} {
			if !strings.Contains(look.Stdout, want) {
				t.Errorf("apply --check does not show %q:\n%s", want, look.Stdout)
			}
		}
	}
	a.mustApply(file)
	made.untouchedBy(a, "apply")
	once := map[string]string{}
	for _, name := range all {
		once[name] = withoutIdentity(a.projectFiles(name))
	}
	o := a.mustApply(file)
	if !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("the second apply:\n%s", o.Stdout)
	}
	made.untouchedBy(a, "the second apply")
	for _, name := range all {
		if diff := cmp.Diff(once[name], withoutIdentity(a.projectFiles(name))); diff != "" {
			t.Errorf("the second apply changed %s:\n%s", name, diff)
		}
	}

	s := beginOn(t, a.Cluster, []string{}, "n2", "n3")
	s.mustSwap("n1", "n4")
	s.checkAgent("n1")
	if o := a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("apply after a swap:\n%s", o.Stdout)
	}
	s.must(s.AwaitVoters(ctx, soon, "n2", "n3", "n4"))
	s.mustSwap("n4", "n1")
	s.checkAgent("n4")
	s.checkWrites()
	s.must(s.controller.Stop())
	a.sameContainers(made, "two swaps")

	pids := map[string]int{}
	for _, name := range all {
		pids[name] = a.k3sPID(t, name)
	}
	for _, more := range [][]string{{"--check"}, {}} {
		if o := a.remove(file, more...); o.Code != 0 {
			t.Fatalf("remove %v: exit %d: %s%s", more, o.Code, o.Stdout, o.Stderr)
		}
	}
	a.sameContainers(made, "remove")
	for _, name := range all {
		if pid := a.k3sPID(t, name); pid != pids[name] {
			t.Errorf("remove: k3s of %s was started anew", name)
		}
		if out := a.docker(name, "ps", "-aq", "--filter", "name="+cluster.HostContainer); out != "" {
			t.Errorf("the daemon's container of %s is left: %s", name, out)
		}
		after := a.projectFiles(name)
		for _, gone := range []string{"etc/regrade/", "fleet-role-actuator.kubeconfig", "usr/local/bin/"} {
			if strings.Contains(after, gone) {
				t.Errorf("%s is left on %s:\n%s", gone, name, after)
			}
		}
		// The next `up` of a person brings no daemon back and makes no container anew.
		_, err := a.Compose(ctx, a.Host(name), "--profile", "server", "--profile", "agent", "up", "--no-start")
		a.must(err)
	}
	a.sameContainers(made, "an up after the removal")
	a.must(a.AwaitVoters(ctx, soon, "n1", "n2", "n3"))
	if o := a.remove(file); o.Code != 0 || !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("a second remove: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
}

// sameContainers sees that they are those of the beginning, whatever has been started and stopped since.
func (a *adoption) sameContainers(made handMade, what string) {
	a.t.Helper()
	for name, before := range made {
		for line := range strings.Lines(a.containers(name, "{{.Name}} {{.Id}} ")) {
			if !strings.Contains(before, strings.TrimSpace(line)) {
				a.t.Errorf("%s made a container of %s anew: %s, was %s", what, name, line, before)
			}
		}
	}
}

// Issue 7, apply_mixed: two servers and a standby as the install script makes them, a server in containers and a new standby
// that has an engine and nothing else, in one file. One apply makes a fleet of them, and votes go from either kind to the other.
func Test_apply_mixed(t *testing.T) {
	long(t)
	beside(t)
	spec := cluster.Standard().Docker("n3")
	spec.Hosts = append(spec.Hosts, cluster.HostSpec{Name: "n5", Role: cluster.Agent, Standby: true, Docker: true, Bare: true})
	spec.AsInstalled, spec.Untouched, spec.SSH = true, true, true
	a := adopting(t, spec)
	ctx := t.Context()
	archive, err := a.ImagesFile(ctx)
	a.must(err)
	line := fmt.Sprintf("hosts:\n  - name: n5\n    address: %s\n    role: agent\n    eligible: true\n    platform: docker\n%s", a.Host("n5").IP(), a.ProjectOf(4))
	file := strings.Replace(inContainers(t, a.fleetFile(), "n3"), "hosts:\n", line, 1)
	made, native := a.handMade("n3"), []string{"n1", "n2", "n4"}
	bare := a.projectFiles("n5")

	// Without the images it is named and nothing of it is made.
	o := a.apply(file, "--check")
	if o.Code != fleet.ExitFailed || !strings.Contains(o.Stderr, "- n5: ") || !strings.Contains(o.Stderr, "(ImageMissing)") {
		t.Errorf("a new host without images: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	look := a.mustApply(file, "--check", "--image-archive", archive)
	for _, want := range []string{"n5: new: ", "n5: would be set up", "docker load -q -i /srv/k3s/.images.tar", "n3: would be set up", "n4: would be set up"} {
		if !strings.Contains(look.Stdout, want) {
			t.Errorf("apply --check does not show %q:\n%s", want, look.Stdout)
		}
	}
	a.untouched("apply --check", native...)
	made.untouchedBy(a, "apply --check")
	if diff := cmp.Diff(bare, a.projectFiles("n5")); diff != "" {
		t.Errorf("apply --check left something on n5:\n%s", diff)
	}

	a.mustApply(file, "--image-archive", archive)
	for _, name := range native {
		a.stillRuns("apply", name)
	}
	made.untouchedBy(a, "apply")
	if left := a.projectFiles("n5"); strings.Contains(left, ".images.tar") {
		t.Errorf("the archive is left on n5:\n%s", left)
	}
	if o = a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("the second apply:\n%s", o.Stdout)
	}

	s := beginOn(t, a.Cluster, []string{}, "n2")
	for _, name := range []string{"n4", "n5"} {
		o, err := s.HostCLI(ctx, a.Host(name), "preflight")
		s.must(err)
		if o.Code != 0 {
			t.Errorf("preflight of %s: exit %d: %s%s", name, o.Code, o.Stdout, o.Stderr)
		}
	}
	for _, swap := range [][2]string{{"n1", "n5"}, {"n3", "n4"}, {"n5", "n1"}, {"n4", "n3"}} {
		s.mustSwap(swap[0], swap[1])
		s.checkAgent(swap[0])
	}
	if o = a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("apply after swaps:\n%s", o.Stdout)
	}
	s.must(s.AwaitVoters(ctx, soon, "n1", "n2", "n3"))
	a.sameContainers(made, "swaps")
	s.checkWrites()
	s.must(s.controller.Stop())

	if o := a.remove(file); o.Code != 0 {
		t.Fatalf("remove: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	for _, name := range native {
		if diff := cmp.Diff(a.files[name], a.setting(name)); diff != "" {
			t.Errorf("%s is not as it was found (-before +after):\n%s", name, diff)
		}
	}
	a.sameContainers(made, "remove")
	// What was new stays a node of the cluster, by k3s alone.
	a.eventually(soon, "every Node to be Ready without regrade", func(ctx context.Context) (bool, string) {
		var not []string
		for _, n := range a.nodes() {
			if !cluster.NodeReady(&n) {
				not = append(not, n.Name)
			}
		}
		slices.Sort(not)
		return len(not) == 0, strings.Join(not, ", ")
	})
}
