package probe

import (
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
)

// Turn is what one pass did, for whoever shows it. What it points to is never
// changed afterwards, so that it may be read while the next pass is made.
type Turn struct {
	// Took is how long the pass took, by this host's clock.
	Took time.Duration
	// Err is what it could not do: see the Nodes, read or write or remove the
	// entry, beat. A reading that could not be taken is none of them: it is in the
	// sample.
	Err error
	// Records: this host keeps samples. False as well while no pass has seen the
	// Nodes.
	Records bool
	// Sample is the pass's own as the entry keeps it; nil where none was taken.
	Sample *fitness.Sample
	// Samples is how many the window has.
	Samples int
	// Faults are the readings that could not be taken, and the connects that failed.
	Faults []fitness.Absence
	// Members are the ids that the host's etcd knows; nil when not known.
	Members []fleet.MemberID
	// Fsync is the last run on a standby's disk that is in the window; nil on a voter.
	Fsync *fitness.Fsync
	// Overdue: the entry, or its removal, is due and not made.
	Overdue bool
	// Written is when this process wrote the entry last; zero for not yet.
	Written time.Time
	// EntryBytes is what it wrote then, MapBytes the map of all hosts afterwards.
	EntryBytes, MapBytes int
}

func (p *Probe) turn(begun time.Time, did done, err error) Turn {
	t := Turn{
		Took: time.Since(begun), Err: err, Records: p.looked && p.seen.records(),
		Samples: len(p.window.Samples), Faults: did.faults, Members: p.window.Members, Fsync: p.lastRun(),
		Overdue: p.unsaid, Written: p.written, EntryBytes: p.entryBytes, MapBytes: p.mapBytes,
	}
	if did.sampled {
		s := *p.window.Last() // a later sample may move its time
		t.Sample = &s
	}
	return t
}

// lastRun is the disk's as of the host's present life as a standby.
func (p *Probe) lastRun() *fitness.Fsync {
	for i := len(p.window.Samples) - 1; i >= 0 && p.window.Samples[i].Etcd == nil; i-- {
		if f := p.window.Samples[i].Fsync; f != nil {
			return f
		}
	}
	return nil
}
