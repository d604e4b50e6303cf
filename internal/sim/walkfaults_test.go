package sim

import (
	"cmp"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
)

// walkFault is one of the fixed set.
type walkFault struct {
	name string
	may  func(*walk) bool
	do   func(*walk)
}

// Times of the faults, in beats: short is over before anybody may call a host
// dead, long is past every bound of a swap's step.
const (
	short = 2
	long  = 14
)

func (k *walk) end(d dueBeat) {
	switch d.what {
	case "boot":
		if k.w.host(d.host).Up {
			return
		}
		k.w.Boot(d.host)
		k.w.DaemonDied(d.host)
		k.restartDaemon(d.host)
	case "controller comes back":
		k.freezer.thaw(theBoss, k.fresh)
	case "writes get through", "writes are answered":
		delete(k.w.failing, d.host)
	case "network":
		k.w.Rejoin(d.host)
	case "lease":
		k.w.Edit("lease given back", func(a *API) { a.GiveLeaseBack("v2") })
	}
}

// later ends a fault so many beats from now. What is due is kept in the order of its
// names, so that two faults are the same in either order, and once: a fault does not
// mend another one sooner.
func (k *walk) later(in int, what, host string) {
	due := slices.Clone(k.pos.due)
	for i, d := range due {
		if d.what == what && d.host == host {
			due[i].in = max(in, d.in)
			k.pos.due = due
			return
		}
	}
	due = append(due, dueBeat{in, what, host})
	slices.SortFunc(due, func(a, b dueBeat) int { return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.host, b.host)) })
	k.pos.due = due
}

// restartDaemon: a daemon keeps nothing that a restart may not lose.
func (k *walk) restartDaemon(host string) {
	for i, h := range k.w.hosts {
		if h.Name == host {
			k.freezer.thaw(theDaemons+i, k.started[i])
		}
	}
}

func up(host string) func(*walk) bool {
	return func(k *walk) bool { return k.w.host(host).Up && !k.w.host(host).Isolated }
}

func crash(host, name string, in int) walkFault {
	return walkFault{"crash of " + host + ", " + name, func(k *walk) bool { return k.w.host(host).Up }, func(k *walk) {
		k.w.Crash(host)
		k.later(in, "boot", host)
	}}
}

func edit(name string, f func(*walk, *API)) walkFault {
	return walkFault{name, nil, func(k *walk) { k.w.Edit(name, func(a *API) { f(k, a) }) }}
}

// walkFaults is the fixed set. v1 goes out, s1 comes in, v2 stays.
func walkFaults() []walkFault {
	return []walkFault{
		crash("s1", "short", short), crash("s1", "long", long),
		crash("v1", "short", short), crash("v1", "long", long),
		crash("v2", "short", short), crash("v2", "long", long),
		{"power cut", nil, func(k *walk) {
			for i, h := range k.w.hosts {
				k.w.Crash(h.Name)
				k.later(short+i, "boot", h.Name)
			}
		}},
		{"network of s1 lost, long", up("s1"), func(k *walk) { k.w.Isolate("s1"); k.later(long, "network", "s1") }},
		{"network of v1 lost, short", up("v1"), func(k *walk) { k.w.Isolate("v1"); k.later(short, "network", "v1") }},
		{"k3s of s1 killed", up("s1"), func(k *walk) {
			k.w.KillProcess("s1", fleet.RoleServer)
			k.w.KillProcess("s1", fleet.RoleAgent)
		}},
		{"k3s of v1 killed", up("v1"), func(k *walk) { k.w.KillProcess("v1", fleet.RoleServer) }},
		{"controller restarts", nil, func(k *walk) { k.freezer.thaw(theBoss, k.fresh) }},
		{"daemon of s1 silent, long", up("s1"), func(k *walk) { k.later(long, "daemon goes on", "s1") }},
		{"daemon of v1 silent, long", up("v1"), func(k *walk) { k.later(long, "daemon goes on", "v1") }},
		{"daemons of the voters late", nil, func(k *walk) {
			for _, n := range []string{"v1", "v2", "v3"} {
				k.later(short, "daemon goes on", n)
			}
		}},
		edit("lease deleted", func(_ *walk, a *API) { a.DeleteLease() }),
		edit("status deleted", func(_ *walk, a *API) { a.DeleteConfigMap(fleet.ConfigMapStatus) }),
		edit("reports deleted", func(_ *walk, a *API) { a.DeleteConfigMap(fleet.ConfigMapActuators) }),
		edit("order of s1 deleted", func(k *walk, a *API) { delete(a.Nodes["s1"].Annotations, k.w.cfg.Keys.Step()) }),
		edit("marks of s1 deleted", func(k *walk, a *API) { k.unmark(a, "s1") }),
		edit("marks of v1 deleted", func(k *walk, a *API) { k.unmark(a, "v1") }),
		{"lease taken by another", nil, func(k *walk) {
			k.w.Edit("lease taken", func(a *API) { a.TakeLease("v2", k.w.now, 6*beat) })
			k.later(6, "lease", "v2")
		}},
		{"k3s member controller backs off", nil, func(k *walk) { k.w.HoldMemberController(6 * beat) }},
	}
}

func (k *walk) unmark(a *API, node string) {
	if n := a.Nodes[node]; n != nil {
		for _, key := range k.w.cfg.Keys.SwapAnnotations() {
			delete(n.Annotations, key)
		}
	}
}
