package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
)

// Safety rule 5: a request to remove the candidate, and the name of an old member,
// stand on its Node from an earlier life. The request is gone before it is promoted,
// and a later removal is not swallowed.
func Test_stale_remove(t *testing.T) {
	s, out, in := troubled(t)
	s.patchNode(in, nil, map[string]any{
		fleet.AnnotationEtcdRemove: "true", fleet.AnnotationEtcdRemovedName: in + "-0badbeef",
	})
	s.mustSwap(out, in)
	s.backAsAgent(out)
	// As a member it is there to stay, and it can be removed again.
	s.neverGone(in, 20*time.Second)
	s.mustSwap(in, out)
	s.backAsAgent(in)
	s.end("n2", "n3", out)
}

func (s *scenario) neverGone(node string, during time.Duration) {
	s.t.Helper()
	s.must(cluster.Never(s.t.Context(), during, node+" is no voter any more", func(ctx context.Context) (bool, string) {
		list, err := s.MembersAt(ctx, s.Host("n2"))
		return err == nil && !voter(s.memberOf(list, node)), list.String()
	}))
}

// Safety rules 25 and 27: during the swap somebody uncordons, deletes the Lease, the
// status, the report map and the candidate's Node. What is deleted is rebuilt, what is
// ours is asserted again, and the swap ends.
func Test_operator_at_work(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	ctx := t.Context()
	deletions := metav1.DeleteOptions{}
	maps := func() interface {
		Delete(context.Context, string, metav1.DeleteOptions) error
	} {
		return s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace)
	}

	s.Logf("uncordons both hosts, deletes the Lease")
	s.must(s.RunRunner(ctx, "hold", in))
	s.ask(out, in)
	s.awaitState("wait")
	for _, name := range []string{out, in} {
		_, err := s.api().CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`), metav1.PatchOptions{})
		s.must(err)
	}
	for _, name := range []string{out, in} {
		s.eventually(soon, name+" to be cordoned again", func(context.Context) (bool, string) {
			return s.node(name).Spec.Unschedulable, "it is not"
		})
	}
	s.must(s.api().CoordinationV1().Leases(fleet.LeaseNamespace).Delete(ctx, fleet.LeaseName, deletions))
	s.eventually(soon, "the Lease to be taken again", func(ctx context.Context) (bool, string) {
		holder, err := s.leaseHolder(ctx)
		return err == nil && holder != "", fmt.Sprint(holder, err)
	})
	s.must(s.EndPod(ctx, "hold"))

	s.Logf("deletes the status while the candidate joins")
	s.awaitState("promote")
	s.must(maps().Delete(ctx, fleet.ConfigMapStatus, deletions))
	s.Logf("deletes the report map while the outgoing host steps down")
	s.awaitFile(out, fleet.FileLeaving)
	s.must(maps().Delete(ctx, fleet.ConfigMapActuators, deletions))
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.checkAgent(out)
	out, in = in, out

	s.Logf("deletes the candidate's Node while it joins")
	s.ask(out, in)
	s.awaitState("promote")
	s.awaitFile(in, fleet.FileJoining)
	// A kubelet that runs on does not register the Node of which it was deprived: only after the agent's end is
	// it regrade's to see the host come back.
	s.must(s.AwaitUnit(ctx, soon, s.Host(in), cluster.AgentUnit, "inactive"))
	s.must(s.api().CoreV1().Nodes().Delete(ctx, in, deletions))
	delete(s.uids, in)
	last := s.ended(out, in)
	s.Logf("%s: %+v", last.Outcome, last.Reasons)
	if last.Outcome == fleet.OutcomeCompleted {
		out, in = in, out
	}
	s.must(s.AwaitNodesReady(ctx, 3*time.Minute, everybody...))
	s.checkNoMarks(in)
	s.checkFull(out)
	s.end("n2", "n3", out)
}

// Safety rule 4: during the swap somebody removes a voter that stays. The swap
// freezes, removes nobody, and names what happened. A person's business from there
// on: the cluster is not handed on.
func Test_operator_removes_a_voter(t *testing.T) {
	long(t)
	beside(t)
	s := &scenario{}
	c := shared.own(t, hurried())
	s.Cluster = c
	s = beginOn(t, c, s.bounds(), "n2")
	ctx := t.Context()
	s.must(s.MoveLeader(ctx, s.Host("n2")))
	s.ask("n1", "n4")
	s.awaitState("settle", "drain-out")
	s.must(s.RemoveMember(ctx, s.Host("n2"), "n3"))
	s.eventually(soon, "the swap to freeze", func(context.Context) (bool, string) {
		next := s.status().Next
		return next.State == "frozen", next.State + ": " + next.Sentence
	})
	s.waitsFor("n3", "StayingVoterChanged")
	s.must(cluster.Never(ctx, time.Minute, "somebody else was removed", func(ctx context.Context) (bool, string) {
		list, err := s.MembersAt(ctx, s.Host("n2"))
		return err == nil && len(list.Voters()) != 3, list.String()
	}))
	if st := s.status(); st.Next.State != "frozen" {
		t.Errorf("the swap is in %s, want frozen: %s", st.Next.State, st.Next.Sentence)
	}
	s.endFrozenByHand("n1", "n4")
	s.must(s.AwaitNodesReady(ctx, 3*time.Minute, everybody...))
	s.awaitFinished("n3")
	s.eventually(soon, "the hosts of the swap to be cleaned", func(context.Context) (bool, string) {
		n1, n4 := s.node("n1"), s.node("n4")
		return !n1.Spec.Unschedulable && !n4.Spec.Unschedulable, fmt.Sprintf("n1 cordoned %t, n4 cordoned %t", n1.Spec.Unschedulable, n4.Spec.Unschedulable)
	})
	for _, name := range []string{"n1", "n4"} {
		if ps := marks(s.node(name), true); len(ps) > 0 {
			t.Errorf("%s", strings.Join(ps, "; "))
		}
		s.checkFull(name)
	}
	if st := s.status(); st.Swap != nil || st.Next.Code != "NothingToDo" {
		t.Errorf("status: swap %+v, next %s: %s", st.Swap, st.Next.Code, st.Next.Sentence)
	}
	if list := s.members(); len(list.Voters()) != 3 || s.memberOf(list, "n3") != nil {
		t.Errorf("the members are %s", list)
	}
	s.checkWrites()
}

// endFrozenByHand does what docs/operations.md says of a frozen swap whose staying voter was removed (steps 1 to 3 and 6),
// where OUT and IN both serve.
func (s *scenario) endFrozenByHand(out, in string) {
	s.t.Helper()
	ctx := s.t.Context()
	off := map[string]any{}
	for _, key := range keys.SwapAnnotations() {
		off[key] = nil
	}
	for _, name := range []string{out, in} {
		s.patchNode(name, nil, map[string]any{fleet.AnnotationEtcdRemove: nil})
	}
	s.must(s.controller.Stop())
	for _, name := range []string{out, in} {
		s.patchNode(name, nil, off)
	}
	_, err := s.api().CoordinationV1().Leases(fleet.LeaseNamespace).Patch(ctx, fleet.LeaseName, types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":null}}`), metav1.PatchOptions{})
	s.must(err)
	s.must(s.controller.Start(ctx))
}

