package hostd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// A step between levels, in this order (issue 6, R-112-02..20):
//
//	down   note, Lease, label and cordon, drain          (to control-plane)
//	       note, Lease, label, leadership handed over,
//	       level file, restart, etcd answers, shims gone  (to etcd-only)
//	up     note, Lease, leadership handed over, level file, restart, etcd answers and
//	       the Node is Ready, label                       (to control-plane)
//	       note, Lease, level file, label and cordon away (to full)
//
// The label goes before a restart and comes off after one, so that whoever watches Nodes
// never takes a server that runs no kubelet for dead (R-B-05). Each gate is asked before
// the Lease and again right before the restart. What has been done is seen, never noted:
// a daemon that was killed goes on, or takes the step back as long as the server was not
// restarted, and lets the Lease go at the end.

// regrade is the rule of the level half. It comes last: swaps go before levels.
func regrade(f Facts, _ order) Decision {
	l := f.Levels
	switch {
	case l.JournalProblem != "":
		return hold(CodeBadJournal, "%s: no level is changed before a person has looked", l.JournalProblem)
	case l.Journal.Running():
		return levelStep(f)
	case f.ownLease():
		return effect(Effect{Kind: ReleaseLease})
	}
	if d := f.untake(); d.Acts() {
		return d
	}
	if d := f.remark(); d.Acts() {
		return d
	}
	if !f.regradable() {
		return Decision{}
	}
	to, d := f.levelTarget()
	if to == f.Host.Level {
		return hold(d.Code, "%s", d.Sentence)
	}
	s := l.Survey
	switch {
	case f.View == nil:
		return hold(CodeNoAPI, "no API server answers: %s", f.ViewProblem)
	case f.swapping():
		return hold(CodeLevelSwap, "a swap is under way")
	case s == nil:
		return hold(level.CodeUnread, "%s", l.SurveyProblem)
	}
	if gs := level.Gates(f.situation(to, LevelJournal{})); len(gs) > 0 {
		return hold(gs[0].Code, "%s", sentences(gs))
	}
	j := LevelJournal{From: f.Host.Level, To: to, Phase: fleet.PhaseRunning, By: ByPressure, Why: d.Sentence, Began: s.Date, Ended: l.Journal.Ended}
	if f.Command != nil {
		j.By = ByHand
	}
	return levelNote(j)
}

func levelNote(j LevelJournal) Decision {
	return effect(Effect{Kind: NoteLevel, LevelJournal: &j})
}

func sentences(gs []level.Gate) string {
	all := make([]string, 0, len(gs))
	for _, g := range gs {
		all = append(all, g.Sentence)
	}
	return strings.Join(all, "; ")
}

// regradable says whether this host has a level at all (safety rule 26).
func (f Facts) regradable() bool {
	h := f.Host
	return h.Files.Role == fleet.RoleServer && h.Files.Leaving == "" && h.Files.RoleProblem == "" && h.Files.WAL && !h.Files.Tombstone
}

// levelTarget is the level to be at next: by hand, or by pressure.
func (f Facts) levelTarget() (fleet.Level, level.Decision) {
	l := f.Levels
	if c := f.Command; c != nil {
		if c.Level == "" {
			return f.Host.Level, level.Decision{}
		}
		return level.Toward(f.Host.Level, c.Level), level.Decision{Sentence: fmt.Sprintf("a person asked for %s", c.Level)}
	}
	o := level.Observation{At: f.Now, Level: f.Host.Level, Watch: l.Watch, Ended: l.Journal.Ended, SeenEnd: l.SeenEnd}
	if f.View != nil {
		o.Date = f.View.Date
	}
	d := level.Decide(o, l.Policy)
	return d.Want, d
}

// ownLease says whether the Lease, run out or not, is still in this node's name with no
// step to take.
func (f Facts) ownLease() bool {
	return f.View != nil && f.View.Lease.Exists && f.View.Lease.Holder == f.Node && f.Node != fleet.LeaseHolder
}

