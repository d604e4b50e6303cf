package fitness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// way is what one host measured of its way to one voter.
type way struct {
	from, to *host
	tries    int
	tops     topTimes
	trips    total
	// Samples beyond the limit of a voter: of connects those that failed, and those that
	// failed or were slow, which is what has to last.
	lossy, connects, slowTrips beyond
	reasons                    []Reason // why it is bad, or too bad for a newcomer
}

// topTimes keeps the k longest times, descending.
type topTimes struct{ v []time.Duration }

func (t *topTimes) add(d time.Duration) {
	if len(t.v) == cap(t.v) {
		if d <= t.v[len(t.v)-1] {
			return
		}
		t.v = t.v[:len(t.v)-1]
	}
	i := len(t.v)
	for i > 0 && t.v[i-1] < d {
		i--
	}
	t.v = t.v[:len(t.v)+1]
	copy(t.v[i+1:], t.v[i:])
	t.v[i] = d
}

// judgeLinks judges every way to a voter, and then who is to blame.
func judgeLinks(hs []*host, p Policy) {
	var voters []*host
	for _, h := range hs {
		if h.Votes {
			voters = append(voters, h)
		}
	}
	links := newLinks(voters)
	var newcomers []*way
	for _, h := range hs {
		if h.samples == nil {
			continue
		}
		for _, w := range h.ways(voters, p.LinkLimit()) {
			w.judge(p)
			switch {
			case h.Votes:
				links.note(w)
			default:
				newcomers = append(newcomers, w)
				// Only what lasts, by the limit of a voter, is evidence against the voter.
				if w.connects.lasting(p) {
					w.to.v.Seen++
				}
			}
		}
	}
	links.blame()
	// A newcomer's ways are judged by themselves, except those to a cause: everybody
	// finds it bad to reach, and it is the one that would go (R-185-23). Without
	// takes them for what they are when another one goes.
	for _, w := range newcomers {
		for _, r := range w.reasons {
			if w.to.v.Part == Cause {
				r = r.excused(w.from.Node, w.to.Node)
			}
			w.from.v.add(r)
		}
	}
}

// excused is a reason of a link as it is told of the end that only suffers it.
func (r Reason) excused(node, cause string) Reason {
	r.Sentence = fmt.Sprintf("the link between %s and %s is bad and %s is to blame: %s", node, cause, cause, r.Sentence)
	r.Code, r.Weight, r.Peer = CodeVictim, Note, cause
	return r
}

// ways reads a host's samples once for all voters.
func (h *host) ways(voters []*host, limit time.Duration) []*way {
	var ways []*way
	members := map[fleet.MemberID]*way{}
	for _, to := range voters {
		if to.Node == h.Node {
			continue
		}
		w := &way{from: h, to: to, tops: topTimes{make([]time.Duration, 0, h.left()+1)}}
		ways = append(ways, w)
		if to.member != 0 {
			members[to.member] = w
		}
	}
	for i := range h.samples {
		s := &h.samples[i]
		j := 0 // both are sorted by name
		for k := range s.Connect {
			c := &s.Connect[k]
			for j < len(ways) && ways[j].to.Node < c.To {
				j++
			}
			if j == len(ways) || ways[j].to.Node != c.To {
				continue
			}
			w := ways[j]
			w.tries++
			if c.Failed {
				w.lossy.hit(s.At)
				w.connects.hit(s.At)
				continue
			}
			if w.tops.add(c.Took); c.Took > limit {
				w.connects.hit(s.At)
			}
		}
		if s.Etcd != nil && s.Etcd.Gains != nil {
			for k := range s.Etcd.Gains.RoundTrip {
				r := &s.Etcd.Gains.RoundTrip[k]
				if w := members[r.Peer]; w != nil {
					w.trips.add(&r.Histogram)
					if mean, ok := r.Histogram.Mean(); ok && mean > limit {
						w.slowTrips.hit(s.At)
					}
				}
			}
		}
	}
	return ways
}

// judge holds a way to the limit of a voter, or to what is asked of a newcomer.
func (w *way) judge(p Policy) {
	h, to := w.from, w.to.Node
	limit, weight, asked := p.LinkLimit(), Ground, "the limit is %s, a tenth of the election timeout"
	if !h.Votes {
		limit, weight, asked = p.LinkEntry(), Bar, "at most %s are asked of a newcomer, a twentieth of the election timeout"
	}
	asked = fmt.Sprintf(asked, short(limit))
	say := func(code string, b *beyond, m *Measure, format string, args ...any) {
		w.reasons = append(w.reasons, Reason{Code: code, Weight: weight, Lasting: b.lasting(p), Peer: to, Measure: m, Sentence: fmt.Sprintf(format, args...)})
	}
	if w.tries < h.wanted() {
		// A gap is the host's own: it stands in its verdict at once.
		h.v.add(Reason{Code: CodeGap, Weight: Gap, Peer: to, Sentence: fmt.Sprintf("the way from %s to %s was measured in %d of %d samples, %d are wanted", h.Node, to, w.tries, len(h.samples), h.wanted())})
		return
	}
	ratio := float64(w.lossy.n) / float64(w.tries)
	m := exact(ConnectFailed, ratio, p.FailedConnects, w.tries)
	m.Peer = to
	if r := h.measure(w.connects.of(m)); ratio > p.FailedConnects {
		say(CodeLossyLink, &w.connects, r, "%d of %d connects from %s to %s failed, the limit is %.3g %%", w.lossy.n, w.tries, h.Node, to, p.FailedConnects*100)
	}
	if n := len(w.tops.v); n > 0 {
		p99 := w.tops.v[n-1]
		m := exact(ConnectP99, p99.Seconds(), limit.Seconds(), w.tries-w.lossy.n)
		m.Peer = to
		if r := h.measure(w.connects.of(m)); p99 > limit {
			say(CodeSlowLink, &w.connects, r, "the p99 of %d connects from %s to %s is %s, %s", w.tries-w.lossy.n, h.Node, to, than(p99, limit), asked)
		}
	}
	if h.Votes && w.trips.n >= fewestTrips {
		mean := w.trips.sum / time.Duration(w.trips.n)
		m := exact(RoundTripMean, mean.Seconds(), limit.Seconds(), int(w.trips.n))
		m.Peer = to
		if r := h.measure(w.slowTrips.of(m)); mean > limit {
			say(CodeSlowTrips, &w.slowTrips, r, "the mean of etcd's %d round trips from %s to %s is %s, %s", w.trips.n, h.Node, to, than(mean, limit), asked)
		}
	}
}

