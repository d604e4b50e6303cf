package doctor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// standby is a host in order: every finding is one change away.
func standby() doctor.Host {
	return doctor.Host{
		Node:   "n4",
		API:    doctor.API{Kubeconfig: "/k", Mode: 0o600, Server: "https://10.0.0.1:6443"},
		Clocks: []doctor.Clock{{Server: "https://10.0.0.1:6443", Ahead: 400 * time.Millisecond}},
		Files: doctor.Files{
			Role: fleet.RoleAgent, Level: fleet.LevelFull, May: map[fleet.Role]bool{fleet.RoleAgent: true},
			Why: map[fleet.Role]string{fleet.RoleServer: "the role file says agent", fleet.RoleAgent: "the role file says agent"},
		},
		Managed: true,
		Units: map[fleet.Role]doctor.Unit{
			fleet.RoleServer: {Name: "k3s.service", Loaded: true, Enabled: true, Conditioned: true, State: "inactive"},
			fleet.RoleAgent:  {Name: "k3s-agent.service", Loaded: true, Enabled: true, Conditioned: true, State: "active", Process: true},
		},
		Judged: true, Toward: "this standby becoming a server",
		Listeners: []doctor.Listener{{Address: "::", Port: 2380, Inode: 1, PID: 7, Name: "regrade", Regrade: true}},
		JoinURLs:  map[string]string{"n1": "https://10.0.0.1:6443", "n4": "https://10.0.0.4:6443"},
		Nodes:     []doctor.Node{{Name: "n1", InternalIP: "10.0.0.1", Voter: true, Eligible: true}, {Name: "n4", InternalIP: "10.0.0.4", Eligible: true}, {Name: "w1"}},
		Daemon:    doctor.Program{Looked: true, PID: 7}, K3sOnDisk: "v1", K3sRuns: "v1", Password: true,
	}
}

// server is a voter in order.
func server() doctor.Host {
	h := standby()
	h.Files.Role, h.Files.Datastore, h.Files.WAL = fleet.RoleServer, true, true
	h.Files.May = map[fleet.Role]bool{fleet.RoleServer: true}
	s, a := h.Units[fleet.RoleServer], h.Units[fleet.RoleAgent]
	s.Process, s.State, s.Level, a.Process, a.State = true, "active", fleet.LevelFull, false, "inactive"
	h.Units[fleet.RoleServer], h.Units[fleet.RoleAgent] = s, a
	h.Etcd = &doctor.Etcd{Linearizable: true, Version: "3.6.14"}
	h.Disk = doctor.Disk{Above: time.Millisecond, AtMost: 2 * time.Millisecond, Limit: 10 * time.Millisecond, Source: "etcd's WAL"}
	h.Listeners = nil
	for i, l := range []struct {
		address string
		port    int
	}{{"127.0.0.1", 2379}, {"10.0.0.4", 2379}, {"10.0.0.4", 2380}, {"::", 6443}} {
		h.Listeners = append(h.Listeners, doctor.Listener{Address: l.address, Port: l.port, Inode: uint64(i + 1), PID: 9, Name: "k3s-server", Role: fleet.RoleServer})
	}
	return h
}

func unit(h *doctor.Host, role fleet.Role, change func(*doctor.Unit)) {
	u := h.Units[role]
	change(&u)
	h.Units[role] = u
}

func TestAHostInOrderHasNothingWrong(t *testing.T) {
	for name, h := range map[string]doctor.Host{"a standby": standby(), "a server": server()} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for _, f := range doctor.JudgeHost(h) {
				if f.Grade != doctor.OK || f.Code != "" || f.Cure != "" || f.Sentence == "" {
					t.Errorf("%+v", f)
				}
				seen[f.Check] = true
			}
			if len(seen) != 14 {
				t.Errorf("%d checks said something: %v", len(seen), seen)
			}
		})
	}
}

