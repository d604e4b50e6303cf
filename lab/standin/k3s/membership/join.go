package membership

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// ErrDuplicate ends a join: a member of another name belongs to this node name (k3s facts §3.3 step 4). The caller
// deletes the name file first.
var ErrDuplicate = errors.New("duplicate node name found, please use a unique name for this node")

// Join says how a server enters the cluster.
type Join struct {
	// Add is false where the member is listed already: etcd starts under the listed identity.
	Add bool
	// Initial is etcd's initial-cluster list, the newcomer included.
	Initial string
}

// PlanJoin compares the member list with the newcomer: node is its node name, name its member name, ip its address.
func PlanJoin(members []Member, node, name, ip string) (Join, error) {
	plan := Join{Add: true}
	var cluster []string
	for _, m := range members {
		if len(m.PeerURLs) > 0 {
			if m.Name == "" && m.at(ip) {
				// A member that never started has no name. With our address it must be us.
				m.Name = name
			}
			if m.Name == name && m.at(ip) {
				plan.Add = false
			}
			cluster = append(cluster, m.Name+"="+m.PeerURLs[0])
		}
		if m.Name != name && baseName(m.Name) == node {
			return Join{}, ErrDuplicate
		}
	}
	if plan.Add {
		cluster = append(cluster, name+"="+PeerURL(ip))
	}
	plan.Initial = strings.Join(cluster, ",")
	return plan, nil
}

// PeerURL and ClientURL are a member's addresses.
func PeerURL(ip string) string { return "https://" + net.JoinHostPort(ip, "2380") }

// ClientURL is where a member serves clients.
func ClientURL(ip string) string { return "https://" + net.JoinHostPort(ip, "2379") }

// JoinEndpoints lists client URLs to join through: no learners, not our own address, the join host first. k3s uses
// only the first of them.
func JoinEndpoints(members []Member, ownIP, joinHost string) []string {
	var first, rest []string
	for _, m := range members {
		if m.Learner {
			continue
		}
		for _, c := range m.ClientURLs {
			switch hostOf(c) {
			case ownIP:
			case joinHost:
				first = append(first, c)
			default:
				rest = append(rest, c)
			}
		}
	}
	return append(first, rest...)
}

// RetryJoin says whether a failed join is tried again every second, and what k3s logs about it. Everything else ends
// the process (k3s facts §3.3).
func RetryJoin(err error) (message string, retry bool) {
	switch text := err.Error(); {
	case errors.Is(err, ErrDuplicate):
		return "", false
	case strings.Contains(text, "too many learner members in cluster"):
		return "Waiting for other members to finish joining etcd cluster", true
	case strings.Contains(text, "unhealthy cluster"):
		return "Waiting for unhealthy etcd cluster to become healthy", true
	case strings.Contains(text, "context deadline exceeded"), strings.Contains(text, "DeadlineExceeded"):
		return "Waiting for etcd cluster to be available", true
	default:
		return "", false
	}
}

// TestSelf is the readiness test of etcd without the calls: the local member must be listed under its own name with
// its own peer URL and be a voter (k3s facts §3.4, §3.7). The address is what a changed node-ip breaks.
func TestSelf(members []Member, id uint64, name, ip string) error {
	var found []string
	for _, m := range members {
		if len(m.PeerURLs) > 0 {
			found = append(found, m.Name+"="+m.PeerURLs[0])
		}
		if m.ID != id || m.Name != name || !m.at(ip) {
			continue
		}
		if m.Learner {
			return errors.New("this server has not yet been promoted from learner to voting member")
		}
		return nil
	}
	return fmt.Errorf("this server is not a member of the etcd cluster. Found %v, expect: %s=%s", found, name, PeerURL(ip))
}
