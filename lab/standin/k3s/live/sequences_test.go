//go:build live

package live

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// sequence is one of internal/sim/sequences, whose package this module cannot import.
type sequence struct {
	Name  string `json:"name"`
	Steps []struct {
		Do    string `json:"do"`
		Until string `json:"until"`
		Still string `json:"still"`
		Host  string `json:"host"`
		Wait  int    `json:"wait"`
	} `json:"steps"`
}

// TestTheStandInPlaysTheSequences plays on real processes what the simulated cluster's model of k3s is held against. Each
// sequence has a cluster of its own, which takes about a minute: it runs only with LIVE_SEQUENCES=1.
func TestTheStandInPlaysTheSequences(t *testing.T) {
	if os.Getenv("LIVE_SEQUENCES") != "1" {
		t.Skip("set LIVE_SEQUENCES=1")
	}
	raw, err := os.ReadFile("../../../../internal/sim/sequences/sequences.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []sequence
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			p := newPlayer(t)
			for i, step := range s.Steps {
				wait := time.Duration(step.Wait) * time.Second
				switch {
				case step.Do != "":
					p.do(step.Do, step.Host)
				case step.Until != "":
					p.lab.until(150*time.Second, step.Until+" "+step.Host, func() bool { return p.is(step.Until, step.Host) })
				case step.Still != "":
					for began := time.Now(); ; time.Sleep(250 * time.Millisecond) {
						if !p.is(step.Still, step.Host) {
							t.Fatalf("step %d: no more %s %s", i, step.Still, step.Host)
						}
						if time.Since(began) >= wait {
							break
						}
					}
				default:
					time.Sleep(wait)
				}
			}
		})
	}
}

// player is a cluster of the voters a, b and c, and a host d.
type player struct {
	t     *testing.T
	lab   *lab
	hosts map[string]*host
	stall []string
	last  map[string]string // the last member name of each host: a list without it says that it is gone
}

func newPlayer(t *testing.T) *player {
	l := newLab(t)
	p := &player{t: t, lab: l, hosts: map[string]*host{}, stall: []string{"K3S_STANDIN_LEARNER_STALL=15s"}, last: map[string]string{}}
	for i, name := range []string{"a", "b", "c", "d"} {
		p.hosts[name] = l.host(name, 31+i)
	}
	a := p.hosts["a"]
	a.start(p.stall, server("--cluster-init")...)
	a.awaitReady(90 * time.Second)
	for _, name := range []string{"b", "c"} {
		p.hosts[name].start(p.stall, join(a)...)
		p.hosts[name].awaitReady(150 * time.Second)
	}
	p.hosts["d"].start(nil, agentOf(a)...)
	p.hosts["d"].awaitReady(60 * time.Second)
	for _, name := range []string{"a", "b", "c"} {
		l.until(30*time.Second, name+" is named on its Node", func() bool { return p.is("named", name) })
	}
	return p
}

func (p *player) do(what, name string) {
	t, h, a := p.t, p.hosts[name], p.hosts["a"]
	t.Helper()
	switch what {
	case "join", "start":
		// a is never restarted in the table; d ends its agent first.
		if h.running() {
			h.stop()
		}
		h.start(p.stall, join(a)...)
	case "add":
		if _, err := a.etcd().MemberAddAsLearner(t.Context(), []string{"https://" + h.ip + ":2380"}); err != nil {
			t.Fatal(err)
		}
	case "kill":
		h.kill()
	case "ask":
		annotate(t, a.kube(), name, map[string]any{membership.RemoveAnnotation: "true"})
	case "name":
		label := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, membership.EtcdLabel)
		if _, err := a.kube().CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		annotate(t, a.kube(), name, map[string]any{membership.NameAnnotation: h.member(), membership.AddressAnnotation: h.ip})
	case "move address":
		annotate(t, a.kube(), name, map[string]any{membership.AddressAnnotation: "192.0.2.1"})
	case "say removed":
		annotate(t, a.kube(), name, map[string]any{membership.RemovedNameAnnotation: h.member()})
	case "lead":
		lead(t, h, p.hosts["a"], p.hosts["b"], p.hosts["c"])
	default:
		t.Fatalf("nobody knows how to do %q", what)
	}
}

// listed says how a's etcd lists a host: not at all, as a learner that has no name yet, or by its name.
func (p *player) listed(name string) (listed, started, voter bool) {
	h := p.hosts[name]
	if m := h.member(); m != "" {
		p.last[name] = m
	}
	client := p.hosts["a"].etcd()
	defer func() { _ = client.Close() }()
	list, err := client.MemberList(p.t.Context())
	for tries := 0; err != nil; tries++ { // a leader is being elected
		if tries == 20 {
			p.t.Fatal(err)
		}
		time.Sleep(time.Second)
		list, err = client.MemberList(p.t.Context())
	}
	for _, m := range list.Members {
		own := m.Name != "" && m.Name == p.last[name]
		for _, u := range m.PeerURLs {
			own = own || u == "https://"+h.ip+":2380"
		}
		if own {
			return true, m.Name != "", !m.IsLearner
		}
	}
	return false, false, false
}

func (p *player) is(what, name string) bool {
	t, h := p.t, p.hosts[name]
	t.Helper()
	listed, started, voter := p.listed(name)
	tombstone := func() bool { return exists(h.data("server", "db", "etcd", "tombstone")) }
	note := func(key string) string { return getNode(t, p.hosts["a"].kube(), name).Annotations[key] }
	switch what {
	case "gone":
		return !listed
	case "learner":
		return listed && !voter
	case "started":
		return started
	case "voter":
		return listed && voter
	case "ready":
		return h.isReady()
	case "not ready":
		return !h.isReady()
	case "running":
		return h.running()
	case "tombstone":
		return tombstone()
	case "no tombstone":
		return !tombstone()
	case "asked":
		return note(membership.RemoveAnnotation) != ""
	case "not asked":
		return note(membership.RemoveAnnotation) == ""
	case "removed name":
		return note(membership.RemovedNameAnnotation) != ""
	case "no removed name":
		return note(membership.RemovedNameAnnotation) == ""
	case "named":
		return h.member() != "" && note(membership.NameAnnotation) == h.member()
	}
	t.Fatalf("nobody knows what %q is", what)
	return false
}
