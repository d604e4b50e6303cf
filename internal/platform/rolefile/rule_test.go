package rolefile_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

const (
	id   = fleet.SwapID("20261129T120000Z-a-d")
	boot = "boot-1"
)

// Each row of design §4.1, in the two columns "server / agent may start" and "a
// reboot here gives"; and each clause of the rule above it.
func TestWhatMayStart(t *testing.T) {
	member := rolefile.Identity{ClusterID: 0xc, MemberID: 0xa}
	joining := rolefile.Joining{Swap: id, BootID: boot}
	type may struct{ server, agent bool }
	for name, c := range map[string]struct {
		files  rolefile.Files
		now    may
		reboot may // after a reboot: what is in /run is gone
	}{
		// The table.
		"step 1, the outgoing host":              {rolefile.Files{Role: "server", WAL: true, Identity: member}, may{true, false}, may{true, false}},
		"step 1, the incoming host":              {rolefile.Files{Role: "agent"}, may{false, true}, may{false, true}},
		"promote, confirmed":                     {rolefile.Files{Role: "agent", Joining: joining, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{false, true}},
		"promote, the WAL exists, role not yet":  {rolefile.Files{Role: "agent", Joining: joining, WAL: true, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{true, false}},
		"promote, removed before the role file":  {rolefile.Files{Role: "agent", Joining: joining, WAL: true, Tombstone: true}, may{false, false}, may{false, true}},
		"promote, the role file is lost":         {rolefile.Files{Joining: joining, WAL: true, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{true, false}},
		"promote, no WAL, the role file is lost": {rolefile.Files{Joining: joining, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{false, true}},
		"promote, the WAL exists, role server":   {rolefile.Files{Role: "server", Joining: joining, WAL: true}, may{true, false}, may{true, false}},
		"step-down, leaving written first":       {rolefile.Files{Role: "server", Leaving: id, WAL: true}, may{true, false}, may{true, false}},
		"step-down, role agent last":             {rolefile.Files{Role: "agent", Leaving: id, WAL: true}, may{true, false}, may{true, false}},
		"removed, with the tombstone":            {rolefile.Files{Role: "agent", Leaving: id, WAL: true, Tombstone: true}, may{false, false}, may{false, false}},
		"removed, without a tombstone":           {rolefile.Files{Role: "agent", Leaving: id, WAL: true}, may{true, false}, may{true, false}},
		"finish, leaving deleted":                {rolefile.Files{Role: "agent", WAL: true, Identity: member}, may{false, true}, may{false, true}},
		"finish, datastore aside":                {rolefile.Files{Role: "agent", Identity: member}, may{false, true}, may{false, true}},
		"rollback, server stopped, still listed": {rolefile.Files{Role: "server", WAL: true}, may{true, false}, may{true, false}},
		"rollback, a learner never started":      {rolefile.Files{Role: "agent", Joining: joining, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{false, true}},
		// The clauses.
		"a tombstone whatever the role file says (R-A-13)":              {rolefile.Files{Role: "server", WAL: true, Tombstone: true}, may{}, may{}},
		"a tombstone and allow-join":                                    {rolefile.Files{Role: "server", WAL: true, Tombstone: true, AllowJoin: true}, may{}, may{}},
		"a first installation":                                          {rolefile.Files{Role: "server"}, may{true, false}, may{true, false}},
		"a former member without a datastore (R-K-08)":                  {rolefile.Files{Role: "server", Identity: rolefile.Identity{ClusterID: 0xc}, JoinURL: "https://b:6443", Token: true}, may{}, may{}},
		"a former member that joins":                                    {rolefile.Files{Role: "agent", Joining: joining, Identity: rolefile.Identity{ClusterID: 0xc}, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{false, true}},
		"joining without a URL":                                         {rolefile.Files{Role: "agent", Joining: joining, Token: true}, may{}, may{false, true}},
		"joining without a token":                                       {rolefile.Files{Role: "agent", Joining: joining, JoinURL: "https://b:6443"}, may{}, may{false, true}},
		"the joining of another boot":                                   {rolefile.Files{Role: "agent", Joining: rolefile.Joining{Swap: id, BootID: "boot-0"}, JoinURL: "https://b:6443", Token: true}, may{false, true}, may{false, true}},
		"allow-join":                                                    {rolefile.Files{Role: "agent", AllowJoin: true, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{false, true}},
		"allow-join of a former member without a URL":                   {rolefile.Files{Role: "server", AllowJoin: true, Identity: rolefile.Identity{ClusterID: 0xc}}, may{}, may{}},
		"leaving without a datastore":                                   {rolefile.Files{Role: "agent", Leaving: id}, may{}, may{}},
		"no role file: as before (R-A-04)":                              {rolefile.Files{}, may{true, true}, may{true, true}},
		"no role file, a tombstone (R-N-13)":                            {rolefile.Files{WAL: true, Tombstone: true}, may{false, true}, may{false, true}},
		"no role file, a former member, no datastore":                   {rolefile.Files{Identity: rolefile.Identity{ClusterID: 0xc}}, may{false, true}, may{false, true}},
		"the role file of a member is lost":                             {rolefile.Files{WAL: true, Identity: member}, may{true, false}, may{true, false}},
		"the role file of a former member is lost":                      {rolefile.Files{Identity: member, JoinURL: "https://b:6443", Token: true}, may{false, true}, may{false, true}},
		"demoted, and the role folder is lost (13, 18)":                 {rolefile.Files{Demoted: true, JoinURL: "https://b:6443", Token: true}, may{false, true}, may{false, true}},
		"demoted, the role file says server, a server to join (R-A-21)": {rolefile.Files{Role: "server", Demoted: true, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{true, false}},
		"demoted, the role file says server, nothing to join (19)":      {rolefile.Files{Role: "server", Demoted: true, Token: true}, may{}, may{}},
		"demoted and promoted again, the role folder is lost":           {rolefile.Files{Demoted: true, WAL: true}, may{true, false}, may{true, false}},
		"no role file, allow-join":                                      {rolefile.Files{AllowJoin: true, JoinURL: "https://b:6443", Token: true}, may{true, false}, may{true, true}},
		"a broken cluster-id beside a datastore":                        {rolefile.Files{Role: "server", WAL: true, IdentityProblem: "cluster-id"}, may{true, false}, may{true, false}},
		"a broken cluster-id beside a datastore, no role file":          {rolefile.Files{WAL: true, IdentityProblem: "cluster-id"}, may{true, false}, may{true, false}},
		"a broken cluster-id and no datastore":                          {rolefile.Files{Role: "server", IdentityProblem: "cluster-id"}, may{}, may{}},
		"a joining that cannot be read, beside a datastore":             {rolefile.Files{Role: "server", WAL: true, JoiningProblem: "joining"}, may{true, false}, may{true, false}},
		"a joining that cannot be read, of a standby":                   {rolefile.Files{Role: "agent", JoiningProblem: "joining", JoinURL: "https://b:6443", Token: true}, may{}, may{}},
		"a joining that cannot be read, no role file, no datastore":     {rolefile.Files{JoiningProblem: "joining", JoinURL: "https://b:6443", Token: true}, may{}, may{}},
		"a joining that cannot be read, no role file, nothing to join":  {rolefile.Files{JoiningProblem: "joining", Token: true}, may{}, may{}},
		"a joining that cannot be read, no role file, a datastore":      {rolefile.Files{JoiningProblem: "joining", WAL: true}, may{true, false}, may{true, false}},
		"a joining that cannot be read, role agent, a datastore":        {rolefile.Files{Role: "agent", JoiningProblem: "joining", WAL: true}, may{}, may{}},
		"a role file that says something else":                          {rolefile.Files{RoleProblem: "role \"x\"", WAL: true}, may{}, may{}},
		"a role file that says something else, while leaving":           {rolefile.Files{RoleProblem: "role \"x\"", Leaving: id, WAL: true}, may{true, false}, may{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.files
			f.BootID = boot
			check := func(when string, f rolefile.Files, want may) {
				s, a := rolefile.MayStart(f, fleet.RoleServer), rolefile.MayStart(f, fleet.RoleAgent)
				if s.May != want.server || a.May != want.agent {
					t.Errorf("%s: server %t (%s), agent %t (%s); want %+v", when, s.May, s.Why, a.May, a.Why, want)
				}
				if s.Why == "" || a.Why == "" {
					t.Errorf("%s: no reason", when)
				}
			}
			check("now", f, c.now)
			f.BootID, f.AllowJoin = "boot-2", false
			if f.Joining.BootID == boot {
				f.Joining.BootID = ""
			}
			check("after a reboot", f, c.reboot)
		})
	}
}

// The break check: drop the AllowJoin clause of mayAgent and this fails.
func TestNeverBothRoles(t *testing.T) { // safety rule 10
	rapid.Check(t, func(t *rapid.T) {
		f := files(t)
		if f.Role == "" && f.RoleProblem == "" && !f.Former() && f.Joining.Swap == "" {
			f.Role = fleet.RoleAgent // no role file and never a member, nor about to be one: as before regrade, which may be both
		}
		if rolefile.MayStart(f, fleet.RoleServer).May && rolefile.MayStart(f, fleet.RoleAgent).May {
			t.Fatalf("both may start: %+v", f)
		}
	})
}

func TestNoServerOnATombstoneAndNoBootstrapOfAFormerMember(t *testing.T) { // safety rules 12, 13, 19
	rapid.Check(t, func(t *rapid.T) {
		f := files(t)
		may := rolefile.MayStart(f, fleet.RoleServer).May
		if may && f.Tombstone {
			t.Fatalf("on a tombstone: %+v", f)
		}
		if may && f.Former() && !f.WAL && f.Role == "" && !f.JoiningNow() && !f.AllowJoin {
			t.Fatalf("a former member whose role file is lost joins by itself: %+v", f)
		}
		if may && !f.WAL && f.Role == "" && (f.JoiningProblem != "" || f.Joining.Swap != "" && !f.JoiningNow()) && !f.AllowJoin {
			t.Fatalf("a host that may have begun a join in another boot, and has no role file, joins by itself: %+v", f)
		}
		if may && f.Former() && !f.WAL && (f.JoinURL == "" || !f.Token) {
			t.Fatalf("a former member would found a cluster: %+v", f)
		}
	})
}

func files(t *rapid.T) rolefile.Files {
	f := rolefile.Files{
		Role:    fleet.Role(rapid.SampledFrom([]string{"", "server", "agent"}).Draw(t, "role")),
		Leaving: fleet.SwapID(rapid.SampledFrom([]string{"", string(id)}).Draw(t, "leaving")),
		Joining: rapid.SampledFrom([]rolefile.Joining{{}, {Swap: id, BootID: boot}, {Swap: id, BootID: "other"}, {Swap: id}}).Draw(t, "joining"),
		BootID:  boot, AllowJoin: rapid.Bool().Draw(t, "allow"),
		WAL: rapid.Bool().Draw(t, "wal"), Tombstone: rapid.Bool().Draw(t, "tombstone"), Demoted: rapid.Bool().Draw(t, "demoted"), Token: rapid.Bool().Draw(t, "token"),
		JoinURL:  rapid.SampledFrom([]string{"", "https://b:6443"}).Draw(t, "url"),
		Identity: rolefile.Identity{ClusterID: fleet.MemberID(rapid.Uint64Range(0, 1).Draw(t, "cluster"))},
	}
	if f.Role == "" && rapid.Bool().Draw(t, "problem") {
		f.RoleProblem = "role \"x\""
	}
	if f.Identity.ClusterID == 0 && rapid.Bool().Draw(t, "identity problem") {
		f.IdentityProblem = "cluster-id"
	}
	if f.Joining.Swap == "" && !f.AllowJoin && rapid.Bool().Draw(t, "joining problem") {
		f.JoiningProblem = "joining: input/output error"
	}
	return f
}

func FuzzParseJoining(f *testing.F) {
	f.Add([]byte(`{"swap":"20261129T120000Z-a-d","boot_id":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		j, err := rolefile.ParseJoining(raw)
		if err == nil && (j.Swap == "") != (j.BootID == "") {
			t.Errorf("half a joining: %+v", j)
		}
	})
}
