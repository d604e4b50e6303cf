package heartbeat

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// Settings are what an operator may set.
type Settings struct {
	Keys   fleet.Keys
	Checks []string
	// Target is how many voters the fleet shall have where no status says so.
	Target int
	// Unschedulable is how long a runner pod may be so.
	Unschedulable time.Duration
	// StatusLife is how old a status may be to speak of today.
	StatusLife time.Duration
	// Interval is the time between two documents, zero where it is not known.
	Interval time.Duration
}

// DefaultStatusLife is some of the minutes in which a controller publishes at the
// latest.
const DefaultStatusLife = 5 * time.Minute

// Memory is what one document takes over from the one before, so that a restart
// loses no time (R-F-02). What is lost begins anew: nothing is reported early.
type Memory struct {
	EvenSince, NoToleranceSince time.Time
	Down                        []string             // voters
	Failing                     map[string]time.Time // by check
	NotReady                    map[string]time.Time // by node
}

// Memory is what the next document takes over.
func (d *Document) Memory() Memory {
	m := Memory{Failing: map[string]time.Time{}, NotReady: map[string]time.Time{}}
	switch {
	case d.Voters != nil:
		m.EvenSince, m.NoToleranceSince, m.Down = d.Voters.EvenSince, d.Voters.NoToleranceSince, d.Voters.Down
	case d.Carried != nil:
		m.EvenSince, m.NoToleranceSince = d.Carried.EvenSince, d.Carried.NoToleranceSince
	}
	for _, n := range d.NotReady {
		m.NotReady[n.Name] = n.Since
	}
	if d.Carried != nil {
		for _, n := range d.Carried.NotReady {
			m.NotReady[n.Name] = n.Since
		}
	}
	for _, c := range d.Checks {
		if !c.OK {
			m.Failing[c.Name] = c.Since
		}
	}
	return m
}

// Moved is the same by a clock that has jumped by so much since.
func (m Memory) Moved(by time.Duration) Memory {
	move := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(by)
	}
	m.EvenSince, m.NoToleranceSince = move(m.EvenSince), move(m.NoToleranceSince)
	m.Failing, m.NotReady = maps.Clone(m.Failing), maps.Clone(m.NotReady)
	for _, times := range []map[string]time.Time{m.Failing, m.NotReady} {
		for name, t := range times {
			times[name] = move(t)
		}
	}
	return m
}

// Names in Unread.
const (
	UnreadNodes  = "nodes"
	UnreadStatus = "status"
)

// Build is the document of one tick. now is the API server's Date, in whole
// seconds.
func Build(o Observation, before Memory, now time.Time, s Settings) Document {
	d := Document{Protocol: Protocol, At: now, Interval: int64(s.Interval / time.Second), Reasons: []string{}}
	if o.StatusProblem != "" {
		d.Unread = append(d.Unread, UnreadStatus)
	}
	if o.Status != nil {
		d.RoleSwap = o.Status.Swap
	}
	if o.NodesProblem != "" {
		d.Unread = append([]string{UnreadNodes}, d.Unread...)
		d.Carried = carried(before, now)
	} else {
		counted := count(o, now, s)
		d.NodePressure, d.NotReady, d.More = pressures(o.Nodes), nil, 0
		d.NotReady, d.More = notReady(o, counted, before, now, s)
		d.Voters = counted.voters(before, now, s)
	}
	d.Checks = checks(o, &d, before, now, s)
	d.Healthy = true
	for _, c := range d.Checks {
		if !c.OK {
			d.Healthy = false
			d.Reasons = append(d.Reasons, c.Reason)
		}
	}
	return d
}

// since is a time that was carried over, now where there is none, and never later
// than now: the clock may have gone back.
func since(before, now time.Time) time.Time {
	if before.IsZero() || before.After(now) {
		return now
	}
	return before
}

func carried(m Memory, now time.Time) *Carried {
	if m.EvenSince.IsZero() && m.NoToleranceSince.IsZero() && len(m.NotReady) == 0 {
		return nil
	}
	c := &Carried{}
	for _, name := range slices.Sorted(maps.Keys(m.NotReady)) {
		c.NotReady = append(c.NotReady, Unready{Name: name, Since: since(m.NotReady[name], now)})
	}
	if !m.EvenSince.IsZero() {
		c.EvenSince = since(m.EvenSince, now)
	}
	if !m.NoToleranceSince.IsZero() {
		c.NoToleranceSince = since(m.NoToleranceSince, now)
	}
	return c
}

func pressures(nodes []Node) []Pressure {
	out := []Pressure{}
	for _, n := range nodes {
		if len(n.Pressure) > 0 {
			out = append(out, Pressure{Node: n.Name, Conditions: slices.Sorted(slices.Values(n.Pressure))})
		}
	}
	slices.SortFunc(out, func(a, b Pressure) int { return strings.Compare(a.Node, b.Node) })
	if len(out) > maxListed {
		out = out[:maxListed]
	}
	return out
}

