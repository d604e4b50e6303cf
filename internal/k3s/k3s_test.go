package k3s_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
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

func TestConfigIsMergedAsK3sMergesIt(t *testing.T) { // k3s-facts §1.2
	d := k3s.Disk{Root: t.TempDir()}
	plant(t, d.Root, fleet.FileServerConf, "token: a\ndisable: [one, two]\ntls-san: x\nbool: true\nnumber: 6443\n")
	plant(t, d.Root, fleet.FileServerConf+".d/10.yaml", "disable+: three\ntls-san: [u, z]\n")
	plant(t, d.Root, fleet.FileServerConf+".d/20.yml", "token: b\n")
	plant(t, d.Root, fleet.FileServerConf+".d/30.conf", "token: ignored\n")
	got, err := d.ReadConfig(fleet.FileServerConf)
	if err != nil {
		t.Fatal(err)
	}
	want := k3s.Config{"token": {"b"}, "disable": {"one", "two", "three"}, "tls-san": {"u", "z"}, "bool": {"true"}, "number": {"6443"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestNoConfigIsAnEmptyOne(t *testing.T) {
	got, err := k3s.Disk{Root: t.TempDir()}.ReadConfig(fleet.FileServerConf)
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestMalformedConfigNamesTheFile(t *testing.T) {
	d := k3s.Disk{Root: t.TempDir()}
	for _, content := range []string{"token: [", "a: {b: c}", "- x"} {
		plant(t, d.Root, fleet.FileServerConf, content)
		if _, err := d.ReadConfig(fleet.FileServerConf); err == nil || !strings.Contains(err.Error(), "server.yaml") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestJoinComesFromFileEnvironmentAndTokenFile(t *testing.T) {
	d := k3s.Disk{Root: t.TempDir()}
	const env = "/etc/systemd/system/k3s.service.env"
	plant(t, d.Root, env, "# comment\nK3S_URL='https://one:6443'\nK3S_TOKEN=\"from env\"\nbroken\n")
	read := func() k3s.Join {
		t.Helper()
		j, err := d.ReadJoin(fleet.FileServerConf, env)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if j := read(); j.URL != "https://one:6443" || j.Token.Reveal() != "from env" {
		t.Errorf("environment: %s %q", j.URL, j.Token.Reveal())
	}
	plant(t, d.Root, fleet.FileServerConf, "token: from file\nserver: https://two:6443\n")
	if j := read(); j.URL != "https://two:6443" || j.Token.Reveal() != "from file" {
		t.Errorf("file: %s %q", j.URL, j.Token.Reveal())
	}
	plant(t, d.Root, "/root-token", "secret\n")
	plant(t, d.Root, fleet.FileServerConf+".d/1.yaml", "token-file: /root-token\n")
	if j := read(); j.Token.Reveal() != "secret" {
		t.Errorf("token file: %q", j.Token.Reveal())
	}
}

func TestTokens(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for in, want := range map[string]k3s.Token{
		"plain":                       {Secret: "plain"},
		"K10" + hash + "::server:s:e": {CAHash: hash, User: "server", Secret: "s:e"},
		"K10 is only how it begins\n": {Secret: "K10 is only how it begins"},
	} {
		got, err := k3s.ParseToken(in)
		if err != nil || got.CAHash != want.CAHash || got.User != want.User || got.Secret.Reveal() != want.Secret.Reveal() {
			t.Errorf("%q: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"", " \n", "K10abc::server:x", "K10" + hash + "::server:", "K10" + hash + "::x"} {
		if _, err := k3s.ParseToken(in); err == nil {
			t.Errorf("%q: accepted", in)
		} else if in != "" && strings.Contains(err.Error(), hash) {
			t.Errorf("the error quotes the token: %v", err)
		}
	}
}

func TestNoSecretIsPrinted(t *testing.T) { // safety rule 31
	s := k3s.Join{URL: "u", Token: "hunter2"}
	j, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v", s, s, s), string(j)} {
		if strings.Contains(out, "hunter2") {
			t.Errorf("printed: %s", out)
		}
	}
}

func TestJoinDropInsRoundTrip(t *testing.T) { // R-D1-22, R-D1-23
	for _, url := range []string{"https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://n1.example:6443"} {
		raw, err := k3s.JoinDropIn(url)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k3s.ParseJoinDropIn(raw); err != nil || got != url {
			t.Errorf("%s: %q %v", url, got, err)
		}
		unit, err := k3s.UnitDropIn(url)
		if err != nil || k3s.ParseUnitDropIn(unit) == "" || !strings.HasPrefix(string(unit), "#") || !strings.Contains(string(unit), "[Service]\n") {
			t.Errorf("%s: %q %v", url, unit, err)
		}
	}
	for _, url := range []string{"", "http://a:6443", "https://", "https://a:6443/path", "https://u:p@a:6443", "https://a\n", "https://a\"b", "https://a%n"} {
		if _, err := k3s.JoinDropIn(url); err == nil {
			t.Errorf("%q: accepted", url)
		}
	}
}

func TestLevelDropInRoundTrip(t *testing.T) { // R-112-08
	for _, level := range []fleet.Level{fleet.LevelControlPlane, fleet.LevelEtcdOnly} {
		raw, err := k3s.LevelDropIn(level)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k3s.ParseLevelDropIn(raw); err != nil || got != level {
			t.Errorf("%s: %q %v", level, got, err)
		}
	}
	raw, _ := k3s.LevelDropIn(fleet.LevelEtcdOnly)
	c, err := k3s.ParseConfig(raw)
	if err != nil || len(c) != 4 {
		t.Errorf("etcd-only has %v, %v; want the four disable flags", c, err)
	}
	if _, err := k3s.LevelDropIn(fleet.LevelFull); err == nil {
		t.Error("a full server has a drop-in")
	}
	for _, bad := range []string{"disable-apiserver: true\n", "# regrade-level: control-plane\n" + string(raw), "# regrade-level: what\n{}\n"} {
		if _, err := k3s.ParseLevelDropIn([]byte(bad)); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func TestDatastoreFacts(t *testing.T) {
	d := k3s.Disk{Root: t.TempDir(), DataDir: "/data"}
	look := func() k3s.Datastore {
		t.Helper()
		s, err := d.ReadDatastore()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if d := cmp.Diff(k3s.Datastore{}, look()); d != "" {
		t.Error(d)
	}
	plant(t, d.Root, "/data/server/db/etcd/name", "n1-0123abcd")
	if s := look(); !s.Exists || s.WAL || s.Name != "n1-0123abcd" {
		t.Errorf("%+v", s)
	}
	plant(t, d.Root, "/data/server/db/etcd/member/wal/0.wal", "")
	plant(t, d.Root, "/data/server/db/etcd/tombstone", "")
	plant(t, d.Root, "/data/server/tls/etcd/client.crt", "")
	plant(t, d.Root, "/data/server/tls/etcd/client.key", "")
	if s := look(); !s.WAL || !s.Tombstone || !s.Certs {
		t.Errorf("%+v", s)
	}
}

func TestMoveAsideKeepsOneCopyAndTheSnapshots(t *testing.T) { // R-D1-27, R-D1-33, R-216-22, safety rule 14
	d := k3s.Disk{Root: t.TempDir()}
	server := filepath.Join(fleet.DefaultDataDir, "server")
	for life := range 3 {
		plant(t, d.Root, server+"/db/etcd/member/wal/0.wal", fmt.Sprint(life))
		plant(t, d.Root, server+"/db/state.db", "")
		plant(t, d.Root, server+"/db/snapshots/fleet-role-x-n1-5", "s")
		plant(t, d.Root, server+"/db/.metadata/fleet-role-x-n1-5", "m")
		if err := d.MoveAside(); err != nil {
			t.Fatal(err)
		}
		if s, err := d.ReadDatastore(); err != nil || s.Exists || s.WAL {
			t.Errorf("after: %+v %v", s, err)
		}
		raw, err := os.ReadFile(d.Path("server", "db.demoted", "etcd", "member", "wal", "0.wal"))
		if err != nil || string(raw) != fmt.Sprint(life) {
			t.Errorf("copy holds %q, %v; want the newest life %d", raw, err, life)
		}
		for _, p := range []string{"db/snapshots/fleet-role-x-n1-5", "db/.metadata/fleet-role-x-n1-5"} {
			if _, err := os.Stat(d.Path("server", p)); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
	if err := d.MoveAside(); err != nil {
		t.Errorf("with nothing to move: %v", err)
	}
	left, _ := os.ReadDir(d.Path("server"))
	if len(left) != 2 {
		t.Errorf("server/ holds %v, want db and db.demoted", left)
	}
}

func TestMoveAsideGoesOnAfterACrash(t *testing.T) {
	d := k3s.Disk{Root: t.TempDir()}
	server := filepath.Join(fleet.DefaultDataDir, "server")
	plant(t, d.Root, server+"/db.demoted/etcd/old", "")
	plant(t, d.Root, server+"/db.demoted.new/etcd/member/wal/0.wal", "new") // killed before the last rename
	if s, err := d.ReadDatastore(); err != nil || !s.Exists {
		t.Fatalf("a move that is not finished does not show: %+v %v", s, err)
	}
	if err := d.MoveAside(); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(d.Path("server", "db.demoted", "etcd", "member", "wal", "0.wal")); err != nil || string(raw) != "new" {
		t.Errorf("%q %v", raw, err)
	}
	if s, err := d.ReadDatastore(); err != nil || s.Exists {
		t.Errorf("%+v %v", s, err)
	}
}

func TestOwnSnapshotsArePrunedByAge(t *testing.T) {
	d := k3s.Disk{Root: t.TempDir()}
	dir := filepath.Join(fleet.DefaultDataDir, "server/db/snapshots")
	for _, n := range []string{"fleet-role-b-n1-9", "fleet-role-a-n1-100", "fleet-role-c-n1-20.zip", "on-demand-n1-1", "fleet-role-d-n1-30.part", "fleet-role-e-n1-11"} {
		plant(t, d.Root, dir+"/"+n, "")
	}
	got, err := d.OwnSnapshots()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"fleet-role-b-n1-9", "fleet-role-e-n1-11", "fleet-role-c-n1-20.zip", "fleet-role-a-n1-100"}, got); d != "" {
		t.Error(d)
	}
	if err := d.PruneSnapshots(3); err != nil {
		t.Fatal(err)
	}
	left, _ := d.OwnSnapshots()
	if len(left) != 3 || left[0] != "fleet-role-e-n1-11" {
		t.Errorf("left %v", left)
	}
	if _, err := os.Stat(d.Path("server/db/snapshots/on-demand-n1-1")); err != nil {
		t.Error("a snapshot of somebody else was deleted")
	}
}

// The host's clock was put back by a day between two swaps. The break check:
// order by the seconds of the name alone.
func TestAClockThatWasPutBackPrunesNoNewerSnapshot(t *testing.T) { // safety rule 14
	d := k3s.Disk{Root: t.TempDir()}
	dir := filepath.Join(fleet.DefaultDataDir, "server/db/snapshots")
	old := []string{
		"fleet-role-20261126T120000Z-a-d-n1-1764504000", "fleet-role-20261127T120000Z-d-a-n1-1764590400", "fleet-role-20261128T120000Z-a-d-n1-1764676800",
	}
	newest := "fleet-role-20261129T120000Z-d-a-n1-1764417600"
	for _, n := range append(old, newest) {
		plant(t, d.Root, dir+"/"+n, "")
	}
	if err := d.PruneSnapshots(3); err != nil {
		t.Fatal(err)
	}
	left, err := d.OwnSnapshots()
	if diff := cmp.Diff([]string{old[1], old[2], newest}, left); diff != "" || err != nil {
		t.Error(diff, err)
	}
	// Two of one swap and one second: the file that was written last is the newest.
	d = k3s.Disk{Root: t.TempDir()}
	for i, n := range []string{"fleet-role-20261129T120000Z-d-a-n2-1764417600", "fleet-role-20261129T120000Z-d-a-n1-1764417600"} {
		plant(t, d.Root, dir+"/"+n, "")
		at := time.Unix(1764417600+int64(i), 0)
		if err := os.Chtimes(filepath.Join(d.Root, dir, n), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := d.OwnSnapshots(); err != nil || len(left) != 2 || !strings.Contains(left[1], "n1-1764417600") {
		t.Errorf("%v %v", left, err)
	}
}

func TestSnapshotsInAFolderOfTheOperator(t *testing.T) { // etcd-snapshot-dir
	d := k3s.Disk{Root: t.TempDir(), ServerConfig: fleet.FileServerConf}
	plant(t, d.Root, fleet.FileServerConf, "etcd-snapshot-dir: /snap\n")
	plant(t, d.Root, "/snap/fleet-role-a-n1-100", "")
	plant(t, d.Root, "/snap/fleet-role-b-n1-101", "")
	if got, err := d.OwnSnapshots(); err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if err := d.PruneSnapshots(1); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.OwnSnapshots(); len(got) != 1 || got[0] != "fleet-role-b-n1-101" {
		t.Errorf("left %v", got)
	}
	plant(t, d.Root, fleet.FileServerConf, "[")
	if got, err := d.OwnSnapshots(); err != nil || len(got) != 0 {
		t.Errorf("a broken configuration: %v %v", got, err)
	}
}

// The datastore on a disk of its own, as etcd wants it: a rename to beside it
// would fail for ever, and the host would never be an agent again.
func TestMoveAsideOfADatastoreOnItsOwnDisk(t *testing.T) { // safety rule 14
	d := k3s.Disk{Root: t.TempDir()}
	disk, err := os.MkdirTemp("/dev/shm", "regrade-test-")
	if err != nil {
		t.Skip("no second file system: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(disk) })
	if err := os.MkdirAll(d.Path("server"), 0o755); err != nil {
		t.Fatal(err)
	}
	probe := filepath.Join(d.Root, "probe")
	plant(t, d.Root, "probe", "")
	if os.Link(probe, filepath.Join(disk, "probe")) == nil {
		t.Skip("the temporary folder is on the same file system")
	}
	if err := os.Symlink(disk, d.Path("server", "db")); err != nil {
		t.Fatal(err)
	}
	for _, life := range []string{"first", "second"} {
		plant(t, disk, "etcd/member/wal/0.wal", life)
		plant(t, disk, "snapshots/s", "")
		if err := d.MoveAside(); err != nil {
			t.Fatal(err)
		}
		if s, err := d.ReadDatastore(); err != nil || s.Exists {
			t.Errorf("%s life: %+v %v", life, s, err)
		}
		if raw, err := os.ReadFile(filepath.Join(disk, "db.demoted/etcd/member/wal/0.wal")); err != nil || string(raw) != life {
			t.Errorf("%s life: %q %v", life, raw, err)
		}
		if _, err := os.Stat(filepath.Join(disk, "snapshots/s")); err != nil {
			t.Error("the snapshots went too")
		}
	}
}

// The break check: without the look at the mount list the datastore is renamed
// for ever, an agent never comes back.
func TestADatastoreOnAMountPointIsNotMoved(t *testing.T) { // safety rule 14
	for name, c := range map[string]struct {
		mounts, problem string
	}{
		"server/db is the mount":                {"/var/lib/rancher/k3s/server/db", ""},
		"a mount elsewhere":                     {"/var/lib/rancher", ""},
		"the snapshots are a mount":             {"/var/lib/rancher/k3s/server/db/snapshots", ""},
		"a folder of a like name":               {"/var/lib/rancher/k3s/server/db-old/etcd", ""},
		"server/db/etcd is the mount":           {"/var/lib/rancher/k3s/server/db/etcd", "db/etcd is a mount point"},
		"the WAL is a mount":                    {"/var/lib/rancher/k3s/server/db/etcd/member/wal", "wal is a mount point"},
		"another folder of server/db is":        {"/var/lib/rancher/k3s/server/db/other\\040disk", "other disk is a mount point"},
		"server/db is a mount and its etcd too": {"/var/lib/rancher/k3s/server/db\n1 2 8:1 / /var/lib/rancher/k3s/server/db/etcd", "db/etcd is a mount point"},
	} {
		t.Run(name, func(t *testing.T) {
			d := k3s.Disk{Root: t.TempDir()}
			plant(t, d.Root, "/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n1 2 8:1 / "+c.mounts+" rw - ext4 /dev/sda2 rw\nshort\n")
			plant(t, d.Root, fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "x")
			if got := d.DatastoreProblem(); (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
				t.Errorf("%q, want %q", got, c.problem)
			}
			err := d.MoveAside()
			if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("moved aside: %v", err)
			}
			s, err := d.ReadDatastore()
			if err != nil || s.WAL != (c.problem != "") {
				t.Errorf("%+v %v", s, err)
			}
			in := d.Path("server", "db", "db.demoted")
			if _, err := os.Stat(in); c.problem == "" && (err == nil) != (name == "server/db is the mount") {
				t.Errorf("%s: %v: a move must stay on its mount", in, err)
			}
		})
	}
}

// A mount of the kernel's own: skipped where mounting is not allowed.
func TestADatastoreOnARealMountPointIsNotMoved(t *testing.T) { // safety rule 14
	d := k3s.Disk{DataDir: t.TempDir()}
	etcd := d.Path("server", "db", "etcd")
	if err := os.MkdirAll(etcd, 0o700); err != nil {
		t.Fatal(err)
	}
	if p := d.DatastoreProblem(); p != "" {
		t.Fatal(p)
	}
	if err := syscall.Mount("none", etcd, "tmpfs", 0, ""); err != nil {
		t.Skip("no mount: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(etcd, 0) })
	if err := d.MoveAside(); err == nil || !strings.Contains(err.Error(), "mount point") {
		t.Errorf("%v", err)
	}
}

func TestAnAgentsTokenIsWhatTheServersTakeFromAgents(t *testing.T) { // safety rule 15, k3s-facts §10.1
	const env, config = "/etc/systemd/system/k3s-agent.service.env", fleet.FileAgentConf
	here, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for name, c := range map[string]struct {
		token, passwd, own string
		problem            string
	}{
		"one secret for both":                       {"s3cret", "s3cret,server,server,k3s:server\ns3cret,node,node,k3s:agent\n", "", ""},
		"the agents' own":                           {"forAgents", "s3cret,server,server,k3s:server\nforAgents,node,node,k3s:agent\n", "", ""},
		"the agents' own in full":                   {"K10" + here + "::node:forAgents", "forAgents,node,node,k3s:agent\n", "K10" + here + "::server:s3cret\n", ""},
		"the server's in full, one secret for both": {"K10" + here + "::server:s3cret", "s3cret,node,node,k3s:agent\n", "K10" + here + "::server:s3cret\n", ""},
		"the server's, the agents have their own":   {"s3cret", "s3cret,server,server,k3s:server\nforAgents,node,node,k3s:agent\n", "", "is the server's, and"},
		"an unknown one":                            {"wrong", "s3cret,server,server,k3s:server\nforAgents,node,node,k3s:agent\n", "", "not the one"},
		"of another CA":                             {"K10" + other + "::node:forAgents", "forAgents,node,node,k3s:agent\n", "K10" + here + "::server:s3cret\n", "another CA"},
		"one that is no token":                      {"K10abc::node:x", "", "", "K10"},
		"a bootstrap token":                         {"abcdef.0123456789abcdef", "s3cret,node,node,k3s:agent\n", "", ""},
		"with nothing to compare it with":           {"s3cret", "", "", ""},
		"with a passwd of no known form":            {"s3cret", "\"a,b\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := k3s.Disk{Root: t.TempDir()}
			plant(t, d.Root, "/etc/rancher/node/password", "0123\n")
			plant(t, d.Root, config, "token: "+c.token+"\n")
			for path, content := range map[string]string{"server/cred/passwd": c.passwd, "server/token": c.own} {
				if content != "" {
					plant(t, d.Root, filepath.Join(fleet.DefaultDataDir, path), content)
				}
			}
			got := d.AgentProblem(config, env)
			if (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
				t.Errorf("%q, want %q", got, c.problem)
			}
			for _, secret := range []string{"s3cret", "forAgents", "wrong"} {
				if strings.Contains(got, secret) {
					t.Errorf("a secret is printed: %s", got)
				}
			}
		})
	}
}

func TestWhatAnAgentCannotStartOn(t *testing.T) { // safety rule 15
	const env, other = "/etc/systemd/system/k3s-agent.service.env", "/etc/default/k3s-agent"
	for name, c := range map[string]struct {
		config, env, other string
		problem            string
	}{
		"a token":                        {"token: x\nnode-ip: 10.0.0.1\n", "", "", ""},
		"a token of the install script":  {"", "K3S_TOKEN='x'\nK3S_URL='https://a:6443'\n", "", ""},
		"a token in /etc/default":        {"", "", "K3S_TOKEN=x\n", ""},
		"nothing at all":                 {"", "", "", "token"},
		"no node password":               {"token: x\n", "", "", "password"},
		"a server-only key":              {"token: x\ntls-san: [a]\n", "", "", "tls-san"},
		"a server-only key, appended to": {"token: x\ndisable+: traefik\n", "", "", "disable"},
		"a key of etcd":                  {"token: x\netcd-expose-metrics: true\n", "", "", "etcd-expose-metrics"},
		"no YAML":                        {"[", "", "", "configuration"},
		"a token file that is not there": {"token-file: /nowhere\n", "", "", "token file"},
		"a token in its file's place":    {"token-file: hunter2hunter2\n", "", "", "token file: open the file that it names: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			d := k3s.Disk{Root: t.TempDir()}
			if name != "no node password" {
				plant(t, d.Root, "/etc/rancher/node/password", "0123\n")
			}
			for path, content := range map[string]string{fleet.FileAgentConf: c.config, env: c.env, other: c.other} {
				if content != "" {
					plant(t, d.Root, path, content)
				}
			}
			got := d.AgentProblem(fleet.FileAgentConf, env, other)
			if (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) || strings.Contains(got, "hunter2") {
				t.Errorf("%q, want %q", got, c.problem)
			}
		})
	}
}

func TestDifferencesOfServerFlags(t *testing.T) { // safety rule 17
	command, theirs, err := k3s.ParseArgs(`["server","--flannel-backend","none","--disable","traefik,servicelb","--disable","coredns","--node-ip","10.0.0.1","--token","********","--cluster-init","--disable-network-policy","-d","/x","--cluster-domain=cluster.local"]`)
	if err != nil || command != "server" {
		t.Fatal(command, err)
	}
	mine := k3s.Config{"flannel-backend": {"none"}, "disable": {"coredns", "servicelb", "traefik"}, "node-ip": {"10.0.0.4"}, "disable-network-policy": {"true"}, "server": {"x"}}
	if got := k3s.Differences(mine, theirs, nil); len(got) != 0 {
		t.Errorf("equal servers differ: %v", got)
	}
	mine["flannel-backend"] = []string{"vxlan"}
	delete(mine, "disable-network-policy")
	got := k3s.Differences(mine, theirs, nil)
	if d := cmp.Diff([]string{"disable-network-policy is not set here and true there", "flannel-backend is vxlan here and none there"}, got); d != "" {
		t.Error(d)
	}
	if got := k3s.Differences(mine, theirs, []string{"flannel-backend", "disable-network-policy"}); len(got) != 0 {
		t.Errorf("allowed by name and still named: %v", got)
	}
	for _, bad := range []string{"", "{}", "[]", `["kubectl"]`} {
		if _, _, err := k3s.ParseArgs(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("server: https://a:6443\ndisable+: [x]\n"))
	raw, _ := k3s.LevelDropIn(fleet.LevelEtcdOnly)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := k3s.ParseConfig(raw)
		if err == nil {
			_ = k3s.Config{"a": {"b"}}.Merge(c)
		}
		if level, err := k3s.ParseLevelDropIn(raw); err == nil {
			if _, err := fleet.ParseLevel(string(level)); err != nil {
				t.Errorf("level %q", level)
			}
		}
	})
}

func FuzzJoinDropIn(f *testing.F) {
	f.Add("https://10.0.0.1:6443")
	f.Fuzz(func(t *testing.T, url string) {
		raw, err := k3s.JoinDropIn(url)
		if err != nil {
			return
		}
		if got, err := k3s.ParseJoinDropIn(raw); err != nil || got != url {
			t.Errorf("%q became %q, %v", url, got, err)
		}
		unit, err := k3s.UnitDropIn(url)
		if err != nil || strings.Count(string(unit), "\n") != 3 {
			t.Errorf("%q made the unit drop-in %q, %v", url, unit, err)
		}
	})
}

func FuzzParseToken(f *testing.F) {
	f.Add("K10" + strings.Repeat("0", 64) + "::server:x")
	f.Fuzz(func(t *testing.T, s string) {
		if tok, err := k3s.ParseToken(s); err == nil && tok.Secret.Reveal() == "" {
			t.Error("an empty secret")
		}
	})
}

func FuzzParseArgs(f *testing.F) {
	f.Add(`["server","--a","b","-c"]`)
	f.Fuzz(func(t *testing.T, s string) {
		if command, _, err := k3s.ParseArgs(s); err == nil && command != "server" && command != "agent" {
			t.Error(command)
		}
	})
}
