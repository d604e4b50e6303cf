package hostd

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/status"
)

// observe reads everything. Only a host that cannot be read is an error; an
// API server or an etcd that does not answer is a fact.
func (d *Daemon) observe(ctx context.Context) (Facts, error) {
	d.sense()
	f, err := d.look(ctx)
	if err != nil {
		return Facts{}, err
	}
	if d.due(&d.nodesAt, f.Now, Swapping) {
		if nodes, err := d.s.API.Nodes(ctx); err == nil {
			d.nodes = nodes
		}
	}
	f.Nodes = d.nodes
	d.ask(ctx, &f)
	d.count(ctx, &f)
	d.judge(ctx, &f)
	d.dial(ctx, &f)
	return f, nil
}

// look reads what an effect on k3s rests on, what grows old the fastest last: the
// host, the order and its Lease, the own etcd, and whether the others are a quorum
// without it. FactsFor is reckoned with the bounds of these requests and of no
// other: what may take longer, or is done every so often, is observe's.
func (d *Daemon) look(ctx context.Context) (Facts, error) {
	host, err := d.s.Host.Observe(ctx)
	if err != nil {
		return Facts{}, fmt.Errorf("observe host %s: %w", d.s.Node, err)
	}
	f := Facts{Now: d.s.Now(), Node: d.s.Node, Host: host, Policy: d.s.Policy, Command: d.s.Command, HandedOver: d.handedOver}
	if f.Journal, err = ParseJournal(host.Journal); err != nil {
		f.JournalProblem = err.Error()
	}
	// A leaving or etcd-only server's own API server answers nothing useful.
	d.s.API.Avoid(host.Files.Leaving != "" || host.Level == fleet.LevelEtcdOnly)
	if v, err := d.s.API.Read(ctx); err != nil {
		f.ViewProblem = err.Error()
		if d.aloneSince.IsZero() {
			d.aloneSince = f.Now
		}
	} else {
		f.View, d.aloneSince = &v, time.Time{}
	}
	f.AloneSince = d.aloneSince
	if host.Server.Process {
		f.Etcd = d.s.Etcd.Local(ctx)
	}
	if f.Etcd.Answers && !f.leads() {
		d.handOverAt = time.Time{}
	}
	f.HandOverAt = d.handOverAt
	f.Levels = d.levels(&f)
	d.survey(ctx, &f) // before the others are asked, whose answers grow old the fastest
	d.count(ctx, &f)
	return f, nil
}

// count asks the other voters, once for these facts, when the own server is to be
// stopped, or leadership handed over, and who they are is known.
func (d *Daemon) count(ctx context.Context, f *Facts) {
	if !f.OthersAt.IsZero() || !f.stopDue() && !f.handOverDue() && !f.levelMoves() {
		return
	}
	l := f.list()
	f.OthersAt = d.s.Now()
	f.Others = d.s.Etcd.Answering(ctx, l.ClusterID, l.Leader, f.otherVoters())
}

// due says whether something that is done every so often is due, and marks it done.
func (d *Daemon) due(at *time.Time, now time.Time, every time.Duration) bool {
	if !at.IsZero() && now.Sub(*at) < every {
		return false
	}
	*at = now
	return true
}

// ask reads another voter's list while this host has reason to doubt that it
// still is a member (safety rule 12): it has been one, and its own etcd does
// not answer as one.
func (d *Daemon) ask(ctx context.Context, f *Facts) {
	files := f.Host.Files
	// What was a member, or may be taken for one in the lists.
	member := files.WAL || files.Leaving != "" || files.Role == fleet.RoleServer && files.Identity.MemberID != 0 ||
		f.Journal.Step == fleet.StepRollback && f.Journal.Phase == fleet.PhaseRunning
	learns := f.Etcd.Learner && !f.blind()
	if !member || f.Etcd.Answers && (learns || f.Etcd.View.Linearizable) || files.Tombstone {
		return
	}
	if !d.due(&d.askedAt, f.Now, Swapping) && !f.blind() {
		return
	}
	if a, err := d.s.Etcd.Ask(ctx, askURLs(*f)); err == nil {
		f.Answer = &a
	}
}

