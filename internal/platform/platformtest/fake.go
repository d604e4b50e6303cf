// Package platformtest holds a fake host and the conformance suite that the
// fake and every adapter pass.
package platformtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
)

// Fake is a host in memory. Units take their time: a start or a stop is queued
// by the effect and carried out by Advance, where the start condition is asked
// as systemd would ask it. The zero value is not usable; NewFake makes one.
type Fake struct {
	mu    sync.Mutex
	facts platform.Facts
	clock time.Time

	// Calls are the effects so far, in order, for tests that look at the order.
	Calls []string
	// Fail, when set, is asked before each effect; an error is returned as the
	// effect's own, with nothing changed.
	Fail func(call string) error
	// Engine makes a boot bring back what ran before it and nothing else, as a Docker
	// engine does; the rest is owed.
	Engine bool
	owing  bool
	// ApplyFails is what the program that applies levels says when it fails.
	ApplyFails string
	// OnAdvance lets a test move what k3s would move (WAL, tombstone, READY).
	OnAdvance func(f *platform.Facts)
}

var _ platform.Host = (*Fake)(nil)

// NewFake makes a host with both units at rest and conditioned.
func NewFake(boot string) *Fake {
	return &Fake{
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		facts: platform.Facts{
			Files:  rolefile.Files{BootID: boot, Token: true},
			Level:  fleet.LevelFull,
			Staged: true,
			Server: platform.Unit{State: platform.StateInactive, Conditioned: true},
			Agent:  platform.Unit{State: platform.StateInactive, Conditioned: true},
		},
	}
}

// Change lets a test change the host as a person or k3s would.
func (f *Fake) Change(change func(*platform.Facts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.facts)
}

// Facts is a copy of the host as it stands.
func (f *Fake) Facts() platform.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := copyFacts(f.facts)
	f.owing = f.owing && !x.Server.Process && !x.Agent.Process
	for role, u := range map[fleet.Role]platform.Unit{fleet.RoleServer: x.Server, fleet.RoleAgent: x.Agent} {
		if f.owing && x.Files.Role != "" && u.Gone() && rolefile.MayStart(x.Files, role).May {
			x.Owed = role
		}
	}
	return x
}

func copyFacts(x platform.Facts) platform.Facts {
	x.Files.Identity.Voters = slices.Clone(x.Files.Identity.Voters)
	x.Snapshots = slices.Clone(x.Snapshots)
	x.Journal, x.LevelJournal = slices.Clone(x.Journal), slices.Clone(x.LevelJournal)
	return x
}

// Advance lets what is queued happen: stops end, starts ask their condition.
func (f *Fake) Advance() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock = f.clock.Add(time.Second)
	if r := &f.facts.LevelRun; r.Running {
		r.Running = false
		if r.Error = f.ApplyFails; r.Error == "" {
			if u := &f.facts.Server; u.Process && (f.facts.Level == fleet.LevelEtcdOnly) != (r.Level == fleet.LevelEtcdOnly) {
				u.State, u.Since = platform.StateActivating, f.clock
			}
			f.facts.Level, f.facts.Server.Level = r.Level, r.Level
		}
	}
	f.unit(fleet.RoleServer, &f.facts.Server)
	f.unit(fleet.RoleAgent, &f.facts.Agent)
	if f.facts.Snapshot.Running {
		f.facts.Snapshot.Running = false
		if f.facts.Snapshot.Error == "" {
			f.facts.Snapshots = append(f.facts.Snapshots, fmt.Sprintf("%s-fake-%d", f.facts.Snapshot.Base, f.clock.Unix()))
		}
	}
	if f.OnAdvance != nil {
		f.OnAdvance(&f.facts)
	}
}

func (f *Fake) unit(role fleet.Role, u *platform.Unit) {
	switch u.Job {
	case platform.JobStop:
		u.State, u.Job, u.Process, u.Level = platform.StateInactive, platform.JobNone, false, ""
	case platform.JobOther: // a restart: down first, then up
		u.State, u.Job, u.Process, u.Level = platform.StateInactive, platform.JobStart, false, ""
	case platform.JobStart:
		u.Job = platform.JobNone
		if !rolefile.MayStart(f.facts.Files, role).May {
			u.State, u.Process = platform.StateInactive, false
			return
		}
		u.State, u.Process, u.Since = platform.StateActivating, true, f.clock
		if role == fleet.RoleServer {
			u.Level = f.facts.Level
		}
	case platform.JobNone:
		if u.State == platform.StateActivating && role == fleet.RoleAgent {
			u.State = platform.StateActive
		}
	}
}

// Reboot is a crash and a boot: what is in /run is gone, both enabled units ask
// their condition.
func (f *Fake) Reboot(boot string) {
	f.mu.Lock()
	f.facts.Files.BootID, f.facts.Files.Joining.BootID, f.facts.Files.AllowJoin = boot, "", false
	f.facts.PeerPort, f.facts.Snapshot, f.facts.Shims = false, platform.SnapshotRun{}, 0
	for _, u := range []*platform.Unit{&f.facts.Server, &f.facts.Agent} {
		job := platform.JobStart
		if f.Engine && !u.Process {
			job = platform.JobNone
		}
		*u = platform.Unit{State: platform.StateInactive, Job: job, Conditioned: u.Conditioned}
	}
	f.owing = f.Engine
	f.mu.Unlock()
	f.Advance()
}

func (f *Fake) do(call string, change func(*platform.Facts) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Fail != nil {
		if err := f.Fail(call); err != nil {
			return err
		}
	}
	if err := change(&f.facts); err != nil {
		return err
	}
	f.Calls = append(f.Calls, call)
	if strings.HasPrefix(call, "start ") || strings.HasPrefix(call, "stop ") || call == "restart server" {
		f.owing = false
	}
	return nil
}

