package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// publishEvery is how old a status may get when nothing in it has changed
// (safety rule 29).
const publishEvery = time.Minute

// published is what this controller wrote last, and when by its own clock.
type published struct {
	body string
	at   time.Time
}

// publishAfter publishes what a pass came to. An outcome is in the status already,
// written on the version that it was judged by. After a request was dropped the
// map has another version: it is read again, and where the status in it is still
// the one that was seen, it is written on that. A status is never written over
// one that was not read: it may be the next swap's (safety rule 21).
func (c *Controller) publishAfter(ctx context.Context, s *observe.Sight, t Turn, st status.Status) error {
	version := s.StatusVersion
	switch {
	case t.Acted && t.Decision.Action.Kind == swap.Conclude:
		return nil
	case t.Acted && t.Decision.Action.Kind == swap.DropRequest:
		cm, err := c.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
		if err != nil {
			return fmt.Errorf("publish status: %w", err)
		}
		if cm.Data[fleet.KeyStatus] != s.StatusRaw {
			return nil // the next pass reads what is newer
		}
		version = cm.Version
	}
	return c.publish(ctx, s, version, st)
}

// publish writes status.json when something but its time has changed, when it
// is a minute old, or when it is not there. A status that could not be read is
// left alone: what it carries for later swaps would be lost. So is one that has
// changed since the pass read it: another controller may have published an
// outcome meanwhile (R-228-18). version is empty when this pass itself wrote it.
func (c *Controller) publish(ctx context.Context, s *observe.Sight, version string, st status.Status) error {
	if !s.StatusRead {
		return fmt.Errorf("publish status: it could not be read: %s", s.StatusProblem)
	}
	if newer(s.StatusRaw) {
		return fmt.Errorf("publish status: a newer program wrote it: %s", s.StatusProblem)
	}
	// A host daemon and a probe may only patch their maps, so that the first ones
	// need them made.
	for name, missing := range map[string]bool{c.settings.ActuatorConfigMap: s.ActuatorsMissing, fleet.ConfigMapProbe: s.ProbesMissing} {
		if missing {
			// Made by another meanwhile is made as well.
			if err := c.cluster.PatchConfigMap(ctx, name, "", nil); err != nil && !errors.Is(err, execute.ErrConflict) {
				return fmt.Errorf("make the ConfigMap %s: %w", name, err)
			}
		}
	}
	still := quiet(st)
	body, err := json.Marshal(still)
	if err != nil {
		return fmt.Errorf("publish status: %w", err)
	}
	now := c.settings.Now()
	if s.StatusRaw != "" && s.StatusProblem == "" && string(body) == c.published.body && now.Sub(c.published.at) < publishEvery {
		return nil
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("publish status: %w", err)
	}
	if len(raw) > status.MaxDocument {
		// Nobody would read it, this controller included: to it the status, and with
		// it cooldown and history, would be lost.
		return fmt.Errorf("publish status: %d bytes are more than %d", len(raw), status.MaxDocument)
	}
	err = c.cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, version, map[string]*string{fleet.KeyStatus: new(string(raw))})
	if version != "" && errors.Is(err, execute.ErrConflict) {
		return nil // the next pass reads what is newer and publishes on top of it
	}
	if err != nil {
		return fmt.Errorf("publish status: %w", err)
	}
	c.published = published{body: string(body), at: now}
	return nil
}

// quiet is a status without what changes in every pass and is no news: its
// time, and the numbers of the verdicts. A new number alone is published with the
// next minute (safety rule 29).
func quiet(st status.Status) status.Status {
	st.At = time.Time{}
	verdicts := make([]fitness.Verdict, len(st.Verdicts))
	for i, v := range st.Verdicts {
		codes := make([]fitness.Reason, len(v.Reasons))
		for j, r := range v.Reasons {
			codes[j] = fitness.Reason{Code: r.Code, Weight: r.Weight, Peer: r.Peer, Lasting: r.Lasting}
		}
		verdicts[i] = fitness.Verdict{Node: v.Node, Votes: v.Votes, Fitness: v.Fitness, Part: v.Part, Link: v.Link, Members: v.Members, Reasons: codes}
	}
	st.Verdicts = verdicts
	if a := st.Automatic; a != nil {
		st.Automatic = &status.Automatic{Out: a.Out, In: a.In, Reasons: codes(a.Reasons)}
	}
	return st
}

