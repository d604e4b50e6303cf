package sim_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

// fault is what goes wrong so many passes after the swap has come to a state,
// or after the fault before it.
type fault struct {
	At     swap.State
	After  int
	Kind   string
	Host   string
	For    time.Duration
	Effect int // a process dies after, or stops before, so many effects or calls
	Mask   int // the hosts that lose their power, a bit each
}

func (f fault) String() string {
	return fmt.Sprintf("%s+%d: %s %s for %s, effect %d, mask %b", f.At, f.After, f.Kind, f.Host, f.For, f.Effect, f.Mask)
}

// faultKinds are all kinds of fault. Those of persons change what regrade or
// k3s holds as somebody with kubectl or etcdctl would.
var faultKinds = slices.Sorted(func(yield func(string) bool) {
	for kind := range faults {
		if !yield(kind) {
			return
		}
	}
})

// persons are the kinds after which the voters may be others than regrade left:
// the run then ends with the target number of voters or a wait that says why not.
var persons = map[string]bool{
	"node deleted": true, "removal asked": true, "removal withdrawn": true, "member removed": true, "ghost added": true, "second member": true,
	"never returns": true,
}

// faults carries each kind out.
var faults = map[string]func(*run, fault){
	// Processes.
	"daemon dies":     func(r *run, f fault) { r.kill[f.Host] = f.Effect },
	"controller dies": func(r *run, f fault) { r.kill["controller"] = f.Effect },
	"daemon down": func(r *run, f fault) {
		r.w.DaemonDied(f.Host)
		r.newDaemon(f.Host)
		r.daemons[f.Host].due = time.Now().Add(f.For)
	},
	"daemon stops in a pass": func(r *run, f fault) { r.daemons[f.Host].stall(f.Effect*2, "", f.For) },
	"report is late":         func(r *run, f fault) { r.daemons[f.Host].stall(0, "write report", f.For) },
	"all reports are late":   func(r *run, f fault) { r.lateReports(f.For) },
	"controller stalls": func(r *run, f fault) {
		// A new one is started; the old one goes on after a while, for a while.
		old := r.boss
		old.name, old.due = "ghost", time.Now().Add(f.For)
		r.ghosts = append(r.ghosts, old)
		r.newController()
		r.later(f.For+time.Minute, func() { r.bury(old) })
	},
	"controller stops in a pass": func(r *run, f fault) {
		old := r.boss
		old.stall(f.Effect*3, "", f.For)
		old.replaced = true
	},
	"controller stops before a write": func(r *run, f fault) {
		old := r.boss
		old.stall(0, []string{"patch node", "lease", "evict", "write configmap"}[f.Effect%4], f.For)
		old.replaced = true
	},
	"clock steps": func(r *run, f fault) {
		r.clock[f.Host] = f.For * 20 * time.Duration(1-2*(f.Effect%2))
		r.w.DaemonDied(f.Host)
		r.newDaemon(f.Host)
	},

	// Hosts and their network.
	"crash": func(r *run, f fault) {
		r.w.Crash(f.Host)
		r.later(f.For, func() { r.boot(f.Host) })
	},
	"never returns": func(r *run, f fault) {
		if len(r.gone) == 0 {
			r.gone[f.Host] = true
			r.w.Crash(f.Host)
		}
	},
	"power cut": func(r *run, f fault) {
		for i, n := range r.names {
			if f.Mask>>i&1 == 0 {
				continue
			}
			r.w.Crash(n)
			r.later(f.For+time.Duration(r.rng.IntN(60))*time.Second, func() { r.boot(n) })
		}
	},
	"falls as it is added": func(r *run, f fault) {
		if f.Effect%2 == 0 {
			r.lateReports(f.For)
		}
		for range 400 {
			log := r.w.Log()
			if len(log) > 0 && slices.ContainsFunc(log[max(0, len(log)-12):], func(e sim.Event) bool {
				return e.What == "added as a learner" && e.Node == f.Host
			}) {
				r.w.Crash(f.Host)
				r.later(time.Duration(f.Effect/2)*time.Second, func() { r.boot(f.Host) })
				return
			}
			r.step()
		}
	},
	"reboot": func(r *run, f fault) {
		if !r.gone[f.Host] {
			r.w.Reboot(f.Host)
		}
	},
	"pause": func(r *run, f fault) {
		r.w.Pause(f.Host)
		r.later(f.For, func() { r.w.Resume(f.Host) })
	},
	"network lost": func(r *run, f fault) {
		r.w.Isolate(f.Host)
		r.later(f.For, func() { r.w.Rejoin(f.Host) })
	},
	"peer port blocked": func(r *run, f fault) {
		r.w.BlockPeers(f.Host)
		r.later(f.For, func() { r.w.UnblockPeers(f.Host) })
	},
	"k3s killed": func(r *run, f fault) {
		r.w.KillProcess(f.Host, fleet.RoleServer)
		r.w.KillProcess(f.Host, fleet.RoleAgent)
	},
	"quiet": func(r *run, f fault) { r.spend(f.For) },

	// k3s and the API.
	"member controller backs off":  func(r *run, f fault) { r.w.HoldMemberController(f.For) },
	"controller's writes time out": func(r *run, f fault) { r.w.FailWrites("", min(f.For, time.Minute)) },
	"daemon's writes time out":     func(r *run, f fault) { r.w.FailWrites(f.Host, f.For) },
	"API refuses the controller":   func(r *run, f fault) { r.boss.refuse("", f.For) },
	"API refuses the controller a part": func(r *run, f fault) {
		r.boss.refuse([]string{"patch node", "lease", "write configmap", "list nodes", "pods", "get configmap", "heartbeats", "get node"}[f.Effect%8], f.For)
	},
	"API refuses a daemon": func(r *run, f fault) {
		r.daemons[f.Host].refuse([]string{"", "write report", "renew heartbeat"}[f.Effect%3], f.For)
	},
	"API is slow for the controller": func(r *run, f fault) {
		r.boss.slowUntil, r.boss.each = time.Now().Add(f.For), time.Duration(1+f.Effect%4)*time.Second
	},
	"API is slow for a daemon": func(r *run, f fault) {
		a := r.daemons[f.Host]
		a.slowUntil, a.each = time.Now().Add(f.For), time.Duration(1+f.Effect%4)*time.Second
	},
	"watch is late": func(r *run, f fault) { r.w.HoldWatch(f.Host, f.For) },
	"an API server's clock is off": func(r *run, f fault) {
		off := f.For * 20 * time.Duration(1-2*(f.Effect%2))
		r.w.SetClock(f.Host, off)
		r.clock[f.Host] = off
		r.w.DaemonDied(f.Host)
		r.newDaemon(f.Host)
	},
	"date jumps": func(r *run, f fault) {
		r.w.JumpDate(f.For * time.Duration(1-2*(f.Effect%2)))
	},

	// Documents.
	"lease deleted":  func(r *run, f fault) { r.w.Edit(f.Kind, func(a *sim.API) { a.DeleteLease() }) },
	"status deleted": func(r *run, f fault) { r.w.Edit(f.Kind, func(a *sim.API) { a.DeleteConfigMap(fleet.ConfigMapStatus) }) },
	"reports deleted": func(r *run, f fault) {
		r.w.Edit(f.Kind, func(a *sim.API) { a.DeleteConfigMap(fleet.ConfigMapActuators) })
	},
	"old lease put back": func(r *run, f fault) {
		r.oldLease = true
		r.w.Edit(f.Kind, func(a *sim.API) { a.PutBackLease(r.older(f)) })
	},
	"old status put back": func(r *run, f fault) {
		r.w.Edit(f.Kind, func(a *sim.API) { a.PutBackConfigMap(r.older(f), fleet.ConfigMapStatus) })
	},
	"old reports put back": func(r *run, f fault) {
		r.w.Edit(f.Kind, func(a *sim.API) { a.PutBackConfigMap(r.older(f), fleet.ConfigMapActuators) })
	},
	"report unreadable": func(r *run, f fault) {
		r.w.Edit(f.Kind+" of "+f.Host, func(a *sim.API) { a.Put(fleet.ConfigMapActuators, f.Host, garbage[f.Effect%len(garbage)]) })
	},
	"report from the future": func(r *run, f fault) {
		r.doctor(f, []func(map[string]any){
			func(d map[string]any) { d["counter"] = json.Number("18446744073709551615") },
			func(d map[string]any) { d["boot_id"] = "the next one" },
			func(d map[string]any) { d["at"], d["started_at"] = "2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z" },
			func(d map[string]any) { d["step"], d["phase"] = "teleport", "running" },
			func(d map[string]any) { d["phase"] = "soon" },
			func(d map[string]any) { d["counter"], d["phase"] = json.Number("99999999999999999"), "failed" },
			func(d map[string]any) {
				d["counter"], d["stopped"], d["phase"] = json.Number("99999999999999999"), true, "done"
			},
			func(d map[string]any) { d["skew_ms"] = json.Number("9223372036854775807") },
		}[f.Effect%8])
	},
	"older daemon": func(r *run, f fault) {
		// Of an older protocol, until the one of today is installed again.
		r.w.DaemonDied(f.Host)
		r.newDaemon(f.Host)
		r.daemons[f.Host].due = time.Now().Add(f.For)
		r.doctor(f, func(d map[string]any) { d["protocol"] = 0 })
	},
	"status unreadable": func(r *run, f fault) {
		r.w.Edit(f.Kind, func(a *sim.API) { a.Put(fleet.ConfigMapStatus, fleet.KeyStatus, garbage[f.Effect%len(garbage)]) })
		// A newer program's is left alone until a person has looked.
		r.later(f.For, func() {
			r.w.Edit("an unreadable status goes", func(a *sim.API) {
				if st, ok := a.ConfigMaps[fleet.ConfigMapStatus]; ok && slices.Contains(garbage, st.Data[fleet.KeyStatus]) {
					delete(st.Data, fleet.KeyStatus)
				}
			})
		})
	},
	"lease taken": func(r *run, f fault) {
		// As a host that changes its level takes it, or a person by hand.
		r.w.Edit(f.Kind, func(a *sim.API) { a.TakeLease(f.Host, time.Now(), f.For) })
		r.later(f.For, func() { r.w.Edit("lease given back", func(a *sim.API) { a.GiveLeaseBack(f.Host) }) })
	},

	// Persons with kubectl and etcdctl.
	"marks deleted": func(r *run, f fault) {
		r.annotations(f, r.policy.Keys.SwapAnnotations()...)
	},
	"order deleted":     func(r *run, f fault) { r.annotations(f, r.policy.Keys.Step()) },
	"operator cordons":  func(r *run, f fault) { r.w.OperatorCordons(f.Host) },
	"uncordoned":        func(r *run, f fault) { r.w.OperatorUncordons(f.Host) },
	"removal asked":     func(r *run, f fault) { r.w.OperatorAsksRemoval(f.Host) },
	"removal withdrawn": func(r *run, f fault) { r.w.OperatorWithdrawsRemoval(f.Host) },
	"member removed":    func(r *run, f fault) { r.w.OperatorRemovesMember(f.Host) },
	"node deleted": func(r *run, f fault) {
		r.w.OperatorDeletesNode(f.Host)
		if f.Effect%2 == 0 {
			// Its kubelet registers it again at its next start.
			r.later(f.For, func() { r.w.Reboot(f.Host) })
		}
	},
	"job arrives": func(r *run, f fault) {
		k, v, _ := strings.Cut(fleet.DefaultRunnerSelector, "=")
		r.jobs++
		r.w.JobArrives(f.Host, observe.Pod{
			Namespace: "runners", Name: fmt.Sprintf("job-%d", r.jobs), UID: fmt.Sprintf("job-%d", r.jobs), Owner: "Runner", Labels: map[string]string{k: v},
		}, f.For)
	},
	"ghost added": func(r *run, f fault) {
		if r.w.AddGhost("") == nil {
			r.later(f.For, r.w.RemoveGhosts)
		}
	},
	"second member": func(r *run, f fault) {
		if r.w.AddGhost(f.Host) == nil {
			r.later(f.For, r.w.RemoveGhosts)
		}
	},
}

