package alert

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/heartbeat"
)

// State is all that outlasts a restart: which conditions were told, and what has
// not reached its receivers yet. It is small, and written whole.
type State struct {
	Protocol int `json:"protocol"`
	// By is the process that wrote it.
	By string `json:"by,omitempty"`
	// Born is the process that began it, with nothing to go on from.
	Born string `json:"born,omitempty"`
	// Last is the greatest time in a document; Still is for how long, in seconds, no
	// newer one has been seen, while somebody looked.
	Last  time.Time `json:"last,omitzero"`
	Still int64     `json:"still_seconds,omitempty"`
	// Every is after how many seconds the document of Last said that the next one comes.
	Every int64 `json:"every_seconds,omitempty"`
	// Back is the greatest time in a document that came after the one of Last and is
	// older, none when there is none; Alone is for how long, in seconds, only such came.
	Back  time.Time `json:"back,omitzero"`
	Alone int64     `json:"alone_seconds,omitempty"`
	// Count is how many messages were made: it makes their ids differ.
	Count uint64 `json:"count,omitempty"`
	// Active are the conditions that were told and are not over.
	Active []Condition `json:"active,omitempty"`
	// Noticed are conditions without a time of their own, since when they were seen.
	Noticed []Condition `json:"noticed,omitempty"`
	// Outbox is what is to be delivered, the oldest first.
	Outbox []Letter `json:"outbox,omitempty"`
	// Lost counts messages that a receiver was never told: dropped because too many
	// waited, or given up.
	Lost uint64 `json:"lost,omitempty"`
	// Tries counts looks in which something waited. Each makes the state another one,
	// so that a second process sees that the first one is sending.
	Tries uint64 `json:"tries,omitempty"`
}

// Letter is a message and the receivers that have not taken it.
type Letter struct {
	Message Message  `json:"message"`
	To      []string `json:"to"`
}

// MaxState is the size above which a state is refused unread. MaxOutbox is how many
// messages wait at most, some for each hour of months, and MaxWaiting how many bytes
// they may have together: a ConfigMap takes a mebibyte.
const (
	MaxState   = 1 << 20
	MaxOutbox  = 256
	MaxWaiting = 256 << 10
)

// ParseState reads a state. One that cannot be read is an error: to begin with an
// empty one would tell everything twice.
func ParseState(raw []byte) (State, error) {
	var s State
	if len(raw) > MaxState {
		return s, fmt.Errorf("alert state: %d bytes are more than %d", len(raw), MaxState)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return State{}, fmt.Errorf("alert state: %w", err)
	}
	if s.Protocol != Protocol {
		return State{}, fmt.Errorf("alert state: protocol %d, this program speaks %d", s.Protocol, Protocol)
	}
	if s.Still < 0 || s.Alone < 0 || s.Every < 0 {
		return State{}, fmt.Errorf("alert state: a time below zero")
	}
	for _, c := range slices.Concat(s.Active, s.Noticed) {
		if !known(c.Kind) {
			return State{}, fmt.Errorf("alert state: there is no kind %q", c.Kind)
		}
	}
	return s, nil
}

// Sight is what one look at the document has come to.
type Sight struct {
	Document *heartbeat.Document // nil when there is none that can be read
	Problem  string              // why not
	// Elapsed is how long ago this process looked before, by its own clock; zero at
	// its first look.
	Elapsed time.Duration
}

// Rules are what an operator may set.
type Rules struct {
	After     time.Duration
	Receivers []string
}

// Step takes one look in. The state that it is given is not changed.
func Step(s State, g Sight, r Rules) State {
	s = s.clone()
	s.Protocol = Protocol
	news, older := s.see(g, r.After)
	c := Condition{Kind: HeartbeatStale, Severity: Critical, Since: s.Last, Sentence: staleWords(s, g)}
	was := slices.ContainsFunc(s.Active, c.same)
	switch {
	case news && was:
		s.end(c, g.Document.At, r)
	case !was && time.Duration(s.Still)*time.Second > patience(r.After, s.Every):
		s.begin(c, time.Time{}, r)
	}
	// A document that has been there all the while, or comes from before, says nothing
	// of now.
	if g.Document == nil || older || slices.ContainsFunc(s.Active, c.same) {
		return s
	}
	j := Judge(g.Document, r.After, s.noticed)
	s.notice(j)
	for _, c := range j.Due {
		if !j.Held(c) && !slices.ContainsFunc(s.Active, c.same) && !s.named(c, g.Document) {
			s.begin(c, g.Document.At, r)
		}
	}
	for _, a := range slices.Clone(s.Active) {
		if a.Kind != HeartbeatStale && !slices.ContainsFunc(j.Due, a.same) && !slices.ContainsFunc(j.Early, a.same) && !slices.ContainsFunc(j.Said, a.same) && !j.Held(a) {
			s.end(a, g.Document.At, r)
		}
	}
	return s
}

