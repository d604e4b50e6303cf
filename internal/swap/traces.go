package swap

import "github.com/exadev/regrade/internal/fleet"

// Traces says whether a cluster shows that it has seen a swap, without its status: the
// desired-role label stays on a Node when a swap ends (R-D1-01), and the Lease, once
// made, is there for good. Without either a missing status is that of a cluster which
// never had one. A host's last step is no trace: an installer's own has no status.
func Traces(o *Observation, k fleet.Keys) bool {
	if o.Lease.Exists {
		return true
	}
	for i := range o.Hosts {
		if _, asked := o.Hosts[i].Node.Labels[k.DesiredRole()]; asked {
			return true
		}
	}
	return false
}
