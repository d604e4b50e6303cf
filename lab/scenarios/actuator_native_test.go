package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
)

// R-D1-35, R-216-26: no controller; the test writes the Lease, the label and
// the annotations by hand and the host daemons do their half.
func Test_actuator_native(t *testing.T) {
	long(t)
	beside(t)
	s := begin(t, cluster.Standard(), nil, "n2", "n3")
	s.refusesWithoutLease("n1", "n4")
	s.actuate("n1", "n4")
	s.end("n2", "n3", "n4")
}

func (s *scenario) refusesWithoutLease(out, in string) {
	s.t.Helper()
	s.Logf("a promotion without the Lease is refused and changes nothing (R-D1-17, R-216-04)")
	id := fleet.NewSwapID(time.Now(), out, in)
	pid := s.k3sPID(s.t, in)
	s.order(in, id, fleet.StepPromote, map[string]any{keys.JoinNode(): "n2"})
	s.awaitPhase(in, id, fleet.StepPromote, fleet.PhaseRefused)
	if now := s.k3sPID(s.t, in); now != pid {
		s.t.Errorf("the refused promotion replaced k3s: process %d, then %d", pid, now)
	}
}

// actuate gives every order of a swap by hand.
func (s *scenario) actuate(out, in string) {
	s.t.Helper()
	t, ctx := s.t, s.t.Context()
	before := map[string]identity{out: s.identity(out), in: s.identity(in)}
	// A refused step is not taken again once the reason is gone (R-216-09).
	id := fleet.NewSwapID(time.Now().Add(time.Second), out, in)
	s.holdLease(id, out, in)
	began := time.Now()
	s.order(in, id, fleet.StepPromote, map[string]any{keys.JoinNode(): "n2"})
	learner := false
	s.eventually(2*time.Minute, in+" to vote", func(ctx context.Context) (bool, string) {
		list, err := s.MembersAt(ctx, s.Host("n2"))
		if err != nil {
			return false, err.Error()
		}
		for _, m := range list.Learners() {
			learner = learner || m.Node() == in || m.Name == ""
		}
		return len(list.Voters()) == 4, list.String()
	})
	if !learner {
		t.Errorf("%s was never seen as a learner", in)
	}
	s.awaitPhase(in, id, fleet.StepPromote, fleet.PhaseDone)
	s.must(s.AwaitNodesReady(ctx, soon, in))
	s.must(s.AwaitRole(ctx, soon, s.Host(in), cluster.Server))
	s.Logf("%s is promoted after %.1f s", in, time.Since(began).Seconds())

	s.Logf("%s steps down; etcd serves on and no pod's shim is left", out)
	began = time.Now()
	s.order(out, id, fleet.StepStepDown, map[string]any{keys.LeadTo(): "n2"})
	s.awaitPhase(out, id, fleet.StepStepDown, fleet.PhaseDone)
	s.Logf("%s has stepped down after %.1f s", out, time.Since(began).Seconds())
	if list, err := s.MembersAt(ctx, s.Host(out)); err != nil || len(list.Voters()) != 4 {
		t.Errorf("etcd on %s after its step-down: %s, %v", out, list, err)
	}
	if leader, err := s.Leader(ctx, s.Host("n2")); err != nil || leader == out {
		t.Errorf("%s leads etcd after its step-down (%v)", out, err)
	}
	s.noShims(out)
	for path, want := range map[string]string{fleet.FileRole: "agent", fleet.FileLeaving: string(id)} {
		raw, err := s.Host(out).ReadFile(path)
		if err != nil || string(raw) != want+"\n" && string(raw) != want {
			t.Errorf("%s on %s holds %q (%v), want %s", path, out, raw, err, want)
		}
	}

	s.Logf("the member is removed by annotation; %s finishes by itself", out)
	began = time.Now()
	s.patchNode(out, nil, map[string]any{fleet.AnnotationEtcdRemove: "true"})
	s.must(s.AwaitVoters(ctx, soon, "n2", "n3", in))
	s.patchNode(out, nil, map[string]any{keys.MemberGone(): string(id)})
	s.awaitPhase(out, id, fleet.StepFinishDemote, fleet.PhaseDone)
	s.Logf("%s has finished after %.1f s", out, time.Since(began).Seconds())
	s.checkAgent(out)

	s.cleanByHand(out, in)
	s.must(s.AwaitNodesReady(ctx, soon, out, in))
	for name, was := range before {
		if diff := cmp.Diff(was, s.identity(name)); diff != "" {
			t.Errorf("the identity of %s changed (-before +after):\n%s", name, diff)
		}
	}
}

// noShims: nothing of a pod is left on a stepped-down host. An engine's own shims
// are no pods'.
func (s *scenario) noShims(name string) {
	s.t.Helper()
	ps, err := s.Host(name).Processes()
	s.must(err)
	for _, p := range ps {
		if strings.HasPrefix(p.Name, "containerd-shim") && len(p.Args) > 0 && strings.HasPrefix(p.Args[0], fleet.DefaultDataDir) {
			s.t.Errorf("a shim is left on %s: %v", name, p.Args)
		}
	}
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
func (s *scenario) holdLease(id fleet.SwapID, out, in string) {
	s.t.Helper()
	holder, seconds, now := fleet.LeaseHolder, int32(900), metav1.NowMicro()
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: fleet.LeaseName, Annotations: map[string]string{
			fleet.LeaseSwapID: string(id), fleet.LeaseSwapNodes: out + "," + in,
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	leases := s.api().CoordinationV1().Leases(fleet.LeaseNamespace)
	_, err := leases.Create(s.t.Context(), want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var raw []byte
		raw, err = json.Marshal(want)
		s.must(err)
		_, err = leases.Patch(s.t.Context(), fleet.LeaseName, "application/merge-patch+json", raw, metav1.PatchOptions{})
	}
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
