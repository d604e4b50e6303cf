package native_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/native"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// host is a voter on disk.
func host(t *testing.T) (*native.Files, func(path, content string)) {
	t.Helper()
	root := t.TempDir()
	f := native.New(native.Layout{Root: root})
	f.BootID = func() (string, error) { return "boot-1", nil }
	plant := func(path, content string) {
		t.Helper()
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plant(fleet.FileRole, "server\n")
	plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
	return f, plant
}

// A vote must not hang on a file that decides no role. The break check: give the
// level's error back from RoleIs.
func TestAVoterStartsWhateverElseCannotBeRead(t *testing.T) { // safety rules 11 and 18
	big := strings.Repeat("x", 65<<10)
	for name, spoil := range map[string]func(f *native.Files, plant func(path, content string)){
		"a level drop-in of no YAML": func(_ *native.Files, plant func(string, string)) {
			plant(fleet.FileLevelDropIn, "disable-apiserver: [")
		},
		"a level drop-in with half the flags": func(_ *native.Files, plant func(string, string)) {
			plant(fleet.FileLevelDropIn, "disable-apiserver: true\n")
		},
		"a level drop-in that is a folder":  func(_ *native.Files, plant func(string, string)) { plant(fleet.FileLevelDropIn+"/x", "") },
		"a place for the note that is none": func(_ *native.Files, plant func(string, string)) { plant("/run/regrade", "") },
		"a server configuration of no YAML": func(_ *native.Files, plant func(string, string)) { plant(fleet.FileServerConf, "[") },
		"a voters file too big":             func(_ *native.Files, plant func(string, string)) { plant(fleet.FileVoters, big) },
		"a joining file too big":            func(_ *native.Files, plant func(string, string)) { plant(fleet.FileJoining, big) },
		"a join begun that is too big":      func(_ *native.Files, plant func(string, string)) { plant(fleet.FileJoinBegun, big) },
		"a join begun that is a folder":     func(_ *native.Files, plant func(string, string)) { plant(fleet.FileJoinBegun+"/x", "") },
		"an allow-join file too big":        func(_ *native.Files, plant func(string, string)) { plant(fleet.FileAllowJoin, big) },
		"a cluster id that is none":         func(_ *native.Files, plant func(string, string)) { plant(fleet.FileClusterID, "?\n") },
		"a member name that is a folder": func(_ *native.Files, plant func(string, string)) {
			plant(fleet.DefaultDataDir+"/server/db/etcd/name/x", "")
		},
		"a boot that does not say which it is": func(f *native.Files, _ func(string, string)) {
			f.BootID = func() (string, error) { return "", errors.New("no /proc") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, plant := host(t)
			spoil(f, plant)
			server, _, err := f.RoleIs(fleet.RoleServer)
			if err != nil || !server.May {
				t.Errorf("the voter does not start: %+v %v", server, err)
			}
			if agent, _, err := f.RoleIs(fleet.RoleAgent); err != nil || agent.May {
				t.Errorf("its agent: %+v %v", agent, err)
			}
		})
	}
}

func TestWhatDecidesTheRoleIsStillAskedFor(t *testing.T) { // safety rules 10 and 12
	f, plant := host(t)
	plant(fleet.DefaultDataDir+"/server/db/etcd/tombstone", "")
	if a, _, err := f.RoleIs(fleet.RoleServer); err != nil || a.May {
		t.Errorf("on a tombstone: %+v %v", a, err)
	}
	for _, path := range []string{fleet.FileRole, fleet.FileLeaving, fleet.FileClusterID} {
		f, plant := host(t)
		plant(path, strings.Repeat("x", 65<<10))
		for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
			if a, _, err := f.RoleIs(role); err == nil {
				t.Errorf("%s cannot be read and %s: %+v", path, role, a)
			}
		}
	}
}

// A full /run, on which nothing more can be written and an old file can be deleted. The
// break check: write without taking the old note away.
func TestAnOldNoteDoesNotOutliveAStartThatCannotBeNoted(t *testing.T) { // R-112-16
	if os.Getuid() != 0 {
		t.Skip("not root: no small file system")
	}
	f, plant := host(t)
	run := filepath.Join(f.Layout().Root, "run/regrade")
	plant(rolefile.FileServerLevel, "")
	if err := syscall.Mount("tmpfs", run, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("no small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(run, 0) })
	plant(rolefile.FileServerLevel, "etcd-only\n")
	_ = os.WriteFile(filepath.Join(run, "fill"), make([]byte, 1<<20), 0o600) // as far as it goes
	_, unnoted, err := f.RoleIs(fleet.RoleServer)
	if err != nil {
		t.Fatal(err)
	}
	level, err := f.Observe()
	if err != nil || level.Server.Level == fleet.LevelEtcdOnly {
		t.Errorf("not noted: %v; the level is said to be %q, %v", unnoted, level.Server.Level, err)
	}
}

// An earlier start's level must not be taken for this one's.
func TestALevelThatCannotBeReadIsNotNoted(t *testing.T) { // R-112-16
	f, plant := host(t)
	plant(rolefile.FileServerLevel, "etcd-only\n")
	plant(fleet.FileLevelDropIn, "disable-apiserver: true\n")
	_, unnoted, err := f.RoleIs(fleet.RoleServer)
	if err != nil || unnoted == nil || !strings.Contains(unnoted.Error(), "level drop-in") {
		t.Errorf("%v %v", unnoted, err)
	}
	if _, err := os.Stat(filepath.Join(f.Layout().Root, rolefile.FileServerLevel)); !os.IsNotExist(err) {
		t.Errorf("the note stayed: %v", err)
	}
}

// The break check: leave PasswordProblem out of Observe.
func TestAMemberWithAnotherNodePasswordCouldNotBeAnAgent(t *testing.T) { // safety rule 15
	f, plant := host(t)
	plant(fleet.FileAgentConf, "token: x\n")
	plant("/etc/rancher/node/password", "one\n")
	facts, err := f.Observe()
	if err != nil || facts.AgentProblem != "" || facts.Password == "" {
		t.Fatalf("%q %q %v", facts.AgentProblem, facts.Password, err)
	}
	if err := f.SetIdentity(t.Context(), rolefile.Identity{ClusterID: 1, MemberID: 2, Password: facts.Password}); err != nil {
		t.Fatal(err)
	}
	if facts, err = f.Observe(); err != nil || facts.AgentProblem != "" {
		t.Errorf("%q %v", facts.AgentProblem, err)
	}
	plant("/etc/rancher/node/password", "two\n")
	if facts, err = f.Observe(); err != nil || !strings.Contains(facts.AgentProblem, fleet.FilePassword) {
		t.Errorf("%q %v", facts.AgentProblem, err)
	}
}
