package scenarios

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Issue 7: from init to a first verdict of every host, by the quick start with what it proposes for a first look. No pod
// runs here: controller and probes are processes with the environment that apply gave their pods.
func Test_first_verdict(t *testing.T) {
	long(t)
	beside(t)
	a := adopting(t, asPeopleHaveOne())
	ctx := t.Context()
	began := time.Now()
	file := strings.Replace(a.fleetFile(), "\n  period: 4s\n", "\n  period: 5s\n  window: 20\n", 1)
	a.mustApply(file, "--check")
	a.mustApply(file)
	probes, err := a.api().AppsV1().DaemonSets(fleet.DefaultNamespace).Get(ctx, fleet.ServiceAccountProbe, metav1.GetOptions{})
	a.must(err)
	controller, err := a.api().AppsV1().Deployments(fleet.DefaultNamespace).Get(ctx, fleet.ServiceAccountController, metav1.GetOptions{})
	a.must(err)
	a.must(a.StartProbes(ctx, environment(probes.Spec.Template.Spec)...))
	s := beginOn(t, a.Cluster, environment(controller.Spec.Template.Spec), "n2", "n3")
	s.judgedWithin(5*time.Minute, "a verdict of every host", func(st status.Status) (bool, string) {
		for _, name := range a.takes {
			if v := verdict(st, name); v.Fitness == fitness.Unknown || v.Fitness == "" {
				return false, name + ": " + said(v)
			}
		}
		return true, ""
	})
	took := time.Since(began)
	s.Logf("from init to a verdict of every host: %.0f s", took.Seconds())
	// The bound that the quick start promises.
	if took > 5*time.Minute {
		t.Errorf("that is more than five minutes")
	}
	o, err := s.CLI(ctx, "status")
	s.must(err)
	s.Logf("%s", o.Stdout)
	if o.Code != 0 || !strings.Contains(o.Stdout, "dry run") {
		t.Errorf("status: exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	for _, name := range a.takes {
		if o, err := s.CLI(ctx, "explain", name); err != nil || o.Code != 0 {
			t.Errorf("explain %s: exit %d, %v: %s%s", name, o.Code, err, o.Stdout, o.Stderr)
		}
	}
	s.end("n1", "n2", "n3")
}

// environment is what a pod's container has been given word for word.
func environment(pod corev1.PodSpec) []string {
	var out []string
	for _, e := range pod.Containers[0].Env {
		if e.ValueFrom == nil && !strings.HasPrefix(e.Name, "KUBE") {
			out = append(out, e.Name+"="+e.Value)
		}
	}
	return out
}