func TestWhatIsWrongWithAHost(t *testing.T) {
	type change = func(h *doctor.Host)
	for name, c := range map[string]struct {
		of     func() doctor.Host
		change change
		want   []string // grade and code, in the order of the checks
	}{
		"settings that cannot be read": {standby, func(h *doctor.Host) { h.SettingsProblem = "host.yaml: node: missing" }, []string{"fail BadSettings"}},
		"a host that cannot be looked at": {standby, func(h *doctor.Host) { h.Unseen = "systemd: connect" },
			[]string{"fail HostNotSeen"}},
		"no kubeconfig":                     {standby, func(h *doctor.Host) { h.API = doctor.API{Missing: true} }, []string{"fail NoKubeconfig"}},
		"a kubeconfig that others may read": {standby, func(h *doctor.Host) { h.API.Mode = 0o640 }, []string{"fail KubeconfigOpen"}},
		"a credential that is refused":      {standby, func(h *doctor.Host) { h.API.Denied = "401" }, []string{"fail CredentialRefused"}},
		"the API down is a warning":         {standby, func(h *doctor.Host) { h.API.Problem = "refused" }, []string{"warn NoAPI"}},
		"a Node of another name":            {standby, func(h *doctor.Host) { h.API.NoNode = true }, []string{"fail NoNode"}},
		"a clock that is ahead (rule 22)":   {standby, func(h *doctor.Host) { h.Clocks[0].Ahead = 31 * time.Second }, []string{"fail ClockSkew"}},
		"a clock that is behind":            {standby, func(h *doctor.Host) { h.Clocks[0].Ahead = -time.Hour }, []string{"fail ClockSkew"}},
		"a clock at the bound":              {standby, func(h *doctor.Host) { h.Clocks[0].Ahead = 30 * time.Second }, nil},
		"of two servers one is off": {standby, func(h *doctor.Host) {
			h.Clocks = append(h.Clocks, doctor.Clock{Server: "b", Ahead: time.Minute})
		}, []string{"fail ClockSkew"}},
		"no server says the time":    {standby, func(h *doctor.Host) { h.Clocks[0].Problem = "refused" }, []string{"warn ClockUnknown"}},
		"a role file that says king": {standby, func(h *doctor.Host) { h.Files.RoleProblem = "king" }, []string{"fail BadRoleFile"}},
		"an identity that is no number": {server, func(h *doctor.Host) { h.Files.IdentityProblem = "member-id: x" },
			[]string{"fail BadIdentity"}},
		"a joining file that cannot be read": {standby, func(h *doctor.Host) { h.Files.JoiningProblem = "EIO" }, []string{"fail BadJoiningFile"}},
		"no role file, both may start (rule 10)": {standby, func(h *doctor.Host) {
			h.Files.Role = ""
			h.Files.May[fleet.RoleServer] = true
		}, []string{"warn NoRoleFile", "fail BothMayStart"}},
		"neither may start": {standby, func(h *doctor.Host) { h.Files.May[fleet.RoleAgent] = false },
			[]string{"fail NeitherMayStart"}},
		"an agent runs, and the files say server": {standby, func(h *doctor.Host) {
			h.Files.May = map[fleet.Role]bool{fleet.RoleServer: true}
		}, []string{"fail WrongRoleRuns"}},
		"both run (rule 10)": {standby, func(h *doctor.Host) {
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Process = true })
		}, []string{"fail BothRun", "fail NotListening", "fail NotListening"}},
		"nothing runs": {standby, func(h *doctor.Host) {
			unit(h, fleet.RoleAgent, func(u *doctor.Unit) { u.Process = false })
		}, []string{"fail NeitherRuns"}},
		"a masked unit": {standby, func(h *doctor.Host) {
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Masked, u.Loaded = true, false })
		}, []string{"fail UnitMasked"}},
		"no server unit": {standby, func(h *doctor.Host) {
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Loaded = false })
		}, []string{"fail NoUnit"}},
		"a unit that is not enabled": {standby, func(h *doctor.Host) {
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Enabled = false })
		}, []string{"warn UnitDisabled"}},
		"a condition that systemd has not read": {standby, func(h *doctor.Host) {
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Stale, u.Conditioned = true, false })
		}, []string{"fail UnitNotRead", "fail NoStartCondition"}},
		"containers are not systemd's": {standby, func(h *doctor.Host) {
			h.Managed = false
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Loaded, u.Enabled = false, false })
		}, nil},
		"no host daemon": {standby, func(h *doctor.Host) { h.Daemon.PID = 0; h.Listeners = nil }, []string{"fail NoHostDaemon"}},
		"a daemon that cannot be seen from here": {standby, func(h *doctor.Host) {
			h.Daemon, h.ListenersProblem = doctor.Program{}, "run this in its container"
		}, []string{"warn PortsNotRead"}},
		"a daemon of a replaced program":     {standby, func(h *doctor.Host) { h.Daemon.Replaced = true }, []string{"warn ProgramReplaced"}},
		"a note that cannot be read":         {standby, func(h *doctor.Host) { h.JournalProblem = "step.json" }, []string{"fail BadJournal"}},
		"a member of another cluster":        {standby, func(h *doctor.Host) { h.Halts = &status.Problem{Code: "ForeignCluster", Sentence: "s"} }, []string{"fail DaemonHalts"}},
		"a warning of the platform":          {standby, func(h *doctor.Host) { h.Warnings = []status.Problem{{Code: "EngineVersion", Sentence: "20.10"}} }, []string{"warn EngineVersion"}},
		"leaving without a swap":             {standby, func(h *doctor.Host) { h.Files.Leaving = "s" }, []string{"fail LeavingLeft"}},
		"leaving in the swap of its Node":    {standby, func(h *doctor.Host) { h.Files.Leaving, h.API.Swap = "s", "s" }, nil},
		"leaving while the Lease is held":    {standby, func(h *doctor.Host) { h.Files.Leaving, h.API.SwapHeld = "s", true }, nil},
		"leaving, and nobody can tell of it": {standby, func(h *doctor.Host) { h.Files.Leaving, h.API.Problem = "s", "refused" }, []string{"warn NoAPI"}},
		"joining without a swap":             {standby, func(h *doctor.Host) { h.Files.Joining = "s" }, []string{"warn JoiningLeft"}},
		"the same beside a datastore":        {standby, func(h *doctor.Host) { h.Files.Joining, h.Files.Datastore = "s", true }, []string{"fail JoiningLeft"}},
		"an operator's join is allowed":      {standby, func(h *doctor.Host) { h.Files.AllowJoin = true }, []string{"warn AllowJoinSet"}},
		"a tombstone":                        {server, func(h *doctor.Host) { h.Files.Tombstone = true }, []string{"fail TombstoneLeft"}},
		"a datastore on an agent (rule 12)":  {standby, func(h *doctor.Host) { h.Files.Datastore = true }, []string{"fail StrayDatastore"}},
		"a datastore of SQLite":              {server, func(h *doctor.Host) { h.Files.SQLite = true }, []string{"fail SQLiteLeft"}},
		"a server's drop-in on an agent":     {standby, func(h *doctor.Host) { h.Files.ServerJoin = "https://10.0.0.1:6443" }, []string{"warn JoinDropInLeft"}},
		"an agent's drop-in after a demotion is none": {standby, func(h *doctor.Host) {
			h.Files.AgentJoin = "https://10.0.0.1:6443"
		}, nil},
		"half a drop-in":                 {server, func(h *doctor.Host) { h.Files.ServerJoin = "half" }, []string{"warn JoinDropInHalf"}},
		"a level on an agent":            {standby, func(h *doctor.Host) { h.Files.Level = fleet.LevelEtcdOnly }, []string{"warn LevelLeft"}},
		"an etcd without a quorum":       {server, func(h *doctor.Host) { h.Etcd.Linearizable = false }, []string{"fail EtcdDown"}},
		"etcd 3.5.25 (rule 9)":           {server, func(h *doctor.Host) { h.Etcd.Version = "3.5.25" }, []string{"fail EtcdVersion"}},
		"etcd 3.6.3 (rule 9)":            {server, func(h *doctor.Host) { h.Etcd.Version = "3.6.3" }, []string{"fail EtcdVersion"}},
		"etcd 3.5.26 and 3.6.4 are fine": {server, func(h *doctor.Host) { h.Etcd.Version = "3.5.26" }, nil},
		"an alarm":                       {server, func(h *doctor.Host) { h.Etcd.Alarms = []string{"NOSPACE at n1"} }, []string{"fail EtcdAlarm"}},
		"a level that was not taken":     {server, func(h *doctor.Host) { h.Files.Level = fleet.LevelControlPlane }, []string{"warn LevelNotRun"}},
		"an agent's token in the server's configuration": {standby, func(h *doctor.Host) {
			h.Readiness = []status.Problem{{Code: "WrongToken", Sentence: "it may be an agent's"}}
		}, []string{"fail WrongToken"}},
		"a join host that falters passes by itself": {standby, func(h *doctor.Host) {
			h.Readiness = []status.Problem{{Code: "JoinHostFalters", Sentence: "status 500"}}
		}, []string{"warn JoinHostFalters"}},
		"not judged is no failure":      {standby, func(h *doctor.Host) { h.Judged = false; h.Listeners = nil }, nil},
		"a slow disk":                   {server, func(h *doctor.Host) { h.Disk.Above, h.Disk.AtMost = 16*time.Millisecond, 32*time.Millisecond }, []string{"warn SlowDisk"}},
		"a bucket that holds the limit": {server, func(h *doctor.Host) { h.Disk.Above, h.Disk.AtMost = 8*time.Millisecond, 16*time.Millisecond }, nil},
		"a disk that cannot be told of": {server, func(h *doctor.Host) { h.Disk.Problem = "refused" }, []string{"warn DiskNotMeasured"}},
		"a peer port that nobody holds": {standby, func(h *doctor.Host) { h.Listeners = nil }, []string{"fail NotListening"}},
		"a server that does not serve":  {server, func(h *doctor.Host) { h.Listeners = h.Listeners[:3] }, []string{"fail NotListening"}},
		"an etcd-only server has no API": {server, func(h *doctor.Host) {
			h.Files.Level, h.Listeners = fleet.LevelEtcdOnly, h.Listeners[:3]
			unit(h, fleet.RoleServer, func(u *doctor.Unit) { u.Level = fleet.LevelEtcdOnly })
		}, nil},
		"two k3s on one port (k3s-facts §3.5)": {server, func(h *doctor.Host) {
			two := h.Listeners[2]
			two.PID, two.Inode = 11, 99
			h.Listeners = append(h.Listeners, two)
		}, []string{"fail TwoOnOnePort"}},
		"two on one port, one of them in another container": {server, func(h *doctor.Host) {
			two := h.Listeners[3]
			two.PID, two.Inode, two.Role, two.Name = 0, 99, "", ""
			h.Listeners = append(h.Listeners, two)
		}, []string{"fail TwoOnOnePort"}},
		"one process with two sockets": {server, func(h *doctor.Host) {
			two := h.Listeners[2]
			two.Inode = 99
			h.Listeners = append(h.Listeners, two)
		}, nil},
		"a forwarder on the peer port": {standby, func(h *doctor.Host) {
			h.Listeners = []doctor.Listener{{Address: "0.0.0.0", Port: 2380, Inode: 5, PID: 8, Name: "socat"}}
		}, []string{"fail ForeignListener"}},
		"a socket of a container is nobody's to judge": {standby, func(h *doctor.Host) {
			h.Listeners = []doctor.Listener{{Address: "0.0.0.0", Port: 2380, Inode: 5}}
		}, nil},
		"join.yaml without itself":           {standby, func(h *doctor.Host) { delete(h.JoinURLs, "n4") }, []string{"fail NoOwnJoinURL"}},
		"join.yaml without a voter":          {standby, func(h *doctor.Host) { delete(h.JoinURLs, "n1") }, []string{"fail NoJoinURL"}},
		"a join URL at another address":      {standby, func(h *doctor.Host) { h.JoinURLs["n1"] = "https://10.9.9.9:6443" }, []string{"warn JoinURLElsewhere"}},
		"a join URL by a name":               {standby, func(h *doctor.Host) { h.JoinURLs["n1"] = "https://n1.example:6443" }, nil},
		"a join URL of no Node":              {standby, func(h *doctor.Host) { h.JoinURLs["n9"] = "https://10.0.0.9:6443" }, []string{"warn JoinURLOfNobody"}},
		"Nodes that are not known":           {standby, func(h *doctor.Host) { h.Nodes = nil; h.JoinURLs["n1"] = "https://10.9.9.9:6443" }, nil},
		"k3s was upgraded and not restarted": {standby, func(h *doctor.Host) { h.K3sRuns = "v0" }, []string{"warn K3sReplaced"}},
		"k3s's file was replaced":            {standby, func(h *doctor.Host) { h.K3s = doctor.Program{Looked: true, PID: 3, Replaced: true} }, []string{"warn K3sReplaced"}},
		"no node password":                   {standby, func(h *doctor.Host) { h.Password = false }, []string{"fail NoNodePassword"}},
		"another node password":              {server, func(h *doctor.Host) { h.PasswordProblem = "another" }, []string{"fail NodePasswordDiffers"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.of()
			c.change(&h)
			var got []string
			fs := doctor.JudgeHost(h)
			for _, f := range fs {
				if f.Grade == doctor.OK {
					continue
				}
				got = append(got, string(f.Grade)+" "+f.Code)
				if f.Sentence == "" || f.Cure == "" || f.Code == "" || f.Check == "" {
					t.Errorf("a finding without words: %+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v\n%s", got, c.want, doctor.New("v", "n", fs).Words())
			}
		})
	}
}