// askURLs are the client URLs of the voters last known, and of every other host
// that has a join URL: servers all listen on 2379 of the same address.
func askURLs(f Facts) []string {
	urls := slices.Clone(f.Host.Files.Identity.Voters)
	for _, node := range slices.Sorted(maps.Keys(f.Policy.JoinURLs)) {
		if node == f.Node {
			continue
		}
		if u, err := url.Parse(f.Policy.JoinURLs[node]); err == nil && u.Hostname() != "" {
			if c := "https://" + net.JoinHostPort(u.Hostname(), "2379"); !slices.Contains(urls, c) {
				urls = append(urls, c)
			}
		}
	}
	return urls
}

// judge keeps the preflight of a standby fresh, and judges it anew before a
// promotion begins.
func (d *Daemon) judge(ctx context.Context, f *Facts) {
	h := f.Host
	if h.Files.WAL || h.Server.Process || h.Files.Role == fleet.RoleServer || h.Files.JoiningNow() {
		d.preflight, d.judgedAt, d.faltering = nil, time.Time{}, time.Time{}
		return
	}
	o := f.order()
	now := o.step == fleet.StepPromote && !f.Journal.Is(o.swap, o.step)
	every := f.Policy.Period
	if d.preflight != nil && d.preflight.OK {
		// Each judgement knocks at every voter's doors: not at each look.
		every *= 4
	}
	if !now && !d.due(&d.judgedAt, f.Now, every) {
		f.Preflight, f.FalteringSince = d.preflight, d.faltering
		return
	}
	d.judgedAt = f.Now
	p := d.s.Ways.Preflight(ctx, hostapi.PreflightInput{
		Node: f.Node, Nodes: f.Nodes, Out: o.out(), JoinURLs: f.Policy.JoinURLs, Join: o.join,
	})
	p.Problems = append(append(append(p.Problems, conditionProblems(*f)...), joinProblems(*f)...), noteProblems(*f)...)
	p.OK = len(p.Problems) == 0
	d.preflight, f.Preflight = &p, &p
	switch {
	case !p.Falters():
		d.faltering = time.Time{}
	case d.faltering.IsZero():
		d.faltering = f.Now
	}
	f.FalteringSince = d.faltering
}

// dial proves the way to each standby's peer port, which its daemon holds
// (safety rule 17). A standby that was not reached is tried again soon.
func (d *Daemon) dial(ctx context.Context, f *Facts) {
	if !f.Etcd.Voter() || f.Host.Files.Leaving != "" {
		d.dials = nil
		return
	}
	every := f.Policy.Period
	if slices.ContainsFunc(d.dials, func(x status.Dial) bool { return !x.OK }) {
		every = min(every, Swapping)
	}
	standbys := standbysOf(*f)
	if d.due(&d.dialledAt, f.Now, every) || len(standbys) != len(d.dials) {
		d.dials = d.s.Ways.Dial(ctx, standbys)
	}
	f.Standbys = d.dials
}

// standbysOf are the eligible hosts that are no servers.
func standbysOf(f Facts) []hostapi.Standby {
	var out []hostapi.Standby
	for _, n := range f.Nodes {
		if n.Name == f.Node || n.Labels[f.Policy.Keys.Eligible()] != fleet.True || n.Labels[fleet.LabelEtcd] != "" {
			continue
		}
		host := n.InternalIP
		if u, err := url.Parse(f.Policy.JoinURLs[n.Name]); err == nil && u.Hostname() != "" {
			host = u.Hostname()
		}
		if host != "" {
			out = append(out, hostapi.Standby{Node: n.Name, Address: net.JoinHostPort(host, "2380")})
		}
	}
	return out
}
