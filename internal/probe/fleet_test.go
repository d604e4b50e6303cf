package probe

import (
	"fmt"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
)

func server(name, ip string, edit ...func(*hostapi.Node)) hostapi.Node {
	n := hostapi.Node{Name: name}
	n.Labels, n.Annotations = map[string]string{fleet.LabelEtcd: fleet.True}, map[string]string{}
	n.InternalIP, n.EtcdIsVoter = ip, "True"
	for _, f := range edit {
		f(&n)
	}
	return n
}

func TestWhoIsMeasuredAndWhoRecords(t *testing.T) { // R-185-03, R-185-09, R-X-10
	denied := func(n *hostapi.Node) { n.EtcdIsVoter = "False" }
	annotated := func(n *hostapi.Node) { n.Annotations[fleet.AnnotationEtcdAddress] = "fd00::2" }
	for name, tt := range map[string]struct {
		self     string
		servers  []hostapi.Node
		eligible []string
		want     string
	}{
		"a voter": {"a", []hostapi.Node{server("c", "10.0.0.3"), server("a", "10.0.0.1"), server("b", "10.0.0.2")}, nil,
			"{[{b 10.0.0.2:2380} {c 10.0.0.3:2380}] true false false 3}"},
		"a standby": {"d", []hostapi.Node{server("a", "10.0.0.1"), server("b", "10.0.0.2", annotated)}, []string{"a", "d"},
			"{[{a 10.0.0.1:2380} {b [fd00::2]:2380}] false false true 3}"},
		"neither": {"e", []hostapi.Node{server("a", "10.0.0.1")}, []string{"a"},
			"{[{a 10.0.0.1:2380}] false false false 1}"},
		"one whose label nobody has cleaned, or a learner": {"d", []hostapi.Node{server("d", "10.0.0.4", denied)}, []string{"d"},
			"{[] false true true 1}"},
		"a peer that is no voter any more": {"a", []hostapi.Node{server("a", "10.0.0.1"), server("b", "10.0.0.2", denied)}, nil,
			"{[] true false false 2}"},
		"a condition that is not there yet": {"a", []hostapi.Node{server("a", ""), server("b", "10.0.0.2", func(n *hostapi.Node) { n.EtcdIsVoter = "" })}, nil,
			"{[{b 10.0.0.2:2380}] true false false 2}"},
		"a voter without an address": {"a", []hostapi.Node{server("b", "")}, []string{"a"},
			"{[] false false true 2}"},
		"a label with another value": {"a", []hostapi.Node{server("b", "10.0.0.2", func(n *hostapi.Node) { n.Labels[fleet.LabelEtcd] = "false" })}, []string{"a"},
			"{[] false false true 1}"},
	} {
		t.Run(name, func(t *testing.T) {
			v := look(tt.self, tt.servers, tt.eligible)
			if got := fmt.Sprint(v); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if v.records() != (v.member || v.maybe || v.eligible) {
				t.Error("records")
			}
		})
	}
}