// Observe implements platform.Host.
func (f *Fake) Observe(context.Context) (platform.Facts, error) { return f.Facts(), nil }

// SetRole implements platform.Files.
func (f *Fake) SetRole(_ context.Context, role fleet.Role) error {
	return f.do("role "+string(role), func(x *platform.Facts) error {
		if _, err := fleet.ParseRole(string(role)); err != nil {
			return err
		}
		x.Files.Role, x.Files.RoleProblem, x.Files.AllowJoin = role, "", false
		return nil
	})
}

// SetLeaving implements platform.Files.
func (f *Fake) SetLeaving(_ context.Context, id fleet.SwapID) error {
	return f.do(named("leaving", string(id)), func(x *platform.Facts) error { x.Files.Leaving = id; return nil })
}

// SetJoining implements platform.Files.
func (f *Fake) SetJoining(_ context.Context, j rolefile.Joining) error {
	return f.do(named("joining", string(j.Swap)), func(x *platform.Facts) error {
		x.Files.Joining = j
		if x.Files.ForeignJoin {
			x.Files.ForeignJoin, x.Files.JoiningProblem = false, ""
		}
		return nil
	})
}

// SetIdentity implements platform.Files.
func (f *Fake) SetIdentity(_ context.Context, id rolefile.Identity) error {
	return f.do(named("identity", nonZero(id.MemberID)), func(x *platform.Facts) error {
		if id.ClusterID == 0 {
			id.ClusterID = x.Files.Identity.ClusterID
		}
		x.Files.Identity = id
		return nil
	})
}

// SetLevel implements platform.Files.
func (f *Fake) SetLevel(_ context.Context, level fleet.Level) error {
	return f.do("level "+string(level), func(x *platform.Facts) error {
		if x.LevelRun.Applies {
			x.LevelRun.Level, x.LevelRun.Running, x.LevelRun.Error = level, true, ""
			return nil
		}
		x.Level = level
		return nil
	})
}

// SetJoin implements platform.Files.
func (f *Fake) SetJoin(_ context.Context, role fleet.Role, url string) error {
	return f.do(named("join "+string(role), url), func(x *platform.Facts) error {
		if role == fleet.RoleServer {
			x.ServerJoin, x.Files.JoinURL = url, url
		} else {
			x.AgentJoin = url
		}
		return nil
	})
}

// SetJournal implements platform.Files.
func (f *Fake) SetJournal(_ context.Context, raw []byte) error {
	return f.do("journal", func(x *platform.Facts) error { x.Journal = slices.Clone(raw); return nil })
}

// SetLevelJournal implements platform.Files.
func (f *Fake) SetLevelJournal(_ context.Context, raw []byte) error {
	return f.do("level-journal", func(x *platform.Facts) error {
		if r := &x.LevelRun; !r.Running {
			*r = platform.LevelRun{Applies: r.Applies}
		}
		x.LevelJournal = slices.Clone(raw)
		return nil
	})
}

// Start implements platform.Units.
func (f *Fake) Start(_ context.Context, role fleet.Role) error {
	return f.do("start "+string(role), func(x *platform.Facts) error { unitOf(x, role).Job = platform.JobStart; return nil })
}

// Stop implements platform.Units.
func (f *Fake) Stop(_ context.Context, role fleet.Role) error {
	return f.do("stop "+string(role), func(x *platform.Facts) error {
		u := unitOf(x, role)
		if u.Process || u.Job != platform.JobNone || u.State != platform.StateInactive {
			u.Job, u.State = platform.JobStop, platform.StateDeactivating
		}
		return nil
	})
}

// Restart implements platform.Units.
func (f *Fake) Restart(context.Context) error {
	return f.do("restart server", func(x *platform.Facts) error {
		x.Server.Job, x.Server.State = platform.JobOther, platform.StateDeactivating
		return nil
	})
}

// KillShims implements platform.Units.
func (f *Fake) KillShims(context.Context) error {
	return f.do("kill-shims", func(x *platform.Facts) error { x.Shims = 0; return nil })
}

// DatastoreAside implements platform.Store.
func (f *Fake) DatastoreAside(context.Context) error {
	return f.do("aside", func(x *platform.Facts) error {
		if x.Server.Process {
			return fmt.Errorf("move datastore aside: a k3s server process lives")
		}
		x.Datastore, x.MemberName, x.Files.WAL, x.Files.Tombstone, x.Files.Demoted = false, "", false, false, true
		return nil
	})
}

// SaveSnapshot implements platform.Store.
func (f *Fake) SaveSnapshot(_ context.Context, base string) error {
	return f.do("snapshot "+base, func(x *platform.Facts) error {
		x.Snapshot = platform.SnapshotRun{Base: base, Running: true}
		return nil
	})
}

// PruneSnapshots implements platform.Store.
func (f *Fake) PruneSnapshots(_ context.Context, keep int) error {
	return f.do("prune", func(x *platform.Facts) error {
		if n := len(x.Snapshots) - keep; n > 0 {
			x.Snapshots = x.Snapshots[n:]
		}
		return nil
	})
}

// HoldPeerPort implements platform.Host.
func (f *Fake) HoldPeerPort(_ context.Context, hold bool) error {
	return f.do(fmt.Sprintf("peer-port %t", hold), func(x *platform.Facts) error { x.PeerPort = hold; return nil })
}

func unitOf(x *platform.Facts, role fleet.Role) *platform.Unit {
	if role == fleet.RoleServer {
		return &x.Server
	}
	return &x.Agent
}

func named(what, value string) string {
	if value == "" {
		return what + " off"
	}
	return what + " " + value
}

func nonZero(id fleet.MemberID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}