// apart is how much later than its voter falls silent a Node stops being Ready, at most,
// when its host dies: the API server's patience with a kubelet, which is 40 or 50 s where
// nobody sets it.
const apart = 2 * time.Minute

// named says whether a server is not Ready of which a told no_tolerance says already that it
// is lost, so that one loss is one alert however short the window: by name, and its Node
// followed its voter. One that stops being Ready later than that is another event: until then
// only its daemon may have been silent. Over is what was told: once one more may fail again,
// a server that is still away is told by itself.
func (s *State) named(c Condition, d *heartbeat.Document) bool {
	i := slices.IndexFunc(s.Active, Condition{Kind: NoTolerance}.same)
	if c.Kind != ServerNotReady || i < 0 || !slices.Contains(s.Active[i].Hosts, c.Subject) {
		return false
	}
	return c.Since.Sub(s.Active[i].Since) <= apart+time.Duration(min(max(d.Interval, 0), maxEvery))*time.Second
}

// see notes whether a new document has come: one that is later than any before. Of
// copies that are read in turn each is seen once and never again, however many there
// are. One that is older was put back from a copy, or the clock that dates them has gone
// back: then those that follow are later than the first such one, and so a sign of
// life. They speak of now once nothing else has come for a window.
func (s *State) see(g Sight, after time.Duration) (news, older bool) {
	passed := int64(g.Elapsed / time.Second)
	if g.Document != nil {
		at := g.Document.At
		switch {
		case at.After(s.Last):
			news = true
			s.Last, s.Every, s.Back, s.Alone = at, g.Document.Interval, time.Time{}, 0
		case at.Equal(s.Last):
			s.Alone = 0
		default:
			news, older = !s.Back.IsZero() && at.After(s.Back), true
			s.Alone += passed
			if s.Back.IsZero() || news {
				s.Back = at
			}
			if news && time.Duration(s.Alone)*time.Second > after {
				s.Last, s.Every, s.Back, s.Alone, older = at, g.Document.Interval, time.Time{}, 0, false
			}
		}
	}
	if news {
		s.Still = 0
	} else {
		s.Still += passed
	}
	return news, older
}

// patience is for how long no new document is no dead heartbeat: the window, and where the
// heartbeat says that it comes less often, as often as that and a minute for its work. What
// says that it comes once a week is taken for once a day.
func patience(after time.Duration, every int64) time.Duration {
	if every <= 0 {
		return after
	}
	return max(after, time.Duration(min(every, maxEvery))*time.Second+time.Minute)
}

const maxEvery = 24 * 60 * 60

// stale says what is wrong with a document by what was seen before it: that it is no
// news has been so for longer than the window, or it is older than what was seen by more
// than that. Empty when nothing is.
func (s State) stale(at time.Time, after time.Duration) string {
	if at.After(s.Last) || !s.Back.IsZero() && at.After(s.Back) {
		return ""
	}
	after = patience(after, s.Every)
	words := "fleet-health.json is of " + stamp(at)
	told := slices.ContainsFunc(s.Active, func(c Condition) bool { return c.Kind == HeartbeatStale })
	switch {
	case s.Last.Sub(at) > after:
		return words + "; one of " + stamp(s.Last) + " was seen before it."
	case told, time.Duration(s.Still)*time.Second > after:
		return words + "; that no new one is seen was noticed before."
	}
	return ""
}

func staleWords(s State, g Sight) string {
	words := "No new fleet-health.json is seen"
	if !s.Last.IsZero() {
		words += "; the last one is of " + stamp(s.Last)
	}
	if g.Problem != "" {
		words += ": " + g.Problem
	}
	return words + "."
}

func (s *State) begin(c Condition, at time.Time, r Rules) {
	s.Active = append(s.Active, c)
	s.Count++
	s.post(began(c, at, s.Count, s.Born), r)
}

func (s *State) end(c Condition, at time.Time, r Rules) {
	i := slices.IndexFunc(s.Active, c.same)
	c = s.Active[i]
	s.Active = slices.Delete(s.Active, i, i+1)
	s.Count++
	s.post(ended(c, at, s.Count, s.Born), r)
}