// R-X-08, R-E2-35: the controller loses the API for longer than the Lease lasts,
// and regrading takes the Lease meanwhile. Nothing acts on a lost Lease; when it is
// free again the swap is finished.
func Test_partitioned_controller(t *testing.T) {
	s, out, in := troubled(t, "FLEET_ROLE_LEASE_SECONDS=30")
	ctx := t.Context()
	proxy, err := fault.NewProxy(s.Lab, cluster.APIPort, s.Host("n2"), s.Host("n3"))
	s.must(err)
	s.must(s.controller.Stop())
	s.controller.Env = append(s.controller.Env, "FLEET_ROLE_API_SERVERS="+strings.Join(proxy.URLs(), ","))
	s.must(s.controller.Start(ctx))
	s.must(s.RunRunner(ctx, "hold", in))
	s.ask(out, in)
	s.awaitState("wait")
	proxy.Hold()
	s.must(s.EndPod(ctx, "hold"))
	s.takeExpiredLease("regrade-n2")
	proxy.Release()
	before := s.members()
	marks := s.actions()
	s.must(cluster.Never(ctx, 20*time.Second, "the controller acts on a lost Lease", func(context.Context) (bool, string) {
		return s.actions() > marks, "an action was carried out"
	}))
	s.sameMembers(before)
	s.freeLease()
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.end("n2", "n3", in)
}

// takeExpiredLease waits until the Lease has run out and takes it for another.
func (s *scenario) takeExpiredLease(holder string) {
	s.t.Helper()
	leases := s.api().CoordinationV1().Leases(fleet.LeaseNamespace)
	s.eventually(4*time.Minute, "the Lease to run out", func(ctx context.Context) (bool, string) {
		l, err := leases.Get(ctx, fleet.LeaseName, metav1.GetOptions{})
		if err != nil || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			return false, fmt.Sprint(err)
		}
		end := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
		if left := time.Until(end); left > 0 {
			return false, left.String()
		}
		now, seconds := metav1.NewMicroTime(time.Now()), int32(600)
		l.Spec.HolderIdentity, l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &holder, &now, &now, &seconds
		l.Annotations = nil
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func (s *scenario) freeLease() {
	s.t.Helper()
	leases := s.api().CoordinationV1().Leases(fleet.LeaseNamespace)
	s.eventually(soon, "the Lease to be let go", func(ctx context.Context) (bool, string) {
		l, err := leases.Get(ctx, fleet.LeaseName, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.AcquireTime = nil, nil, nil
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}
