package fitness

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// Host is what a verdict is made from: one voter or eligible host.
type Host struct {
	Node string
	// Votes: the member lists name it as a voter.
	Votes bool
	// Window is its entry, nil when there is none or Problem says why it cannot be
	// used.
	Window  *Window
	Problem *EntryError
	// Seen: the entry, or a heartbeat that vouches for it, was seen to change, and
	// Age is how long ago, by the reader's monotonic clock. Before that Age is how
	// long it has been looked at (safety rule 22).
	Seen bool
	Age  time.Duration
}

// host is one under judgement.
type host struct {
	Host
	v *Verdict
	// samples are those that are judged; nil when the host as a whole is unknown.
	samples []Sample
	size    int            // how many are wanted
	member  fleet.MemberID // its own id in etcd, 0 when not known
}

// Judge gives a verdict on every host, sorted by name. It is a function of the
// set of hosts: their order does not matter. A host that is silent, that nobody
// has seen to change, or whose entry cannot be read is unknown whatever its last
// numbers were; so is one whose window is not full.
func Judge(hosts []Host, p Policy) []Verdict {
	sorted := slices.SortedFunc(slices.Values(hosts), func(a, b Host) int { return cmp.Compare(a.Node, b.Node) })
	vs := make([]Verdict, len(sorted))
	hs := make([]*host, len(sorted))
	for i := range sorted {
		vs[i] = Verdict{Node: sorted[i].Node, Votes: sorted[i].Votes}
		hs[i] = &host{Host: sorted[i], v: &vs[i], size: max(p.Size, 1)}
		hs[i].open(p)
	}
	quota := quotaOf(hs, p)
	for _, h := range hs {
		if h.samples == nil {
			continue
		}
		h.judgeRestart()
		h.judgeDisk(p)
		h.judgeMemory(p, quota)
		h.judgeWiFi(p)
		h.noteEvents()
	}
	judgeLinks(hs, p)
	for i := range vs {
		vs[i].finish()
	}
	return vs
}

// open says whether the window can be judged at all, and takes the samples that
// are.
func (h *host) open(p Policy) {
	gap := func(code, format string, args ...any) {
		h.v.add(Reason{Code: code, Weight: Gap, Sentence: fmt.Sprintf(format, args...)})
	}
	w := h.Window
	switch {
	case h.Problem != nil:
		gap(h.Problem.Code, "the entry of the probe on %s cannot be used: %s", h.Node, h.Problem.Sentence)
		return
	case w == nil:
		gap(CodeNoEntry, "the probe on %s has no entry", h.Node)
		return
	}
	h.v.Members = w.Members
	silent := SilentPeriods * p.Period
	switch {
	case w.Period > silent:
		// It would be silent between any two of its samples.
		gap(CodeProbePeriod, "the probe on %s takes a sample every %s, and is called silent after %s: give it the controller's period (%s)", h.Node, short(w.Period), short(silent), short(p.Period))
		return
	case h.Age > silent:
		gap(CodeProbeSilent, "the probe on %s has not reported for %s, three periods are %s", h.Node, short(h.Age), short(silent))
		return
	case !h.Seen:
		gap(CodeNotSeen, "the entry of the probe on %s has not been seen to change yet, for %s", h.Node, short(h.Age))
		return
	}
	last := w.Last()
	if last == nil {
		gap(CodeFilling, "%s has no sample yet, %d are wanted", h.Node, h.size)
		return
	}
	samples := w.Samples[max(0, len(w.Samples)-h.size):]
	oldest := last.At.Add(-time.Duration(staleWindows * float64(w.Period) * float64(h.size)))
	for len(samples) > 0 && samples[0].At.Before(oldest) {
		samples = samples[1:]
	}
	h.v.Samples, h.v.From, h.v.To = len(samples), samples[0].At, last.At
	h.v.Link = last.Link.Kind
	if len(samples) < h.size {
		gap(CodeFilling, "%s has %d samples of late, %d are wanted: %s to go", h.Node, len(samples), h.size, short(time.Duration(h.size-len(samples))*p.Period))
		return
	}
	h.samples = samples
	for i := len(samples) - 1; i >= 0 && h.member == 0; i-- {
		if e := samples[i].Etcd; e != nil {
			h.member = e.Member
		}
	}
}

// wanted is in how many samples a reading must have been taken.
func (h *host) wanted() int { return max(1, int(enough*float64(h.size))) }

// left is how many of the highest values a p99 leaves out: the p99 of a hundred
// is the second highest, of fewer it is the highest.
func (h *host) left() int { return h.size / 100 }

// beyond are the samples that are beyond a limit by themselves.
type beyond struct {
	n           int
	first, last time.Time
}

func (b *beyond) hit(at time.Time) {
	if b.n == 0 {
		b.first = at
	}
	b.n, b.last = b.n+1, at
}

