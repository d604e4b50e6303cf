package hostd

import "github.com/exadev/regrade/internal/fleet"

// joinEnded takes away what a join has left that nobody ended: the command of an
// installer was killed, or the swap ended without this host. It outlives a reboot now
// (safety rule 18), and would let a server start on whatever datastore comes later,
// beside a role file that a person has changed to agent.
//
// A file that holds no swap goes in the same cases: no agent may start beside it.
//
// A rollback that is due keeps it: by it the rollback knows that a member of this host
// may be in the lists, though it has no datastore (safety rule 6).
func joinEnded(f Facts, o order) Decision {
	files, j := f.Host.Files, f.Journal
	if j.Local && j.Step == fleet.StepPromote && j.Phase == fleet.PhaseRunning && j.BootID != files.BootID && f.Host.Server.Gone() && standby(f) {
		return failed(f, CodeRebooted, "the host was restarted before it was a member; it is an agent again")
	}
	switch {
	case !files.ForeignJoin && (files.Joining.Swap == "" || files.JoiningProblem != ""):
		return Decision{}
	case f.Etcd.Voter() && files.Role == fleet.RoleServer && files.WAL && !files.Tombstone:
		return effect(Effect{Kind: Join}) // by the role file it starts, whatever else is there
	case !standby(f) || files.JoiningNow() || !f.Host.Server.Gone() || f.View == nil || o.problem.is() || o.step != "":
		return Decision{}
	case f.View.Lease.HeldFor(files.Joining.Swap, f.View.Date):
		return Decision{}
	case !j.Local && (j.Step == fleet.StepPromote || j.Step == fleet.StepRollback) && (j.Phase == fleet.PhaseRunning || j.Phase == fleet.PhaseFailed):
		return Decision{}
	}
	return effect(Effect{Kind: Join})
}

// standby says whether the host has nothing of a server but what a join left.
func standby(f Facts) bool {
	files := f.Host.Files
	return files.Role == fleet.RoleAgent && files.Leaving == "" && !files.WAL && !files.Tombstone && !f.Host.Datastore
}
