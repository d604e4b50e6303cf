package hostd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// LevelSettings switch the level half on.
type LevelSettings struct {
	Policy level.Policy
	// Target is how many voters there shall be (safety rule 26).
	Target int
	API    LevelAPI
	// Memory reads the host's memory now.
	Memory func() level.Reading
	// Protected says by its labels whether a pod is one that no planned change cuts.
	Protected func(map[string]string) bool
}

// LevelAPI is the cluster by the credential of the level half, through an API server of
// another host: this host's own may be the next to stop (R-112-17).
type LevelAPI interface {
	Date() time.Time
	Node(ctx context.Context, name string) (observe.Node, bool, error)
	Nodes(ctx context.Context) ([]observe.Node, error)
	Lease(ctx context.Context) (observe.Lease, error)
	ConfigMap(ctx context.Context, name string) (observe.ConfigMap, error)
	Pods(ctx context.Context, node string) ([]observe.Pod, error)
	TryEvict(ctx context.Context, pod observe.Pod) (refusal string, err error)
	Evict(ctx context.Context, pod observe.Pod) (refusal string, err error)
	PatchNode(ctx context.Context, name, version string, p execute.NodePatch) error
	PutLease(ctx context.Context, version string, l lease.Lease) error
}

// Levels is what the level half knows; Facts have none where it is off.
type Levels struct {
	Policy level.Policy `json:"policy"`
	Target int          `json:"target"`

	Journal        LevelJournal `json:"journal,omitzero"`
	JournalProblem string       `json:"journal_problem,omitempty"`

	Reading level.Reading `json:"reading"`
	Watch   level.Watch   `json:"watch"`
	// SeenEnd is when this process settled the last step, by the clock of Now; zero where
	// another one did.
	SeenEnd time.Time `json:"-"`

	// Survey is the cluster as a step needs it, nil while none is due or SurveyProblem
	// says why it could not be read.
	Survey        *Survey `json:"survey,omitempty"`
	SurveyProblem string  `json:"survey_problem,omitempty"`
}

// Survey is the cluster around this host, read from a quorum in this pass.
type Survey struct {
	Date   time.Time      `json:"date"`
	Lease  lease.Lease    `json:"lease"`
	Nodes  []observe.Node `json:"nodes"`
	Paused string         `json:"paused,omitempty"`
	// Pods of this node that are not finished; PodsProblem says why there are none.
	Pods        []swap.Pod `json:"pods,omitempty"`
	PodsProblem string     `json:"pods_problem,omitempty"`
	// Disagree says of another voter by its member id why its list is not this host's.
	Disagree map[fleet.MemberID]string `json:"disagree,omitempty"`
}

// sense reads the memory and goes on with the series, once a pass.
func (d *Daemon) sense() {
	s := d.s.Levels
	if s == nil {
		return
	}
	d.reading = s.Memory()
	d.watch = d.watch.See(d.s.Now(), d.reading, s.Policy)
}

// levels are the facts of the level half, without the cluster's.
func (d *Daemon) levels(f *Facts) *Levels {
	s := d.s.Levels
	if s == nil {
		return nil
	}
	l := &Levels{Policy: s.Policy, Target: s.Target, Reading: d.reading, Watch: d.watch}
	var err error
	if l.Journal, err = ParseLevelJournal(f.Host.LevelJournal); err != nil {
		l.JournalProblem = err.Error()
	}
	// A step by hand is settled by another process: its end is known by its date alone.
	if l.Journal.Ended.Equal(d.settled.ended) {
		l.SeenEnd = d.settled.at
	}
	return l
}

// survey reads the cluster when a step between levels is due, or under way.
func (d *Daemon) survey(ctx context.Context, f *Facts) {
	if !f.surveyDue() {
		return
	}
	s, err := d.surveyed(ctx, f)
	if err != nil {
		f.Levels.SurveyProblem = err.Error()
		return
	}
	f.Levels.Survey = s
}