// garbage are documents that nobody can read, or that a newer program wrote.
var garbage = []string{"{", "null", `{"protocol":99}`, `{"protocol":1,"swap":"x","phase":"no such phase"}`}

// doctor changes a host's report as it stands.
func (r *run) doctor(f fault, change func(map[string]any)) {
	r.w.Edit(f.Kind+" of "+f.Host, func(a *sim.API) {
		cm := a.ConfigMaps[fleet.ConfigMapActuators]
		if cm == nil || cm.Data[f.Host] == "" {
			return
		}
		report := map[string]any{}
		d := json.NewDecoder(strings.NewReader(cm.Data[f.Host]))
		d.UseNumber()
		if d.Decode(&report) != nil {
			return
		}
		change(report)
		if raw, err := json.Marshal(report); err == nil {
			a.Put(fleet.ConfigMapActuators, f.Host, string(raw))
		}
	})
}

// refuse lets the API refuse the calls of a process in whose words there is what.
func (a *actor) refuse(what string, d time.Duration) {
	a.refused, a.refusedUntil = what, time.Now().Add(d)
}

func (r *run) lateReports(d time.Duration) {
	for _, n := range r.names {
		r.daemons[n].stall(0, "write report", d)
	}
}

func (r *run) annotations(f fault, keys ...string) {
	r.w.Edit(f.Kind+" on "+f.Host, func(a *sim.API) {
		if n := a.Nodes[f.Host]; n != nil {
			for _, key := range keys {
				delete(n.Annotations, key)
			}
		}
	})
}

// older is one of the copies taken so far.
func (r *run) older(f fault) sim.Documents { return r.copies[f.Effect*len(r.copies)/8] }

func (r *run) boot(name string) {
	if !r.gone[name] {
		r.w.Boot(name)
	}
}

func (r *run) suffer(f fault) {
	faults[f.Kind](r, f)
	if persons[f.Kind] {
		r.person = true
	}
}

// heal ends every fault but a host that never returns, and what a person has
// changed for good.
func (r *run) heal() {
	for _, d := range r.due {
		d.do()
	}
	r.due, r.kill = nil, map[string]int{}
	r.release()
	r.ghosts = nil
	for _, n := range r.names {
		r.mute(n, 0)
		r.w.Rejoin(n)
		r.w.UnblockPeers(n)
		r.w.Resume(n)
		r.boot(n)
		r.w.HoldWatch(n, 0)
		r.w.FailWrites(n, 0)
		r.w.SetClock(n, 0)
		if r.clock[n] != 0 {
			r.clock[n] = 0
			r.w.DaemonDied(n)
			r.newDaemon(n)
		}
	}
	r.w.FailWrites("", 0)
	r.w.HoldMemberController(0)
	r.w.RemoveGhosts()
}
