package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
)

// R-D1-35, R-216-26: no controller; the test writes the Lease, the label and
// the annotations by hand and the host daemons do their half.
func Test_actuator_native(t *testing.T) {
	t.Parallel()
	s := begin(t, cluster.Standard(), nil, "n2", "n3")
	ctx := t.Context()
	id := fleet.NewSwapID(time.Now(), "n1", "n4")
	before := map[string]identity{"n1": s.identity("n1"), "n4": s.identity("n4")}

	s.Logf("a promotion without the Lease is refused and changes nothing (R-D1-17, R-216-04)")
	pid := s.k3sPID(t, "n4")
	s.order("n4", id, fleet.StepPromote, map[string]any{keys.JoinNode(): "n2"})
	s.awaitPhase("n4", id, fleet.StepPromote, fleet.PhaseRefused)
	if now := s.k3sPID(t, "n4"); now != pid {
		t.Errorf("the refused promotion replaced k3s: process %d, then %d", pid, now)
	}

	// A refused step is not taken again once the reason is gone (R-216-09).
	id = fleet.NewSwapID(time.Now().Add(time.Second), "n1", "n4")
	s.holdLease(id)
	s.order("n4", id, fleet.StepPromote, map[string]any{keys.JoinNode(): "n2"})
	learner := false
	s.eventually(2*time.Minute, "n4 to vote", func(ctx context.Context) (bool, string) {
		list, err := s.MembersAt(ctx, s.Host("n2"))
		if err != nil {
			return false, err.Error()
		}
		for _, m := range list.Learners() {
			learner = learner || m.Node() == "n4" || m.Name == ""
		}
		return len(list.Voters()) == 4, list.String()
	})
	if !learner {
		t.Error("n4 was never seen as a learner")
	}
	s.awaitPhase("n4", id, fleet.StepPromote, fleet.PhaseDone)
	s.must(s.AwaitNodesReady(ctx, soon, "n4"))
	s.must(s.AwaitRole(ctx, soon, s.Host("n4"), cluster.Server))

	s.Logf("n1 steps down; etcd serves on and no pod's shim is left")
	s.order("n1", id, fleet.StepStepDown, map[string]any{keys.LeadTo(): "n2"})
	s.awaitPhase("n1", id, fleet.StepStepDown, fleet.PhaseDone)
	if list, err := s.MembersAt(ctx, s.Host("n1")); err != nil || len(list.Voters()) != 4 {
		t.Errorf("etcd on n1 after its step-down: %s, %v", list, err)
	}
	if leader, err := s.Leader(ctx, s.Host("n2")); err != nil || leader == "n1" {
		t.Errorf("n1 leads etcd after its step-down (%v)", err)
	}
	ps, err := s.Host("n1").Processes()
	s.must(err)
	for _, p := range ps {
		if len(p.Name) >= 15 && p.Name[:15] == "containerd-shim" {
			t.Errorf("a shim is left on n1: %v", p.Args)
		}
	}
	for path, want := range map[string]string{fleet.FileRole: "agent", fleet.FileLeaving: string(id)} {
		raw, err := s.Host("n1").ReadFile(path)
		if err != nil || string(raw) != want+"\n" && string(raw) != want {
			t.Errorf("%s on n1 holds %q (%v), want %s", path, raw, err, want)
		}
	}

	s.Logf("the member is removed by annotation; n1 finishes by itself")
	s.patchNode("n1", nil, map[string]any{fleet.AnnotationEtcdRemove: "true"})
	s.must(s.AwaitVoters(ctx, soon, "n2", "n3", "n4"))
	s.patchNode("n1", nil, map[string]any{keys.MemberGone(): string(id)})
	s.awaitPhase("n1", id, fleet.StepFinishDemote, fleet.PhaseDone)
	s.checkAgent("n1")

	s.cleanByHand("n1", "n4")
	s.must(s.AwaitNodesReady(ctx, soon, "n1", "n4"))
	for name, was := range before {
		if diff := cmp.Diff(was, s.identity(name)); diff != "" {
			t.Errorf("the identity of %s changed (-before +after):\n%s", name, diff)
		}
	}
	s.end("n2", "n3", "n4")
}

// order writes what a controller writes for a step.
func (s *scenario) order(node string, id fleet.SwapID, step fleet.Step, more map[string]any) {
	s.t.Helper()
	annotations := map[string]any{keys.Swap(): string(id), keys.Step(): string(step)}
	for k, v := range more {
		annotations[k] = v
	}
	s.patchNode(node, map[string]any{keys.DesiredRole(): string(step.DesiredRole())}, annotations)
}

func (s *scenario) awaitPhase(node string, id fleet.SwapID, step fleet.Step, phase fleet.Phase) status.Report {
	s.t.Helper()
	var r status.Report
	s.eventually(3*time.Minute, fmt.Sprintf("%s to report %s %s", node, step, phase), func(context.Context) (bool, string) {
		r = s.report(node)
		return r.Swap == id && r.Step == step && r.Phase == phase, fmt.Sprintf("%s %s %s: %s %s", r.Swap, r.Step, r.Phase, r.Code, r.Message)
	})
	return r
}

// holdLease takes the Lease as a controller does.
func (s *scenario) holdLease(id fleet.SwapID) {
	s.t.Helper()
	holder, seconds, now := fleet.LeaseHolder, int32(900), metav1.NowMicro()
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: fleet.LeaseName, Annotations: map[string]string{
			fleet.LeaseSwapID: string(id), fleet.LeaseSwapNodes: "n1,n4",
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	_, err := s.api().CoordinationV1().Leases(fleet.LeaseNamespace).Create(s.t.Context(), want, metav1.CreateOptions{})
	s.must(err)
}

// cleanByHand does the controller's last steps.
func (s *scenario) cleanByHand(out, in string) {
	s.t.Helper()
	labels, annotations := map[string]any{keys.Level(): nil}, map[string]any{}
	for _, l := range fleet.ServerLabels() {
		labels[l] = nil
	}
	for _, a := range append(fleet.EtcdAnnotations(), keys.SwapAnnotations()...) {
		annotations[a] = nil
	}
	s.patchNode(out, labels, annotations)
	own := map[string]any{}
	for _, a := range keys.SwapAnnotations() {
		own[a] = nil
	}
	s.patchNode(in, nil, own)
	if holder, err := s.leaseHolder(s.t.Context()); err == nil && holder == "" {
		return
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"holderIdentity": ""}})
	s.must(err)
	_, err = s.api().CoordinationV1().Leases(fleet.LeaseNamespace).Patch(s.t.Context(), fleet.LeaseName, "application/merge-patch+json", raw, metav1.PatchOptions{})
	s.must(err)
}
