package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// MaxSkew is how far a host's clock may be off an API server's.
const MaxSkew = 30 * time.Second

// Names of the checks of a host.
const (
	CheckSettings  = "settings"
	CheckAPI       = "api"
	CheckClock     = "clock"
	CheckRole      = "role"
	CheckUnits     = "units"
	CheckDaemon    = "daemon"
	CheckLeftovers = "leftovers"
	CheckEtcd      = "etcd"
	CheckReadiness = "readiness"
	CheckDisk      = "disk"
	CheckPorts     = "ports"
	CheckJoin      = "join"
	CheckK3s       = "k3s"
	CheckPassword  = "password"
)

// JudgeHost finds what is wrong with a host: at least one finding a check.
func JudgeHost(h Host) []Finding {
	c := &check{name: CheckSettings}
	switch {
	case h.SettingsProblem != "":
		c.fail(CodeSettings, "%s", h.SettingsProblem)
		return append(c.found, h.daemon()...)
	case h.Unseen != "":
		c.fail(CodeUnseen, "this host cannot be looked at: %s", h.Unseen)
		return slices.Concat(c.found, h.api(), h.clock(), h.ports(), h.daemon())
	}
	return slices.Concat(
		c.or("%s and %s can be read", fleet.FileHostConfig, fleet.FileJoinConfig),
		h.api(), h.clock(), h.role(), h.units(), h.daemon(), h.leftovers(), h.etcd(), h.readiness(), h.disk(), h.ports(), h.join(), h.k3s(), h.password(),
	)
}

func (h Host) api() []Finding {
	c := &check{name: CheckAPI}
	a := h.API
	if a.Missing {
		c.fail(CodeNoKubeconfig, "%s is not there: the daemon guards this host and hears of no order", a.Kubeconfig)
		return c.found
	}
	if a.Mode&0o077 != 0 {
		c.fail(CodeOpenKubeconfig, "others may read %s: its mode is %#o, want 0600", a.Kubeconfig, a.Mode)
	}
	switch {
	case a.Denied != "":
		c.fail(CodeCredential, "%s", a.Denied)
	case a.Problem != "":
		c.warn(CodeNoAPI, "no API server answers this host: %s", a.Problem)
	case a.NoNode:
		c.fail(CodeNoNode, "the cluster has no Node %s", h.Node)
	}
	return c.or("%s takes this host's credential", a.Server)
}

func (h Host) clock() []Finding {
	c := &check{name: CheckClock}
	most, known := time.Duration(0), 0
	for _, k := range h.Clocks {
		if k.Problem != "" {
			continue
		}
		known++
		most = max(most, k.Ahead.Abs())
		if k.Ahead.Abs() > MaxSkew {
			way := "ahead of"
			if k.Ahead < 0 {
				way = "behind"
			}
			c.fail(CodeSkew, "this host's clock is %s %s that of %s; at most %s are allowed", k.Ahead.Abs().Round(time.Second), way, k.Server, MaxSkew)
		}
	}
	if known == 0 {
		c.warn(CodeClockUnknown, "no API server answered, so nothing says whether this host's clock is right%s", firstProblem(h.Clocks))
	}
	return c.or("no more than %s off %s", most.Round(time.Second), plural(known, "API server"))
}

