package probe

import (
	"cmp"
	"net"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// peerPort is where etcd's members reach each other; k3s fixes it.
const peerPort = "2380"

// view is what the Nodes say that matters to one probe.
type view struct {
	// peers are the other voters, sorted by name.
	peers []sensor.Peer
	// member: the own Node has etcd's label, and nothing says that it does not
	// vote. maybe: the label is there and the condition says no: a learner, or a
	// host whose labels nobody has cleaned yet. Its metrics page tells them apart.
	member, maybe bool
	eligible      bool
	// hosts is how many hosts have a probe that records.
	hosts int
}

// records says whether this host keeps samples at all (R-185-09).
func (v view) records() bool { return v.member || v.maybe || v.eligible }

// look makes a view for a host. A voter is a Node with etcd's label whose
// condition does not deny it: the condition comes up to a period late, and stays
// True for the dead, whose peers want to know.
func look(self string, servers []hostapi.Node, eligible []string) view {
	var v view
	recording := map[string]bool{}
	for _, name := range eligible {
		recording[name] = true
		v.eligible = v.eligible || name == self
	}
	for _, n := range servers {
		if n.Labels[fleet.LabelEtcd] != fleet.True {
			continue
		}
		recording[n.Name] = true
		denied := n.EtcdIsVoter == "False"
		if n.Name == self {
			v.member, v.maybe = !denied, denied
			continue
		}
		address := cmp.Or(n.Annotations[fleet.AnnotationEtcdAddress], n.InternalIP)
		if denied || address == "" {
			continue
		}
		v.peers = append(v.peers, sensor.Peer{Node: n.Name, Address: net.JoinHostPort(address, peerPort)})
	}
	slices.SortFunc(v.peers, func(a, b sensor.Peer) int { return cmp.Compare(a.Node, b.Node) })
	v.hosts = len(recording)
	return v
}
