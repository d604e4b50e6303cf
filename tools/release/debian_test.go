package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debian installs, upgrades and removes the package with dpkg in a folder that dpkg
// takes for the system, where systemctl writes down what it is asked.
func debian(t *testing.T, r *release) {
	if os.Geteuid() != 0 {
		t.Skip("not root: dpkg runs a package's scripts in a root of its own")
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg on this machine")
	}
	h := newDebian(t)
	old := filepath.Join(r.dist, "regrade_1.2.3-1_amd64.deb")
	next := *r
	next.Version, next.dist = "v1.2.4", t.TempDir()
	if err := next.packages(t.Context()); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(next.dist, "regrade_1.2.4-1_amd64.deb")

	h.dpkg("-i", old)
	h.asked("daemon-reload", "try-restart regrade-host.service")
	if info, err := os.Stat(h.path("usr/local/bin/regrade")); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("%v %v", info, err)
	}
	for _, name := range []string{"usr/lib/systemd/system/regrade-host.service", "usr/share/man/man1/regrade-swap.1.gz", "usr/share/doc/regrade/copyright", "usr/share/doc/regrade/" + noticesFile, "usr/share/bash-completion/completions/regrade"} {
		if _, err := os.Stat(h.path(name)); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"etc/systemd", "etc/github-runner", "etc/rancher"} {
		if _, err := os.Stat(h.path(dir)); err == nil {
			t.Errorf("installing made %s", dir)
		}
	}

	// A binary that runs is never written over: the name is given to another file.
	before, err := os.Open(h.path("usr/local/bin/regrade"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	h.dpkg("-i", newer)
	h.asked("daemon-reload", "try-restart regrade-host.service")
	a, err := before.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.Stat(h.path("usr/local/bin/regrade")); err != nil || os.SameFile(a, b) {
		t.Errorf("the upgrade wrote into the file that ran (%v)", err)
	}

	for name, files := range map[string][]string{
		"with the drop-ins of regrade host setup": {"etc/systemd/system/k3s.service.d/10-regrade.conf", "etc/systemd/system/k3s-agent.service.d/10-regrade.conf"},
		"with whole units of ours":                {"usr/lib/systemd/system/k3s.service"},
		"with the daemon's unit alone":            {"etc/systemd/system/regrade-host.service"},
	} {
		for _, f := range files {
			write(t, h.path(f), "[Service]\nExecCondition=/usr/local/bin/regrade host role-is server\n")
		}
		for _, how := range []string{"--remove", "--purge"} {
			out := h.refused(how, "regrade")
			if !strings.Contains(out, `Run "regrade host remove" first`) || !strings.Contains(out, files[0]) {
				t.Errorf("%s: %s", name, out)
			}
			if _, err := os.Stat(h.path("usr/local/bin/regrade")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		// An upgrade goes on: the host stays what it is.
		h.dpkg("-i", newer)
		for _, f := range files {
			if err := os.Remove(h.path(f)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		h.asked("daemon-reload", "try-restart regrade-host.service")
	}
	h.asked()

	write(t, h.path("etc/github-runner/role"), "agent\n")
	h.dpkg("--remove", "regrade")
	h.asked("disable --now regrade-host.service", "daemon-reload")
	if _, err := os.Stat(h.path("usr/local/bin/regrade")); err == nil {
		t.Error("it is still there")
	}
	if got := read(t, h.path("etc/github-runner/role")); got != "agent\n" {
		t.Errorf("%q", got)
	}
}

// fakeDebian is such a folder.
type fakeDebian struct {
	t    *testing.T
	root string
	read int // how much of systemctl's list was looked at
}

func newDebian(t *testing.T) *fakeDebian {
	h := &fakeDebian{t: t, root: t.TempDir()}
	for _, name := range []string{"sh", "cat", "grep"} {
		h.install(name)
	}
	write(t, h.path("usr/bin/systemctl"), "#!/bin/sh\necho \"$@\" >>/asked\n")
	if err := os.Chmod(h.path("usr/bin/systemctl"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"run/systemd/system", "var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"} {
		if err := os.MkdirAll(h.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, h.path("var/lib/dpkg/status"), "")
	write(t, h.path("asked"), "")
	return h
}

func (h *fakeDebian) path(name string) string { return filepath.Join(h.root, name) }

// install copies a program with the libraries that it is linked with.
func (h *fakeDebian) install(name string) {
	h.t.Helper()
	from, err := exec.LookPath(name)
	if err != nil {
		h.t.Fatal(err)
	}
	files := map[string]string{from: "usr/bin/" + name}
	libraries, err := exec.CommandContext(h.t.Context(), "ldd", from).Output()
	if err != nil {
		h.t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			files[word] = strings.TrimPrefix(word, "/")
		}
	}
	for from, to := range files {
		raw, err := os.ReadFile(from)
		if err != nil {
			h.t.Fatal(err)
		}
		write(h.t, h.path(to), string(raw))
		if err := os.Chmod(h.path(to), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	if name == "sh" {
		write(h.t, h.path("bin/.keep"), "")
		if err := os.Symlink("../usr/bin/sh", h.path("bin/sh")); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *fakeDebian) run(args ...string) (string, error) {
	out, err := exec.CommandContext(h.t.Context(), "dpkg", append([]string{"--root=" + h.root, "--force-architecture", "--force-not-root", "--log=/dev/null"}, args...)...).CombinedOutput()
	return string(out), err
}

func (h *fakeDebian) dpkg(args ...string) {
	h.t.Helper()
	if out, err := h.run(args...); err != nil {
		h.t.Fatalf("dpkg %v: %v: %s", args, err, out)
	}
}

func (h *fakeDebian) refused(args ...string) string {
	h.t.Helper()
	out, err := h.run(args...)
	if err == nil {
		h.t.Fatalf("dpkg %v went through: %s", args, out)
	}
	return out
}

// asked holds what systemctl was asked since the last time against these.
func (h *fakeDebian) asked(want ...string) {
	h.t.Helper()
	lines := strings.Split(strings.TrimSpace(read(h.t, h.path("asked"))), "\n")
	got := lines[min(h.read, len(lines)):]
	if len(want) > 0 {
		got = got[:min(len(want), len(got))]
	}
	h.read += len(got)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Errorf("systemctl was asked %q, want %q", got, want)
	}
}