// With nothing known of the roles nobody can say what should listen.
func TestPortsAreNotInOrderWhereNothingIsKnown(t *testing.T) {
	for name, unseen := range map[string]string{"looked at": "", "not looked at": "systemd: connect"} {
		t.Run(name, func(t *testing.T) {
			h := standby()
			h.Unseen = unseen
			said := slices.ContainsFunc(doctor.JudgeHost(h), func(f doctor.Finding) bool { return f.Check == doctor.CheckPorts && f.Grade == doctor.OK })
			if said != (unseen == "") {
				t.Errorf("the ports are in order: %t", said)
			}
		})
	}
}

func TestTheWorstOfAllIsTheVerdict(t *testing.T) {
	f := func(gs ...doctor.Grade) (fs []doctor.Finding) {
		for _, g := range gs {
			fs = append(fs, doctor.Finding{Grade: g})
		}
		return fs
	}
	for _, c := range []struct {
		fs   []doctor.Finding
		want doctor.Grade
	}{{nil, doctor.OK}, {f(doctor.OK, doctor.Warn), doctor.Warn}, {f(doctor.Fail, doctor.Warn), doctor.Fail}, {f(doctor.Fail, "bad"), "bad"}} {
		if got := doctor.Worst(c.fs); got != c.want {
			t.Errorf("%v: %s, want %s", c.fs, got, c.want)
		}
	}
}

// Every code that this package names has a cure of its own.
func TestEveryCodeHasACure(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	fallback, n := doctor.Cure("nothing of the kind"), 0
	ast.Inspect(file, func(x ast.Node) bool {
		if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING && !strings.Contains(lit.Value, "/") {
			code, err := strconv.Unquote(lit.Value)
			if n++; err != nil || doctor.Cure(code) == fallback {
				t.Errorf("%s has no cure", code)
			}
		}
		return true
	})
	if n < 30 {
		t.Errorf("%d codes were looked at", n)
	}
}

func TestWordsSayTheWorstFirst(t *testing.T) {
	h := standby()
	h.Password, h.API.Problem = false, "refused"
	words := doctor.New("v1", "n4", doctor.JudgeHost(h)).Words()
	fail, warn, ok := strings.Index(words, "NoNodePassword"), strings.Index(words, "NoAPI"), strings.Index(words, "ok ")
	if fail < 0 || warn < fail || ok < warn || !strings.HasSuffix(words, "1 failure, 1 warning\n") || !strings.Contains(words, "> ") {
		t.Errorf("%s", words)
	}
}
