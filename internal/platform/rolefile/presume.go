package rolefile

import "github.com/exadev/regrade/internal/fleet"

// Presumed are the files with a role for a host that has no role file, taken
// from the inventory (R-C-03: written from it only when absent). Without it both
// roles may start as before regrade, and on one data folder both would (R-X-02).
//
// What the host itself shows comes first. A datastore is a member's, whatever
// the inventory says: it starts, and the agent beside it does not. A former
// member's role is not guessed at all; MayStart lets at most one role start then.
// An inventory of "" changes nothing (R-A-04).
func Presumed(f Files, inventory fleet.Role) Files {
	switch {
	case inventory == "" || f.Role != "" || f.RoleProblem != "":
	case f.Former() || f.Tombstone:
	case f.WAL:
		f.Role = fleet.RoleServer
	default:
		f.Role = inventory
	}
	return f
}

// Record is what Recording says: the role to write, or why none may be.
type Record struct {
	Write   fleet.Role
	Refused string
	// Kept says why there is nothing to write.
	Kept string
}

// Recording decides what an inventory writes into the role file, and refuses
// what it contradicts. running is the role whose k3s runs, empty for none; held
// is the swap for which the Lease is held, empty for none.
//
// The recorded role is kept over what the inventory says (R-C-03): a swap may
// have changed it. A host that is not eligible gets no role file, so its running
// container must be what the inventory says (R-C-06). While a swap holds the
// Lease nothing is changed (R-C-07), nor where the host was in one or was a
// member and its role file is lost: the inventory knows nothing of that.
func Recording(f Files, inventory fleet.Role, eligible bool, running fleet.Role, held fleet.SwapID) Record {
	switch {
	case f.RoleProblem != "":
		return Record{Refused: f.RoleProblem}
	case f.Role != "":
		return Record{Kept: "the role file says " + string(f.Role)}
	case inventory == "":
		return Record{Kept: "no role is given for this host"}
	case running != "" && running != inventory:
		return Record{Refused: "the " + string(running) + "'s k3s runs here and the inventory says " + string(inventory) +
			": correct the inventory, or stop that container and see that its member is removed"}
	case !eligible:
		return Record{Kept: "the host is not eligible, so its role is the inventory's: " + string(inventory)}
	case f.Leaving != "" || f.Joining.Swap != "":
		return Record{Refused: "the host is in a swap and its role file is lost: write the role that `regrade status` shows"}
	case held != "":
		return Record{Refused: "the Lease is held for swap " + string(held) + ": nothing is changed before that ends"}
	case f.Former() || f.Tombstone:
		return Record{Refused: "the host was a member of a cluster and its role file is lost: write server where the member lists hold it, else agent"}
	case f.WAL && inventory == fleet.RoleAgent:
		return Record{Refused: "the host has a datastore and the inventory says agent: it may be a voter"}
	}
	return Record{Write: inventory}
}
