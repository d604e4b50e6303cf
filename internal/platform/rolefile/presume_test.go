package rolefile_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

func TestWhatAnInventoryWritesAndWhatItIsRefused(t *testing.T) { // R-C-03, R-C-06, R-C-07, R-C-08, R-C-11
	const srv, agt = fleet.RoleServer, fleet.RoleAgent
	member := rolefile.Identity{ClusterID: 0xc}
	for name, c := range map[string]struct {
		files     rolefile.Files
		inventory fleet.Role
		eligible  bool
		running   fleet.Role
		held      fleet.SwapID
		write     fleet.Role
		says      string
	}{
		"the recorded role wins":                         {rolefile.Files{Role: agt}, srv, true, agt, "", "", "the role file says agent"},
		"also in a swap":                                 {rolefile.Files{Role: agt}, srv, true, agt, id, "", "the role file says agent"},
		"none is recorded":                               {rolefile.Files{}, agt, true, "", "", agt, ""},
		"none is recorded and the same runs":             {rolefile.Files{WAL: true}, srv, true, srv, "", srv, ""},
		"no inventory":                                   {rolefile.Files{}, "", true, srv, "", "", "no role is given"},
		"not eligible, nothing contradicts":              {rolefile.Files{}, srv, false, srv, "", "", "its role is the inventory's"},
		"not eligible, the other role runs":              {rolefile.Files{}, srv, false, agt, "", "", "the agent's k3s runs here and the inventory says server"},
		"eligible, no role file, the other role runs":    {rolefile.Files{}, agt, true, srv, "", "", "the server's k3s runs here"},
		"a swap holds the Lease":                         {rolefile.Files{}, agt, true, "", id, "", "nothing is changed before that ends"},
		"in a swap, and the role file is lost":           {rolefile.Files{Leaving: id, WAL: true}, srv, true, srv, "", "", "its role file is lost"},
		"a former member whose role file is lost":        {rolefile.Files{Identity: member}, srv, true, "", "", "", "was a member of a cluster"},
		"a demoted host whose role folder is lost":       {rolefile.Files{Demoted: true}, srv, true, "", "", "", "was a member of a cluster"},
		"the same beside its running agent":              {rolefile.Files{Demoted: true}, agt, true, agt, "", "", "was a member of a cluster"},
		"removed, and the role file is lost":             {rolefile.Files{WAL: true, Tombstone: true}, srv, true, "", "", "", "was a member of a cluster"},
		"a datastore on what shall be an agent":          {rolefile.Files{WAL: true}, agt, true, "", "", "", "it may be a voter"},
		"a role file that says something else":           {rolefile.Files{RoleProblem: "role \"x\""}, agt, true, "", "", "", "role \"x\""},
		"a cluster-id that cannot be read, no role file": {rolefile.Files{IdentityProblem: "x"}, agt, true, "", "", "", "was a member"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rolefile.Recording(c.files, c.inventory, c.eligible, c.running, c.held)
			if r.Write != c.write || !strings.Contains(r.Kept+r.Refused, c.says) || c.write == "" && r.Kept+r.Refused == "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What the entrypoint takes for the role is what will be written.
func TestAPresumedRoleIsTheOneThatIsRecorded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := files(t)
		inventory := rapid.SampledFrom([]fleet.Role{fleet.RoleServer, fleet.RoleAgent}).Draw(t, "inventory")
		p := rolefile.Presumed(f, inventory)
		r := rolefile.Recording(f, inventory, true, "", "")
		if r.Write != "" && p.Role != r.Write {
			t.Fatalf("presumed %q, recorded %q: %+v", p.Role, r.Write, f)
		}
		if rolefile.MayStart(p, fleet.RoleServer).May && rolefile.MayStart(p, fleet.RoleAgent).May {
			t.Fatalf("both may start: %+v", f)
		}
		if f.WAL && rolefile.MayStart(f, fleet.RoleServer).May && !rolefile.MayStart(p, fleet.RoleServer).May {
			t.Fatalf("an inventory keeps a member down: %+v", f)
		}
		if f.Former() && p.Role != f.Role {
			t.Fatalf("a former member's role is guessed: %+v", f)
		}
		if f.Role != "" && p.Role != f.Role {
			t.Fatalf("the role file does not win: %+v", f)
		}
	})
}
