package entrypoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/entrypoint"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

const (
	id    = fleet.SwapID("20261129T120000Z-a-d")
	boot  = "boot-1"
	b     = "https://b:6443"
	other = "https://a:6443"
)

var (
	joining = rolefile.Joining{Swap: id, BootID: boot}
	member  = rolefile.Identity{ClusterID: 0xc}
	server  = []string{"server", "--config=/etc/rancher/k3s/server.yaml", "--data-dir=/var/lib/rancher/k3s"}
	agent   = []string{"agent", "--config=/etc/rancher/k3s/agent.yaml", "--data-dir=/var/lib/rancher/k3s"}
)

func plus(args []string, more ...string) []string { return append(slices.Clone(args), more...) }

// want is a decision, by what tells it apart.
type want struct {
	kind entrypoint.Kind
	why  string
	args []string
}

// of makes the facts of a container: the join of the role is the server's unless
// the case has its own.
func of(role fleet.Role, f rolefile.Files, change ...func(*entrypoint.Facts)) entrypoint.Facts {
	f.BootID = boot
	x := entrypoint.Facts{Role: role, Files: f, URL: f.JoinURL, Token: f.Token, Asked: asked(f.JoinURL, entrypoint.Answers)}
	for _, c := range change {
		c(&x)
	}
	return x
}

func asked(url string, says entrypoint.Says) entrypoint.Asked {
	return entrypoint.Asked{URL: url, Says: says, Why: "i/o timeout"}
}

// elsewhere is a founder's .env: nowhere to join, and a server for its agent, which says something.
func elsewhere(url string, says entrypoint.Says, change ...func(*entrypoint.Facts)) func(*entrypoint.Facts) {
	return func(x *entrypoint.Facts) {
		x.AgentURL, x.Asked = other, asked(url, says)
		for _, c := range change {
			c(x)
		}
	}
}

func demoted(x *entrypoint.Facts) { x.Files.Demoted = true }

