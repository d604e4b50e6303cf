package hostd

import (
	"context"
	"reflect"
	"time"
)

// How old the facts may be that a k3s process is started, stopped or restarted on,
// by the monotonic clock. A daemon may be stopped between any two of its
// instructions, for minutes, and goes on as if nothing had been: meanwhile another
// voter has fallen, or the swap has ended.
//
// Each bound is above what a look can take whose requests all need the whole of
// their time, so that no slow API keeps a host from its step: FactsFor above Node
// and Lease (kube.RequestTimeout each), the own etcd (CallTimeout and ReadTimeout)
// and the others (CallTimeout), 18 s; OthersFor above the others alone, 2 s. What
// remains is the effect's own time.
const (
	FactsFor  = 20 * time.Second
	OthersFor = 5 * time.Second
)

// ready says whether an effect may be carried out now, and gives the context to do
// it in; end is nil when it may not, and then wake says when to decide anew. An
// effect on k3s is decided a second time on a new look: between the first and the
// effect lie the list of Nodes, the preflight, the report and the heartbeat, each
// of seconds (safety rules 2 and 18). The context ends when the new facts are too
// old, for a host that needs long itself, or stands still after the last question.
func (d *Daemon) ready(ctx context.Context, f Facts, e Effect) (_ context.Context, end context.CancelFunc, wake Wake, err error) {
	if !e.moves() {
		return ctx, func() {}, Wake{}, nil
	}
	again, err := d.look(ctx)
	if err != nil {
		return ctx, nil, Wake{After: Swapping}, err
	}
	again.Nodes, again.Answer, again.Preflight, again.Standbys = f.Nodes, f.Answer, f.Preflight, f.Standbys
	again.FalteringSince = f.FalteringSince
	d.count(ctx, &again)
	if !reflect.DeepEqual(Next(again).Effect, e) {
		return ctx, nil, Wake{After: Quick}, nil // the next pass says why
	}
	left := again.left(d.s.Now())
	if left <= 0 {
		return ctx, nil, Wake{Again: true}, nil
	}
	ctx, end = context.WithTimeout(ctx, left)
	return ctx, end, Wake{}, nil
}

// left is for how long an effect on k3s may still rest on these facts.
func (f Facts) left(now time.Time) time.Duration {
	left := FactsFor - now.Sub(f.Now)
	if !f.OthersAt.IsZero() {
		left = min(left, OthersFor-now.Sub(f.OthersAt))
	}
	return left
}
