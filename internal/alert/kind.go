package alert

// Kind is a kind of condition.
type Kind string

// Kinds (design §3).
const (
	// HeartbeatStale: no new document, or none that can be read.
	HeartbeatStale Kind = "heartbeat_stale"
	// FleetUnhealthy: the fleet is not vouched for, and no other kind says why.
	FleetUnhealthy Kind = "fleet_unhealthy"
	// ServerNotReady: a server's Node is not Ready.
	ServerNotReady Kind = "server_not_ready"
	// RoleSwapOverdue: a swap is past the bound of its state.
	RoleSwapOverdue Kind = "role_swap_overdue"
	// VotersEven: etcd has an even number of voters.
	VotersEven Kind = "voters_even"
	// NoTolerance: the next loss of a voter stops all writes.
	NoTolerance Kind = "no_tolerance"
)

// Kinds are all of them, the gravest first.
func Kinds() []Kind {
	return []Kind{HeartbeatStale, NoTolerance, VotersEven, ServerNotReady, RoleSwapOverdue, FleetUnhealthy}
}

func known(k Kind) bool {
	switch k {
	case HeartbeatStale, FleetUnhealthy, ServerNotReady, RoleSwapOverdue, VotersEven, NoTolerance:
		return true
	}
	return false
}

// Severity is how soon a person should look.
type Severity string

// Severities.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)