// links are the bad links among voters, by their ends in order of name. A link
// is bad when either end says so.
type links struct {
	voters []*host
	bad    map[ends]*badLink
}

type ends [2]string

type badLink struct {
	reasons []Reason
	lasting bool
	blamed  map[string]bool // the ends that are to blame
}

func newLinks(voters []*host) *links { return &links{voters: voters, bad: map[ends]*badLink{}} }

func (l *links) note(w *way) {
	if len(w.reasons) == 0 {
		return
	}
	k := ends{min(w.from.Node, w.to.Node), max(w.from.Node, w.to.Node)}
	if l.bad[k] == nil {
		l.bad[k] = &badLink{blamed: map[string]bool{}}
	}
	l.bad[k].reasons = append(l.bad[k].reasons, w.reasons...)
	l.bad[k].lasting = l.bad[k].lasting || slices.ContainsFunc(w.reasons, func(r Reason) bool { return r.Lasting })
}

// open is how many links of a host nobody is blamed for yet, and how many of
// them last.
func (l *links) open(node string) (n, lasting int) {
	for k, b := range l.bad {
		if len(b.blamed) == 0 && (k[0] == node || k[1] == node) {
			n++
			if b.lasting {
				lasting++
			}
		}
	}
	return n, lasting
}

// blame finds who is the cause of the bad links and who only suffers them
// (R-185-21). A bad link counts against both its ends. Whoever is on the most is
// the cause; of several the one with more that last; then hosts that do not vote
// break the tie: the voter that more of them find bad to reach. What is left then
// is judged again without the links of the cause. Those that cannot be told apart are suspects, all of
// them unfit: then nothing is swapped, unless the operator allows for several.
//
// A voter that cannot be judged itself comes first: the links to it say nothing
// against the other end, and it stays unknown.
func (l *links) blame() {
	var blind []*host
	for _, h := range l.voters {
		if h.v.BadLinks, h.v.LastingLinks = l.open(h.Node); h.samples == nil && h.v.BadLinks > 0 {
			blind = append(blind, h)
		}
	}
	l.put(blind, Cause)
	for {
		worst := l.worst()
		switch {
		case len(worst) == 0:
			l.tell()
			return
		case len(worst) == 1:
			l.put(worst, Cause)
		default:
			l.put(worst, Suspect)
		}
	}
}

// worst are the voters on the most open links, nil when there is none.
func (l *links) worst() []*host {
	var worst []*host
	var most [3]int
	for _, h := range l.voters {
		n, lasting := l.open(h.Node)
		rank := [3]int{n, lasting, h.v.Seen}
		switch c := slices.Compare(rank[:], most[:]); {
		case n == 0:
		case len(worst) == 0 || c > 0:
			worst, most = []*host{h}, rank
		case c == 0:
			worst = append(worst, h)
		}
	}
	return worst
}

// put gives these hosts their part, and the blame for their open links.
func (l *links) put(hosts []*host, part Part) {
	open := map[ends]bool{}
	for k, b := range l.bad {
		open[k] = len(b.blamed) == 0
	}
	for _, h := range hosts {
		h.v.Part = part
		for k, b := range l.bad {
			if open[k] && (k[0] == h.Node || k[1] == h.Node) {
				b.blamed[h.Node] = true
			}
		}
	}
}

// tell writes each voter's bad links into its verdict: as a ground where it is
// to blame, else as a note that names who is. A voter that cannot be judged has
// notes only.
func (l *links) tell() {
	byName := map[string]*host{}
	for _, h := range l.voters {
		byName[h.Node] = h
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.bad), func(a, b ends) int { return slices.Compare(a[:], b[:]) }) {
		b := l.bad[k]
		for i, node := range k {
			h, other := byName[node], k[1-i]
			if h.v.Part == "" {
				h.v.Part = Victim
			}
			if !b.blamed[node] {
				worst := slices.MaxFunc(b.reasons, func(a, b Reason) int { return cmp.Compare(a.margin(), b.margin()) })
				h.v.add(worst.excused(node, other))
				continue
			}
			for _, r := range b.reasons {
				if r.Peer = other; h.samples == nil {
					r.Weight = Note
				}
				h.v.add(r)
			}
		}
	}
}