func (d *Daemon) surveyed(ctx context.Context, f *Facts) (*Survey, error) {
	api := d.s.Levels.API
	var s Survey
	var err error
	if s.Nodes, err = api.Nodes(ctx); err != nil {
		return nil, err
	}
	cm, err := api.ConfigMap(ctx, fleet.ConfigMapStatus)
	if err != nil {
		return nil, err
	}
	if raw, ok := cm.Data[fleet.KeyPause]; ok {
		// One that cannot be read is a pause all the same.
		if p, err := status.ParsePause([]byte(raw)); err != nil {
			s.Paused = err.Error()
		} else {
			s.Paused = p.Words()
		}
	}
	l, err := api.Lease(ctx)
	if err != nil {
		return nil, err
	}
	s.Lease, s.Date = l.Lease, api.Date()
	d.readPods(ctx, f, &s)
	if f.Etcd.Voter() {
		s.Disagree = map[fleet.MemberID]string{}
		for _, m := range f.otherVoters() {
			if why := d.disagrees(ctx, f, m); why != "" {
				s.Disagree[m.ID] = why
			}
		}
	}
	return &s, nil
}

// disagrees says why another voter's own linearizable list is not this host's.
func (d *Daemon) disagrees(ctx context.Context, f *Facts, m status.Member) string {
	a, err := d.s.Etcd.Ask(ctx, m.ClientURLs)
	switch {
	case err != nil:
		return err.Error()
	case a.ClusterID != f.Etcd.View.ClusterID:
		return fmt.Sprintf("it is of cluster %s", a.ClusterID)
	case !slices.EqualFunc(ids(a.Members), ids(f.Etcd.View.Members), func(x, y idAndVote) bool { return x == y }):
		return fmt.Sprintf("it has %d members, or others", len(a.Members))
	}
	return ""
}

type idAndVote struct {
	id      fleet.MemberID
	learner bool
}

func ids(ms []status.Member) []idAndVote {
	out := make([]idAndVote, 0, len(ms))
	for _, m := range ms {
		out = append(out, idAndVote{m.ID, m.Learner})
	}
	slices.SortFunc(out, func(a, b idAndVote) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return 0
	})
	return out
}

// readPods reads the pods of this node where a step asks for them, and tries each
// eviction as a dry run while a drain is under way (safety rule 20).
func (d *Daemon) readPods(ctx context.Context, f *Facts, s *Survey) {
	to, _ := f.levelTarget()
	drains := to == fleet.LevelControlPlane && f.Host.Level == fleet.LevelFull || f.Levels.Journal.Running() && f.Levels.Journal.Down()
	if to != fleet.LevelEtcdOnly && !drains && (f.Command == nil || !f.Command.LookAtLevels) {
		return
	}
	pods, err := d.s.Levels.API.Pods(ctx, f.Node)
	if err != nil {
		s.PodsProblem = err.Error()
		return
	}
	for _, p := range pods {
		if p.Finished {
			continue
		}
		q := observe.Judge(p, d.s.Levels.Protected)
		if !q.Protected && !q.Stays && !q.Terminating && q.Owned && drains {
			if q.Blocked, err = d.s.Levels.API.TryEvict(ctx, p); err != nil {
				s.PodsProblem = err.Error()
				return
			}
		}
		s.Pods = append(s.Pods, q)
	}
}