func codes(rs []status.Reason) []status.Reason {
	out := make([]status.Reason, len(rs))
	for i, r := range rs {
		out[i] = status.Reason{Code: r.Code, Node: r.Node}
	}
	return out
}

// newer says whether a status is of a later protocol than this program's.
func newer(raw string) bool {
	var doc struct {
		Protocol int `json:"protocol"`
	}
	return len(raw) <= status.MaxDocument && json.Unmarshal([]byte(raw), &doc) == nil && doc.Protocol > status.Protocol
}

// Compose is the status of one pass: what is seen and decided now, with what
// the status before it carries on. Without one before it, a cooldown starts: a
// lost status is never read as "nothing happened lately" (safety rule 25). Where the
// cluster has seen swaps, it is noted that they are not known any more.
func Compose(prev *status.Status, o *swap.Observation, d swap.Decision, p swap.Policy) status.Status {
	st := status.Status{
		Protocol: status.Protocol, At: o.Now, Controller: o.Self, DryRun: p.DryRun, Target: p.Target,
		Swap: d.Swap, Request: o.Request, Pause: o.Pause,
		Next: status.Next{
			State: string(d.State), Action: string(d.Action.Kind), Node: d.Action.Node,
			Code: d.Code, Sentence: d.Sentence, Facts: d.Facts, Waits: d.Waits,
		},
	}
	if prev == nil {
		st.CooldownUntil = o.Now.Add(p.Cooldown)
		if swap.Traces(o, p.Keys) {
			st.HistoryLost = o.Now
		}
	} else {
		carry(&st, prev)
		st.EvenSince = prev.EvenSince
		if o.Now.Sub(prev.HistoryLost) >= swap.HistoryLife {
			st.HistoryLost = time.Time{} // nothing looks back so far
		}
	}
	if d.Action.Dropped != nil {
		st.Dropped = d.Action.Dropped
	}
	members := membersOf(o)
	st.Hosts = make([]status.Host, 0, len(o.Hosts))
	for i := range o.Hosts {
		h := host(&o.Hosts[i], members, o.Now, p)
		if !concerned(&o.Hosts[i], &h, p.Keys) {
			st.OtherNodes++ // a thousand agents would fill the document
			continue
		}
		st.Hosts = append(st.Hosts, h)
		a := o.Hosts[i].Node.Annotations
		if _, owed := a[p.Keys.Cordoned()]; owed && a[p.Keys.Swap()] == "" {
			st.Pending = append(st.Pending, o.Hosts[i].Name)
		}
	}
	if members != nil {
		voters := 0
		for _, m := range members {
			if !m.Learner {
				voters++
			}
		}
		switch {
		case voters%2 != 0:
			st.EvenSince = time.Time{}
		case st.EvenSince.IsZero():
			st.EvenSince = o.Now
		}
	}
	return st
}

// judged puts the verdicts in. Where nothing was judged in this pass, which is so
// in a swap, the last ones stand: they are what led to it.
func judged(st *status.Status, s *observe.Sight) {
	switch {
	case s.Judgement != nil:
		st.Verdicts, st.Automatic = s.Judgement.Verdicts, s.Judgement.Decision.Published()
	case s.ProbeProblem != "":
		st.Automatic = &status.Automatic{Sentence: "nothing is judged: the probes' entries could not be read", Reasons: []status.Reason{{Code: swap.CodeMissing, Sentence: s.ProbeProblem}}}
	case s.Status != nil:
		st.Verdicts, st.Automatic = s.Status.Verdicts, s.Status.Automatic
	}
}