func TestNext(t *testing.T) {
	const srv, agt = fleet.RoleServer, fleet.RoleAgent
	join := func(f rolefile.Files) rolefile.Files { f.JoinURL, f.Token = b, true; return f }
	toB := func(x *entrypoint.Facts) { x.URL, x.Token = b, true }
	part := func(x *entrypoint.Facts) { x.Part = "/etc/rancher/node/.regrade-copy" }
	for name, c := range map[string]struct {
		facts entrypoint.Facts
		want  want
	}{
		"an agent whose identity is not copied yet idles (R-N-09)": {
			of(agt, rolefile.Files{Role: agt}, toB, part), want{kind: entrypoint.Idle, why: "has not been copied here from the other role's volumes (/etc/rancher/node/.regrade-copy)"},
		},
		"so does a server that would join": {
			of(srv, join(rolefile.Files{Role: agt, Joining: joining}), part), want{kind: entrypoint.Idle, why: "has not been copied here"},
		},
		"a member starts, it may be the vote that makes the quorum": {
			of(srv, rolefile.Files{Role: srv, WAL: true}, part), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")},
		},
		"a person's allow-join counts": {
			of(srv, join(rolefile.Files{Role: agt, AllowJoin: true}), part), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)},
		},
		"a server container on a host whose role file says agent idles (R-A-05, R-A-16, R-A-22)": {
			of(srv, rolefile.Files{Role: agt}), want{kind: entrypoint.Idle, why: "the role file says agent"},
		},
		"so it does with a datastore": {of(srv, rolefile.Files{Role: agt, WAL: true}), want{kind: entrypoint.Idle, why: "the role file says agent"}},
		"an agent container on a host whose role file says server idles (R-A-05, R-A-16)": {
			of(agt, rolefile.Files{Role: srv, WAL: true}, toB), want{kind: entrypoint.Idle, why: "the role file says server"},
		},
		"the role file says agent, the host was demoted and there is no URL: the guard comes first (R-A-05, R-A-11)": {
			of(srv, rolefile.Files{Role: agt, Identity: member}, demoted), want{kind: entrypoint.Idle, why: "the role file says agent"},
		},
		"a server on a tombstone idles (R-A-06, R-A-17)": {
			of(srv, rolefile.Files{Role: srv, WAL: true, Tombstone: true}), want{kind: entrypoint.Idle, why: "tombstone"},
		},
		"a server on a tombstone idles without a role file too (R-A-06)": {of(srv, rolefile.Files{WAL: true, Tombstone: true}), want{kind: entrypoint.Idle, why: "tombstone"}},
		"no URL and a datastore: --cluster-init as ever (R-A-10, R-A-15)": {
			of(srv, rolefile.Files{WAL: true}), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")},
		},
		"no URL and a datastore moved aside: refused (R-A-11, R-A-15, R-A-20)": {
			of(srv, rolefile.Files{Role: srv}, demoted), want{kind: entrypoint.Refuse, why: "its datastore was moved aside"},
		},
		"the same without a role file (R-A-11)": {of(srv, rolefile.Files{}, demoted), want{kind: entrypoint.Refuse, why: "/etc/github-runner/join-url and K3S_JOIN_SERVER_URL are empty"}},
		"no URL and neither: the first server founds the cluster (R-A-12, R-A-15)": {
			of(srv, rolefile.Files{Role: srv}), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")},
		},
		"it asks the server of its agent first":                                     {of(srv, rolefile.Files{Role: srv}, elsewhere("", "")), want{kind: entrypoint.Ask, why: "is asked of " + other}},
		"another one was asked":                                                     {of(srv, rolefile.Files{Role: srv}, elsewhere(b, entrypoint.Nobody)), want{kind: entrypoint.Ask, why: other}},
		"nobody serves there: it founds (R-A-12)":                                   {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Nobody)), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"a cluster answers: a second server with the founder's .env founds nothing": {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Answers)), want{kind: entrypoint.Refuse, why: "set K3S_JOIN_SERVER_URL to join it"}},
		"not by a person's word either":                                             {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Answers, first)), want{kind: entrypoint.Refuse, why: "a server answers"}},
		"it does not answer: that may be a cluster that is down":                    {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Silent)), want{kind: entrypoint.Ask, why: "i/o timeout"}},
		"a person says that there is none":                                          {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Silent, first)), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"it is its own address":                                                     {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Itself)), want{kind: entrypoint.Refuse, why: "its own address"}},
		"and a person says that it is the first":                                    {of(srv, rolefile.Files{Role: srv}, elsewhere(other, entrypoint.Itself, first)), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"where to ask cannot be told":                                               {of(srv, rolefile.Files{Role: srv}, func(x *entrypoint.Facts) { x.AgentProblem = "join URL \"a\"" }), want{kind: entrypoint.Refuse, why: "nobody can be asked"}},
		"a founder with a datastore asks nobody":                                    {of(srv, rolefile.Files{Role: srv, WAL: true}, elsewhere("", "")), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"a single server on sqlite asks nobody":                                     {of(srv, rolefile.Files{}, elsewhere("", "", func(x *entrypoint.Facts) { x.SQLite = true })), want{kind: entrypoint.Exec, args: server}},
		"no role file, a server (R-A-04, R-A-18)":                                   {of(srv, rolefile.Files{}), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"no role file, a server that joins (R-A-04, R-A-18)":                        {of(srv, join(rolefile.Files{})), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"no role file, an agent (R-A-04, R-A-18)":                                   {of(agt, rolefile.Files{}, toB), want{kind: entrypoint.Exec, args: plus(agent, "--server="+b)}},
		"no role file, a single server on sqlite (R-A-04)": {
			of(srv, rolefile.Files{}, func(x *entrypoint.Facts) { x.SQLite = true }), want{kind: entrypoint.Exec, args: server},
		},
		"a demoted host with a URL joins (R-A-21)": {of(srv, join(rolefile.Files{Role: srv}), demoted), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"the role folder of a demoted host is lost: no inventory lets it join (13, 18)": {
			of(srv, join(rolefile.Files{}), demoted, inventory(srv)), want{kind: entrypoint.Idle, why: "its role file is lost"},
		},
		"nor does the absence of one":                                     {of(srv, join(rolefile.Files{}), demoted), want{kind: entrypoint.Idle, why: "its role file is lost"}},
		"its agent goes on, whatever the inventory says":                  {of(agt, join(rolefile.Files{}), demoted, toB, inventory(srv)), want{kind: entrypoint.Exec, args: plus(agent, "--server="+b)}},
		"so it does where the inventory says agent":                       {of(agt, join(rolefile.Files{}), demoted, toB, inventory(agt)), want{kind: entrypoint.Exec, args: plus(agent, "--server="+b)}},
		"a demoted host that was promoted again starts on its datastore":  {of(srv, join(rolefile.Files{WAL: true}), demoted, inventory(agt)), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"and its agent does not start beside it":                          {of(agt, join(rolefile.Files{WAL: true}), demoted, toB, inventory(agt)), want{kind: entrypoint.Idle, why: "the server may start"}},
		"a demoted host is promoted: the role file says agent still (18)": {of(srv, join(rolefile.Files{Role: agt, Joining: joining, Identity: member}), demoted), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"a person lets it join (18)":                                      {of(srv, join(rolefile.Files{AllowJoin: true}), demoted, inventory(srv)), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"it waits for the host of that URL first (R-A-09)": {
			of(srv, join(rolefile.Files{Role: srv}), demoted, func(x *entrypoint.Facts) { x.Asked = entrypoint.Asked{} }), want{kind: entrypoint.Wait, why: b},
		},
		"another host has answered: it waits for this one (R-A-09)": {
			of(srv, join(rolefile.Files{Role: srv}), func(x *entrypoint.Facts) { x.Asked = asked("https://a:6443", entrypoint.Answers) }), want{kind: entrypoint.Wait, why: b},
		},
		"a server with a datastore waits for nobody": {
			of(srv, join(rolefile.Files{Role: srv, WAL: true, Identity: member}), func(x *entrypoint.Facts) { x.Asked = entrypoint.Asked{} }), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)},
		},
		"an agent waits for nobody: k3s does":                  {of(agt, rolefile.Files{Role: agt}, toB, func(x *entrypoint.Facts) { x.Asked = entrypoint.Asked{} }), want{kind: entrypoint.Exec, args: plus(agent, "--server="+b)}},
		"an agent has nowhere to join (R-228-14)":              {of(agt, rolefile.Files{Role: agt}), want{kind: entrypoint.Refuse, why: "K3S_AGENT_SERVER_URL"}},
		"an agent's URL is no URL":                             {of(agt, rolefile.Files{Role: agt}, func(x *entrypoint.Facts) { x.JoinProblem = "join URL \"b\"" }), want{kind: entrypoint.Refuse, why: "join URL"}},
		"a URL without a token is no empty sqlite":             {of(srv, rolefile.Files{JoinURL: b}), want{kind: entrypoint.Refuse, why: "no token"}},
		"a former member with neither refuses (R-X-04, 19)":    {of(srv, rolefile.Files{Role: srv, Identity: member}), want{kind: entrypoint.Refuse, why: "it was in cluster"}},
		"a former member with a URL and no swap idles (18)":    {of(srv, join(rolefile.Files{Role: srv, Identity: member})), want{kind: entrypoint.Idle, why: "only by a swap or allow-join"}},
		"a former member that joins in a swap (18)":            {of(srv, join(rolefile.Files{Role: agt, Joining: joining, Identity: member})), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"its agent container meanwhile (10)":                   {of(agt, join(rolefile.Files{Role: agt, Joining: joining})), want{kind: entrypoint.Idle, why: "joins as a server"}},
		"a former member that the operator lets join (18)":     {of(srv, join(rolefile.Files{Role: srv, AllowJoin: true, Identity: member})), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"joining without a URL":                                {of(srv, rolefile.Files{Role: agt, Joining: joining, Token: true}), want{kind: entrypoint.Refuse, why: "it shall join"}},
		"the joining of another boot":                          {of(srv, join(rolefile.Files{Role: agt, Joining: rolefile.Joining{Swap: id, BootID: "boot-0"}})), want{kind: entrypoint.Idle, why: "before this boot"}},
		"a leaving server on its datastore (11)":               {of(srv, join(rolefile.Files{Role: agt, Leaving: id, WAL: true, Identity: member})), want{kind: entrypoint.Exec, args: plus(server, "--server="+b)}},
		"its agent container (11)":                             {of(agt, join(rolefile.Files{Role: agt, Leaving: id, WAL: true})), want{kind: entrypoint.Idle, why: "still has a vote"}},
		"a role file that says something else":                 {of(srv, rolefile.Files{RoleProblem: "role \"x\""}, demoted), want{kind: entrypoint.Idle, why: "role \"x\""}},
		"a cluster-id that cannot be read and no datastore":    {of(srv, rolefile.Files{IdentityProblem: "cluster-id"}), want{kind: entrypoint.Idle, why: "cannot be told"}},
		"a member whose join-url cannot be read starts":        {of(srv, rolefile.Files{Role: srv, WAL: true}, func(x *entrypoint.Facts) { x.JoinProblem = "join-url" }), want{kind: entrypoint.Exec, args: server}},
		"a newcomer whose join-url cannot be read":             {of(srv, rolefile.Files{Role: srv}, func(x *entrypoint.Facts) { x.JoinProblem = "join-url" }), want{kind: entrypoint.Refuse, why: "join-url"}},
		"a member with a URL and no token starts on its own":   {of(srv, rolefile.Files{Role: srv, WAL: true, JoinURL: b}), want{kind: entrypoint.Exec, args: server}},
		"a member that was demoted once founds nothing (X-04)": {of(srv, rolefile.Files{Role: srv, WAL: true}, demoted), want{kind: entrypoint.Exec, args: server}},
		"a known member founds nothing (19)":                   {of(srv, rolefile.Files{Role: srv, WAL: true, Identity: member}), want{kind: entrypoint.Exec, args: server}},
		"etcd-only, all four flags (R-112-08)": {
			of(srv, rolefile.Files{Role: srv, WAL: true, Identity: member}, func(x *entrypoint.Facts) { x.Level = fleet.LevelEtcdOnly }),
			want{kind: entrypoint.Exec, args: plus(server, "--disable-apiserver", "--disable-controller-manager", "--disable-scheduler", "--disable-agent")},
		},
		"control-plane needs no flag of k3s, as in the drop-in": {
			of(srv, rolefile.Files{Role: srv, WAL: true, Identity: member}, func(x *entrypoint.Facts) { x.Level = fleet.LevelControlPlane }), want{kind: entrypoint.Exec, args: server},
		},
		"labels of both roles (R-185-34)": {
			of(agt, rolefile.Files{Role: agt}, toB, func(x *entrypoint.Facts) { x.Labels = []string{"p/voter-eligible=true", "p/voter-pinned=false"} }),
			want{kind: entrypoint.Exec, args: plus(agent, "--node-label=p/voter-eligible=true", "--node-label=p/voter-pinned=false", "--server="+b)},
		},
		"no role file, the inventory says server: the agent idles (R-X-02)":      {of(agt, rolefile.Files{}, toB, inventory(srv)), want{kind: entrypoint.Idle, why: "server"}},
		"no role file, the inventory says agent: the server idles (R-X-02)":      {of(srv, rolefile.Files{}, inventory(agt)), want{kind: entrypoint.Idle, why: "agent"}},
		"a datastore outweighs an inventory":                                     {of(srv, rolefile.Files{WAL: true}, inventory(agt)), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"and holds the agent back":                                               {of(agt, rolefile.Files{WAL: true}, toB, inventory(agt)), want{kind: entrypoint.Idle, why: "server"}},
		"the role file outweighs an inventory (R-C-03)":                          {of(srv, rolefile.Files{Role: srv}, inventory(agt)), want{kind: entrypoint.Exec, args: plus(server, "--cluster-init")}},
		"the role file of a former member is lost: no inventory makes it one":    {of(srv, join(rolefile.Files{Identity: member}), inventory(srv)), want{kind: entrypoint.Idle, why: "only by a swap"}},
		"a tombstone and an inventory that says server: the agent may still run": {of(agt, rolefile.Files{WAL: true, Tombstone: true}, toB, inventory(srv)), want{kind: entrypoint.Exec, args: plus(agent, "--server="+b)}},
	} {
		t.Run(name, func(t *testing.T) {
			d := entrypoint.Next(c.facts)
			if d.Kind != c.want.kind || !strings.Contains(d.Why, c.want.why) || d.Why == "" {
				t.Fatalf("%+v, want %+v", d, c.want)
			}
			if diff := cmp.Diff(c.want.args, d.Args); c.want.kind == entrypoint.Exec && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func first(x *entrypoint.Facts) { x.First = true }

func inventory(role fleet.Role) func(*entrypoint.Facts) {
	return func(x *entrypoint.Facts) { x.Inventory = role }
}

func TestTheWaitIsForTheURLsOwnPort(t *testing.T) { // R-A-09
	for url, address := range map[string]string{"https://b:6443": "b:6443", "https://b": "b:443", "https://[fd00::1]:7443": "[fd00::1]:7443"} {
		d := entrypoint.Next(of(fleet.RoleServer, rolefile.Files{JoinURL: url, Token: true}, func(x *entrypoint.Facts) { x.Asked = entrypoint.Asked{} }))
		if d.Kind != entrypoint.Wait || d.Address != address || d.URL != url {
			t.Errorf("%s: %+v", url, d)
		}
	}
}

// runs says that a decision is k3s, now or once the join host answers.
func runs(d entrypoint.Decision) bool { return d.Kind == entrypoint.Exec || d.Kind == entrypoint.Wait }

// The break check: drop the inventory from Presumed, or the Demoted case from mayFound.
func TestWhateverAHostHoldsNeverBothRolesAndNoSecondCluster(t *testing.T) { // safety rules 10 to 13, 18, 19; R-X-02, R-X-04
	rapid.Check(t, func(t *rapid.T) {
		f := anyFiles(t)
		host := entrypoint.Facts{
			Files: f, SQLite: rapid.Bool().Draw(t, "sqlite"),
			Inventory: rapid.SampledFrom([]fleet.Role{"", fleet.RoleServer, fleet.RoleAgent}).Draw(t, "inventory"),
			Level:     rapid.SampledFrom([]fleet.Level{fleet.LevelFull, fleet.LevelControlPlane, fleet.LevelEtcdOnly}).Draw(t, "level"),
			Asked: asked(rapid.SampledFrom([]string{"", b, other}).Draw(t, "asked"),
				rapid.SampledFrom([]entrypoint.Says{entrypoint.Answers, entrypoint.Nobody, entrypoint.Itself, entrypoint.Silent}).Draw(t, "says")),
			AgentURL: rapid.SampledFrom([]string{"", b, other}).Draw(t, "where the agent joins"),
			First:    rapid.Bool().Draw(t, "first"),
		}
		s, a := host, host
		s.Role, s.URL, s.Token = fleet.RoleServer, f.JoinURL, f.Token
		if rapid.Bool().Draw(t, "join problem") {
			s.URL, s.JoinProblem, s.Files.JoinURL = "", "join-url is a folder", ""
		}
		a.Role, a.Token = fleet.RoleAgent, true
		a.URL = rapid.SampledFrom([]string{"", b}).Draw(t, "agent url")
		ds, da := entrypoint.Next(s), entrypoint.Next(a)

		asBefore := f.Role == "" && f.RoleProblem == "" && !f.Former() && host.Inventory == "" // R-A-04
		if runs(ds) && runs(da) && !asBefore {
			t.Fatalf("both roles: %+v\nserver %+v\nagent %+v", host, ds, da)
		}
		if ds.Why == "" || da.Why == "" {
			t.Fatalf("no reason: %+v %+v", ds, da)
		}
		found := slices.Contains(ds.Args, "--cluster-init")
		if found && (f.Former() || s.URL != "" || s.JoinProblem != "") {
			t.Fatalf("--cluster-init of a former member, or beside a join: %+v", host)
		}
		if a := host.Asked; found && !f.WAL && host.AgentURL != "" &&
			(a.URL != host.AgentURL || a.Says == entrypoint.Answers || a.Says != entrypoint.Nobody && !host.First) {
			t.Fatalf("a second cluster beside one that may be there: %+v", host)
		}
		if runs(ds) && f.Former() && !f.WAL && f.Role == "" && !f.JoiningNow() && !f.AllowJoin {
			t.Fatalf("a former member whose role file is lost joins by itself: %+v", host)
		}
		if ds.Kind == entrypoint.Exec && f.Former() && !f.WAL && !slices.Contains(ds.Args, "--server="+b) {
			t.Fatalf("a former member would start an empty datastore, sqlite or not: %+v", host)
		}
		if runs(ds) && f.Tombstone {
			t.Fatalf("a server on a tombstone: %+v", host)
		}
		if slices.Contains(da.Args, "--cluster-init") || slices.Contains(da.Args, "--disable-apiserver") {
			t.Fatalf("server flags on an agent, which dies on them: %+v", da)
		}
		if ds.Kind == entrypoint.Wait && f.WAL {
			t.Fatalf("a member waits for another host: %+v", host)
		}
		if may := rolefile.MayStart(rolefile.Presumed(s.Files, host.Inventory), fleet.RoleServer).May; runs(ds) && !may {
			t.Fatalf("a server starts that may not: %+v", host)
		}
	})
}

func anyFiles(t *rapid.T) rolefile.Files {
	f := rolefile.Files{
		Role:    rapid.SampledFrom([]fleet.Role{"", fleet.RoleServer, fleet.RoleAgent}).Draw(t, "role"),
		Leaving: rapid.SampledFrom([]fleet.SwapID{"", id}).Draw(t, "leaving"),
		Joining: rapid.SampledFrom([]rolefile.Joining{{}, joining, {Swap: id, BootID: "other"}}).Draw(t, "joining"),
		BootID:  boot, AllowJoin: rapid.Bool().Draw(t, "allow"),
		WAL: rapid.Bool().Draw(t, "wal"), Tombstone: rapid.Bool().Draw(t, "tombstone"), Demoted: rapid.Bool().Draw(t, "demoted"), Token: rapid.Bool().Draw(t, "token"),
		JoinURL:  rapid.SampledFrom([]string{"", b}).Draw(t, "url"),
		Identity: rolefile.Identity{ClusterID: fleet.MemberID(rapid.Uint64Range(0, 1).Draw(t, "cluster"))},
	}
	if f.Role == "" && rapid.Bool().Draw(t, "role problem") {
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
