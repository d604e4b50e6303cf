package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/observe"
)

func TestOwnPodsAreThoseOfEveryNamespace(t *testing.T) {
	pod := func(ns, name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "controller", Image: "regrade:1", Env: []corev1.EnvVar{{Name: "T", Value: "hush"}}}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "controller", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Unix(9, 0)}},
				}},
			},
		}
	}
	own := map[string]string{ownName: "regrade", ownPart: "controller"}
	c := fakeClient(builder(pod("a", "c1", own), pod("b", "c2", own), pod("a", "other", nil)))
	ps, err := c.OwnPods(t.Context())
	if err != nil || len(ps) != 2 {
		t.Fatalf("%+v, %v", ps, err)
	}
	p := ps[0]
	if p.Namespace != "a" || p.Component != "controller" || p.Image != "regrade:1" || p.Ready || p.Restarts != 3 || p.Waiting != "CrashLoopBackOff" ||
		p.Ended != "OOMKilled, status 137, at 1970-01-01T00:00:09Z" || p.Container != "controller" || p.Node != "n1" || p.Finished() {
		t.Errorf("%+v", p)
	}
	if strings.Contains(fmt.Sprintf("%+v", ps), "hush") {
		t.Error("a pod's environment is nobody's business")
	}
}

func TestEventsAndConditionsAreRead(t *testing.T) {
	n := n1()
	n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", LastTransitionTime: metav1.Unix(5, 0)}}
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "c"},
		Reason: "BackOff", Message: "again", Type: "Warning", Count: 4, EventTime: metav1.NewMicroTime(time.Unix(7, 0)), ReportingController: "kubelet",
	}
	c := fakeClient(builder(n, e))
	told, err := c.Told(t.Context(), "ns", 10)
	if err != nil || len(told) != 1 || told[0].Object != "Pod ns/c" || told[0].From != "kubelet" || !told[0].Last.Equal(time.Unix(7, 0)) || told[0].Count != 4 {
		t.Errorf("%+v, %v", told, err)
	}
	all, err := c.Conditions(t.Context())
	if err != nil || len(all["n1"]) != 1 || all["n1"][0].Status != "Unknown" || !all["n1"][0].Changed.Equal(time.Unix(5, 0)) {
		t.Errorf("%+v, %v", all, err)
	}
}

// A log is cut by the kubelet at its end, where the news is: fewer lines are asked for then.
func TestALogEndsWithItsLastLine(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, r.URL.Path+" "+q.Get("tailLines")+" "+q.Get("previous")+" "+q.Get("container"))
		var lines int
		_, _ = fmt.Sscan(q.Get("tailLines"), &lines)
		w.Header().Set("Content-Type", "text/plain")
		text := strings.Repeat("012345678\n", lines)
		if len(text) > 1000 {
			text = text[:1000]
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + s.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: c\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := Connect(Access{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	k := NewClient(conn, Options{})
	raw, err := k.Log(t.Context(), observe.OwnPod{Namespace: "ns", Name: "p", Container: "controller"}, true, 200, 1000)
	if err != nil || len(raw) != 500 || len(asked) != 2 || asked[0] != "/api/v1/namespaces/ns/pods/p/log 200 true controller" {
		t.Errorf("%d bytes, %v, %q", len(raw), err, asked)
	}
	if got := Named(Access{Kubeconfig: file, Servers: []string{"https://elsewhere:6443"}}); got != strings.TrimPrefix(s.URL, "http://") {
		t.Errorf("the kubeconfig names %q", got)
	}
	if got := Named(Access{Kubeconfig: file + ".none"}); got != "" {
		t.Errorf("no kubeconfig names %q", got)
	}
	if _, err := fakeClient(builder()).Log(t.Context(), observe.OwnPod{}, false, 1, 1); err == nil {
		t.Error("no connection, and a log all the same")
	}
}
