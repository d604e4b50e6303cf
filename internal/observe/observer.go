package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Settings of an Observer.
type Settings struct {
	// Self is the controller's own id.
	Self   string
	Policy swap.Policy
	// ActuatorConfigMap is empty for fleet.ConfigMapActuators.
	ActuatorConfigMap string
	// Protected says whether a pod's labels match the runner selector. Nil
	// protects every pod: a forgotten setting must not cut a job.
	Protected func(labels map[string]string) bool
	// Judge is asked once Nodes, reports, status and the probes' entries are read,
	// in a pass without a swap. Nil judges nothing, and the entries are not read.
	Judge func(o swap.Observation, probes []fitness.Host, p swap.Policy) decide.Judgement
	// Window is how many samples of an entry are judged; those before are not kept.
	// Zero keeps them all.
	Window int
}

// Observer makes observations one after another and keeps what it saw before,
// because only a change that it saw itself is fresh. Not safe for concurrent use.
type Observer struct {
	cluster  Cluster
	settings Settings
	reports  map[string]*seenReport
	beats    map[string]*seenBeat
	kubelets map[string]*seenKubelet
	lease    seenLease
	evicts   map[string]triedEvict
	probes   Probes
}

// New makes an Observer that has seen nothing yet: to it, nothing is fresh
// before the second observation.
func New(cluster Cluster, s Settings) *Observer {
	if s.ActuatorConfigMap == "" {
		s.ActuatorConfigMap = fleet.ConfigMapActuators
	}
	if s.Protected == nil {
		s.Protected = func(map[string]string) bool { return true }
	}
	return &Observer{
		cluster: cluster, settings: s,
		reports: map[string]*seenReport{}, beats: map[string]*seenBeat{}, kubelets: map[string]*seenKubelet{},
		evicts: map[string]triedEvict{},
	}
}

// Sight is an Observation and what a publisher needs besides.
type Sight struct {
	swap.Observation
	// StatusRaw is status.json as it stands; StatusRead tells an empty one from
	// one that could not be read.
	StatusRaw  string
	StatusRead bool
	// StatusVersion is the resourceVersion of the ConfigMap it stood in, empty for none.
	StatusVersion string
	// ActuatorsMissing: the ConfigMap of the reports does not exist. ProbesMissing
	// is the same of the probes' entries.
	ActuatorsMissing, ProbesMissing bool
	// Judgement is nil where nothing was judged: in a swap, or because the entries
	// could not be read.
	Judgement *decide.Judgement
	// ProbeProblem says why the probes' entries could not be read.
	ProbeProblem string
	// Unjudged are the keys of the probes' ConfigMap, sorted, whose entries are not
	// even decoded: of hosts that neither vote nor are eligible, and of no Node at all.
	Unjudged []string
}

// Observe makes one observation at now, which must carry a monotonic reading.
// The pods of the nodes in also are read beside those of a swap or a request.
//
// The error is set when nothing can be decided at all: the Nodes, the Lease or
// the API server's Date are not known. Anything else that could not be read is
// in Missing.
func (b *Observer) Observe(ctx context.Context, now time.Time, also ...string) (Sight, error) {
	s := Sight{Observation: swap.Observation{Self: b.settings.Self}}
	nodes, err := b.cluster.Nodes(ctx)
	if err != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the nodes: %v", err))
		return s, fmt.Errorf("observe nodes: %w", err)
	}
	read, err := b.cluster.Lease(ctx)
	if err != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the Lease: %v", err))
		return s, fmt.Errorf("observe Lease: %w", err)
	}
	s.Lease, s.LeaseUnchanged = read.Lease, b.lease.see(read.Lease, now)

	slices.SortFunc(nodes, func(a, c Node) int { return strings.Compare(a.Name, c.Name) })
	for _, n := range nodes {
		s.Hosts = append(s.Hosts, swap.Host{Name: n.Name, Node: n.Node})
	}
	beats := b.readHeartbeats(ctx, &s)
	b.readReports(ctx, &s, beats, now)
	b.readStatus(ctx, &s)

	s.Now = b.cluster.Date()
	if s.Now.IsZero() {
		s.Missing = append(s.Missing, "the API server's Date")
		return s, fmt.Errorf("observe: the API server's answers carry no Date")
	}
	if b.settings.Judge != nil && !underWay(&s.Observation, b.settings.Policy.Keys) {
		b.judge(ctx, &s, beats, now)
	}
	inSwap, pending := b.concerned(&s, also)
	b.readPods(ctx, &s, inSwap, now)
	b.readKubelets(ctx, &s, append(pending, inSwap...))
	if underWay(&s.Observation, b.settings.Policy.Keys) {
		b.readSnapshots(ctx, &s)
	}
	s.Now = b.cluster.Date()
	return s, nil
}