func (b *beyond) spread() time.Duration { return b.last.Sub(b.first) }

func (b *beyond) lasting(p Policy) bool { return p.Lasting(b.n, b.spread()) }

// of notes them in a measure.
func (b *beyond) of(m Measure) Measure {
	m.Beyond, m.SpreadMS = b.n, b.spread().Milliseconds()
	return m
}

func (h *host) measure(m Measure) *Measure {
	m.Margin = math.Round(m.Margin*1e4) / 1e4 // a document has hundreds of them
	h.v.Measures = append(h.v.Measures, m)
	return &m
}

// judgeRestart: after a restart a host is not brought in, and nothing is swapped
// for it, until its window is free of it (R-X-11). A voter is not swapped out
// for having been restarted: an upgrade restarts them all.
func (h *host) judgeRestart() {
	for i := len(h.samples) - 1; i >= 0; i-- {
		s := &h.samples[i]
		what := ""
		switch s.Restart {
		case RestartHost:
			what = "the host was restarted"
		case RestartEtcd:
			what = "its etcd began"
		case RestartProbe:
			continue // the probe alone: host and etcd went on
		default:
			continue
		}
		out := time.Duration(i+1) * h.Window.Period
		h.v.add(Reason{Code: CodeRestarted, Weight: Bar, Sentence: fmt.Sprintf("%s: %s %s before its last sample; that leaves the window in about %s", h.Node, what, short(h.v.To.Sub(s.At)), short(out))})
		return
	}
}

func (h *host) judgeWiFi(p Policy) {
	kind := LinkKind("")
	read := 0
	var b beyond
	for i := range h.samples {
		if k := h.samples[i].Link.Kind; k != "" {
			kind = k
			read++
			if k == WiFi {
				b.hit(h.samples[i].At)
			}
		}
	}
	h.v.Link = kind
	if p.WiFi == WiFiIgnore {
		return
	}
	if !h.gapUnless(read, ReadingLink) {
		return
	}
	if kind != WiFi {
		// A host that changes over and back would be fit in every other moment.
		if !h.Votes && b.n > h.left() {
			h.v.add(Reason{Code: CodeWiFi, Weight: Bar, Sentence: fmt.Sprintf("the default route of %s left by Wi-Fi in %d of %d samples, the last %s before its last sample (setting %s)", h.Node, b.n, read, short(h.v.To.Sub(b.last)), p.WiFi)})
		}
		return
	}
	r := Reason{Code: CodeWiFi, Weight: Bar, Lasting: b.lasting(p), Sentence: fmt.Sprintf("the default route of %s leaves by Wi-Fi (setting %s)", h.Node, p.WiFi)}
	switch {
	case p.WiFi == WiFiUnfit:
		r.Weight = Ground
	case h.Votes:
		r.Weight = Note
	}
	h.v.add(r)
}

// gapUnless names a reading that was taken too seldom, false then.
func (h *host) gapUnless(read int, what Reading) bool {
	if read >= h.wanted() {
		return true
	}
	h.gap(what, fmt.Sprintf("was taken in %d of %d samples, %d are wanted", read, len(h.samples), h.wanted()))
	return false
}

// gap names a reading that is not there, with the sensor's own word for it.
func (h *host) gap(what Reading, how string) {
	why := ""
	for i := len(h.samples) - 1; i >= 0 && why == ""; i-- {
		for _, a := range h.samples[i].Absent {
			if a.Reading == what {
				why = ": " + a.Code
			}
		}
	}
	h.v.add(Reason{Code: CodeGap, Weight: Gap, Sentence: fmt.Sprintf("%s: the reading %s %s%s", h.Node, what, how, why)})
}

// noteEvents are evidence beside the reasons, never reasons (design §3).
func (h *host) noteEvents() {
	var changes, failures, applies uint64
	for i := range h.samples {
		if e := h.samples[i].Etcd; e != nil && e.Gains != nil {
			changes += uint64(e.Gains.LeaderChanges)
			failures += uint64(e.Gains.HeartbeatSendFailures)
			applies += uint64(e.Gains.SlowApplies)
		}
	}
	for _, x := range []struct {
		code, what string
		n          uint64
	}{
		{CodeLeaderChanges, "changes of etcd's leader", changes},
		{CodeSendFailures, "heartbeats that its etcd could not send in time", failures},
		{CodeSlowApplies, "slow applies", applies},
	} {
		if x.n > 0 {
			h.v.add(Reason{Code: x.code, Weight: Note, Sentence: fmt.Sprintf("%s saw %d %s in %s", h.Node, x.n, x.what, short(h.v.To.Sub(h.v.From)))})
		}
	}
}

// than prints a time beside its limit: with as many digits as tell them apart.
func than(d, limit time.Duration) string {
	if s := short(d); d == limit || s != short(limit) {
		return s
	}
	return d.String()
}

// short prints a time for people, in two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