// concerned says whether regrade has to do with a host.
func concerned(o *swap.Host, h *status.Host, k fleet.Keys) bool {
	if h.Voter || h.Learner || h.Eligible || h.Pinned || o.Report != nil || o.ReportProblem != "" {
		return true
	}
	for key := range o.Node.Annotations {
		if strings.HasPrefix(key, k.Prefix()) {
			return true
		}
	}
	return o.Node.EtcdIsVoter != "" || o.Node.Labels[fleet.LabelEtcd] != "" || o.Node.Labels[k.Level()] != ""
}

// carry takes over what a status keeps from one pass to the next.
func carry(st, from *status.Status) {
	st.LastSwap, st.CooldownUntil, st.Backoff, st.History = from.LastSwap, from.CooldownUntil, from.Backoff, from.History
	st.Dropped, st.HistoryLost = from.Dropped, from.HistoryLost
}

// membersOf is the member list of the fresh reports whose etcd answered a
// linearizable read, nil when there is none or they list different ids.
// It is for show; what decides is in package swap.
func membersOf(o *swap.Observation) []status.Member {
	var list []status.Member
	for i := range o.Hosts {
		h := &o.Hosts[i]
		if !h.Fresh || h.Report == nil || h.Report.Etcd == nil || !h.Report.Etcd.Linearizable || len(h.Report.Etcd.Members) == 0 {
			continue
		}
		switch {
		case list == nil:
			list = h.Report.Etcd.Members
		case !slices.Equal(ids(list), ids(h.Report.Etcd.Members)):
			return nil
		}
	}
	return list
}

func ids(ms []status.Member) []fleet.MemberID {
	out := make([]fleet.MemberID, len(ms))
	for i, m := range ms {
		out[i] = m.ID
	}
	slices.Sort(out)
	return out
}

func host(h *swap.Host, members []status.Member, now time.Time, p swap.Policy) status.Host {
	k := p.Keys
	s := status.Host{
		Name: h.Name, Ready: h.Node.Ready, Fresh: h.Fresh,
		Level:    fleet.Level(h.Node.Labels[k.Level()]),
		Eligible: h.Node.Labels[k.Eligible()] == fleet.True,
		Pinned:   h.Node.Labels[k.Pinned()] == fleet.True,
	}
	if s.Level == "" {
		s.Level = fleet.LevelFull
	}
	if h.ReportProblem != "" {
		s.Reasons = append(s.Reasons, status.Reason{Code: swap.CodeBadReport, Node: h.Name, Sentence: h.ReportProblem})
	}
	if r := h.Report; r != nil {
		s.Role, s.MemberID = r.Role, r.MemberID
		if r.Role == fleet.RoleAgent {
			s.Level = "" // an agent has no level
		}
		if r.Etcd != nil {
			s.Members = ids(r.Etcd.Members)
		}
		if r.Phase == fleet.PhaseFailed || r.Phase == fleet.PhaseRefused || r.Phase == fleet.PhaseDone && r.Code != "" || status.Halts(r.Code) {
			s.Reasons = append(s.Reasons, status.Reason{Code: r.Code, Node: h.Name, Sentence: r.Message})
		}
		if words := swap.Skewed(h, now, p.MaxSkew); words != "" {
			// It holds no voter, and is worth knowing before the host stands by.
			s.Reasons = append(s.Reasons, status.Reason{Code: swap.CodeSkew, Node: h.Name, Sentence: words})
		}
		if r.Preflight != nil {
			for _, p := range r.Preflight.Problems {
				s.Reasons = append(s.Reasons, status.Reason{Code: p.Code, Node: h.Name, Sentence: p.Sentence})
			}
		}
	}
	for _, m := range members {
		name, _ := fleet.MemberNodeName(m.Name)
		if (s.MemberID != 0 && m.ID == s.MemberID) || name == h.Name {
			s.Voter, s.Learner, s.MemberID = !m.Learner, m.Learner, m.ID
		}
	}
	return s
}
