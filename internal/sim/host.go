package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Host is one machine: its files, its two units, its datastore, its network.
type Host struct {
	Name, IP string
	Up       bool
	Paused   bool // every process of it stands still
	Isolated bool // cut off from every other host and from the controller
	// PeerBlocked: etcd's peer port alone is cut off; the API is reached.
	PeerBlocked bool
	BootID      string
	Boots       int

	// Files are role, leaving, joining, allow-join and the identity. What else
	// the start condition looks at is filled in when it is asked.
	Files rolefile.Files
	Level fleet.Level
	// BaseJoin is server: in the server's own configuration; ServerJoin and
	// AgentJoin are the drop-ins that a step writes. Token says that the server
	// configuration has one.
	BaseJoin, ServerJoin, AgentJoin string
	Token                           bool
	// Staged: there is a server configuration at all.
	Staged  bool
	Journal []byte
	// LevelJournal is the same of a step between levels.
	LevelJournal []byte
	Shims        int
	// PeerPort: the daemon holds etcd's peer port.
	PeerPort bool

	Data  Data
	Units map[fleet.Role]*Unit

	// watchUntil is until when the host's watch of the Nodes shows nothing new.
	watchUntil time.Time
	// faltersUntil is until when no server to join can tell this host who the members are.
	faltersUntil time.Time
	// registered is the start of the kubelet that has registered the Node.
	registered time.Time

	first fleet.Role
	certs bool // etcd's client certificate is there
	locks int  // who holds the host lock: 0 or 1
	// remembered is the join URL whose server list the agent's load balancer has
	// saved (k3s-facts §10.2).
	remembered string
	server     serverRun
	snapshot   snapshotRun
}

// Data is the datastore's folder.
type Data struct {
	WAL       bool
	Member    fleet.MemberID // whose WAL it is
	Name      string         // the name file
	Tombstone bool
	SQLite    bool // an empty cluster of its own: never wanted
	Snapshots []string
	Aside     int // folders moved aside by us: 0 or 1
	Backups   int // folders that k3s moved away because of a tombstone
}

// Unit is one systemd unit, the k3s server or the agent.
type Unit struct {
	Role    fleet.Role
	Wanted  bool // started and not stopped: systemd restarts it
	Process bool
	Ready   bool
	Started time.Time
	// Skipped says that the last start was refused by the start condition.
	Skipped bool

	restartAt time.Time
	stopping  bool
	again     bool      // a start is queued behind the stop
	stopped   time.Time // when the process last ended because it was asked to
}

// serverRun is what a running server process knows.
type serverRun struct {
	level    fleet.Level
	name     string // member name read at start
	join     bool   // joining: no etcd yet
	pending  fleet.MemberID
	etcd     bool // its etcd runs
	lost     time.Time
	once     bool // its etcd was ready once
	labelled bool
}

// snapshotRun is the etcd snapshot last begun.
type snapshotRun struct {
	base    string
	ends    time.Time
	running bool
	err     string
}

func (w *World) addHost(name string, number int, role fleet.Role) {
	h := &Host{
		Name: name, IP: fmt.Sprintf("10.0.0.%d", number), Up: true, first: role,
		Level: fleet.LevelFull, Token: true, Staged: true, Shims: 2,
		Units: map[fleet.Role]*Unit{
			fleet.RoleServer: {Role: fleet.RoleServer},
			fleet.RoleAgent:  {Role: fleet.RoleAgent},
		},
	}
	w.hosts = append(w.hosts, h)
	w.boot(h)
	h.Files.Role = role
	if number > 1 {
		// The first host founded the cluster; the others joined it once.
		h.AgentJoin = w.joinURL(w.hosts[0])
		if role == fleet.RoleServer {
			h.BaseJoin = w.joinURL(w.hosts[0])
		}
	}
	u := h.Units[role]
	u.Wanted, u.Process, u.Ready, u.Started = true, true, true, w.now
	if role == fleet.RoleAgent {
		h.remembered = h.AgentJoin
	}
}

// JoinURLs are the join URLs of all hosts, by name.
func (w *World) JoinURLs() map[string]string {
	urls := map[string]string{}
	for _, h := range w.hosts {
		urls[h.Name] = w.joinURL(h)
	}
	return urls
}

func (w *World) joinURL(h *Host) string { return "https://" + h.IP + ":6443" }

// boot gives the host a new boot: /run is empty.
func (w *World) boot(h *Host) {
	h.Boots++
	h.BootID = fmt.Sprintf("boot-%s-%d", h.Name, h.Boots)
	h.Files.Joining.BootID, h.Files.AllowJoin = "", false
}

// mayRise is what the start condition would say of the server after a reboot.
func (h *Host) mayRise() rolefile.Answer {
	f := h.files()
	f.BootID, f.Joining.BootID, f.AllowJoin = "another", "", false
	return rolefile.MayStart(f, fleet.RoleServer)
}

