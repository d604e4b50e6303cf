package scenarios

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/lab/cluster"
)

// R-K-01 to R-K-03, R-C-07, R-C-08: a cluster as k3s's install script makes it, flags in the unit, its environment and the
// configuration file. Each host is set up, k3s running on; k3s started anew runs with the flags of before; a swap and the
// way back; regrade is taken off, and every file is the one of before.
func Test_host_setup(t *testing.T) {
	long(t)
	beside(t)
	spec := cluster.Standard()
	spec.AsInstalled = true
	c := shared.own(t, spec)
	bare := &scenario{Cluster: c, t: t}
	ctx := t.Context()
	all := []string{"n1", "n2", "n3", "n4"}

	files, args, pids := map[string]string{}, map[string]k3s.Config{}, map[string]int{}
	for _, name := range all {
		files[name], args[name], pids[name] = bare.setting(name), bare.args(name), bare.k3sPID(t, name)
	}
	for _, name := range all {
		doc, err := c.Document(ctx, c.Host(name))
		bare.must(err)
		o := bare.setup(name, doc, "--check", "--local")
		if diff := cmp.Diff(files[name], bare.setting(name)); diff != "" || o.Code != 0 || !strings.Contains(o.Stdout, "+ExecCondition=") {
			t.Errorf("--check on %s: exit %d, %s%s, changed:\n%s", name, o.Code, o.Stdout, o.Stderr, diff)
		}
		if strings.Contains(o.Stdout+o.Stderr, cluster.ServerToken) || strings.Contains(o.Stdout+o.Stderr, cluster.AgentToken) {
			t.Errorf("setup of %s shows a secret:\n%s", name, o.Stdout)
		}
		if o = bare.setup(name, doc); o.Code != 0 {
			t.Fatalf("setup of %s: exit %d: %s%s", name, o.Code, o.Stdout, o.Stderr)
		}
		once := withoutIdentity(bare.setting(name))
		if o = bare.setup(name, doc); o.Code != 0 || !strings.Contains(o.Stdout, "nothing to do") {
			t.Errorf("the second setup of %s: exit %d: %s%s", name, o.Code, o.Stdout, o.Stderr)
		}
		if diff := cmp.Diff(once, withoutIdentity(bare.setting(name))); diff != "" {
			t.Errorf("the second setup of %s changed something:\n%s", name, diff)
		}
		if pid := bare.k3sPID(t, name); pid != pids[name] {
			t.Errorf("k3s of %s was started anew: process %d, was %d", name, pid, pids[name])
		}
	}

	s := beginOn(t, c, []string{}, "n2", "n3")
	s.restarted("n1")
	want := maps.Clone(args["n1"])
	want["config"] = []string{fleet.FileServerConf}
	want["node-label"] = append(withoutOurs(want["node-label"]), keys.Eligible()+"=true", keys.Pinned()+"=false")
	if diff := cmp.Diff(want, s.args("n1")); diff != "" {
		t.Errorf("k3s of n1 runs with other flags (-before +now):\n%s", diff)
	}
	s.mustSwap("n1", "n4")
	s.checkAgent("n1")
	if o := s.removal("n1"); o.Code != fleet.ExitRefused || !strings.Contains(o.Stderr, "RoleChanged") {
		t.Errorf("removal from a host that was swapped: exit %d: %s", o.Code, o.Stderr)
	}
	s.mustSwap("n4", "n1")
	s.checkAgent("n4")

	s.checkWrites()

	s.must(s.controller.Stop())
	for _, name := range all {
		if o := s.removal(name); o.Code != 0 {
			t.Fatalf("removal from %s: exit %d: %s%s", name, o.Code, o.Stdout, o.Stderr)
		}
		if diff := cmp.Diff(files[name], s.setting(name)); diff != "" {
			t.Errorf("%s is not as it was found (-before +after):\n%s", name, diff)
		}
		s.restarted(name)
		if name == "n4" {
			continue // an agent's flags are written down at its own time
		}
		if diff := cmp.Diff(args[name], s.args(name)); diff != "" {
			t.Errorf("k3s of %s runs with other flags than before regrade (-before +after):\n%s", name, diff)
		}
	}
	s.must(s.AwaitVoters(ctx, soon, "n1", "n2", "n3"))
}

// setting is every file with which a person or regrade sets a host up: mode, sum, links. k3s's own kubeconfig is
// k3s's.
func (s *scenario) setting(name string) string {
	s.t.Helper()
	text, err := s.Host(name).Run(s.t.Context(), "sh", "-c", `cd / && for d in etc/rancher etc/systemd/system etc/github-runner etc/regrade etc/default; do
		test -d $d || continue
		find $d ! -type d ! -name k3s.yaml -printf '%p %m %l\n'
		find $d -type f ! -name k3s.yaml -exec sha256sum {} +
	done | sort`)
	s.must(err)
	return text
}

// withoutIdentity leaves out what the daemon writes down as soon as it knows who its host is.
func withoutIdentity(setting string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(setting, "\n"), func(line string) bool {
		return strings.Contains(line, "etc/github-runner/") && !strings.Contains(line, fleet.FileRole[1:])
	}), "\n")
}

// args are the flags with which k3s on a host says that it runs.
func (s *scenario) args(name string) k3s.Config {
	s.t.Helper()
	_, c, err := k3s.ParseArgs(s.node(name).Annotations[k3s.AnnotationArgs])
	s.must(err)
	return c
}

func (s *scenario) setup(name string, doc []byte, more ...string) cluster.Outcome {
	s.t.Helper()
	o, err := s.Host(name).ExecInput(s.t.Context(), string(doc), append([]string{"/usr/local/bin/regrade", "host", "setup"}, more...)...)
	s.must(err)
	return o
}

func (s *scenario) removal(name string) cluster.Outcome {
	s.t.Helper()
	o, err := s.HostCLI(s.t.Context(), s.Host(name), "remove")
	s.must(err)
	return o
}

// restarted starts k3s anew and waits for it.
func (s *scenario) restarted(name string) {
	s.t.Helper()
	ctx, h := s.t.Context(), s.Host(name)
	unit := cluster.AgentUnit
	if slices.Contains(s.members().Voters(), name) {
		unit = cluster.ServerUnit
	}
	_, err := h.Systemctl(ctx, "restart", unit)
	s.must(err)
	s.must(s.AwaitUnit(ctx, soon, h, unit, "active"))
	if unit == cluster.ServerUnit {
		s.must(s.AwaitAPI(ctx, soon, h))
	}
}

// withoutOurs are labels beside those that say who may vote.
func withoutOurs(labels []string) []string {
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return strings.HasPrefix(l, keys.Prefix()+"voter-") })
}