// surveyDue says whether the cluster has to be read for the level half.
func (f Facts) surveyDue() bool {
	l := f.Levels
	if l == nil || f.View == nil || l.JournalProblem != "" {
		return false
	}
	if l.Journal.Running() || f.Command != nil && f.Command.LookAtLevels {
		return true
	}
	if !f.regradable() || f.swapping() {
		return false
	}
	to, _ := f.levelTarget()
	return to != f.Host.Level
}

// levelMoves says whether the others have to be asked whether they answer.
func (f Facts) levelMoves() bool { return f.surveyDue() && f.Etcd.Voter() }

// untake makes the level file say what the server runs at, where no step has it
// otherwise: one was ended by a swap, or by what could not be read for a moment, between
// the file and the restart; or the restart did not take the level. Left alone, the next
// restart, by whomever, would be a step that asks for no Lease and no gate.
func (f Facts) untake() Decision {
	h, runs := f.Host, f.Host.Server
	switch {
	case f.View == nil || f.View.Self == nil || f.swapping() || f.Journal.Phase == fleet.PhaseRunning || !f.regradable():
		return Decision{}
	case f.Command != nil && f.Command.LookAtLevels, h.LevelRun.Running:
		return Decision{}
	case !runs.Process || runs.State != platform.StateActive || runs.Job != platform.JobNone || runs.Level == "" || sameFlags(runs.Level, h.Level):
		return Decision{}
	}
	to := runs.Level
	if from := f.Levels.Journal.From; from != "" && sameFlags(from, runs.Level) {
		to = from // control-plane and full run the same
	}
	return effect(Effect{Kind: SetLevel, Level: to})
}

// remark makes the Node say the level that the host is at: somebody took the label or the
// cordon away, the Node was made anew, or the host was taken out while it was cordoned.
// It says less than the host is at until the host is Ready again.
func (f Facts) remark() Decision {
	if f.View == nil || f.View.Self == nil || f.swapping() || f.Command != nil && f.Command.LookAtLevels {
		return Decision{}
	}
	n, k := f.View.Self, f.Policy.Keys
	_, ours := n.Annotations[k.LevelCordoned()]
	_, swapOurs := n.Annotations[k.Cordoned()]
	to := f.Host.Level
	switch {
	case swapOurs:
		return Decision{} // a clean-up of a swap is still owed
	case f.Host.Files.Role == fleet.RoleAgent && f.Host.Files.Leaving == "" && ours && n.Ready:
		to = fleet.LevelFull
	case !f.regradable():
		return Decision{}
	}
	if marked(n, to, k) || !n.Ready && to != fleet.LevelEtcdOnly {
		return Decision{}
	}
	return effect(Effect{Kind: MarkNode, Level: to})
}

// situation is what the gates ask about.
func (f Facts) situation(to fleet.Level, j LevelJournal) level.Situation {
	l, s := f.Levels, f.Levels.Survey
	o := level.Situation{
		Node: f.Node, From: f.Host.Level, To: to, Date: s.Date, Lease: s.Lease, Holds: j.Began,
		Server: f.regradable(), Paused: s.Paused, Target: l.Target, Votes: f.Etcd.Voter(), PodsUnread: s.PodsProblem,
	}
	if j.Running() {
		o.From = j.From
	}
	k := f.Policy.Keys
	byName := map[string]*swap.Node{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		byName[n.Name] = &n.Node
		for key := range n.Annotations {
			if key == k.Swap() || k.ForeignSwapKey(key) {
				o.Swapping = append(o.Swapping, n.Name)
				break
			}
		}
	}
	if f.Etcd.Voter() {
		for _, m := range f.Etcd.View.Members {
			if m.Learner {
				o.Learners++
			}
		}
		for _, m := range f.otherVoters() {
			name, _ := fleet.MemberNodeName(m.Name)
			v := level.Voter{Node: name, Answers: slices.Contains(f.Others, m.ID), Problem: s.Disagree[m.ID]}
			v.Agrees = v.Problem == ""
			if n := byName[name]; n != nil {
				_, server := n.Labels[fleet.LabelControlPlane]
				v.EtcdOnly = n.Labels[k.Level()] == string(fleet.LevelEtcdOnly)
				v.Ready, v.APIServer = n.Ready && !n.Deleting, server && !v.EtcdOnly
			}
			o.Others = append(o.Others, v)
		}
	}
	for _, p := range s.Pods {
		switch {
		case p.Stays:
		case p.Protected:
			o.Jobs = append(o.Jobs, p.Namespace+"/"+p.Name)
		default:
			o.Left = append(o.Left, p.Namespace+"/"+p.Name)
		}
	}
	return o
}

