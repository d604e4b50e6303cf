package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/status"
)

// Cluster is what recovery needs of the API. Every call is bounded.
type Cluster interface {
	// Nodes are all Nodes, in any order, read from a quorum.
	Nodes(ctx context.Context) ([]recover.Node, error)
	// Lease, ConfigMap, Heartbeats and Date are those of observe.Cluster.
	Lease(ctx context.Context) (observe.Lease, error)
	ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error)
	Heartbeats(ctx context.Context) ([]observe.Heartbeat, error)
	// KubeletLeases are the renew times of the kubelets' own Leases, by node.
	KubeletLeases(ctx context.Context) (map[string]time.Time, error)
	Date() time.Time
	// Write changes a Node as it was read; execute.ErrConflict when it is another by
	// now.
	Write(ctx context.Context, w recover.Write) error
}

// Teller writes events. Nothing depends on one.
type Teller interface {
	Tell(ctx context.Context, e status.Event) error
}

// Settings of a Recovery.
type Settings struct {
	Policy recover.Policy
	// Poll is the time between two passes.
	Poll time.Duration
	// DryRun: nothing is written.
	DryRun bool
	// ByDate takes how long a node is silent from the API's Date and the time in its
	// condition. It is for somebody who only looks, once, and has seen nothing before:
	// two clocks are compared. A Recovery that goes by it writes nothing.
	ByDate bool
	Teller Teller // nil for none
	// Now is the own clock with its monotonic part; time.Now when nil.
	Now func() time.Time
	Log *slog.Logger
}

// Recovery is one process's. Not safe for concurrent use.
type Recovery struct {
	cluster Cluster
	s       Settings
	log     *slog.Logger

	watch  watch
	still  still
	pace   pace
	signs  signs
	probes observe.Probes
	// answered are the ways on which a host was seen to answer, while one is silent;
	// probed: the cluster has, or had, probes.
	answered map[way]bool
	probed   bool
	said     said
}

// way is from one host to another.
type way struct{ from, to string }

// New makes one that has seen nothing yet: to it nobody is silent for long.
func New(cluster Cluster, s Settings) *Recovery {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Poll <= 0 {
		s.Poll = recover.DefaultPoll
	}
	return &Recovery{cluster: cluster, s: s, log: s.Log}
}

// Turn is what one pass did.
type Turn struct {
	Took time.Duration
	// Date is the API's at the look.
	Date time.Time
	// Decision is nil when the Nodes were not seen.
	Decision *recover.Decision
	// Done are the writes, in the order of the nodes.
	Done []Done
	// Err says what could not be read; what hangs on it was held.
	Err error
}

// Done is one write. In a dry run it was not made.
type Done struct {
	Node   string
	Action recover.Action
	DryRun bool
	Err    error
}

// Pass is one turn. All writes are tried, whatever becomes of the others; one that was
// refused is decided anew in the next pass.
func (r *Recovery) Pass(ctx context.Context) Turn {
	began := r.s.Now()
	o, err := r.look(ctx)
	t := Turn{Date: o.Now, Err: err}
	if o.Nodes != nil && !o.Now.IsZero() {
		d := recover.Decide(o, r.s.Policy)
		t.Decision = &d
		t.Done = r.carryOut(ctx, &d)
	}
	t.Took = r.s.Now().Sub(began)
	if ctx.Err() == nil {
		r.say(ctx, t)
	}
	return t
}

func (r *Recovery) carryOut(ctx context.Context, d *recover.Decision) (done []Done) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Write == nil || ctx.Err() != nil {
			continue
		}
		x := Done{Node: v.Node, Action: v.Action, DryRun: r.s.DryRun || r.s.ByDate}
		if !x.DryRun {
			x.Err = r.cluster.Write(ctx, *v.Write)
		}
		done = append(done, x)
	}
	return done
}

