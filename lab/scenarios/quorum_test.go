package scenarios

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/cluster"
)

// Issue 7, restoring after quorum loss: of three servers one loses its disk and one its datastore. What is left is made a
// cluster of one, the others join as new, and regrade goes on. What is typed on a host is read from docs/quorum-lost.md.
func Test_quorum_lost(t *testing.T) {
	long(t)
	beside(t)
	a := adopting(t, asPeopleHaveOne())
	ctx, file, s := t.Context(), a.fleetFile(), a.scenario
	s.Logf("apply --check:\n%s", a.mustApply(file, "--check").Stdout)
	s.Logf("apply:\n%s", a.mustApply(file).Stdout)
	s = beginOn(t, a.Cluster, []string{}, "n2")
	n2, survivor := s.Host("n2"), cluster.URL(s.Host("n2"))
	s.outage = true

	s.Logf("n1 loses its power and its disk, n3 its datastore")
	s.must(s.Host("n1").Crash(ctx, true))
	_, err := s.Host("n3").Systemctl(ctx, "kill", "--signal=KILL", cluster.ServerUnit)
	s.must(err)
	s.must(s.Host("n3").Remove("/var/lib/rancher/k3s/server/db"))
	s.eventually(soon, "n2 to have no quorum", func(ctx context.Context) (bool, string) {
		_, err := s.MembersAt(ctx, n2)
		return err != nil, "it still gives a member list"
	})
	s.must(s.controller.Stop())

	s.byHand("n3", survivor, quorumPage(t, "other server"))
	s.byHand("n2", survivor, quorumPage(t, "survivor"))
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n2"))
	s.must(s.AwaitNodesReady(ctx, 3*time.Minute, "n2", "n4", "n5"))
	list, err := s.MembersAt(ctx, n2)
	s.must(err)
	if len(list.Members) != 1 {
		t.Errorf("the members after the reset: %s", list)
	}
	s.Logf("a cluster of one: %s; it was %s", list, s.clusterID)

	for _, name := range []string{"n1", "n3"} {
		s.must(s.api().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
		delete(s.uids, name)
	}
	for _, name := range []string{"n1", "n3"} {
		s.gone(name)
	}
	s.byHand("n4", survivor, quorumPage(t, "standby"))
	s.byHand("n3", survivor, quorumPage(t, "other server again"))
	s.must(s.AwaitNodesReady(ctx, 2*time.Minute, "n3"))
	s.promotedByHand("n4", "n2")
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n2", "n4"))
	s.promotedByHand("n3", "n2")
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n2", "n3", "n4"))

	s.Logf("n1 comes back as a new host")
	s.must(s.Anew(s.Host("n1")))
	s.must(s.Host("n1").Boot(ctx))
	file = asAgent(t, file, "n1")
	a.mustApply(file)

	s.Logf("regrade goes on")
	s.must(s.controller.Start(ctx))
	s.eventually(2*time.Minute, "a status with three voters and no swap", func(context.Context) (bool, string) {
		st, voters := s.status(), 0
		for _, h := range st.Hosts {
			if h.Voter {
				voters++
			}
		}
		return voters == 3 && st.Swap == nil && len(st.Pending) == 0, fmt.Sprintf("%d voters, swap %+v, pending %v, next %s", voters, st.Swap, st.Pending, st.Next.Sentence)
	})
	s.awaitReports()
	s.mustSwap("n4", "n1")
	s.checkAgent("n4")
	if o := a.mustApply(file); !strings.Contains(o.Stdout, "nothing to do: ") {
		t.Errorf("apply after all of it:\n%s", o.Stdout)
	}
	a.checked(file)
	s.end("n1", "n2", "n3")
}

// byHand runs what a person types on the host.
func (s *scenario) byHand(name, survivor, script string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Minute)
	defer cancel()
	began := time.Now()
	o, err := s.Host(name).Exec(ctx, "env", "SURVIVOR="+survivor, "bash", "-exc", script)
	s.must(err)
	if o.Code != 0 {
		s.t.Fatalf("on %s: exit %d: %s%s", name, o.Code, o.Stdout, o.Stderr)
	}
	s.Logf("on %s, by hand, %.1f s", name, time.Since(began).Seconds())
}

func (s *scenario) promotedByHand(name, join string) {
	s.t.Helper()
	s.eventually(2*time.Minute, name+" to be promoted by hand", func(ctx context.Context) (bool, string) {
		o, err := s.HostCLI(ctx, s.Host(name), "promote-local", "--join", join)
		if err != nil {
			return false, err.Error()
		}
		return o.Code == 0, fmt.Sprintf("exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	})
}

func (s *scenario) gone(name string) {
	s.t.Helper()
	s.eventually(2*time.Minute, "the Node "+name+" to go, with its password", func(ctx context.Context) (bool, string) {
		if _, err := s.api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return false, fmt.Sprintf("the Node is there (%v)", err)
		}
		_, err := s.api().CoreV1().Secrets("kube-system").Get(ctx, name+".node-password.k3s", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("its password is there (%v)", err)
	})
}

// asAgent is the file with a server's role turned, as the page says of a host that comes back as a new one: what is no server is eligible where that is said alone.
func asAgent(t *testing.T, text, name string) string {
	t.Helper()
	head, tail, found := strings.Cut(text, "name: "+name+"\n")
	turned := strings.Replace(tail, "role: server\n", "role: agent\n    eligible: true\n", 1)
	if !found || turned == tail {
		t.Fatalf("the file does not say that %s is a server:\n%s", name, text)
	}
	return head + "name: " + name + "\n" + turned
}

// quorumPage is the indented block of the page that follows the mark with this name.
func quorumPage(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/quorum-lost.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), "<!-- lab: "+name+" -->\n")
	if !found {
		t.Fatalf("the page has no mark for %q", name)
	}
	var script []string
	for line := range strings.SplitSeq(text, "\n") {
		code, indented := strings.CutPrefix(line, "    ")
		if line != "" && !indented {
			break
		}
		script = append(script, code)
	}
	return strings.TrimSpace(strings.Join(script, "\n"))
}