func firstProblem(ks []Clock) string {
	for _, k := range ks {
		if k.Problem != "" {
			return ": " + k.Server + ": " + k.Problem
		}
	}
	return ""
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// role: which of the two may start, and what runs (safety rule 10).
func (h Host) role() []Finding {
	c := &check{name: CheckRole}
	f := h.Files
	switch {
	case f.RoleProblem != "":
		c.fail(CodeBadRole, "%s", f.RoleProblem)
	case f.Role == "":
		c.warn(CodeNoRole, "%s is not there: nothing says which role this host has", fleet.FileRole)
	}
	if f.IdentityProblem != "" {
		c.fail(CodeBadIdentity, "%s", f.IdentityProblem)
	}
	if f.JoiningProblem != "" {
		c.fail(CodeBadJoining, "%s", f.JoiningProblem)
	}
	server, agent := f.May[fleet.RoleServer], f.May[fleet.RoleAgent]
	switch {
	case server && agent:
		c.fail(CodeBothMay, "both roles may start: the server since %s; the agent since %s", f.Why[fleet.RoleServer], f.Why[fleet.RoleAgent])
	case !server && !agent:
		c.fail(CodeNeitherMay, "neither role may start: not the server, %s; nor the agent, %s", f.Why[fleet.RoleServer], f.Why[fleet.RoleAgent])
	}
	s, a := h.Units[fleet.RoleServer], h.Units[fleet.RoleAgent]
	switch {
	case s.Process && a.Process:
		c.fail(CodeBothRun, "a k3s server and a k3s agent run at once")
	case !s.Process && !a.Process:
		c.fail(CodeNeitherRuns, "no k3s runs: the server is %s, the agent is %s", s.State, a.State)
	case s.Process && !server && agent:
		c.fail(CodeWrongRuns, "a k3s server runs and would not start again: %s", f.Why[fleet.RoleServer])
	case a.Process && !agent && server:
		c.fail(CodeWrongRuns, "a k3s agent runs and would not start again: %s", f.Why[fleet.RoleAgent])
	}
	return c.or("%s, as its files say", f.Role)
}

func (h Host) units() []Finding {
	c := &check{name: CheckUnits}
	for _, role := range []fleet.Role{fleet.RoleServer, fleet.RoleAgent} {
		u := h.Units[role]
		switch {
		case h.Managed && u.Masked:
			c.fail(CodeMasked, "the unit %s is masked: nothing starts it, whatever the role says", u.Name)
			continue
		case h.Managed && !u.Loaded:
			c.fail(CodeNoUnit, "systemd has no unit %s", u.Name)
			continue
		case h.Managed && !u.Enabled:
			// Both stay enabled for ever: the role file decides (safety rule 10).
			c.warn(CodeDisabled, "the unit %s is not enabled: after a reboot in this role nothing would start it", u.Name)
		}
		if h.Managed && u.Stale {
			c.fail(CodeStaleUnit, "the files of %s have changed since systemd read them: what they say is not in force", u.Name)
		}
		if !u.Conditioned {
			why := u.Problem
			if why == "" {
				why = fmt.Sprintf("%s does not ask `regrade host role-is %s` before it starts", u.Name, role)
			}
			c.fail(CodeNoCondition, "%s", why)
		}
	}
	return c.or("%s and %s are there, and ask the role before they start", h.Units[fleet.RoleServer].Name, h.Units[fleet.RoleAgent].Name)
}

func (h Host) daemon() []Finding {
	c := &check{name: CheckDaemon}
	switch d := h.Daemon; {
	case d.Looked && d.PID == 0:
		c.fail(CodeNoDaemon, "no host daemon runs here: orders are not carried out, and this host is silent to the controller")
	case d.Replaced:
		c.warn(CodeReplaced, "the host daemon (process %d) runs from a file that has been replaced since", d.PID)
	}
	if h.JournalProblem != "" {
		c.fail(CodeBadJournal, "%s: the daemon does nothing before a person has looked", h.JournalProblem)
	} else if h.Halts != nil {
		c.fail(CodeHalts, "the daemon does nothing before a person has looked: %s (%s)", h.Halts.Sentence, h.Halts.Code)
	}
	for _, w := range h.Warnings {
		c.warn(w.Code, "%s", w.Sentence)
	}
	if !h.Daemon.Looked {
		return c.or("its note can be read; whether it runs cannot be seen from here")
	}
	return c.or("runs, process %d", h.Daemon.PID)
}

// leftovers are what an earlier role or swap left behind. server/db.demoted is none:
// one copy is kept for a person.
func (h Host) leftovers() []Finding {
	c := &check{name: CheckLeftovers}
	f := h.Files
	// A swap that nobody can tell of may be under way.
	swapping := !h.API.answered() || h.API.Swap != "" || h.API.SwapHeld
	if f.Leaving != "" && !swapping {
		c.fail(CodeLeavingLeft, "%s names swap %s, which is not under way: this host starts as a server and is to be removed", fleet.FileLeaving, f.Leaving)
	}
	switch {
	case f.Joining == "" || swapping:
	case f.Role != fleet.RoleServer && f.Datastore && !f.Tombstone:
		c.fail(CodeJoiningLeft, "%s names swap %s, which is not under way, and there is a datastore in server/db: by the two the server starts, whatever the role file says", fleet.FileJoinBegun, f.Joining)
	default:
		c.warn(CodeJoiningLeft, "%s names swap %s, which is not under way", fleet.FileJoinBegun, f.Joining)
	}
	if f.AllowJoin {
		c.warn(CodeAllowJoin, "%s lets the server join without a swap until the next reboot", fleet.FileAllowJoin)
	}
	if f.Tombstone {
		c.fail(CodeTombstone, "etcd's datastore has a tombstone: this member was removed, and k3s would die on it")
	}
	if f.Role == fleet.RoleAgent {
		if f.Datastore && f.Leaving == "" && f.Joining == "" && !f.Tombstone {
			c.fail(CodeStray, "the role is agent and there is a datastore in server/db: a server would start on it")
		}
		if f.ServerJoin != "" && f.Leaving == "" && f.Joining == "" && !swapping {
			c.warn(CodeJoinLeft, "the role is agent and %s is still there", fleet.FileJoinDropIn)
		}
		if f.Level != "" && f.Level != fleet.LevelFull {
			c.warn(CodeLevelLeft, "the role is agent and the server's level is %s", f.Level)
		}
	}
	if f.SQLite {
		c.fail(CodeSQLite, "server/db/state.db is there, a datastore of SQLite: a server without etcd's would start on it")
	}
	for path, join := range map[string]string{fleet.FileJoinDropIn: f.ServerJoin, fleet.FileAgentJoin: f.AgentJoin} {
		if join != "" && !strings.Contains(join, "://") {
			c.warn(CodeHalfJoin, "%s and the unit's drop-in of that name do not say the same", path)
		}
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int { return strings.Compare(a.Code, b.Code) })
	return c.or("nothing is left of an earlier role")
}

func (h Host) etcd() []Finding {
	c := &check{name: CheckEtcd}
	if h.Etcd == nil {
		return c.or("this host has no member")
	}
	e := h.Etcd
	if !e.Linearizable {
		why := e.Error
		if why == "" {
			why = "it says nothing"
		}
		c.fail(CodeEtcdDown, "this host's etcd does not answer a linearizable read: %s", why)
	}
	if e.Version != "" && !swap.EtcdVersionSafe(e.Version) {
		c.fail(CodeEtcdVersion, "etcd is %s; swaps need 3.5.26 or later, or 3.6.4 or later", e.Version)
	}
	if len(e.Alarms) > 0 {
		c.fail(CodeAlarm, "etcd says %s", strings.Join(e.Alarms, ", "))
	}
	if s := h.Units[fleet.RoleServer]; s.Process && s.Level != "" && s.Level != h.Files.Level {
		c.warn(CodeLevelDiffers, "k3s runs at level %s, its next start takes %s", s.Level, h.Files.Level)
	}
	return c.or("version %s, answers with a quorum", e.Version)
}

// passing are problems that are no failure of the host: they pass by themselves.
var passing = []string{status.CodeJoinHostFalters, "VersionMismatch"}

func (h Host) readiness() []Finding {
	c := &check{name: CheckReadiness}
	if !h.Judged {
		return c.or("not judged: this host changes its role now, or its role is not known")
	}
	for _, p := range h.Readiness {
		g := Fail
		if slices.Contains(passing, p.Code) {
			g = Warn
		}
		c.add(g, "", p.Code, "%s", p.Sentence)
	}
	return c.or("nothing speaks against %s", h.Toward)
}

func (h Host) disk() []Finding {
	c := &check{name: CheckDisk}
	d := h.Disk
	switch {
	case d.Problem != "":
		c.warn(CodeDiskUnknown, "how fast the disk is cannot be told: %s", d.Problem)
	case d.Limit > 0 && d.Above >= d.Limit:
		// Below that bound the p99 may be on either side of the limit.
		c.warn(CodeSlowDisk, "%s: its p99 is above %s, the limit is %s", d.Source, d.Above, d.Limit)
	case d.Source == "":
		return c.or("not measured; --fsync measures it")
	}
	return c.or("%s: its p99 is at most %s", d.Source, d.AtMost)
}

// ports of etcd's clients, of its peers, and of the API.
var ports = []int{2379, 2380, 6443}

// ports: who listens here. k3s binds with SO_REUSEPORT, so that two processes may have one
// port and neither knows (k3s-facts §3.5); and a forwarder answers in etcd's place.
func (h Host) ports() []Finding {
	c := &check{name: CheckPorts}
	if h.ListenersProblem != "" {
		c.warn(CodePortsUnknown, "who listens here cannot be read: %s", h.ListenersProblem)
		return c.found
	}
	server, agent := h.Units[fleet.RoleServer], h.Units[fleet.RoleAgent]
	for _, port := range ports {
		var on []Listener
		for _, l := range h.Listeners {
			if l.Port == port {
				on = append(on, l)
			}
		}
		if a, b, twice := twins(on); twice {
			c.fail(CodeTwins, "port %d at %s is two processes': %s and %s; the kernel gives connections to either", port, a.Address, a.words(), b.words())
		}
		for _, l := range on {
			if l.PID != 0 && l.Role == "" && !l.Regrade {
				c.fail(CodeForeignListener, "port %d at %s is neither k3s's nor regrade's: %s listens there", port, l.Address, l.words())
			}
		}
		want := server.Process || port == 2380 && agent.Process && h.Judged && h.Daemon.PID != 0
		if apiServerOff := h.Files.Level == fleet.LevelEtcdOnly && port == 6443; want && !apiServerOff && len(on) == 0 {
			c.fail(CodeNotListening, "nothing listens on port %d", port)
		}
	}
	if h.Unseen != "" {
		return c.found // what should listen is not known
	}
	return c.or("%s", h.listening())
}

func (l Listener) words() string {
	switch {
	case l.PID == 0:
		return "a process of another container"
	case l.Name == "":
		return fmt.Sprintf("process %d", l.PID)
	}
	return fmt.Sprintf("%s (process %d)", l.Name, l.PID)
}

// twins are two listeners of one address and port that are not one process's. Two of
// which neither's process is seen may be one's.
func twins(on []Listener) (a, b Listener, ok bool) {
	for i, x := range on {
		for _, y := range on[i+1:] {
			if x.PID != y.PID && x.Inode != y.Inode && overlap(x.Address, y.Address) {
				return x, y, true
			}
		}
	}
	return Listener{}, Listener{}, false
}

// overlap says whether one connection could go to either. Of the two wildcards it could
// not: both stand only where the one of IPv6 takes no IPv4.
func overlap(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, other := netip.ParseAddr(b)
	if err != nil || other != nil {
		return a == b
	}
	x, y = x.Unmap(), y.Unmap()
	switch {
	case x == y:
		return true
	case x.IsUnspecified() && y.IsUnspecified():
		return false
	case x.IsUnspecified():
		return x.Is6() || y.Is4()
	case y.IsUnspecified():
		return y.Is6() || x.Is4()
	}
	return false
}

func (h Host) listening() string {
	var all []string
	for _, port := range ports {
		for _, l := range h.Listeners {
			if l.Port == port {
				all = append(all, fmt.Sprintf("%d %s", port, l.words()))
			}
		}
	}
	if len(all) == 0 {
		return "nothing listens on 2379, 2380 or 6443, as on an agent that may not vote"
	}
	return strings.Join(slices.Compact(all), ", ")
}

// join: the URLs by which this host joins others, beside the cluster's Nodes.
func (h Host) join() []Finding {
	c := &check{name: CheckJoin}
	if h.JoinURLs[h.Node] == "" {
		c.fail(CodeNoOwnJoinURL, "%s has no entry for this host, %s", fleet.FileJoinConfig, h.Node)
	}
	for _, name := range slices.Sorted(maps.Keys(h.JoinURLs)) {
		if len(h.Nodes) == 0 {
			break
		}
		i := slices.IndexFunc(h.Nodes, func(n Node) bool { return n.Name == name })
		if i < 0 {
			c.warn(CodeJoinURLOfNobody, "%s has an entry for %s, and the cluster has no such Node", fleet.FileJoinConfig, name)
			continue
		}
		u, err := url.Parse(h.JoinURLs[name])
		if err != nil {
			continue // refused with the settings
		}
		if elsewhere(u.Hostname(), h.Nodes[i].InternalIP) {
			c.warn(CodeJoinURLElsewhere, "%s says %s for %s, whose Node has the address %s", fleet.FileJoinConfig, h.JoinURLs[name], name, h.Nodes[i].InternalIP)
		}
	}
	for _, n := range h.Nodes {
		if (n.Voter || n.Eligible) && h.JoinURLs[n.Name] == "" && n.Name != h.Node {
			c.fail(CodeNoJoinURL, "%s has no entry for %s, which votes or may", fleet.FileJoinConfig, n.Name)
		}
	}
	if len(h.Nodes) == 0 {
		return c.or("has this host; the other entries were not compared, for the Nodes are not known")
	}
	return c.or("%d in %s, each at its Node's address", len(h.JoinURLs), fleet.FileJoinConfig)
}

// elsewhere says whether two addresses are two. A name stands for an address that only a
// resolver knows.
func elsewhere(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, other := netip.ParseAddr(b)
	return err == nil && other == nil && x.Unmap() != y.Unmap()
}

func (h Host) k3s() []Finding {
	c := &check{name: CheckK3s}
	switch {
	case h.K3sOnDisk != "" && h.K3sRuns != "" && h.K3sOnDisk != h.K3sRuns:
		c.warn(CodeK3sReplaced, "k3s %s runs, and its file is %s: its next start is another version", h.K3sRuns, h.K3sOnDisk)
	case h.K3s.Replaced:
		c.warn(CodeK3sReplaced, "k3s (process %d) runs from a file that has been replaced since", h.K3s.PID)
	}
	version := h.K3sOnDisk
	if version == "" {
		version = "a version that it does not say"
	}
	return c.or("%s, as it runs", version)
}

func (h Host) password() []Finding {
	c := &check{name: CheckPassword}
	switch {
	case !h.Password:
		c.fail(CodeNoPassword, "there is no node password: this host could not come back as an agent")
	case h.PasswordProblem != "":
		c.fail(CodePassword, "%s", h.PasswordProblem)
	}
	return c.or("the node password is the one that this host became a member with")
}