// Situation is what the gates of a step to a level ask about; for whoever shows them.
func (f Facts) Situation(to fleet.Level) (level.Situation, bool) {
	if f.Levels == nil || f.Levels.Survey == nil {
		return level.Situation{}, false
	}
	return f.situation(to, LevelJournal{}), true
}

// runsLevel is runsAt for a step between levels: control-plane and full are the same
// flags, and a server whose start was not noted runs at what its files say.
func (f Facts) runsLevel(to fleet.Level) bool {
	s := f.Host.Server
	if !s.Process {
		return false
	}
	if s.Level != "" {
		return sameFlags(s.Level, to)
	}
	return f.levelRestarted() && sameFlags(f.Host.Level, to)
}

// levelRestarted says whether the server that the step was to restart is another by now.
func (f Facts) levelRestarted() bool {
	s, old := f.Host.Server, f.Levels.Journal.Replaces
	return !old.IsZero() && s.Process && !s.Since.IsZero() && !s.Since.Equal(old)
}

// levelStep goes on with the step that is noted.
func levelStep(f Facts) Decision {
	l, j := f.Levels, f.Levels.Journal
	k := f.Policy.Keys
	if p := f.Host.Files.RoleProblem; p != "" {
		return hold(CodeBadRoleFile, "%s", p) // it is not known to be no server
	}
	if v := f.View; v != nil && v.Self != nil && v.Self.Annotations[k.Swap()] != "" || !f.regradable() {
		// A controller that waited the Lease out has begun a swap, or has ended one here:
		// what becomes of this host is its to say.
		return f.endLevel(fleet.PhaseFailed, CodeLevelSwap, "the host takes part in a swap, or is no server any more")
	}
	if d, ok := applying(f); ok {
		return d
	}
	if r := f.Host.LevelRun; r.Error != "" && r.Level == j.To && f.Host.Level != j.To && !j.Back {
		return f.turnBack(CodeNotApplied, "%s", r.Error)
	}
	if j.Restarts() && f.Host.Level == j.To && f.runsLevel(j.To) {
		return finishLevel(f)
	}
	if j.Back {
		return levelBack(f)
	}
	if f.View == nil || l.Survey == nil {
		if f.View == nil {
			return hold(CodeNoAPI, "no API server answers: %s", f.ViewProblem)
		}
		return hold(level.CodeUnread, "%s", l.SurveyProblem)
	}
	touched := f.levelTouched()
	mine := level.Mine(l.Survey.Lease, f.Node, j.Began, l.Survey.Date)
	if !mine && !touched {
		free := LevelJournal{Phase: j.Phase, From: j.From}
		if gs := level.Gates(f.situation(j.To, free)); len(gs) > 0 {
			return f.endLevel(fleet.PhaseRefused, gs[0].Code, "%s", sentences(gs))
		}
		if f.levelLate() {
			return f.endLevel(fleet.PhaseRefused, CodeLevelLate, "the Lease could not be taken within %s", f.Policy.OperationTimeout)
		}
		return effect(Effect{Kind: TakeLease, At: j.Began})
	}
	if f.levelRestarted() && f.Host.Server.Level != "" {
		return f.endLevel(fleet.PhaseFailed, CodeWrongLevel, "the server was restarted into %s, and by the note of its start it runs at %s: it is not restarted again", j.To, f.Host.Server.Level)
	}
	// A cordon that ends takes nothing from anybody: once begun it is ended.
	if gs := level.Gates(f.situation(j.To, j)); len(gs) > 0 && (j.To != fleet.LevelFull || !touched) {
		switch {
		case !touched:
			return f.endLevel(fleet.PhaseRefused, gs[0].Code, "%s", sentences(gs))
		case f.levelLate() || !mine:
			return f.turnBack(gs[0].Code, "%s", sentences(gs))
		}
		return soon(gs[0].Code, "%s", sentences(gs))
	}
	switch {
	case f.levelLate() && j.To != fleet.LevelFull && (j.Restarts() || !touched):
		return f.turnBack(CodeLevelLate, "not done within %s", f.Policy.OperationTimeout)
	case j.To == fleet.LevelFull:
		return toFull(f)
	case j.Down() && !marked(f.View.Self, j.To, k):
		return effect(Effect{Kind: MarkNode, Level: j.To})
	case !j.Restarts():
		return drainLevel(f)
	}
	return restartLevel(f)
}

