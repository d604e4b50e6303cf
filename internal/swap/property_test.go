package swap

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

// clone copies an observation through JSON, so that a case can be damaged
// without touching the others; it also shows that nothing is lost on the way.
func clone(t interface{ Fatal(...any) }, o Observation) Observation {
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var c Observation
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// damage changes one thing at random, as another program, a person or a
// failure might.
func damage(t *rapid.T, o *Observation) {
	if len(o.Hosts) == 0 {
		return
	}
	i := rapid.IntRange(0, len(o.Hosts)-1).Draw(t, "host")
	h := &o.Hosts[i]
	junk := rapid.SampledFrom([]string{"", "x", "true", "{", "server", "rollback", "step-down", "promote", "step-up", string(swID)}).Draw(t, "value")
	switch rapid.IntRange(0, 15).Draw(t, "damage") {
	case 0:
		h.Report = nil
	case 1:
		h.Report, h.ReportProblem = nil, "report: garbage"
	case 2:
		if h.Report != nil {
			h.Report.Etcd = nil
		}
	case 3:
		h.Fresh = false
	case 4:
		o.Hosts = append(o.Hosts[:i], o.Hosts[i+1:]...)
	case 5:
		key := rapid.SampledFrom(append(fleet.EtcdAnnotations(), keys.SwapAnnotations()...)).Draw(t, "annotation")
		if h.Node.Annotations != nil {
			h.Node.Annotations[key] = junk
		}
	case 6:
		key := rapid.SampledFrom(append(fleet.EtcdAnnotations(), keys.SwapAnnotations()...)).Draw(t, "annotation")
		delete(h.Node.Annotations, key)
	case 7:
		h.Node.Labels, h.Node.Annotations = nil, nil
	case 8:
		o.Lease = lease.Lease{}
	case 9:
		o.Lease.Holder = rapid.SampledFrom([]string{"", "n2", fleet.LeaseHolder}).Draw(t, "holder")
	case 10:
		o.Status = nil
	case 11:
		if h.Report != nil && h.Report.Etcd != nil && len(h.Report.Etcd.Members) > 0 {
			e := *h.Report.Etcd
			e.Members = e.Members[1:]
			h.Report.Etcd = &e
		}
	case 12:
		if h.Report != nil && h.Report.Etcd != nil {
			e := *h.Report.Etcd
			e.Members = append([]status.Member{{ID: 0xee, Learner: true, PeerURLs: []string{junk}}}, e.Members...)
			h.Report.Etcd = &e
		}
	case 13:
		o.Now = o.Now.Add(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, -time.Hour}).Draw(t, "clock"))
	case 14:
		h.Node.Ready = !h.Node.Ready
	case 15:
		h.Pods, h.PodsRead = []Pod{pod("p", nil)}, rapid.Bool().Draw(t, "read")
	}
}

func damaged(t *rapid.T) Observation {
	cs := cases()
	o := clone(t, cs[rapid.IntRange(0, len(cs)-1).Draw(t, "case")].given.Observation)
	for range rapid.IntRange(0, 5).Draw(t, "damages") {
		damage(t, &o)
	}
	return o
}

// Next is total: whatever stands on the Nodes, it answers with a row of the
// table and never panics ("Bad input": foreign values in labels and annotations).
func TestNextAnswersWhateverItSees(t *testing.T) {
	codes := map[string]bool{}
	for _, r := range Table() {
		codes[r.Code] = true
	}
	rapid.Check(t, func(t *rapid.T) {
		o := damaged(t)
		d := Next(o, policy())
		if !codes[d.Row] || d.Sentence == "" {
			t.Fatalf("decision %+v is of no row", d)
		}
	})
}

// Next is deterministic and looks at an observation without changing it.
func TestNextIsAFunctionOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := damaged(t)
		before := clone(t, o)
		a, b := Next(o, policy()), Next(clone(t, o), policy())
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("two calls differ:\n%s", diff)
		}
		if diff := cmp.Diff(before, clone(t, o)); diff != "" {
			t.Fatalf("the observation was changed:\n%s", diff)
		}
	})
}

// Safety rules 1, 21, R-E2-35, R-228-07: nothing is done while the Lease is
// another's. A request is the controller's own to drop.
func TestNothingIsDoneUnderAnothersLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := damaged(t)
		o.Lease = lease.Lease{Exists: true, Holder: "n2", RenewTime: o.Now, Duration: time.Hour}
		d := Next(o, policy())
		if k := d.Action.Kind; k != "" && k != DropRequest {
			t.Fatalf("%s under another's Lease", k)
		}
		if d.Renew {
			t.Fatal("another's Lease is renewed")
		}
	})
}

// Safety rules 2, 3: whatever else is wrong, a removal is only ever asked for
// when every gate of it is open in the same observation.
func TestARemovalIsAskedForOnlyThroughItsGate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := damaged(t)
		d := Next(o, policy())
		if d.Action.Kind != RequestRemoval {
			return
		}
		if rs := MayRemove(o, policy(), d.Action.Node); len(rs) > 0 {
			t.Fatalf("removal of %s decided with a shut gate: %+v", d.Action.Node, rs)
		}
		for i := range o.Hosts {
			h := &o.Hosts[i]
			if e, ok := list(h); ok && h.Name != "n1" && h.Name != "n4" {
				voters := 0
				for _, m := range e.Members {
					if !m.Learner {
						voters++
					}
				}
				if voters <= 2 {
					t.Fatalf("a removal at %d voters", voters)
				}
			}
		}
	})
}
