package hostd

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/obs"
)

// lock takes the host lock for a whole pass, so that an effect rests on what was
// seen while nobody else could act. ours is false while another process has it:
// the pass then only looks and reports. A lock held for longer than an operation
// may take is an error (R-216-13).
func (d *Daemon) lock() (ours bool, err error) {
	if d.s.Lock == nil {
		return true, nil
	}
	ours, err = d.s.Lock.TryLock()
	switch {
	case err != nil:
		return false, fmt.Errorf("take the host lock: %w", err)
	case ours:
		d.busy = time.Time{}
		return true, nil
	}
	now := d.s.Now()
	if d.busy.IsZero() {
		d.busy = now
	}
	if now.Sub(d.busy) > d.s.Policy.OperationTimeout {
		return false, fmt.Errorf("take the host lock: another process has held it for %s", now.Sub(d.busy).Round(time.Second))
	}
	return false, nil
}

func (d *Daemon) unlock() {
	if d.s.Lock == nil {
		return
	}
	if err := d.s.Lock.Unlock(); err != nil {
		d.log.Warn("host lock not let go", obs.Err, err)
	}
}

// carryOut is the one place where the daemon touches its host.
func (d *Daemon) carryOut(ctx context.Context, e Effect) error {
	h := d.s.Host
	switch e.Kind {
	case Note:
		return h.SetJournal(ctx, e.Journal.Bytes())
	case WriteRole:
		return h.SetRole(ctx, e.Role)
	case Leave:
		return h.SetLeaving(ctx, e.Swap)
	case Join:
		return h.SetJoining(ctx, e.Joining)
	case Identify:
		return h.SetIdentity(ctx, e.Identity)
	case SetLevel:
		return h.SetLevel(ctx, e.Level)
	case SetJoin:
		return h.SetJoin(ctx, e.Role, e.URL)
	case Start:
		return h.Start(ctx, e.Role)
	case Stop:
		return h.Stop(ctx, e.Role)
	case Restart:
		return h.Restart(ctx)
	case KillShims:
		return h.KillShims(ctx)
	case MoveAside:
		return h.DatastoreAside(ctx)
	case Snapshot:
		return h.SaveSnapshot(ctx, e.Base)
	case Prune:
		return h.PruneSnapshots(ctx, e.Keep)
	case PeerPort:
		return h.HoldPeerPort(ctx, e.Hold)
	case MoveLeader:
		return d.s.Etcd.MoveLeader(ctx, e.Member)
	case NoteLevel:
		if err := h.SetLevelJournal(ctx, e.LevelJournal.Bytes()); err != nil {
			return err
		}
		if p := e.LevelJournal.Phase; p == fleet.PhaseDone || p == fleet.PhaseFailed {
			d.settled.at, d.settled.ended = d.s.Now(), e.LevelJournal.Ended
		}
		return nil
	case TakeLease, ReleaseLease, MarkNode, EvictPods:
		return d.regradeEffect(ctx, e)
	}
	return fmt.Errorf("effect %q is unknown", e.Kind)
}