func (s *State) post(m Message, r Rules) {
	if len(r.Receivers) == 0 {
		return
	}
	s.Outbox = append(s.Outbox, Letter{Message: m, To: slices.Clone(r.Receivers)})
	lost := s.Lost
	for len(s.Outbox) > MaxOutbox || waiting(s.Outbox) > MaxWaiting {
		s.drop()
	}
	// Who is told nothing of it would take what comes for all there was.
	if last := len(s.Outbox) - 1; s.Lost > lost && last >= 0 && s.Outbox[last].Message.ID == m.ID {
		s.Outbox[last].Message.Sentence = clean(fmt.Sprintf("(Too many messages waited: %d so far were dropped before this one.) %s", s.Lost, m.Sentence))
	}
}

// drop makes room: an alert and its recovery go together, for nobody has to do anything
// about what is over; where there is no such pair, the oldest.
func (s *State) drop() {
	for i, began := range s.Outbox {
		if began.Message.Event != Began {
			continue
		}
		for j := i + 1; j < len(s.Outbox); j++ {
			o := s.Outbox[j]
			if o.Message.Kind != began.Message.Kind || o.Message.Subject != began.Message.Subject {
				continue
			}
			if slices.Equal(o.To, began.To) { // else one of them has been told the one, and not the other
				s.Outbox = slices.Delete(slices.Delete(s.Outbox, j, j+1), i, i+1)
				s.Lost += 2
				return
			}
			break
		}
	}
	s.Outbox = slices.Delete(s.Outbox, 0, 1)
	s.Lost++
}

// waiting is how many bytes letters have.
func waiting(letters []Letter) int {
	raw, err := json.Marshal(letters)
	if err != nil {
		return MaxWaiting + 1
	}
	return len(raw)
}

// noticed is since when a condition without a time of its own is there.
func (s *State) noticed(c Condition) time.Time {
	if i := slices.IndexFunc(s.Noticed, c.same); i >= 0 {
		return s.Noticed[i].Since
	}
	return time.Time{}
}

// notice keeps since when the early ones are there: of those with a time of their own
// it is what the document says, and costs nothing to keep.
func (s *State) notice(j Judgement) {
	var keep []Condition
	for _, c := range slices.Concat(j.Early, j.Due) {
		keep = append(keep, Condition{Kind: c.Kind, Subject: c.Subject, Since: c.Since})
	}
	for _, c := range s.Noticed {
		if j.Held(c) && !slices.ContainsFunc(keep, c.same) {
			keep = append(keep, c)
		}
	}
	s.Noticed = keep
}

// Delivered notes that a receiver has taken a message.
func Delivered(s State, id, receiver string) State {
	s = s.clone()
	for i := range s.Outbox {
		if s.Outbox[i].Message.ID == id {
			s.Outbox[i].To = slices.DeleteFunc(s.Outbox[i].To, func(to string) bool { return to == receiver })
		}
	}
	s.Outbox = slices.DeleteFunc(s.Outbox, func(l Letter) bool { return len(l.To) == 0 })
	return s
}

// GaveUp notes that a message is no longer sent to a receiver, which was not told.
func GaveUp(s State, id, receiver string) State {
	s = Delivered(s, id, receiver)
	s.Lost++
	return s
}

// Only leaves out receivers that are no more.
func Only(s State, receivers []string) State {
	s = s.clone()
	for i := range s.Outbox {
		s.Outbox[i].To = slices.DeleteFunc(s.Outbox[i].To, func(to string) bool { return !slices.Contains(receivers, to) })
	}
	s.Outbox = slices.DeleteFunc(s.Outbox, func(l Letter) bool { return len(l.To) == 0 })
	return s
}

// Next is the oldest message that a receiver has not taken, but for some.
func Next(s State, receiver string, but ...string) (Message, bool) {
	for _, l := range s.Outbox {
		if slices.Contains(l.To, receiver) && !slices.Contains(but, l.Message.ID) {
			return l.Message, true
		}
	}
	return Message{}, false
}

func (s State) clone() State {
	s.Active, s.Noticed, s.Outbox = slices.Clone(s.Active), slices.Clone(s.Noticed), slices.Clone(s.Outbox)
	for i := range s.Outbox {
		s.Outbox[i].To = slices.Clone(s.Outbox[i].To)
	}
	return s
}

// quarter is how much of the window may be lost in a restart.
const quarter = 4

// Worth says whether a state is worth writing over the one written last: something
// was told, seen or delivered, or the stillness has grown by a quarter of the window.
func Worth(now, written State, after time.Duration) bool {
	if time.Duration(now.Still-written.Still)*time.Second >= after/quarter || now.Still < written.Still || now.Last.Before(written.Last) {
		return true
	}
	now.Still, now.Last, now.Back, now.Alone = written.Still, written.Last, written.Back, written.Alone
	now.By = written.By
	a, errA := json.Marshal(now)
	b, errB := json.Marshal(written)
	return errA != nil || errB != nil || string(a) != string(b)
}
