package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Cluster is all that a controller needs of the API server.
type Cluster interface {
	observe.Cluster
	execute.Cluster
}

// Rules are the decisions, all of them pure.
type Rules struct {
	// Next is swap.Next, MayRemove is swap.MayRemove.
	Next      func(swap.Observation, swap.Policy) swap.Decision
	MayRemove func(swap.Observation, swap.Policy, string) []status.Reason
	// Judge is the verdicts on all hosts and the swap they ask for. It sees the
	// observation before pods are read. A nil func never asks.
	Judge func(o swap.Observation, probes []fitness.Host, p swap.Policy) decide.Judgement
	// Window is how many samples of a probe Judge looks at; zero is all.
	Window int
}

// Settings of one controller.
type Settings struct {
	// Self is this controller's own id: its pod's UID (safety rule 21).
	Self   string
	Policy swap.Policy
	// LeaseDuration is what a taken Lease lasts unless renewed; zero is
	// DefaultLeaseDuration.
	LeaseDuration time.Duration
	// ActuatorConfigMap holds the reports; empty means fleet.ConfigMapActuators.
	ActuatorConfigMap string
	// Protected says whether a pod's labels match the runner selector; nil
	// protects every pod.
	Protected func(labels map[string]string) bool
	// Teller writes Kubernetes events; nil for none.
	Teller Teller
	// Now is the controller's clock with its monotonic part; time.Now when nil.
	Now func() time.Time
	// Log is nil for no log.
	Log *slog.Logger
}

// DefaultLeaseDuration is three operation timeouts (design §3).
const DefaultLeaseDuration = 900 * time.Second

// Controller keeps what it saw in earlier passes to judge what is fresh.
// Everything else is in the cluster. Not safe for concurrent use.
type Controller struct {
	cluster   Cluster
	rules     Rules
	settings  Settings
	observer  *observe.Observer
	executor  *execute.Executor
	log       *slog.Logger
	published published
	// unjudged are the keys of the probes' ConfigMap that were named last.
	unjudged []string
	said     said
	muted    bool // the last event could not be written
}

// New makes a controller that has seen nothing yet.
func New(cluster Cluster, rules Rules, s Settings) *Controller {
	if s.LeaseDuration <= 0 {
		s.LeaseDuration = DefaultLeaseDuration
	}
	if s.ActuatorConfigMap == "" {
		s.ActuatorConfigMap = fleet.ConfigMapActuators
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	c := &Controller{cluster: cluster, rules: rules, settings: s, log: s.Log.With(obs.Controller, s.Self)}
	c.observer = observe.New(cluster, observe.Settings{
		Self: s.Self, Policy: s.Policy, ActuatorConfigMap: s.ActuatorConfigMap,
		Protected: s.Protected, Judge: rules.Judge, Window: rules.Window,
	})
	c.executor = execute.New(cluster, execute.Settings{
		Self: s.Self, Policy: s.Policy, LeaseDuration: s.LeaseDuration,
		Protected: s.Protected, StillRight: c.stillRight,
	})
	return c
}

// Turn is what one pass did.
type Turn struct {
	Observation swap.Observation
	Decision    swap.Decision
	// Status is what the pass published, or would have; nil when nothing was decided.
	Status *status.Status
	// Took is how long the pass took, by the controller's clock.
	Took time.Duration
	// Acted: the decision's action was carried out. Err says why it, or the
	// observation before it, was not.
	Acted bool
	Err   error
	// PublishErr says why the status was not written. The swap goes on without it.
	PublishErr error
}

// Busy says whether a swap is under way or about to be, so that the next pass
// shall follow soon.
func (t Turn) Busy() bool {
	l := t.Observation.Lease
	return t.Decision.Swap != nil || t.Decision.Acts() || (l.SwapID() != "" && l.At(t.Observation.Now) != lease.Expired)
}

// Pass is one turn: observe, decide, renew, act, publish. It does not sleep.
// Nothing is decided on an observation that lacks the Nodes, the Lease or the
// API server's Date. No error ends a controller: it is in the Turn, and the next
// pass starts from what it then sees.
func (c *Controller) Pass(ctx context.Context) Turn {
	began := c.settings.Now()
	t := c.pass(ctx)
	t.Took = c.settings.Now().Sub(began)
	return t
}

func (c *Controller) pass(ctx context.Context) Turn {
	sight, err := c.observer.Observe(ctx, c.settings.Now())
	t := Turn{Observation: sight.Observation}
	if err != nil {
		t.Err = err
		c.say(t)
		return t
	}
	t.Decision = c.rules.Next(sight.Observation, c.settings.Policy)
	st := Compose(sight.Status, &sight.Observation, t.Decision, c.settings.Policy)
	judged(&st, &sight)
	Fit(&st)
	t.Acted, t.Err = c.act(ctx, t.Decision, &sight.Observation, &st)
	t.Status = &st
	t.PublishErr = c.publishAfter(ctx, &sight, t, st)
	if t.PublishErr == nil {
		c.tell(ctx, &sight.Observation, sight.Status, &st)
	}
	c.say(t)
	if sight.Judgement != nil {
		c.sayUnjudged(sight.Unjudged)
	}
	return t
}

// Look observes and does nothing else, so that a later Pass knows what changes.
func (c *Controller) Look(ctx context.Context) (observe.Sight, error) {
	return c.observer.Observe(ctx, c.settings.Now())
}

// act renews the Lease and carries out the action. An action is not begun when
// the renewal fails: the Lease may be another's by now.
func (c *Controller) act(ctx context.Context, d swap.Decision, o *swap.Observation, st *status.Status) (bool, error) {
	if d.Renew {
		if err := c.executor.Renew(ctx, o.Lease.SwapID(), o.Now); err != nil {
			return false, err
		}
		// The executor judges the Lease that it reads again by the same Date.
		o.Lease.RenewTime = o.Now
	}
	if !d.Acts() {
		return false, nil
	}
	eff, err := c.executor.Do(ctx, d.Action, o)
	if err != nil {
		return false, err
	}
	if eff.Status != nil {
		carry(st, eff.Status)
		st.Swap = nil
	}
	return true, nil
}

// stillRight observes once more and judges the removal by what it then sees.
func (c *Controller) stillRight(ctx context.Context, node string) error {
	again, err := c.observer.Observe(ctx, c.settings.Now())
	if err != nil {
		return err
	}
	reasons := c.rules.MayRemove(again.Observation, c.settings.Policy, node)
	if len(reasons) == 0 {
		return nil
	}
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = r.Sentence
	}
	return errors.New(strings.Join(words, "; "))
}
