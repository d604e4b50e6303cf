package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// The threshold of this scenario, beside a kubelet's grace of 20 s: a host that is silent for as long has no lab's pause.
const recoverAfter = 30 * time.Second

// Issue 6, group B: a host dies under a pod that a StatefulSet must make anew. Without recovery the pod stays on the dead
// node; with it, it runs elsewhere; the node that comes back is cleared. A voter is tainted on the word of two probes, and
// one that still runs, with k3s stopped on it, is not, however long its kubelet is silent.
// The outgoing node of a swap, crashed in the middle of it, is never tainted while the swap stands.
func Test_recovery(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.leaderDies = true
	ctx := t.Context()
	s.statefulSet("survivor", in)

	// Without: the yardstick. Nobody may say that the pod is gone but its kubelet.
	began := time.Now()
	s.must(s.Host(in).Crash(ctx, true))
	s.untilReady(in, corev1.ConditionUnknown)
	unknown := time.Since(began)
	without := unknown + recoverAfter + 75*time.Second
	s.must(cluster.Never(ctx, without-time.Since(began), "the pod is made anew without recovery", func(ctx context.Context) (bool, string) {
		return s.runsElsewhere(ctx, "survivor-0", in)
	}))
	s.Logf("without recovery the pod is still %s's %.0f s after the crash (Unknown after %.0f s)", in, time.Since(began).Seconds(), unknown.Seconds())

	// With, the same host down: from the start of recovery on it waits for its whole threshold.
	started := time.Now()
	r, err := s.StartRecovery(ctx, fmt.Sprintf("NODE_RECOVERY_AFTER_SECONDS=%.0f", recoverAfter.Seconds()), "NODE_RECOVERY_POLL_SECONDS=5", "FLEET_ROLE_PERIOD_SECONDS=5")
	s.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			log, err := r.Log()
			t.Logf("recovery says (%v):\n%s", err, log)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.untilTainted(in, true)
	if early := time.Since(started); early < recoverAfter {
		t.Errorf("tainted %.1f s after recovery began to look, the threshold is %s", early.Seconds(), recoverAfter)
	}
	s.untilElsewhere("survivor-0", in)
	s.Logf("with recovery: %.0f s after it began to look the pod runs elsewhere", time.Since(started).Seconds())
	uid := s.node(in).UID
	s.must(s.Host(in).Boot(ctx))
	s.untilReady(in, corev1.ConditionTrue)
	s.untilTainted(in, false)
	if s.node(in).UID != uid {
		t.Error("its Node is another object")
	}

	// And once more from the crash on, as it is in a cluster where it runs.
	s.statefulSet("second", in)
	began = time.Now()
	s.must(s.Host(in).Crash(ctx, true))
	s.untilElsewhere("second-0", in)
	s.Logf("time to recovery from the crash: %.0f s; without it the pod was not back after %.0f s", time.Since(began).Seconds(), without.Seconds())
	o, err := s.CLI(ctx, "recovery", "status")
	s.must(err)
	s.Logf("regrade recovery status:\n%s", o.Stdout)
	if !strings.Contains(o.Stdout, "OutOfService") {
		t.Errorf("it does not say that %s is out of service", in)
	}
	s.must(s.Host(in).Boot(ctx))
	s.untilReady(in, corev1.ConditionTrue)
	s.untilTainted(in, false)

	// The outgoing node, which dies once the newcomer votes.
	s.awaitReports()
	stop := s.neverTaintedInASwap(out, in)
	s.ask(out, in)
	s.awaitState("drain-out", "step-down")
	s.must(s.Host(out).Crash(ctx, true))
	s.Logf("%s is down in the middle of its swap", out)
	s.ends(out, in, fleet.OutcomeCompleted)
	stop()
	// Its host is pending, and any agent now (R-I-25).
	s.untilTainted(out, true)
	s.must(s.Host(out).Boot(ctx))
	s.backAsAgent(out)
	s.untilTainted(out, false)
	s.checkNoMarks(out)

	// A voter, which probes measure: tainted once two of them say that it is gone.
	s.must(s.StartProbes(ctx, probing(probePeriod, probeWindow)...))
	s.eventually(2*time.Minute, "the probes to write", func(ctx context.Context) (bool, string) {
		cm, err := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace).Get(ctx, fleet.ConfigMapProbe, metav1.GetOptions{})
		return err == nil && len(cm.Data) == 4, fmt.Sprintf("%d entries, %v", len(cm.Data), err)
	})
	began = time.Now()
	s.must(s.Host(in).Crash(ctx, true))
	s.untilTainted(in, true)
	s.Logf("a voter is tainted %.0f s after its crash", time.Since(began).Seconds())
	log, err := r.Log()
	s.must(err)
	if !strings.Contains(log, "TooFewWitnesses") {
		t.Log("recovery never waited for a witness: the probes were as quick as the threshold")
	}
	s.must(s.Host(in).Boot(ctx))
	s.untilReady(in, corev1.ConditionTrue)
	s.untilTainted(in, false)

	// The same voter, on which k3s is stopped and nothing else: its host runs, and with it what a pod's containers would be.
	_, err = s.Host(in).Systemctl(ctx, "stop", cluster.ServerUnit)
	s.must(err)
	s.untilReady(in, corev1.ConditionUnknown)
	s.must(cluster.Never(ctx, 4*recoverAfter, "a host that still runs is tainted", func(ctx context.Context) (bool, string) {
		n, err := s.api().CoreV1().Nodes().Get(ctx, in, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		tainted, marked := outOfService(n)
		return tainted || marked, fmt.Sprintf("taint %v, mark %v", tainted, marked)
	}))
	o, err = s.CLI(ctx, "recovery", "status", "--after", fmt.Sprintf("%.0f", recoverAfter.Seconds()), "--period", "5")
	s.must(err)
	s.Logf("regrade recovery status:\n%s", o.Stdout)
	if !slices.ContainsFunc([]string{"ProbeBeats", "DaemonBeats", "StillRefuses"}, func(code string) bool { return strings.Contains(o.Stdout, code) }) {
		t.Errorf("it does not say that %s still runs", in)
	}
	_, err = s.Host(in).Systemctl(ctx, "start", "--no-block", cluster.ServerUnit)
	s.must(err)
	s.untilReady(in, corev1.ConditionTrue)
	for _, name := range []string{"survivor", "second"} {
		s.must(s.api().AppsV1().StatefulSets(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}))
	}
	s.end("n2", "n3", in)
}

