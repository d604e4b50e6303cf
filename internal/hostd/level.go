package hostd

import "github.com/exadev/regrade/internal/fleet"

// A server is restarted into another level once for a step. k3s hides what it runs
// with, so the level is noted before each start, and on a full disk the note is missing:
// taken for another level, that would restart a voter every few seconds (safety rules 2
// and 18). So the journal keeps which process was to go, by the start of its unit, before
// it is asked to. Another process has started since with the level that the files say.

// restarted says whether the server that this step was to restart is another by now.
// Both times are of one clock and are only told apart: it may be put back meanwhile.
func (f Facts) restarted() bool {
	s, old := f.Host.Server, f.Journal.Replaces
	return !old.IsZero() && s.Process && !s.Since.IsZero() && !s.Since.Equal(old)
}

// runsAt says whether the server runs at a level: by the note of its start, or, where
// there is none, because this step has restarted it into what the files say.
func (f Facts) runsAt(level fleet.Level) bool {
	h := f.Host
	return h.Server.Level == level || h.Server.Level == "" && f.restarted() && h.Level == level
}

// restart restarts the server into a level that its files say already, while the
// others are a quorum without it, if it votes.
func restart(f Facts, level fleet.Level) Decision {
	switch d, ok := spared(f); {
	case f.votes() && !ok:
		return d
	case f.restarted():
		p := f.wrongLevel(level)
		return hold(p.Code, "%s", p.Sentence)
	case f.Journal.Replaces.IsZero() && !f.Host.Server.Since.IsZero():
		j := f.Journal
		j.Replaces = f.Host.Server.Since.UTC()
		return note(j)
	}
	return effect(Effect{Kind: Restart, Role: fleet.RoleServer})
}

// wrongLevel is a server that was restarted and still does not run at the level.
func (f Facts) wrongLevel(level fleet.Level) Problem {
	return problem(CodeWrongLevel, "the server was restarted into %s, and by the note of its start it runs at %s: it is not restarted again; look at its level drop-in and restart k3s by hand",
		level, f.Host.Server.Level)
}

// unnoted names a server whose start was not noted, nothing where it was.
func (f Facts) unnoted() Problem {
	if f.Host.Server.Level != "" {
		return Problem{}
	}
	return problem(CodeLevelUnnoted, "the level that the server was started with is not noted: is /run, or on Docker the data folder, full? It was restarted once in this step, so it runs at %s, as its files say", f.Host.Level)
}

// setLevel sets the level that the next start takes. Where a program of the host's owner
// applies it, that is the restart as well, and as dangerous.
func setLevel(f Facts, to fleet.Level) Decision {
	return effect(Effect{Kind: SetLevel, Level: to, Restarts: f.Host.LevelRun.Applies && !sameFlags(f.Host.Level, to)})
}

// applying says that such a program is at it.
func applying(f Facts) (Decision, bool) {
	if r := f.Host.LevelRun; r.Running {
		return soon(CodeRestarting, "the level %s is being applied", r.Level), true
	}
	return Decision{}, false
}
