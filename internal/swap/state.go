package swap

// State is where a swap stands, worked out anew from each observation.
type State string

// States, in the order a swap without trouble passes them.
const (
	// Idle: no Node carries a swap and the Lease is not a controller's.
	Idle State = "idle"
	// Begin: the Lease is taken, the record does not stand on both Nodes yet.
	Begin State = "begin"
	// Prepare: cordons, and requests left over from earlier lives.
	Prepare State = "prepare"
	// Wait: protected pods on either host are waited for.
	Wait State = "wait"
	// DrainIn: the standby is drained.
	DrainIn State = "drain-in"
	// TakeSnapshot: an etcd snapshot of a staying voter.
	TakeSnapshot State = "snapshot"
	// Recheck: every gate again, right before the first change on a host.
	Recheck State = "recheck"
	// Promote: IN is asked to join; learner, then voter.
	Promote State = "promote"
	// Settle: IN votes; its etcd and its Node have to prove it.
	Settle State = "settle"
	// DrainOut: target plus one voters; OUT is drained.
	DrainOut State = "drain-out"
	// StepDown: OUT restarts etcd-only.
	StepDown State = "step-down"
	// Remove: k3s is asked to remove OUT's member.
	Remove State = "remove"
	// Finish: OUT's member is gone; its host becomes an agent, its Node is cleaned.
	Finish State = "finish"
	// End: the outcome is published; marks are taken away, the Lease is released.
	End State = "end"

	// Rollback: IN is taken back; its member goes first.
	Rollback State = "rollback"
	// Restore: IN's member is gone; both hosts go back to what they were.
	Restore State = "restore"

	// Reclaim: a swap is under way and the Lease is nobody's.
	Reclaim State = "reclaim"
	// LeaseLost: a swap is under way and the Lease is another's.
	LeaseLost State = "lease-lost"
	// TakeOverState: another controller drove this swap.
	TakeOverState State = "take-over"
	// Frozen: something changed that is not the swap's business.
	Frozen State = "frozen"
	// StatusUnread: whether the swap has ended is not known.
	StatusUnread State = "status-unread"
	// Contradiction: the marks on Nodes and Lease cannot be understood.
	Contradiction State = "contradiction"
)

// allStates in the order of the documentation.
var allStates = []State{
	Idle, Begin, Prepare, Wait, DrainIn, TakeSnapshot, Recheck, Promote, Settle, DrainOut, StepDown, Remove, Finish, End,
	Rollback, Restore, Reclaim, LeaseLost, TakeOverState, Frozen, StatusUnread, Contradiction,
}