// heartbeats are all that were read, by node; nil maps when they could not be.
type heartbeats struct{ hosts, probes map[string]Heartbeat }

func (b *Observer) readHeartbeats(ctx context.Context, s *Sight) heartbeats {
	beats, err := b.cluster.Heartbeats(ctx)
	if err != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the hosts' heartbeats: %v", err))
		return heartbeats{}
	}
	h := heartbeats{hosts: map[string]Heartbeat{}, probes: map[string]Heartbeat{}}
	for _, beat := range beats {
		if beat.Probe {
			h.probes[beat.Node] = beat
		} else {
			h.hosts[beat.Node] = beat
		}
	}
	return h
}

func (b *Observer) readReports(ctx context.Context, s *Sight, beats heartbeats, now time.Time) {
	cm, err := b.cluster.ConfigMap(ctx, b.settings.ActuatorConfigMap)
	if err != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the hosts' reports: %v", err))
		return
	}
	s.ActuatorsMissing = !cm.Exists
	for i := range s.Hosts {
		h := &s.Hosts[i]
		beat, has := beats.hosts[h.Name]
		h.Speaks = b.speaks(h.Name, beat, has, beats.hosts != nil, now)
		raw, ok := cm.Data[h.Name]
		if !ok {
			delete(b.reports, h.Name)
			continue
		}
		r, err := status.ParseReport([]byte(raw))
		if err == nil && has {
			err = contradicted(&r, beat)
		}
		if err != nil {
			h.ReportProblem = err.Error()
		} else {
			h.Report = &r
		}
		seen := b.reports[h.Name]
		if seen == nil {
			seen = &seenReport{since: now}
			b.reports[h.Name] = seen
		}
		if beats.hosts != nil {
			seen.see(raw, h.Report, beat, has, now)
		} else {
			seen.seeReport(raw, h.Report, now)
		}
		h.ReportAge = now.Sub(seen.since)
		h.ReadWithin, h.StoppedAge = seen.readWithin(now), seen.stoppedAge(h.Report, now)
		h.Fresh = h.Report != nil && seen.changed && h.ReportAge <= 3*b.settings.Policy.Period
	}
	for name := range b.reports {
		if s.Host(name) == nil {
			delete(b.reports, name)
		}
	}
	for name := range b.beats {
		if s.Host(name) == nil {
			delete(b.beats, name)
		}
	}
}

// speaks is swap.Host.Speaks. Heartbeats that could not be read say nothing new.
func (b *Observer) speaks(name string, beat Heartbeat, has, read bool, now time.Time) bool {
	seen := b.beats[name]
	switch {
	case read && !has:
		delete(b.beats, name)
		return false
	case read && (seen == nil || seen.beat != beat):
		seen = &seenBeat{beat: beat, moved: now}
		b.beats[name] = seen
	}
	return seen != nil && now.Sub(seen.moved) <= 3*b.settings.Policy.Period
}

func (b *Observer) readStatus(ctx context.Context, s *Sight) {
	cm, err := b.cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
	if err != nil {
		s.StatusProblem = err.Error()
		s.Missing = append(s.Missing, fmt.Sprintf("the published status: %v", err))
		return
	}
	s.StatusRead, s.StatusVersion = true, cm.Version
	if raw, ok := cm.Data[fleet.KeyStatus]; ok {
		s.StatusRaw = raw
		if st, err := status.ParseStatus([]byte(raw)); err != nil {
			s.StatusProblem = err.Error()
		} else {
			s.Status = &st
		}
	}
	if raw, ok := cm.Data[fleet.KeyPause]; ok {
		if p, err := status.ParsePause([]byte(raw)); err != nil {
			s.PauseProblem = err.Error()
		} else {
			s.Pause = &p
		}
	}
	if raw, ok := cm.Data[fleet.KeyRequest]; ok {
		if r, err := status.ParseRequest([]byte(raw)); err != nil {
			s.RequestProblem = err.Error()
		} else {
			s.Request = &r
		}
	}
}

func (b *Observer) readSnapshots(ctx context.Context, s *Sight) {
	all, err := b.cluster.Snapshots(ctx)
	if err != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the etcd snapshots: %v", err))
		return
	}
	for _, sn := range all {
		if strings.HasPrefix(sn.Name, fleet.SnapshotPrefix) {
			s.Snapshots = append(s.Snapshots, sn)
		}
	}
	slices.SortFunc(s.Snapshots, func(a, c swap.Snapshot) int { return strings.Compare(a.Name, c.Name) })
}