// files is what the start condition reads.
func (h *Host) files() rolefile.Files {
	f := h.Files
	f.Identity.Voters = slices.Clone(f.Identity.Voters)
	f.WAL, f.Tombstone, f.BootID, f.Token = h.Data.WAL, h.Data.Tombstone, h.BootID, h.Token
	f.JoinURL, f.Demoted = h.serverJoin(), h.Data.Aside > 0
	return f
}

// serverJoin is server: after the drop-ins, the last of which wins.
func (h *Host) serverJoin() string { return cmp.Or(h.ServerJoin, h.BaseJoin) }

// Inspect gives f the host to look at, or to change as a person at its console
// would, under the world's lock.
func (w *World) Inspect(name string, f func(*Host)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.host(name))
}

// Crash takes the host's power.
func (w *World) Crash(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if !h.Up {
		return
	}
	w.down(h, false)
	w.record(Effect{By: "fault", What: "crash", Node: name})
}

func (w *World) down(h *Host, gracefully bool) {
	w.etcd.Stop(h.Name, gracefully)
	h.Up, h.Paused = false, false
	for _, u := range h.Units {
		*u = Unit{Role: u.Role}
	}
	h.server, h.snapshot, h.PeerPort, h.Shims = serverRun{}, snapshotRun{}, false, 0
}

// Boot starts a host that is down: both units are enabled, the start conditions
// say which runs (safety rule 10).
func (w *World) Boot(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if h.Up {
		return
	}
	h.Up = true
	w.boot(h)
	w.record(Effect{By: "fault", What: "boot", Node: name})
	for _, role := range roles {
		w.startUnit(h, role)
	}
}

// Reboot is a clean restart of the machine.
func (w *World) Reboot(name string) {
	w.mu.Lock()
	h := w.host(name)
	if h.Up {
		w.down(h, !h.Paused)
	}
	w.record(Effect{By: "fault", What: "reboot", Node: name})
	w.mu.Unlock()
	w.Boot(name)
}

// Pause stops every process of the host; Resume lets them go on.
func (w *World) Pause(name string)  { w.setPaused(name, true) }
func (w *World) Resume(name string) { w.setPaused(name, false) }

func (w *World) setPaused(name string, paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if !h.Up || h.Paused == paused {
		return
	}
	h.Paused = paused
	what := "resume"
	if paused {
		what = "pause"
	}
	w.record(Effect{By: "fault", What: what, Node: name})
}

// Isolate cuts a host off from every other; Rejoin ends it.
func (w *World) Isolate(name string) { w.setIsolated(name, true) }
func (w *World) Rejoin(name string)  { w.setIsolated(name, false) }

func (w *World) setIsolated(name string, isolated bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if h.Isolated == isolated {
		return
	}
	h.Isolated = isolated
	what := "network back"
	if isolated {
		what = "network lost"
	}
	w.record(Effect{By: "fault", What: what, Node: name})
}

// BlockPeers cuts off etcd's peer port of a host, both ways; UnblockPeers ends it.
func (w *World) BlockPeers(name string)   { w.setBlocked(name, true) }
func (w *World) UnblockPeers(name string) { w.setBlocked(name, false) }

func (w *World) setBlocked(name string, blocked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if h.PeerBlocked == blocked {
		return
	}
	h.PeerBlocked = blocked
	what := "peer port open again"
	if blocked {
		what = "peer port blocked"
	}
	w.record(Effect{By: "fault", What: what, Node: name})
}

// KillProcess ends a unit's process as the kernel would; systemd restarts it.
func (w *World) KillProcess(name string, role fleet.Role) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if u := h.Units[role]; h.Up && u.Process {
		w.record(Effect{By: "fault", What: "kill -9 k3s " + string(role), Node: name})
		w.exit(h, u, false)
	}
}

var roles = []fleet.Role{fleet.RoleServer, fleet.RoleAgent}

// startUnit is systemctl start: the condition, then the process.
func (w *World) startUnit(h *Host, role fleet.Role) {
	u := h.Units[role]
	switch {
	case !h.Up:
		return
	case u.stopping:
		u.again = true
		return
	case u.Process:
		u.Wanted = true
		return
	}
	u.Wanted, u.Skipped, u.restartAt = true, false, time.Time{}
	w.tryStart(h, u)
}

// tryStart is every start, automatic restarts included.
func (w *World) tryStart(h *Host, u *Unit) {
	if !w.condition(h, u.Role) {
		// A unit whose condition says no is skipped, not restarted.
		u.Wanted, u.Skipped = false, true
		w.record(Effect{By: h.Name, What: "start of k3s " + string(u.Role) + " refused by its condition", Node: h.Name})
		return
	}
	u.Process, u.Ready, u.Started, u.stopping = true, false, w.now, false
	w.k3sDid("k3s "+string(u.Role)+" started", h.Name)
	if u.Role == fleet.RoleServer {
		w.beginServer(h, u)
	}
}

