package alert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
)

// Condition is something that is wrong. Kind and Subject are its identity.
type Condition struct {
	Kind     Kind      `json:"kind"`
	Subject  string    `json:"subject,omitempty"`
	Severity Severity  `json:"severity"`
	Since    time.Time `json:"since,omitzero"` // by the document
	Sentence string    `json:"sentence"`
	// Hosts are the voters that no_tolerance names as down or silent.
	Hosts []string `json:"hosts,omitempty"`
}

func (c Condition) same(o Condition) bool { return c.Kind == o.Kind && c.Subject == o.Subject }

// DefaultAfter is the window (design §3).
const DefaultAfter = 900 * time.Second

// Judgement is what a document says of every condition. What is neither due nor
// early and not held is not there.
type Judgement struct {
	Due   []Condition // for longer than the window
	Early []Condition // there, and not yet for so long
	Said  []Condition // there, and another condition says it: nobody is told of it anew, nor that it is over
	// held says of which the document tells nothing: they stay as they are.
	held func(Condition) bool
}

// Held says whether nothing is known of a condition.
func (j Judgement) Held(c Condition) bool { return j.held != nil && j.held(c) }

// Judge says what is wrong by a document that speaks of now. after is the window,
// first says when a condition was first noticed, for one that the document gives no
// time; the zero time when it never was.
func Judge(d *heartbeat.Document, after time.Duration, first func(Condition) time.Time) Judgement {
	return judge(weigher{d: d, after: after, first: first})
}

func judge(w weigher) Judgement {
	w.swapping, w.deadline = w.d.Swapping()
	w.within = w.swapping && !w.d.At.After(w.deadline)
	w.servers()
	w.overdue()
	w.even()
	w.tolerance()
	w.unhealthy()
	slices.SortStableFunc(w.j.Due, order)
	slices.SortStableFunc(w.j.Early, order)
	w.j.held = w.held
	return w.j
}

func order(a, b Condition) int {
	return cmp.Or(slices.Index(Kinds(), a.Kind)-slices.Index(Kinds(), b.Kind), strings.Compare(a.Subject, b.Subject))
}

type weigher struct {
	d     *heartbeat.Document
	after time.Duration
	first func(Condition) time.Time
	// once: nobody looks again. What has no time and was never noticed has lasted for
	// long enough, and a time that the document gives stands.
	once bool
	j    Judgement

	swapping bool
	deadline time.Time
	within   bool // a swap is under way and not past its bound
	lost     int  // voters among the servers that are not Ready, as an alert says or will say
}

// add sorts a condition by how long it has been there. excused: a swap within its
// bound is why, and nobody is told; who was told before is not told that it is over.
func (w *weigher) add(c Condition, excused bool) {
	if w.timeless(c.Since) {
		c.Since = w.first(c)
	}
	unknown := w.timeless(c.Since)
	if unknown {
		c.Since = w.d.At
	}
	c.Subject, c.Sentence = clean(c.Subject), clean(c.Sentence)
	if !excused && (unknown && w.once || w.d.At.Sub(c.Since) > w.after) {
		w.j.Due = append(w.j.Due, c)
		return
	}
	w.j.Early = append(w.j.Early, c)
}

// timeless says whether a time says nothing of how long something has lasted: there is
// none, or it is ahead of the document, and so of another clock. Taken for now at each
// look, such a one would never be due.
func (w *weigher) timeless(t time.Time) bool { return t.IsZero() || t.After(w.d.At) }

func (w *weigher) unread(part string) bool { return slices.Contains(w.d.Unread, part) }

// servers: a server that is held at a level is as it should be (R-K-12), one of a
// swap is left alone until the swap's bound (R-F-04).
func (w *weigher) servers() {
	for _, n := range w.d.NotReady {
		if n.Role != fleet.RoleServer || n.Level != "" && n.Level != fleet.LevelFull {
			continue
		}
		if w.timeless(n.Since) {
			n.Since = time.Time{}
		}
		c := Condition{
			Kind: ServerNotReady, Subject: n.Name, Severity: Warning, Since: n.Since,
			Sentence: fmt.Sprintf("The server %s has not been Ready since %s.", n.Name, stamp(n.Since)),
		}
		if n.Voter {
			w.lost++
			if v := w.d.Voters; v != nil && v.Tolerance == 0 {
				c.Severity = Critical
				c.Sentence += fmt.Sprintf(" It votes in etcd: %d of %d voters are up, and the next loss stops all writes.", v.Up, v.Count)
			}
		}
		w.add(c, n.RoleSwap && w.within)
	}
}