// levelTouched says whether anything of the step can be seen beside its note and Lease.
func (f Facts) levelTouched() bool {
	j := f.Levels.Journal
	return f.Host.Level != j.From || f.View != nil && f.View.Self != nil && !marked(f.View.Self, j.From, f.Policy.Keys) || !j.Replaces.IsZero()
}

// levelLate says whether the step has had the time of an operation, by the Date at both
// ends (safety rule 22).
func (f Facts) levelLate() bool {
	return f.View != nil && f.View.Date.Sub(f.Levels.Journal.Began) > f.Policy.OperationTimeout
}

// drainLevel evicts what may go. Jobs are left to end; a pod that may not be evicted
// stays. The host is cordoned, which is most of the cure.
func drainLevel(f Facts) Decision {
	j := f.Levels.Journal
	var going, left []string
	evictable := false
	for _, p := range f.Levels.Survey.Pods {
		name := p.Namespace + "/" + p.Name
		switch {
		case p.Stays:
		case p.Terminating:
			going = append(going, name)
		case !p.Protected && p.Owned && p.Blocked == "":
			evictable = true
			going = append(going, name)
		default:
			left = append(left, name)
		}
	}
	switch {
	case f.Levels.Survey.PodsProblem != "" && !f.levelLate():
		return soon(level.CodePodsUnread, "%s", f.Levels.Survey.PodsProblem)
	case evictable && !f.levelLate():
		return effect(Effect{Kind: EvictPods})
	case len(going) > 0 && !f.levelLate():
		return soon(CodeDraining, "%d pods are on their way out", len(going))
	case f.Host.Level != j.To:
		return setLevel(f, j.To)
	case len(left)+len(going) > 0:
		return f.endLevel(fleet.PhaseDone, CodePodsStay, "%d pods stay, as jobs, without an owner, or kept by a budget", len(left)+len(going))
	}
	return f.endLevel(fleet.PhaseDone, "", "")
}

// restartLevel hands leadership over, writes the level and restarts the server, each seen
// in a pass of its own (safety rules 2 and 8).
func restartLevel(f Facts) Decision {
	h, j := f.Host, f.Levels.Journal
	if d, ok := settledUnit(h.Server); !ok {
		return d
	}
	switch {
	case h.Server.Gone():
		return soon(CodeEtcdDown, "%s", etcdStage(f))
	case f.leads():
		return levelHandOver(f)
	case f.Etcd.View.Leader == 0:
		return soon(CodeHandingOver, "etcd has no leader at the moment")
	case !h.LevelRun.Applies && h.Level != j.To:
		return setLevel(f, j.To)
	case j.Replaces.IsZero() && !h.Server.Since.IsZero():
		j.Replaces = h.Server.Since.UTC()
		return levelNote(j)
	case h.Level != j.To:
		return setLevel(f, j.To)
	}
	return effect(Effect{Kind: Restart, Role: fleet.RoleServer})
}