// condition is the units' ExecCondition: the shipped rule on the host's files.
func (w *World) condition(h *Host, role fleet.Role) bool {
	if w.noCondition {
		return true
	}
	return rolefile.MayStart(h.files(), role).May
}

// stopUnit is systemctl stop, which asks; the process is gone a tick later.
func (w *World) stopUnit(h *Host, role fleet.Role) {
	u := h.Units[role]
	u.Wanted, u.again, u.restartAt = false, false, time.Time{}
	if u.Process {
		u.stopping = true
	}
}

// exit ends a process: by itself, killed, or stopped.
func (w *World) exit(h *Host, u *Unit, gracefully bool) {
	if u.Process && gracefully {
		u.stopped = w.now
	}
	u.Process, u.Ready, u.stopping = false, false, false
	if u.Role == fleet.RoleServer {
		w.etcd.Stop(h.Name, gracefully)
		h.server = serverRun{}
	}
	if u.Wanted {
		u.restartAt = w.now.Add(w.cfg.Restart)
	}
}

func (w *World) tickHost(h *Host) {
	if !h.Up || h.Paused {
		return
	}
	for _, role := range roles {
		u := h.Units[role]
		switch {
		case u.stopping:
			w.exit(h, u, true)
			w.k3sDid("k3s "+string(role)+" stopped", h.Name)
			if u.again {
				u.again = false
				w.startUnit(h, role)
			}
		case u.Wanted && !u.Process && !w.now.Before(u.restartAt):
			w.tryStart(h, u)
		}
	}
	if h.Units[fleet.RoleServer].Process {
		w.tickServer(h)
	}
	if h.Units[fleet.RoleAgent].Process {
		w.tickAgent(h)
	}
	w.tickKubelet(h)
	w.tickSnapshot(h)
}

// joinHost is the host a join URL names, nil when it names none.
func (w *World) joinHost(url string) *Host {
	rest, ok := strings.CutPrefix(strings.TrimSpace(url), "https://")
	if !ok {
		return nil
	}
	addr, _, _ := strings.Cut(rest, ":")
	i := slices.IndexFunc(w.hosts, func(h *Host) bool { return h.IP == addr || h.Name == addr })
	if i < 0 {
		return nil
	}
	return w.hosts[i]
}

// tickAgent: the first start depends on the join URL alone; later ones know
// the other servers (k3s-facts §10.2).
func (w *World) tickAgent(h *Host) {
	u := h.Units[fleet.RoleAgent]
	if u.Ready || w.now.Sub(u.Started) < w.cfg.Kubelet {
		return
	}
	url := h.AgentJoin
	if h.remembered != url {
		j := w.joinHost(url)
		if j == nil || j == h || !w.reaches(h.Name, j.Name) || !j.Units[fleet.RoleServer].Process {
			return
		}
	}
	if !w.apiAnswers(h.Name) {
		return
	}
	h.remembered = url
	u.Ready, h.Shims = true, 2
	w.k3sDid("k3s agent ready", h.Name)
}

// tickKubelet renews the Node while a process with a kubelet reaches an API.
func (w *World) tickKubelet(h *Host) {
	alive := h.Units[fleet.RoleAgent].Ready || w.serverKubelet(h)
	if !alive || !w.apiAnswers(h.Name) {
		return
	}
	n := w.register(h)
	if n == nil {
		return
	}
	if !n.Ready {
		n.Ready, n.ReadySince = true, w.now
		w.api.touch(n)
		w.api.Kubelets[h.Name] = w.now
		return
	}
	if w.now.Sub(w.api.Kubelets[h.Name]) >= w.cfg.GoneAfter/4 || w.api.Kubelets[h.Name].Before(w.kubeletStart(h)) {
		w.api.Kubelets[h.Name] = w.now
	}
}

func (w *World) kubeletStart(h *Host) time.Time {
	if u := h.Units[fleet.RoleAgent]; u.Ready {
		return u.Started
	}
	return h.Units[fleet.RoleServer].Started
}

// serverKubelet: a full server's kubelet talks to its own API server, an
// etcd-only one's to any, and goes on doing so after its removal.
func (w *World) serverKubelet(h *Host) bool {
	u := h.Units[fleet.RoleServer]
	if !u.Process || w.now.Sub(u.Started) < w.cfg.Kubelet {
		return false
	}
	if h.server.level == fleet.LevelEtcdOnly {
		return h.server.once
	}
	return w.servesAPI(h)
}