// overdue: past the bound for longer than the window (R-F-05).
func (w *weigher) overdue() {
	s := w.d.RoleSwap
	if s == nil || w.within {
		return
	}
	c := Condition{
		Kind: RoleSwapOverdue, Subject: string(s.ID), Severity: Warning, Since: w.deadline,
		Sentence: fmt.Sprintf("The swap of %s for %s is past its bound: state %s since %s, bound %s.", s.Out, s.In, s.Step, stamp(s.StepSince), stamp(w.deadline)),
	}
	if len(s.Reasons) > 0 {
		words := make([]string, 0, len(s.Reasons))
		for _, r := range s.Reasons {
			words = append(words, r.Sentence)
		}
		c.Sentence += " It waits: " + strings.Join(words, "; ") + "."
	}
	w.add(c, false)
}

// even: for longer than the window, but not while a swap is within its bound (R-F-06).
func (w *weigher) even() {
	v := w.d.Voters
	if v == nil || v.Count == 0 || v.Count%2 != 0 {
		return
	}
	w.add(Condition{
		Kind: VotersEven, Severity: Critical, Since: v.EvenSince,
		Sentence: fmt.Sprintf("etcd has had an even number of voters, now %d, since %s; %d are wanted.", v.Count, stamp(v.EvenSince), v.Target),
	}, w.within)
}

// tolerance: what another condition says as well is not said twice. Where each
// voter that is down is a server that is not Ready, the alert of that server says it.
func (w *weigher) tolerance() {
	v := w.d.Voters
	switch {
	case v == nil, v.NoToleranceSince.IsZero(), v.Target == 1:
		return
	case v.Up < v.Count && w.lost >= v.Count-v.Up, v.Up == v.Count && v.Count%2 == 0:
		w.j.Said = append(w.j.Said, Condition{Kind: NoTolerance})
		return
	}
	c := Condition{
		Kind: NoTolerance, Severity: Critical, Since: v.NoToleranceSince,
		Sentence: fmt.Sprintf("No more voter may fail since %s: %d of %d voters are up.", stamp(v.NoToleranceSince), v.Up, v.Count),
		Hosts:    v.Down,
	}
	if len(v.Down) > 0 {
		c.Sentence += " Down or silent: " + strings.Join(v.Down, ", ") + "."
	}
	// It counts from when nothing else said it: a lost server that is back is not up
	// before its daemon speaks.
	// Where the document's own time is the later one, a clock has jumped ahead since.
	if since := w.first(c); !since.IsZero() && since.After(c.Since) || since.IsZero() && !w.once {
		c.Since = since
	}
	w.add(c, w.within)
}

// unhealthy: what fails for which there is no kind of its own.
func (w *weigher) unhealthy() {
	c := Condition{Kind: FleetUnhealthy, Severity: Warning}
	var words []string
	for _, k := range w.d.Checks {
		if k.OK || k.Name == heartbeat.CheckVoters && w.votersSaid() {
			continue
		}
		if len(words) == 0 || k.Since.Before(c.Since) {
			c.Since = k.Since
		}
		words = append(words, k.Reason)
	}
	if len(w.d.Checks) == 0 && !w.d.Healthy {
		// A document of another program has no checks, and says no time.
		words = append(slices.Clone(w.d.Reasons), "")[:max(1, len(w.d.Reasons))]
	}
	if len(words) == 0 {
		return
	}
	c.Sentence = "The fleet is not vouched for: " + strings.Join(words, "; ") + "."
	w.add(c, false)
}

func (w *weigher) votersSaid() bool {
	v := w.d.Voters
	return v != nil && v.Count > 0 && (v.Count%2 == 0 || !v.NoToleranceSince.IsZero())
}

// held: the Nodes tell of servers and voters, the status of the swap, and a swap
// that nobody knows of may be why a voter is one too many or its server away.
func (w *weigher) held(c Condition) bool {
	nodes, status := w.unread(heartbeat.UnreadNodes), w.unread(heartbeat.UnreadStatus)
	switch c.Kind {
	case ServerNotReady:
		return nodes || status && slices.ContainsFunc(w.d.NotReady, func(n heartbeat.NotReady) bool { return n.Name == c.Subject && n.RoleSwap })
	case VotersEven, NoTolerance:
		return nodes || status
	case RoleSwapOverdue:
		return status
	}
	return false
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