// look reads the Nodes first and the Lease after them: a swap takes the Lease before it
// marks a Node, so that one that begins in between is seen by the one, or makes the
// write of the other fail.
func (r *Recovery) look(ctx context.Context) (recover.Observation, error) {
	var o recover.Observation
	nodes, err := r.cluster.Nodes(ctx)
	if err != nil {
		return o, fmt.Errorf("recovery: %w", err)
	}
	now := r.s.Now()
	o.Nodes, o.Now = nodes, r.cluster.Date()
	if o.Now.IsZero() {
		return o, errors.New("recovery: the API server's answers carry no Date")
	}
	if o.Nodes == nil {
		o.Nodes = []recover.Node{}
	}
	r.watch.see(o.Nodes, now, 3*r.s.Poll+maxJump)
	if r.s.ByDate {
		byDate(o.Nodes, o.Now)
	}
	o.DateJumped = r.pace.see(o.Now, now)
	need := recover.Needs(o.Nodes, r.s.Policy)
	if !need.Lease {
		r.still = still{}
	} else if l, e := r.cluster.Lease(ctx); e != nil {
		o.LeaseProblem = e.Error()
		err = errors.Join(err, fmt.Errorf("recovery: %w", e))
	} else {
		o.Lease, o.LeaseUnchanged = l.Lease, r.still.see(l.Lease, now)
		if r.s.ByDate {
			o.LeaseUnchanged = max(o.LeaseUnchanged, o.Now.Sub(l.RenewTime))
		}
	}
	var beats []observe.Heartbeat
	if !need.Signs {
		r.signs = nil
	} else if all, e := r.watchSigns(ctx, &o, now); e != nil {
		o.SignsProblem = e.Error()
		err = errors.Join(err, fmt.Errorf("recovery: %w", e))
	} else {
		beats = all
	}
	switch {
	case !need.Probes:
		r.probes, r.answered = observe.Probes{}, nil
	case o.SignsProblem != "":
		o.WitnessProblem = "the probes' heartbeats: " + o.SignsProblem
	default:
		if e := r.witnesses(ctx, &o, beats, now); e != nil {
			o.WitnessProblem = "the probes' entries: " + e.Error()
			err = errors.Join(err, errors.New("recovery: "+o.WitnessProblem))
		}
	}
	return o, err
}

func byDate(nodes []recover.Node, date time.Time) {
	for i := range nodes {
		if n := &nodes[i]; n.Ready == recover.ReadyUnknown {
			n.Silent = max(0, date.Sub(n.Since))
			n.Gone = n.Silent
		} else if n.Ready == recover.ReadyFalse {
			n.Speaks = max(0, date.Sub(n.Since))
		}
	}
}

// witnesses are what the probes say. That a ConfigMap, or an entry, is not there says
// nothing while anything else speaks of probes: only a cluster that never had one is
// measured by nobody.
func (r *Recovery) witnesses(ctx context.Context, o *recover.Observation, all []observe.Heartbeat, now time.Time) error {
	cm, err := r.cluster.ConfigMap(ctx, fleet.ConfigMapProbe)
	if err != nil {
		return err
	}
	beats := map[string]observe.Heartbeat{}
	for _, b := range all {
		if b.Probe {
			beats[b.Node] = b
		}
	}
	r.probed = r.probed || len(cm.Data) > 0 || len(beats) > 0
	o.Probed = r.probed
	names := make([]string, len(o.Nodes))
	for i := range o.Nodes {
		names[i] = o.Nodes[i].Name
	}
	for _, s := range r.probes.See(names, cm.Data, recover.Look, beats, now) {
		wrote(o, &s)
		w := recover.Witness{Node: s.Node, Changed: s.Wrote, Written: s.WroteAge}
		switch {
		case s.Problem != nil:
			w.Problem = s.Problem.Sentence
		case s.Window == nil:
			continue // a heartbeat alone says nothing of others
		default:
			w.Live, w.Period = s.Seen && s.Age <= recover.Silence(s.Window.Period), s.Window.Period
			w.Ways = r.remember(s.Node, recover.Ways(s.Window))
		}
		o.Witnesses = append(o.Witnesses, w)
	}
	return nil
}

// wrote takes an entry that was seen to change for a sign of its host's own probe.
func wrote(o *recover.Observation, s *observe.SeenProbe) {
	i := slices.IndexFunc(o.Nodes, func(n recover.Node) bool { return n.Name == s.Node && n.Ready == recover.ReadyUnknown })
	if i < 0 || !s.Wrote {
		return
	}
	n := &o.Nodes[i]
	k := slices.IndexFunc(n.Signs, func(x recover.Sign) bool { return x.Of == recover.SignProbe })
	if k < 0 {
		n.Signs = append(n.Signs, recover.Sign{Of: recover.SignProbe, Still: s.WroteAge, Moved: true})
	} else if n.Signs[k].Still >= s.WroteAge {
		n.Signs[k].Still, n.Signs[k].Moved = s.WroteAge, true
	}
}

// remember keeps on which ways a host has answered: a window forgets it while the host
// is still silent.
func (r *Recovery) remember(from string, ways []recover.Way) []recover.Way {
	for i := range ways {
		w := way{from, ways[i].To}
		ways[i].Answered = ways[i].Answered || r.answered[w]
		if ways[i].Answered {
			if r.answered == nil {
				r.answered = map[way]bool{}
			}
			r.answered[w] = true
		}
	}
	return ways
}

// Run passes until ctx ends. after is called with every turn that was not cut short,
// and may be nil.
func (r *Recovery) Run(ctx context.Context, after func(Turn)) {
	tick := time.NewTicker(r.s.Poll)
	defer tick.Stop()
	for {
		if t := r.Pass(ctx); after != nil && ctx.Err() == nil {
			after(t)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
