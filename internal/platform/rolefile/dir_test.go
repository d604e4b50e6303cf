package rolefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

func plant(t *testing.T, root, path, content string) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenFilesAreProblemsAndStopNoMember(t *testing.T) {
	d := rolefile.Dir{Root: t.TempDir()}
	plant(t, d.Root, fleet.FileRole, " server \n")
	plant(t, d.Root, fleet.FileClusterID, "not hex")
	plant(t, d.Root, fleet.FileMemberID, "123456789abcdef01")
	plant(t, d.Root, fleet.FileJoining, "{\"swap\":\"x\"}")
	f, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	if f.Role != fleet.RoleServer || f.IdentityProblem == "" || f.Joining != (rolefile.Joining{}) {
		t.Errorf("%+v", f)
	}
	f.WAL = true
	if a := rolefile.MayStart(f, fleet.RoleServer); !a.May {
		t.Errorf("a member does not start: %s", a.Why)
	}
	plant(t, d.Root, fleet.FileRole, "king\n")
	if f, err := d.Read(); err != nil || f.RoleProblem == "" || f.Role != "" {
		t.Errorf("%+v %v", f, err)
	}
}

// A boot empties /run; what a join has begun is still known, and lets nothing join again.
func TestAJoinIsKnownAfterAReboot(t *testing.T) { // safety rule 18
	d := rolefile.Dir{Root: t.TempDir()}
	read := func() rolefile.Files {
		t.Helper()
		f, err := d.Read()
		if err != nil {
			t.Fatal(err)
		}
		f.Role, f.BootID, f.JoinURL, f.Token = fleet.RoleAgent, boot, "https://b:6443", true
		return f
	}
	joining := rolefile.Joining{Swap: id, BootID: boot}
	if err := d.SetJoining(joining); err != nil {
		t.Fatal(err)
	}
	if f := read(); f.Joining != joining || !rolefile.MayStart(f, fleet.RoleServer).May {
		t.Errorf("before: %+v", f)
	}
	for _, run := range []string{"", "{half"} {
		if err := os.RemoveAll(filepath.Join(d.Root, "/run")); err != nil {
			t.Fatal(err)
		}
		if run != "" {
			plant(t, d.Root, fleet.FileJoining, run)
		}
		f := read()
		if f.Joining != (rolefile.Joining{Swap: id}) || f.JoiningNow() {
			t.Errorf("%q: after: %+v", run, f)
		}
		if rolefile.MayStart(f, fleet.RoleServer).May || !rolefile.MayStart(f, fleet.RoleAgent).May {
			t.Errorf("%q: without a datastore it joins in another boot", run)
		}
		f.WAL = true
		if !rolefile.MayStart(f, fleet.RoleServer).May || rolefile.MayStart(f, fleet.RoleAgent).May {
			t.Errorf("%q: with a datastore it does not start", run)
		}
	}
	if err := d.SetJoining(rolefile.Joining{}); err != nil {
		t.Fatal(err)
	}
	if f := read(); f.Joining != (rolefile.Joining{}) {
		t.Errorf("deleted: %+v", f)
	}
}

// Whatever else stands in it than the swap that regrade has written is no join, and no standby's peace either.
func TestAJoinThatWasNotWrittenByRegradeConfirmsNothing(t *testing.T) { // safety rules 10 and 18
	for name, content := range map[string]string{
		"empty": "", "a line end": "\n", "half an id": "20261129T1200", "NULs": "\x00\x00\x00", "a page of text": strings.Repeat("x", 60<<10), "too much": strings.Repeat("x", 70<<10),
	} {
		t.Run(name, func(t *testing.T) {
			d := rolefile.Dir{Root: t.TempDir()}
			plant(t, d.Root, fleet.FileJoinBegun, content)
			f, err := d.Read()
			if err != nil || f.Joining != (rolefile.Joining{}) || f.JoiningProblem == "" {
				t.Fatalf("%+v, %v", f, err)
			}
			if want := name != "too much"; f.ForeignJoin != want { // which nobody has read
				t.Errorf("foreign: %t", f.ForeignJoin)
			}
			for _, wal := range []bool{false, true} {
				f.Role, f.WAL, f.BootID, f.JoinURL, f.Token = fleet.RoleAgent, wal, boot, "https://b:6443", true
				server, agent := rolefile.MayStart(f, fleet.RoleServer), rolefile.MayStart(f, fleet.RoleAgent)
				if server.May || agent.May || len(server.Why)+len(agent.Why) > 1000 {
					t.Errorf("datastore %t: server %t, agent %t, %d bytes of words", wal, server.May, agent.May, len(server.Why)+len(agent.Why))
				}
			}
			if err := d.SetJoining(rolefile.Joining{}); err != nil {
				t.Fatal(err)
			}
			if f, err := d.Read(); err != nil || f.ForeignJoin || f.JoiningProblem != "" {
				t.Errorf("taken away: %+v, %v", f, err)
			}
		})
	}
}

// Safety rule 10: without a role file either role may start. One that a full
// disk left empty is not that.
func TestAnEmptyRoleFileLetsNoRoleStart(t *testing.T) {
	for _, content := range []string{"", "\n"} {
		d := rolefile.Dir{Root: t.TempDir()}
		plant(t, d.Root, fleet.FileRole, content)
		f, err := d.Read()
		if err != nil || f.RoleProblem == "" {
			t.Fatalf("%q: %+v %v", content, f, err)
		}
		for _, wal := range []bool{false, true} {
			f.WAL = wal
			if rolefile.MayStart(f, fleet.RoleServer).May || rolefile.MayStart(f, fleet.RoleAgent).May {
				t.Errorf("%q, a WAL is there: %t: a role may start", content, wal)
			}
		}
	}
}

func TestHugeAndUnreadableFilesAreErrors(t *testing.T) {
	d := rolefile.Dir{Root: t.TempDir()}
	plant(t, d.Root, fleet.FileRole, strings.Repeat("x", 1<<20))
	if _, err := d.Read(); err == nil || !strings.Contains(err.Error(), "role") {
		t.Errorf("a huge role file: %v", err)
	}
	e := rolefile.Dir{Root: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(e.Root, fleet.FileLeaving), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Read(); err == nil {
		t.Error("a folder in place of the leaving file")
	}
}

func TestNothingIsWrittenThatCouldNotBeRead(t *testing.T) {
	d := rolefile.Dir{Root: t.TempDir()}
	if err := d.SetJoining(rolefile.Joining{Swap: id}); err == nil {
		t.Error("a joining without a boot id")
	}
	if err := d.SetRole("king"); err == nil {
		t.Error("a role that is none")
	}
	if left, _ := os.ReadDir(d.Root); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
