package platform

import (
	"context"
	"errors"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// ErrAnew says that this process can never see its host again, and a new one could.
// The daemon ends on it, and whoever keeps daemons running starts the next.
var ErrAnew = errors.New("the daemon has to be started anew")

// Host is one host. Errors name the operation and the object; a host whose
// facts cannot be read in full returns an error from Observe, because nothing
// may be decided on half a sight (safety rule 24).
type Host interface {
	// Observe reads disk, units and processes. It takes milliseconds and never
	// asks the network.
	Observe(ctx context.Context) (Facts, error)

	Files
	Units
	Store

	// HoldPeerPort listens on etcd's peer port of this host (accepts and closes),
	// or stops to: the voters dial it to prove the way (safety rule 17). It must
	// be let go before a server starts. Holding twice is one holding.
	HoldPeerPort(ctx context.Context, hold bool) error
}

// Files writes the small files of design §4.1, each atomically and durably.
type Files interface {
	// SetRole writes the role, and ends an operator's allow-join: from here on the
	// role decides.
	SetRole(ctx context.Context, role fleet.Role) error
	// SetLeaving writes the swap id; the empty id deletes the file.
	SetLeaving(ctx context.Context, id fleet.SwapID) error
	// SetJoining writes the confirmation of a join; the zero value deletes it.
	SetJoining(ctx context.Context, j rolefile.Joining) error
	// SetIdentity writes cluster-id, member-id and voters; a zero member id
	// deletes that file, a zero cluster id leaves what is there.
	SetIdentity(ctx context.Context, id rolefile.Identity) error
	// SetLevel sets the level that the next start of the server takes.
	SetLevel(ctx context.Context, level fleet.Level) error
	// SetJoin names the server that the role's next start joins, for k3s and for
	// the unit's environment alike (R-D1-22, R-D1-23); the empty URL removes both.
	SetJoin(ctx context.Context, role fleet.Role, url string) error
	// SetJournal keeps the daemon's own note of the step it is in.
	SetJournal(ctx context.Context, raw []byte) error
	// SetLevelJournal keeps its note of the step between levels that it is in.
	SetLevelJournal(ctx context.Context, raw []byte) error
}

// Units starts and stops k3s. Both units stay enabled for ever: the files
// decide which may start (safety rule 10). Nothing is asked of a unit once the
// deadline of its context has passed, by the clock: what it was decided on is too
// old then.
type Units interface {
	// Start queues the start and returns. A role that may not start by its files
	// is skipped by its own start condition, without an error.
	Start(ctx context.Context, role fleet.Role) error
	// Stop cancels a queued start and asks the unit to stop.
	Stop(ctx context.Context, role fleet.Role) error
	// Restart queues a stop and a start of the server.
	Restart(ctx context.Context) error
	// KillShims ends the pods that a stopped agent part left running.
	KillShims(ctx context.Context) error
}

// Store handles the datastore of a server that does not run, and snapshots of
// one that does.
type Store interface {
	// DatastoreAside moves server/db to server/db.demoted, keeping one copy, and
	// puts snapshots/ and .metadata/ back in place (R-D1-27, safety rule 14). It
	// refuses while a server process lives.
	DatastoreAside(ctx context.Context) error
	// SaveSnapshot begins an etcd snapshot of this base name and returns;
	// Facts.Snapshot says how it goes.
	SaveSnapshot(ctx context.Context, base string) error
	// PruneSnapshots keeps the newest of regrade's own etcd snapshots.
	PruneSnapshots(ctx context.Context, keep int) error
}
