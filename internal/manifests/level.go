package manifests

import "github.com/exadev/regrade/internal/fleet"

// levelRights are what the level half of a host daemon needs beyond the daemon's own
// (R-N-06, design §1): it labels and cordons its Node, evicts that Node's pods, and takes
// the Lease. Kubernetes cannot say "its own Node alone" of an account that all hosts
// share, so that the account is a power over every Node, as the controller's is; it is
// made only where levels are asked for. It may delete nothing.
func levelRights(s Settings) (out []Object) {
	name := fleet.ServiceAccountLevel
	out = append(out, cluster(s, name, "level",
		rule(core, the("nodes"), the("get", "list", "patch")),
		rule(core, the("pods"), the("get", "list")),
		rule(core, the("pods/eviction"), the("create")),
	)...)
	// R-112-06: the Lease, made where it is not there.
	out = append(out, namespaced(s, fleet.LeaseNamespace, name, "level",
		rule(coordination, the("leases"), the("create")),
		rule(coordination, the("leases"), the("get", "update"), fleet.LeaseName),
	)...)
	// A person's pause holds levels as well.
	return append(out, namespaced(s, s.Namespace, name, "level", rule(core, the("configmaps"), the("get"), fleet.ConfigMapStatus))...)
}
