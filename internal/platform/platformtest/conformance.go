package platformtest

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Subject is a host under test, freshly made: no role file, both units at rest,
// no datastore.
type Subject struct {
	Host platform.Host
	// Datastore puts a member's datastore on the host, as k3s would.
	Datastore func()
	// Applies: setting a level restarts the server into it by itself.
	Applies bool
	// Settle waits until what is queued has happened, at most seconds.
	Settle func()
}

// Run is the conformance suite of the platform port: what every adapter, and
// the fake that the daemon's tests rest on, must do alike.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	const id = fleet.SwapID("20261129T120000Z-a-d")
	ctx := context.Background()
	tests := map[string]func(t *testing.T, s Subject){
		"the role file is written and read": func(t *testing.T, s Subject) {
			for _, role := range []fleet.Role{fleet.RoleAgent, fleet.RoleServer, fleet.RoleServer} {
				must(t, s.Host.SetRole(ctx, role))
				if got := look(t, s).Files.Role; got != role {
					t.Errorf("role %q, want %q", got, role)
				}
			}
			if err := s.Host.SetRole(ctx, "king"); err == nil {
				t.Error("an unknown role was written")
			}
			if got := look(t, s).Files.Role; got != fleet.RoleServer {
				t.Errorf("a refused role changed the file to %q", got)
			}
		},
		"leaving and joining are written and deleted, twice": func(t *testing.T, s Subject) {
			boot := look(t, s).Files.BootID
			if boot == "" {
				t.Fatal("no boot id")
			}
			j := rolefile.Joining{Swap: id, BootID: boot}
			for range 2 {
				must(t, s.Host.SetLeaving(ctx, id))
				must(t, s.Host.SetJoining(ctx, j))
				if f := look(t, s).Files; f.Leaving != id || f.Joining != j || !f.JoiningNow() {
					t.Errorf("%+v", f)
				}
			}
			for range 2 {
				must(t, s.Host.SetLeaving(ctx, ""))
				must(t, s.Host.SetJoining(ctx, rolefile.Joining{}))
				if f := look(t, s).Files; f.Leaving != "" || f.Joining.Swap != "" {
					t.Errorf("%+v", f)
				}
			}
		},
		"the member id goes, the cluster id stays": func(t *testing.T, s Subject) {
			want := rolefile.Identity{ClusterID: 1<<63 + 5, MemberID: 1<<62 + 7, Voters: []string{"https://10.0.0.1:2379", "https://10.0.0.2:2379"}, Password: "0123456789abcdef"}
			must(t, s.Host.SetIdentity(ctx, want))
			if d := cmp.Diff(want, look(t, s).Files.Identity); d != "" {
				t.Error(d)
			}
			must(t, s.Host.SetIdentity(ctx, rolefile.Identity{Voters: want.Voters}))
			want.MemberID, want.Password = 0, ""
			if d := cmp.Diff(want, look(t, s).Files.Identity); d != "" {
				t.Error(d)
			}
		},
		"the level is what the next start takes": func(t *testing.T, s Subject) {
			for _, level := range []fleet.Level{fleet.LevelFull, fleet.LevelEtcdOnly, fleet.LevelControlPlane, fleet.LevelEtcdOnly, fleet.LevelFull} {
				must(t, s.Host.SetLevel(ctx, level))
				if got := look(t, s).Level; got != level {
					t.Errorf("level %q, want %q", got, level)
				}
			}
		},
		"a join is written and taken away, for each role alone": func(t *testing.T, s Subject) {
			must(t, s.Host.SetJoin(ctx, fleet.RoleServer, "https://10.0.0.1:6443"))
			must(t, s.Host.SetJoin(ctx, fleet.RoleAgent, "https://10.0.0.2:6443"))
			must(t, s.Host.SetJoin(ctx, fleet.RoleServer, "https://10.0.0.3:6443"))
			f := look(t, s)
			if f.ServerJoin != "https://10.0.0.3:6443" || f.AgentJoin != "https://10.0.0.2:6443" {
				t.Errorf("server %q, agent %q", f.ServerJoin, f.AgentJoin)
			}
			if f.Files.JoinURL != "https://10.0.0.3:6443" {
				t.Errorf("the start rule sees the join URL %q", f.Files.JoinURL)
			}
			for range 2 {
				must(t, s.Host.SetJoin(ctx, fleet.RoleServer, ""))
			}
			if f := look(t, s); f.ServerJoin != "" || f.AgentJoin == "" {
				t.Errorf("server %q, agent %q", f.ServerJoin, f.AgentJoin)
			}
		},
		"the journal is kept as it is": func(t *testing.T, s Subject) {
			if j := look(t, s).Journal; j != nil {
				t.Errorf("a fresh host has a journal: %q", j)
			}
			must(t, s.Host.SetJournal(ctx, []byte("{\"step\":\"promote\"}\n")))
			if j := look(t, s).Journal; string(j) != "{\"step\":\"promote\"}\n" {
				t.Errorf("%q", j)
			}
		},
		"the journal of a level's step is another one": func(t *testing.T, s Subject) {
			if j := look(t, s).LevelJournal; j != nil {
				t.Errorf("a fresh host has one: %q", j)
			}
			must(t, s.Host.SetLevelJournal(ctx, []byte("{\"to\":\"etcd-only\"}\n")))
			if f := look(t, s); string(f.LevelJournal) != "{\"to\":\"etcd-only\"}\n" || f.Journal != nil {
				t.Errorf("%q, %q", f.LevelJournal, f.Journal)
			}
		},
		"the peer port is held once and let go": func(t *testing.T, s Subject) {
			for _, hold := range []bool{false, true, true, false, false, true, false} {
				must(t, s.Host.HoldPeerPort(ctx, hold))
				if got := look(t, s).PeerPort; got != hold {
					t.Errorf("held %t, want %t", got, hold)
				}
			}
		},
		"a start that the files forbid is skipped without an error": func(t *testing.T, s Subject) {
			must(t, s.Host.SetRole(ctx, fleet.RoleAgent))
			must(t, s.Host.Start(ctx, fleet.RoleServer))
			s.Settle()
			if u := look(t, s).Server; !u.Gone() {
				t.Errorf("the server runs: %+v", u)
			}
		},
		"a start is queued, a stop ends it, a stop at rest is nothing": func(t *testing.T, s Subject) {
			must(t, s.Host.SetRole(ctx, fleet.RoleAgent))
			must(t, s.Host.Stop(ctx, fleet.RoleAgent))
			s.Settle()
			must(t, s.Host.Start(ctx, fleet.RoleAgent))
			if u := look(t, s).Agent; !u.Rising() {
				t.Errorf("after the start: %+v", u)
			}
			s.Settle()
			u := look(t, s).Agent
			if !u.Process || !u.Rising() || u.Gone() || u.Since.IsZero() || !u.Conditioned {
				t.Errorf("running: %+v", u)
			}
			must(t, s.Host.Stop(ctx, fleet.RoleAgent))
			s.Settle()
			if u := look(t, s).Agent; !u.Gone() {
				t.Errorf("after the stop: %+v", u)
			}
		},
		"a restart takes the new level": func(t *testing.T, s Subject) {
			if s.Applies {
				t.Skip("a level is applied with the restart in it")
			}
			must(t, s.Host.SetRole(ctx, fleet.RoleServer))
			s.Datastore()
			must(t, s.Host.Start(ctx, fleet.RoleServer))
			s.Settle()
			if u := look(t, s).Server; !u.Process || u.Level != fleet.LevelFull {
				t.Fatalf("running: %+v", u)
			}
			must(t, s.Host.SetLevel(ctx, fleet.LevelEtcdOnly))
			if u := look(t, s).Server; u.Level != fleet.LevelFull {
				t.Errorf("the level was taken without a restart: %+v", u)
			}
			must(t, s.Host.Restart(ctx))
			s.Settle()
			if u := look(t, s).Server; !u.Process || u.Level != fleet.LevelEtcdOnly {
				t.Errorf("after the restart: %+v", u)
			}
			must(t, s.Host.Stop(ctx, fleet.RoleServer))
			s.Settle()
			if u := look(t, s).Server; u.Level != "" {
				t.Errorf("a server that does not run has level %q", u.Level)
			}
		},
		"the datastore goes aside, not under a living server": func(t *testing.T, s Subject) {
			must(t, s.Host.SetRole(ctx, fleet.RoleServer))
			s.Datastore()
			if f := look(t, s); !f.Datastore || !f.Files.WAL {
				t.Fatalf("datastore %t, WAL %t", f.Datastore, f.Files.WAL)
			}
			must(t, s.Host.Start(ctx, fleet.RoleServer))
			s.Settle()
			if err := s.Host.DatastoreAside(ctx); err == nil {
				t.Error("moved away under a living server")
			}
			must(t, s.Host.Stop(ctx, fleet.RoleServer))
			s.Settle()
			for range 2 {
				must(t, s.Host.DatastoreAside(ctx))
				if f := look(t, s); f.Datastore || f.Files.WAL || f.Files.Tombstone || f.MemberName != "" {
					t.Errorf("left: %+v", f)
				}
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func look(t *testing.T, s Subject) platform.Facts {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f, err := s.Host.Observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
