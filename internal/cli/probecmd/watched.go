package probecmd

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/probe"
	"github.com/exadev/regrade/internal/web"
)

// requestsOfAPass is how many requests a pass makes at most, each with its own
// bound: two lists of Nodes, the entry read and written, the heartbeat made and
// written.
const requestsOfAPass = 6

// long is how long a process that measures may be without a pass: three periods,
// and what a pass takes when nothing answers.
func long(period time.Duration) time.Duration {
	return 3*period + requestsOfAPass*kube.RequestTimeout + probe.Bound(period)
}

// listen takes the address of the metrics; nil where there is none.
//
// An address in use ends the probe, as it ends the controller, though it is one of
// the host's own and a stranger may hold it. The kubelet asks there whether the
// probe lives: the stranger's answers would end it again and again, and its
// readings would be scraped as the probe's. So it ends at once and says why. A host
// that nobody measures is unknown, and an unknown host is never swapped.
func (c *command) listen() (net.Listener, error) {
	if c.metrics == "" {
		return nil, nil
	}
	return web.Listen(c.metrics)
}

// watched runs a probe that shows what it does at l, and ends when that cannot be
// served.
func (c *command) watched(ctx context.Context, p *probe.Probe, cluster probe.Cluster, l net.Listener) error {
	var requests func() int64
	if r, ok := cluster.(interface{ Requests() int64 }); ok {
		requests = r.Requests
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shown := web.NewProbe(c.d.Version, c.node, long(c.period), requests, time.Now)
	served := make(chan error, 1)
	go func() {
		served <- web.Serve(ctx, l, shown.Pages())
		cancel()
	}()
	p.Run(ctx, func(t probe.Turn) { shown.Passed(web.ProbePass(t)) })
	cancel()
	if err := <-served; err != nil {
		return env.Failed(fmt.Errorf("probe: %w", err))
	}
	return nil
}