// regradeEffect carries out an effect of the level half on the API. Each reads its
// object again and tests its resourceVersion (safety rule 21).
func (d *Daemon) regradeEffect(ctx context.Context, e Effect) error {
	api, k := d.s.Levels.API, d.s.Policy.Keys
	switch e.Kind {
	case TakeLease:
		l, err := api.Lease(ctx)
		if err != nil {
			return err
		}
		date := api.Date()
		if l.At(date) == lease.Held {
			return fmt.Errorf("%w: the Lease %s is held by %q", execute.ErrConflict, fleet.LeaseName, l.Holder)
		}
		return api.PutLease(ctx, l.Version, lease.Lease{
			Exists: true, Holder: d.s.Node, AcquireTime: e.At, RenewTime: date, Duration: 3 * d.s.Policy.OperationTimeout, Annotations: notOurs(l.Annotations),
		})
	case ReleaseLease:
		l, err := api.Lease(ctx)
		if err != nil {
			return err
		}
		if l.Holder != d.s.Node {
			return nil // R-X-07: whoever else has it keeps it
		}
		return api.PutLease(ctx, l.Version, lease.Lease{Exists: true, Annotations: notOurs(l.Annotations)})
	case MarkNode:
		n, ok, err := api.Node(ctx, d.s.Node)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: there is no Node %s", execute.ErrConflict, d.s.Node)
		}
		for key := range n.Annotations {
			if key == k.Swap() || k.ForeignSwapKey(key) {
				return fmt.Errorf("%w: the Node takes part in a swap", execute.ErrConflict)
			}
		}
		return api.PatchNode(ctx, d.s.Node, n.Version, markPatch(n.Node, e.Level, k, api.Date()))
	case EvictPods:
		return d.evict(ctx)
	}
	return fmt.Errorf("effect %q is unknown", e.Kind)
}

// notOurs are a Lease's annotations without those of a swap.
func notOurs(have map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range have {
		switch k {
		case fleet.LeaseSwapID, fleet.LeaseSwapNodes, fleet.LeaseController, fleet.LeaseRecord, fleet.LeaseOutcome:
		default:
			out[k] = v
		}
	}
	return out
}

// markPatch makes a Node say that its host is at a level: the label, and the cordon. A
// cordon that was there before is somebody else's and stays (safety rule 27).
func markPatch(n swap.Node, to fleet.Level, k fleet.Keys, date time.Time) execute.NodePatch {
	p := execute.NodePatch{Labels: map[string]*string{}, Annotations: map[string]*string{}}
	if to == fleet.LevelFull {
		p.Labels[k.Level()] = nil
		if _, ours := n.Annotations[k.LevelCordoned()]; ours {
			p.Annotations[k.LevelCordoned()] = nil
			p.Unschedulable = new(false)
		}
		return p
	}
	p.Labels[k.Level()] = new(string(to))
	if !n.Unschedulable {
		p.Annotations[k.LevelCordoned()] = new(date.UTC().Format(time.RFC3339))
		p.Unschedulable = new(true)
	}
	return p
}

// marked says whether a Node says that its host is at a level.
func marked(n *swap.Node, at fleet.Level, k fleet.Keys) bool {
	if n == nil {
		return false
	}
	_, ours := n.Annotations[k.LevelCordoned()]
	if at == fleet.LevelFull {
		_, labelled := n.Labels[k.Level()]
		return !labelled && !ours
	}
	return n.Labels[k.Level()] == string(at) && n.Unschedulable
}

// evict evicts what may go, by what the API says now: a job never, nothing without an
// owner, and nothing while the Node can be scheduled on.
func (d *Daemon) evict(ctx context.Context) error {
	api := d.s.Levels.API
	n, ok, err := api.Node(ctx, d.s.Node)
	switch {
	case err != nil:
		return err
	case !ok || !n.Unschedulable:
		return fmt.Errorf("%w: the Node %s is not cordoned", execute.ErrConflict, d.s.Node)
	}
	pods, err := api.Pods(ctx, d.s.Node)
	if err != nil {
		return err
	}
	for _, p := range pods {
		q := observe.Judge(p, d.s.Levels.Protected)
		if p.Finished || q.Protected || q.Stays || q.Terminating || !q.Owned {
			continue
		}
		if _, err := api.Evict(ctx, p); err != nil {
			return fmt.Errorf("evict %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	return nil
}
