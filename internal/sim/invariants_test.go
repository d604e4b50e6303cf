package sim

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

// Each invariant is broken once on purpose: a guard that never barks guards
// nothing.
func TestEachInvariantIsNoticedWhenItIsBroken(t *testing.T) {
	ctx := context.Background()
	record := func(h hand, out, in string) {
		id := fleet.NewSwapID(h.w.now, out, in)
		r := status.Record{
			Protocol: status.Protocol, Prefix: fleet.DefaultPrefix, ID: id, Out: out, In: in, ClusterID: h.w.etcd.ClusterID(),
			OutMember: h.entry(out).ID, Voters: []status.RecordVoter{{Node: out, ID: h.entry(out).ID}},
		}
		k := h.w.cfg.Keys
		for _, n := range []string{out, in} {
			h.annotate(n, k.Swap(), string(id), k.Record(), r.String())
		}
	}
	for want, breakIt := range map[Invariant]func(hand){
		OneSwap: func(h hand) {
			record(h, "v1", "s1")
			h.annotate("v2", h.w.cfg.Keys.Swap(), "20260102T030405Z-v2-s2")
		},
		OnlyTheTwo: func(h hand) {
			record(h, "v1", "s1")
			h.must(h.w.Machine("v2").Stop(ctx, fleet.RoleServer))
		},
		QuorumKept: func(h hand) {
			record(h, "v1", "s1")
			h.w.Crash("v2")
			h.after(time.Minute)
			h.must(h.w.Machine("v1").Stop(ctx, fleet.RoleServer))
			h.after(5 * time.Second)
		},
		NoRemovalAtTwo: func(h hand) {
			record(h, "v3", "s1")
			h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
			h.after(5 * time.Second)
			h.annotate("v2", fleet.AnnotationEtcdRemove, "true")
			h.after(5 * time.Second)
		},
		NoChangeBeside: func(h hand) {
			h.join("s1") // in no swap
			h.after(10 * time.Second)
		},
		StayingVotersKept: func(h hand) {
			record(h, "v1", "s1")
			h.annotate("v2", fleet.AnnotationEtcdRemove, "true")
			h.after(5 * time.Second)
		},
		NeverBothRoles: func(h hand) {
			h.w.noCondition = true
			h.must(h.w.Machine("s1").SetJoin(ctx, fleet.RoleServer, "https://10.0.0.1:6443"))
			h.must(h.w.Machine("s1").Start(ctx, fleet.RoleServer))
		},
		NoTombstoneStart: func(h hand) {
			h.w.noCondition = true
			record(h, "v3", "s1")
			h.annotate("v3", fleet.AnnotationEtcdRemove, "true")
			h.after(5 * time.Second)
			h.w.KillProcess("v3", fleet.RoleServer)
			h.after(30 * time.Second)
		},
		OneCluster: func(h hand) {
			h.w.Crash("v1")
			*h.data("v1") = Data{}
			h.w.Boot("v1")
			h.after(time.Second)
		},
		NoProtectedEviction: func(h hand) {
			record(h, "v1", "s1")
			h.w.AddPod(Pod{Node: "s1", Pod: observe.Pod{Name: "job", Labels: map[string]string{"actions-ephemeral-runner": "True"}}})
			h.must(h.w.Machine("s1").Stop(ctx, fleet.RoleAgent))
		},
		AsBefore: func(h hand) {
			h.lease("v1", "s1")
			h.join("s1")
			h.until("a learner", time.Minute, func() bool { return h.entry("s1") != nil })
			h.publish(fleet.OutcomeRolledBack, "v1", "s1")
		},
		Exchanged: func(h hand) {
			h.lease("v1", "s1")
			h.publish(fleet.OutcomeCompleted, "v1", "s1")
		},
		OthersLease: func(h hand) {
			h.must(h.w.Controller().PutLease(ctx, "", lease.Lease{Holder: "v2", RenewTime: h.w.now, Duration: time.Hour}))
			h.annotate("v1", "a", "b")
		},
		OperatorsCordon: func(h hand) {
			h.w.OperatorCordons("s1")
			h.w.Edit("somebody uncordons", func(a *API) { a.Nodes["s1"].Unschedulable = false })
		},
		NodeKept: func(h hand) {
			h.w.Edit("another Node of the same name", func(a *API) { a.Nodes["s1"].UID = "another" })
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			h := start(t)
			h.w.Guard()
			breakIt(h)
			if !slices.ContainsFunc(h.w.Violations(), func(v Violation) bool { return v.Invariant == want }) {
				t.Fatalf("not noticed; noticed were %v", h.w.Violations())
			}
		})
	}
}

