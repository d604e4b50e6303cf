package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/behaviour"
	"github.com/exadev/regrade/lab/standin/k3s/bootstrap"
	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/host"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/token"
	"github.com/exadev/regrade/lab/standin/parts/pki"
)

func testServer(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	all := append([]string{
		"--config", "/nonexistent/config.yaml", "--data-dir", dir, "--node-name", "N1", "--node-ip", "10.0.0.1",
		"--write-kubeconfig", filepath.Join(dir, "k3s.yaml"),
	}, args...)
	v, err := config.Parse(config.Server, all, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	b, err := behaviour.FromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.From(v)
	if err != nil {
		t.Fatal(err)
	}
	return &server{v: v, b: b, host: h, data: layout.Data(dir), log: slog.New(slog.DiscardHandler)}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// k3s facts §14.3, row "WAL dir = initialised; name file; tombstone file; backup rename; join with learner": the
// files' half.
func TestFilesDecideHowAServerStarts(t *testing.T) {
	dir := t.TempDir()
	s := testServer(t, dir, "--cluster-init", "--token", "x")
	decide := func(s *server, text string) bootstrap.Start {
		t.Helper()
		start, err := s.decide(text)
		if err != nil {
			t.Fatal(err)
		}
		return start
	}
	if got := decide(s, "x"); got != bootstrap.StartNew {
		t.Errorf("got %s", got)
	}
	if err := os.MkdirAll(s.data.WAL(), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := decide(s, "x"); got != bootstrap.StartExisting {
		t.Errorf("got %s", got)
	}
	touch(t, s.data.Tombstone())
	if _, err := s.decide("x"); !errors.Is(err, bootstrap.ErrTombstone) {
		t.Errorf("a tombstone without --server: %v", err)
	}

	joiner := testServer(t, dir, "--server", "https://10.0.0.9:6443", "--token", "x")
	if joiner.start = decide(joiner, "x"); joiner.start != bootstrap.StartRejoin {
		t.Fatalf("got %s", joiner.start)
	}
	if err := os.WriteFile(s.data.MemberName(), []byte("n1-00000000"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := joiner.registerMember(); err != nil {
		t.Fatal(err)
	}
	if joiner.member == "n1-00000000" || !strings.HasPrefix(joiner.member, "n1-") || len(joiner.member) != 11 {
		t.Errorf("member name %q", joiner.member)
	}
	if b, err := os.ReadFile(s.data.MemberName()); err != nil || string(b) != joiner.member {
		t.Errorf("name file %q, %v: want the name without a newline", b, err)
	}
	if exists(s.data.WAL()) || exists(s.data.Tombstone()) {
		t.Error("the old datastore is still in place")
	}
	if old, err := filepath.Glob(s.data.Server("db", "etcd-backup-*", "tombstone")); err != nil || len(old) != 1 {
		t.Errorf("backups %v, %v", old, err)
	}
	again := testServer(t, dir, "--server", "https://10.0.0.9:6443", "--token", "x", "--node-name", "other")
	again.start = bootstrap.StartJoin
	if err := again.registerMember(); err != nil || again.member != joiner.member {
		t.Errorf("the name is kept for life: %q, %v", again.member, err)
	}
}

func TestAtMostSixBackupsExist(t *testing.T) {
	dir := layout.Data(t.TempDir())
	for i := range 9 {
		if err := os.MkdirAll(dir.Etcd(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := moveDatastore(dir, "etcd-backup", time.Unix(1700000000+int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(dir.Server("db", "etcd-backup-*"))
	if err != nil || len(left) != 6 || exists(dir.Server("db", "etcd-backup-"+strconv.Itoa(1700000000))) {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestCredentialsHaveTheFormsOfK3s(t *testing.T) {
	dir := t.TempDir()
	s := testServer(t, dir, "--cluster-init", "--token", "shared")
	s.start = bootstrap.StartNew
	settle := func(s *server) {
		t.Helper()
		if err := s.secrets(s.v.Text("token")); err != nil {
			t.Fatal(err)
		}
		if err := pki.Ensure(pki.Config{Dir: s.data.Server("tls"), NodeName: s.host.NodeName, Addresses: s.host.IPs}); err != nil {
			t.Fatal(err)
		}
		if err := s.writeCredentials(); err != nil {
			t.Fatal(err)
		}
	}
	settle(s)
	text, err := os.ReadFile(s.data.Token())
	if err != nil || !strings.HasSuffix(string(text), "::server:shared\n") || !strings.HasPrefix(string(text), "K10") {
		t.Fatalf("token %q, %v", text, err)
	}
	for _, l := range []string{"node-token", "agent-token"} {
		if to, err := os.Readlink(s.data.Server(l)); err != nil || to != s.data.Token() {
			t.Errorf("%s links to %q, %v", l, to, err)
		}
	}
	if b, err := os.ReadFile(s.data.Server("cred", "passwd")); err != nil ||
		string(b) != "shared,node,node,k3s:agent\nshared,server,server,k3s:server\n" {
		t.Errorf("passwd %q, %v", b, err)
	}

	apart := testServer(t, dir, "--cluster-init", "--token", "shared", "--agent-token", "agents")
	apart.start = bootstrap.StartExisting
	settle(apart)
	got, err := os.ReadFile(apart.data.Server("agent-token"))
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := token.Parse(string(got), ""); err != nil || tok.User != token.NodeUser || tok.Secret() != "agents" {
		t.Errorf("agent token %v, %v", tok, err)
	}
	if b, err := os.ReadFile(apart.data.Token()); err != nil || string(b) != string(text) {
		t.Errorf("the server token changed: %q, %v", b, err)
	}

	other := testServer(t, dir, "--cluster-init", "--token", "different")
	other.start = bootstrap.StartExisting
	if err := other.secrets("different"); err == nil || !strings.Contains(err.Error(), "different token") {
		t.Errorf("another token over a WAL: %v", err)
	}
}

func TestPreparationsThatExitOne(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"neither init nor server":     {nil, "sqlite"},
		"plain http":                  {[]string{"--server", "http://10.0.0.9:6443", "--token", "x"}, "only https://"},
		"init and server, no token":   {[]string{"--server", "https://127.0.0.1:1", "--cluster-init"}, "token is required"},
		"a dead join host":            {[]string{"--server", "https://127.0.0.1:1", "--token", "x"}, "failed to bootstrap cluster data"},
		"disable-etcd without server": {[]string{"--disable-etcd", "--token", "x"}, "--server is required"},
		"datastore endpoint":          {[]string{"--datastore-endpoint", "mysql://"}, "not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testServer(t, t.TempDir(), tc.args...)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := s.prepare(ctx); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A reset needs a datastore, and is refused a second time until k3s was started once in order; never together with --server.
func TestAResetNeedsADatastoreAndIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	s := testServer(t, dir, "--cluster-reset", "--token", "x")
	prepare := func() error {
		t.Helper()
		if err := s.refuse(); err != nil {
			return err
		}
		start, err := s.decide("x")
		if err != nil && !errors.Is(err, bootstrap.ErrTombstone) {
			t.Fatal(err)
		}
		s.start = start
		return s.resettable()
	}
	if err := prepare(); !errors.Is(err, ErrNothingToReset) {
		t.Errorf("without a datastore: %v", err)
	}
	if err := os.MkdirAll(s.data.WAL(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := prepare(); err != nil {
		t.Errorf("with a datastore: %v", err)
	}
	touch(t, s.data.Tombstone())
	if err := prepare(); !errors.Is(err, ErrNothingToReset) {
		t.Errorf("the datastore of a member that was removed: %v", err)
	}
	if err := os.Remove(s.data.Tombstone()); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(s.data.MemberName(), []byte("n1-00000000"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.registerMember(); err != nil || s.member == "n1-00000000" {
		t.Errorf("the member is called %q as before, %v", s.member, err)
	}
	touch(t, s.data.ResetFlag())
	if err := prepare(); !errors.Is(err, ErrReset) {
		t.Errorf("a second time: %v", err)
	}
	if was, err := dropResetFlag(s.data); err != nil || !was || exists(s.data.ResetFlag()) {
		t.Errorf("the start after it: %t, %v", was, err)
	}
	if was, err := dropResetFlag(s.data); err != nil || was {
		t.Errorf("the start after that: %t, %v", was, err)
	}
	if err := prepare(); err != nil {
		t.Errorf("after a start in order: %v", err)
	}

	s = testServer(t, dir, "--cluster-reset", "--server", "https://10.0.0.9:6443", "--token", "x")
	if err := prepare(); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("with --server: %v", err)
	}
}