// maxListed is how many Nodes a list names.
const maxListed = 256

// notReady are the Nodes that are not Ready, servers first: alerts go by them. Each is
// so since a document first said it: the time in its condition is of the clock of its
// own host, or of whichever server runs the controllers, and one that is ahead would
// keep the alert away for as long.
func notReady(o Observation, c counted, before Memory, now time.Time, s Settings) (list []NotReady, more int) {
	list = []NotReady{}
	for _, n := range o.Nodes {
		if n.Ready {
			continue
		}
		e := NotReady{Name: n.Name, Role: fleet.RoleAgent, Since: since(before.NotReady[n.Name], now), RoleSwap: n.Swap, Voter: c.votes[n.Name], Level: held(n, s.Keys)}
		for _, l := range fleet.ServerLabels() {
			if _, has := n.Labels[l]; has {
				e.Role = fleet.RoleServer
			}
		}
		if o.Status != nil && o.Status.Swap != nil && (o.Status.Swap.Out == n.Name || o.Status.Swap.In == n.Name) {
			e.RoleSwap = true
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b NotReady) int {
		return cmp.Or(serversFirst(a, b), strings.Compare(a.Name, b.Name))
	})
	if len(list) > maxListed {
		list, more = list[:maxListed], len(list)-maxListed
	}
	return list, more
}

func serversFirst(a, b NotReady) int { return -strings.Compare(string(a.Role), string(b.Role)) }

// held is the level that a Node is held at, empty for none: full is none.
func held(n Node, k fleet.Keys) fleet.Level {
	l := fleet.Level(n.Labels[k.Level()])
	if l == fleet.LevelFull {
		return ""
	}
	return l
}

// Unspoken are the Nodes that are not Ready, as servers that are held at a level are, and of
// which no status of today says whether their host daemons speak.
func Unspoken(o Observation, now time.Time, s Settings) (names []string) {
	said := map[string]bool{}
	if lately(o.Status, now, s) {
		for _, h := range o.Status.Hosts {
			said[h.Name] = true
		}
	}
	for _, n := range o.Nodes {
		if !n.Ready && held(n, s.Keys) != "" && !said[n.Name] {
			names = append(names, n.Name)
		}
	}
	return names
}

// counted are the voters.
type counted struct {
	votes map[string]bool // by node
	by    string
	count int
	up    int
	down  []string // by name
	// target is what the controller goes by, zero where it does not say.
	target int
}

// lately says whether a status speaks of today. One that is a little ahead was dated by
// another API server; one that is far ahead says nothing of how old it is.
func lately(st *status.Status, now time.Time, s Settings) bool {
	return st != nil && now.Sub(st.At).Abs() <= s.StatusLife
}

// count counts voters by the member lists where a controller says what they are, else
// by label and condition together: k3s leaves the condition True for the dead, and
// the label for ever (design, "Who is a voter").
func count(o Observation, now time.Time, s Settings) counted {
	c := counted{votes: map[string]bool{}, by: ByConditions}
	if o.Status != nil {
		c.target = o.Status.Target
	}
	fresh := map[string]bool{}
	if lately(o.Status, now, s) {
		for _, h := range o.Status.Hosts {
			fresh[h.Name] = h.Fresh
			if h.Voter {
				c.by, c.votes[h.Name] = ByMembers, true
			}
		}
	}
	nodes := map[string]Node{}
	for _, n := range o.Nodes {
		nodes[n.Name] = n
		_, labelled := n.Labels[fleet.LabelEtcd]
		if c.by == ByConditions && labelled && n.EtcdIsVoter == "True" {
			c.votes[n.Name] = true
		}
	}
	for name := range c.votes {
		c.count++
		n, is := nodes[name]
		speaks, known := fresh[name]
		// A held server's Node is not Ready as long as it is held; its host daemon
		// speaks for it, to the controller or by its heartbeat. A daemon that is silent
		// speaks for nobody (safety rule 24).
		if is && (n.Ready || held(n, s.Keys) != "" && !n.Silent) && (speaks || !known) {
			c.up++
		} else {
			c.down = append(c.down, name)
		}
	}
	slices.Sort(c.down)
	return c
}

// voters is nil where there are none: no Node has etcd.
func (c counted) voters(before Memory, now time.Time, s Settings) *Voters {
	if c.count == 0 {
		return nil
	}
	v := &Voters{Count: c.count, Target: cmp.Or(c.target, s.Target), By: c.by, Up: c.up, Down: c.down[:min(len(c.down), maxListed)], Tolerance: max(0, c.up-quorum.Need(c.count))}
	if v.Count%2 == 0 {
		v.EvenSince = since(before.EvenSince, now)
	}
	if v.Tolerance == 0 {
		v.NoToleranceSince = since(before.NoToleranceSince, now)
	}
	return v
}