// lease takes the Lease for a swap; publish says how it ended.
func (h hand) lease(out, in string) {
	h.t.Helper()
	l := lease.Lease{Holder: fleet.LeaseHolder, RenewTime: h.w.now, Duration: time.Hour, Annotations: map[string]string{
		fleet.LeaseSwapID: string(fleet.NewSwapID(h.w.cfg.Start, out, in)),
	}}
	h.must(h.w.Controller().PutLease(context.Background(), "", l))
}

func (h hand) publish(o fleet.Outcome, out, in string) {
	h.t.Helper()
	raw, err := json.Marshal(status.Status{Protocol: status.Protocol, At: h.w.now, Target: 3, LastSwap: &status.LastSwap{
		ID: fleet.NewSwapID(h.w.cfg.Start, out, in), Out: out, In: in, Outcome: o, EndedAt: h.w.now,
	}})
	h.must(err)
	text := string(raw)
	h.must(h.w.Controller().PatchConfigMap(context.Background(), fleet.ConfigMapStatus, "", map[string]*string{fleet.KeyStatus: &text}))
}

// No job is cut, whatever way leads there.
func TestEachWayToCutAJobIsNoticed(t *testing.T) {
	ctx := context.Background()
	for name, cut := range map[string]func(hand){
		"an eviction": func(h hand) {
			_, err := h.w.Controller().Evict(ctx, observe.Pod{UID: "job", Name: "job"})
			h.must(err)
		},
		"a deletion":     func(h hand) { h.w.api.Pods = nil; h.after(time.Second) },
		"an agent stop":  func(h hand) { h.must(h.w.Machine("s1").Stop(ctx, fleet.RoleAgent)) },
		"a queued stop":  func(h hand) { h.w.stopUnit(h.w.host("s1"), fleet.RoleAgent); h.after(time.Second) },
		"its containers": func(h hand) { h.must(h.w.Machine("s1").KillShims(ctx)) },
		"a restart without a kubelet": func(h hand) {
			h.w.api.Pods[0].Node = "v1"
			h.must(h.w.Machine("v1").SetLevel(ctx, fleet.LevelEtcdOnly))
			h.must(h.w.Machine("v1").Restart(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			h.w.AddPod(Pod{Node: "s1", Pod: observe.Pod{Name: "job", UID: "job", Labels: map[string]string{"actions-ephemeral-runner": "True"}}})
			h.w.Guard()
			cut(h)
			if !slices.ContainsFunc(h.w.Violations(), func(v Violation) bool { return v.Invariant == NoProtectedEviction }) {
				t.Fatalf("not noticed; noticed were %v", h.w.Violations())
			}
		})
	}
}

func TestAHealthyClusterBreaksNothingAndIsClean(t *testing.T) {
	h := start(t, func(c *Config) { c.Voters, c.Standbys = 5, 3 })
	h.w.Guard()
	h.after(10 * time.Minute)
	if v := h.w.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if c := h.w.Clean(); len(c) > 0 {
		t.Error(c)
	}
}

func TestWhatASwapLeavesBehindIsNamed(t *testing.T) {
	k := fleet.DefaultKeys()
	for name, leave := range map[string]func(*World){
		"the Lease":             func(w *World) { w.api.Lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder} },
		"a swap annotation":     func(w *World) { w.api.node("v1").Annotations[k.Swap()] = "x" },
		"a cordon":              func(w *World) { w.api.node("v1").Unschedulable = true },
		"a level label":         func(w *World) { w.api.node("v1").Labels[k.Level()] = "etcd-only" },
		"a wrong desired-role":  func(w *World) { w.api.node("s1").Labels[k.DesiredRole()] = "server" },
		"a server's label":      func(w *World) { w.api.node("s1").Labels[fleet.LabelEtcd] = "true" },
		"an etcd annotation":    func(w *World) { w.api.node("s1").Annotations[fleet.AnnotationEtcdName] = "x" },
		"a file on the host":    func(w *World) { w.host("v1").Files.Leaving = "x" },
		"a joining on the host": func(w *World) { w.host("s1").Files.Joining = rolefile.Joining{Swap: "x"} },
		"a voter at a level":    func(w *World) { w.host("v1").Level = fleet.LevelEtcdOnly },
		"a datastore":           func(w *World) { w.host("s1").Data.WAL = true },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			leave(h.w)
			if len(h.w.Clean()) == 0 {
				t.Fatal("it was called clean")
			}
		})
	}
}