// statefulSet makes one of one pod, which would rather run on the node, and leaves a dead one after five seconds; it waits
// until the pod runs there.
func (s *scenario) statefulSet(name, node string) {
	s.t.Helper()
	one, five, grace := int32(1), int64(5), int64(1) // with no grace the API drops a pod at once, whatever its kubelet says
	labels := map[string]string{"app": name}
	away := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &five}
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &one, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					Tolerations:                   []corev1.Toleration{away("node.kubernetes.io/unreachable"), away("node.kubernetes.io/not-ready")},
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
						Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
						}},
					}}}},
					Containers: []corev1.Container{{Name: "main", Image: cluster.PodImage, ImagePullPolicy: corev1.PullIfNotPresent}},
				},
			},
		},
	}
	_, err := s.api().AppsV1().StatefulSets(metav1.NamespaceDefault).Create(s.t.Context(), set, metav1.CreateOptions{})
	s.must(err)
	s.eventually(2*time.Minute, "the pod of "+name+" to run on "+node, func(ctx context.Context) (bool, string) {
		p, err := s.api().CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name+"-0", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return p.Status.Phase == corev1.PodRunning && p.Spec.NodeName == node, fmt.Sprintf("%s on %q", p.Status.Phase, p.Spec.NodeName)
	})
}

func (s *scenario) runsElsewhere(ctx context.Context, pod, node string) (bool, string) {
	p, err := s.api().CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	return p.Status.Phase == corev1.PodRunning && p.Spec.NodeName != node && p.DeletionTimestamp == nil,
		fmt.Sprintf("%s on %q, being deleted %v", p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp != nil)
}

func (s *scenario) untilElsewhere(pod, node string) {
	s.t.Helper()
	s.eventually(5*time.Minute, pod+" to run elsewhere", func(ctx context.Context) (bool, string) { return s.runsElsewhere(ctx, pod, node) })
}

func (s *scenario) untilReady(name string, want corev1.ConditionStatus) {
	s.t.Helper()
	s.eventually(3*time.Minute, fmt.Sprintf("Ready of %s to be %s", name, want), func(ctx context.Context) (bool, string) {
		n, err := s.api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == want, string(c.Status)
			}
		}
		return false, "no condition"
	})
}

func outOfService(n *corev1.Node) (tainted, marked bool) {
	_, marked = n.Annotations[fleet.AnnotationOutOfService]
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == fleet.TaintOutOfService }), marked
}

// untilTainted waits for taint and mark, or for both to be gone.
func (s *scenario) untilTainted(name string, want bool) {
	s.t.Helper()
	s.eventually(5*time.Minute, fmt.Sprintf("the taint of %s to be there: %v", name, want), func(ctx context.Context) (bool, string) {
		n, err := s.api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		tainted, marked := outOfService(n)
		return tainted == want && marked == want, fmt.Sprintf("taint %v, mark %v", tainted, marked)
	})
}

// neverTaintedInASwap looks four times a second until it is stopped.
func (s *scenario) neverTaintedInASwap(names ...string) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	api := s.api()
	var all sync.WaitGroup
	looks, marked := 0, map[string]bool{}
	all.Go(func() {
		for ctx.Err() == nil {
			for _, name := range names {
				n, err := api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					continue
				}
				looks++
				_, swapping := n.Annotations[keys.Swap()]
				marked[name] = marked[name] || swapping
				if tainted, _ := outOfService(n); tainted && swapping {
					s.t.Errorf("%s is of a swap and out of service", name)
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		all.Wait()
		s.Logf("looked %d times: no node of the swap was tainted while it stood", looks)
		for _, name := range names {
			if !marked[name] {
				s.t.Errorf("%s was never seen in a swap: this proves nothing of it", name)
			}
		}
	}
}
