package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// anRPM reads what is in the package, by another program than made it.
func anRPM(t *testing.T, r *release) {
	f, err := os.Open(filepath.Join(r.dist, "regrade-1.2.3-1.armv7hl.rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int{}
	for _, f := range files {
		modes[f.Name()] = f.Mode() & 0o7777
		if f.UserName() != "root" || f.GroupName() != "root" {
			t.Errorf("%s is %s:%s", f.Name(), f.UserName(), f.GroupName())
		}
	}
	for name, mode := range map[string]int{
		"/usr/local/bin/regrade": 0o755, "/usr/lib/systemd/system/regrade-host.service": 0o644, "/usr/share/licenses/regrade/LICENSE": 0o644,
		"/usr/share/zsh/site-functions/_regrade": 0o644, "/usr/share/man/man1/regrade.1.gz": 0o644, "/usr/share/doc/regrade/" + noticesFile: 0o644,
	} {
		if modes[name] != mode {
			t.Errorf("%s has mode %o, want %o", name, modes[name], mode)
		}
	}
	for name := range modes {
		if strings.HasPrefix(name, "/etc/") || strings.HasPrefix(name, "/var/") {
			t.Errorf("%s is the host's own", name)
		}
	}
	for tag, script := range map[int]string{rpmutils.PREUN: "preremove", rpmutils.POSTIN: "postinstall", rpmutils.POSTUN: "postremove"} {
		got, err := rpm.Header.GetString(tag)
		if err != nil || strings.TrimSpace(got) != strings.TrimSpace(read(t, "../../deploy/package/"+script)) {
			t.Errorf("%s: %v: %s", script, err, got)
		}
	}
	if host, err := rpm.Header.GetString(rpmutils.BUILDHOST); err != nil || host != "regrade" {
		t.Errorf("it says that %q made it: %v", host, err)
	}
}
