package hostd

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// Report is what the host says of itself at these facts; boot id and counter
// are the publisher's. A wait's code and sentence stand in a running step, and
// alone where a step cannot even begin.
func Report(f Facts, d Decision) status.Report {
	j, h := f.Journal, f.Host
	r := status.Report{
		Protocol: status.Protocol,
		Swap:     j.Swap, Step: j.Step, Phase: j.Phase, Code: j.Code, Message: j.Message,
		StartedAt: j.StartedAt, Stopped: j.Stopped, Snapshot: j.Snapshot,
		Role: h.Files.Role, Level: h.Level, Leaving: h.Files.Leaving != "",
		At: f.Now.UTC(), BootID: h.Files.BootID,
		ClusterID: h.Files.Identity.ClusterID, MemberID: h.Files.Identity.MemberID,
		K3sVersion: h.K3sVersion,
		Preflight:  f.Preflight, AsAgent: AsAgent(f), Standbys: f.Standbys,
	}
	if swap, step, ok := kept(f, d); ok {
		// What became of the step before is not what is asked about.
		r.Swap, r.Step, r.Phase, r.StartedAt, r.Stopped, r.Snapshot = swap, step, "", time.Time{}, false, j.keptSnapshot(swap)
	}
	if r.Phase == fleet.PhaseRunning || r.Phase == "" {
		r.Code, r.Message = d.Code, d.Sentence
	} else if status.Halts(d.Code) && (r.Code == "" || f.order().swap != j.Swap) {
		// Why the step of a swap that is under way ended goes before; of one that has
		// ended nobody asks any more.
		r.Code, r.Message = d.Code, d.Sentence
	}
	if l := f.Levels; l != nil {
		j := l.Journal
		r.Regrade = &status.Regrade{
			From: j.From, To: j.To, Phase: j.Phase, By: j.By, Code: j.Code, Message: j.Message, Began: j.Began, Ended: j.Ended,
			Wait: d.Level.Code, Why: d.Level.Sentence,
		}
	}
	if f.View != nil {
		r.SkewMS = f.Now.Sub(f.View.Date).Milliseconds()
	}
	if h.Server.Process || h.Files.Role == fleet.RoleServer {
		view := f.Etcd.View
		if !h.Server.Process {
			view.Error = "no k3s server runs, its unit is " + string(h.Server.State)
		}
		r.Etcd = &view
		if f.Etcd.Answers && f.Etcd.ID != 0 {
			r.MemberID = f.Etcd.ID
		}
	}
	return r
}

// kept is the step that cannot even begin, if that is what the decision says: its
// first note fails, or its order waits. The journal is of another one, of the same
// swap or of an earlier.
func kept(f Facts, d Decision) (fleet.SwapID, fleet.Step, bool) {
	if d.Code == "" {
		return "", "", false
	}
	if n := d.Effect.Journal; n != nil {
		return n.Swap, n.Step, !f.Journal.Running(n.Swap, n.Step)
	}
	if f.snapshotWaits(d) {
		return snapshotID(f), fleet.StepSnapshot, true
	}
	o := f.order()
	return o.swap, o.step, f.due(o) && !f.Journal.Running(o.swap, o.step)
}

// publish writes the report when something in it changed, then the heartbeat
// that vouches for it (safety rule 29).
func (d *Daemon) publish(ctx context.Context, f Facts, dec Decision) error {
	if d.s.Silent || f.View == nil {
		return nil
	}
	r := Report(f, dec)
	if d.published == nil || !r.SameAs(*d.published) || f.Now.Sub(d.wroteAt) >= d.rewrite(f) {
		r.Counter = d.counter + 1
		if err := d.s.API.WriteReport(ctx, r); err != nil {
			return fmt.Errorf("write report of %s: %w", f.Node, err)
		}
		d.counter, d.published, d.wroteAt = r.Counter, &r, f.Now
	}
	beat := hostapi.Beat{BootID: r.BootID, Counter: d.counter, At: f.Now.UTC()}
	every := f.Policy.Period
	if f.swapping() {
		every = min(every, Swapping)
	}
	if beat.Counter == d.beaten.Counter && beat.BootID == d.beaten.BootID && !d.beatAt.IsZero() && f.Now.Sub(d.beatAt) < every {
		return nil
	}
	if err := d.s.API.WriteHeartbeat(ctx, beat); err != nil {
		return fmt.Errorf("write heartbeat of %s: %w", f.Node, err)
	}
	d.beaten, d.beatAt = beat, f.Now
	return nil
}

// rewrite is how old an unchanged report may get. Somebody may have deleted the
// map it stood in, which the host cannot see, and a swap must not wait for a
// change that never comes (safety rule 25), nor so long that the host is taken
// for failing, which is so after an operation timeout (rule 7). Both bounds keep
// within what rule 29 lets reports write at 64 hosts.
func (d *Daemon) rewrite(f Facts) time.Duration {
	if f.swapping() {
		return min(time.Minute, f.Policy.OperationTimeout/3)
	}
	return 5 * time.Minute
}