func levelHandOver(f Facts) Decision {
	j := f.Levels.Journal
	switch {
	case j.Asked.IsZero():
		j.Asked = f.View.Date
		return levelNote(j)
	case f.View.Date.Sub(j.Asked) > f.Policy.HandOver:
		return f.turnBack(CodeHandOverFailed, "etcd's leadership did not go from here within %s", f.Policy.HandOver)
	case len(f.Others) == 0:
		return soon(CodeNoLeadTarget, "etcd is led from here and no other voter answers")
	}
	return effect(Effect{Kind: MoveLeader, Member: f.Others[0]})
}

// finishLevel waits for the server that was restarted: nothing is taken back from here.
func finishLevel(f Facts) Decision {
	h, j := f.Host, f.Levels.Journal
	if j.Back {
		// It came up at the new level before that was taken back.
		j.Back, j.Code, j.Message = false, "", ""
		return levelNote(j)
	}
	if d, ok := settledUnit(h.Server); !ok {
		return d
	}
	late := func(why string) Decision {
		if f.levelLate() {
			return f.endLevel(fleet.PhaseFailed, CodeNotBack, "after %s: %s", f.Policy.OperationTimeout, why)
		}
		return soon(CodeEtcdDown, "%s", why)
	}
	switch {
	case !f.Etcd.Voter():
		return late(etcdStage(f))
	case j.Down() && h.Shims > 0:
		return effect(Effect{Kind: KillShims})
	case j.Down():
		return f.endLevel(fleet.PhaseDone, "", "")
	case h.Server.State != platform.StateActive:
		return late("the server is " + string(h.Server.State))
	case f.View == nil:
		return late("no API server answers: " + f.ViewProblem)
	case f.View.Self == nil || !f.View.Self.Ready:
		return late("its Node is not Ready yet")
	case !marked(f.View.Self, j.To, f.Policy.Keys):
		return effect(Effect{Kind: MarkNode, Level: j.To})
	}
	return f.endLevel(fleet.PhaseDone, "", "")
}

// toFull ends the cordon. Nothing is restarted: control-plane and full are the same flags.
func toFull(f Facts) Decision {
	switch {
	case f.Host.Level != fleet.LevelFull:
		return setLevel(f, fleet.LevelFull)
	case !marked(f.View.Self, fleet.LevelFull, f.Policy.Keys):
		return effect(Effect{Kind: MarkNode, Level: fleet.LevelFull})
	}
	return f.endLevel(fleet.PhaseDone, "", "")
}

// turnBack notes that the step is taken back, and why.
func (f Facts) turnBack(code, format string, args ...any) Decision {
	j := f.Levels.Journal
	j.Back, j.Code, j.Message = true, code, status.Short(fmt.Sprintf(format, args...), maxLevelMessage)
	return levelNote(j)
}

// levelBack undoes what was done before a restart: the level first, so that a server that
// falls now comes back as it was.
func levelBack(f Facts) Decision {
	j := f.Levels.Journal
	switch {
	case f.Host.Level != j.From:
		return setLevel(f, j.From)
	case f.View == nil || f.View.Self == nil:
		return hold(CodeNoAPI, "no API server answers: %s", f.ViewProblem)
	case !marked(f.View.Self, j.From, f.Policy.Keys):
		return effect(Effect{Kind: MarkNode, Level: j.From})
	}
	return f.endLevel(fleet.PhaseFailed, j.Code, "taken back: %s", j.Message)
}

// endLevel settles the step. One that was refused has changed nothing and starts no
// cooldown. The Lease is let go in the next pass, by whatever process makes it.
func (f Facts) endLevel(phase fleet.Phase, code, format string, args ...any) Decision {
	j := f.Levels.Journal
	j.Phase, j.Code, j.Message = phase, code, status.Short(fmt.Sprintf(format, args...), maxLevelMessage)
	if phase != fleet.PhaseRefused {
		j.Ended = j.Began
		if f.View != nil {
			j.Ended = f.View.Date
		}
	}
	return levelNote(j)
}
