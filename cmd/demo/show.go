package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/swap"
)

// slowEach is the delay of the slow link in each direction.
const slowEach = 80 * time.Millisecond

// show is the whole story. Whatever happens, no process outlives it.
func show(parent context.Context, o options, command []string, dir string, out io.Writer) error {
	t := o.timing()
	ctx, cancel := context.WithTimeout(parent, t.limit)
	defer cancel()
	say := newNarrator(out)

	var hosts []string
	for i := range o.voters() {
		hosts = append(hosts, fmt.Sprintf("v%d", i+1))
	}
	for i := range o.hosts - o.voters() {
		hosts = append(hosts, fmt.Sprintf("s%d", i+1))
	}
	d, err := newDatastore(command, dir, t, hosts)
	if err != nil {
		return err
	}
	defer d.close()
	c, err := newCluster(ctx, o, t, d, say)
	if err != nil {
		return err
	}
	defer c.running.Wait()
	defer cancel()
	return c.story(o, t)
}

func (c *cluster) story(o options, t timing) error {
	before := c.world.Voters()
	out, in := "v1", "s1"
	c.say.line("fleet", "%d voters %s and %d standbys; etcd %s, one process a member; k3s promotes on a %s tick",
		o.voters(), voters(before), o.hosts-o.voters(), c.etcd.Local(out).View.Version, t.promotion)
	if err := c.etcd.MoveLeader(before[out]); err != nil {
		return err
	}
	c.say.line("fleet", "%s leads etcd, cluster id %s", out, c.etcd.ClusterID())

	var stay []string
	for _, n := range slices.Sorted(maps.Keys(before)) {
		if n != out {
			stay = append(stay, c.etcd.nodes[n].client)
		}
	}
	w, err := newWriter(stay)
	if err != nil {
		return err
	}
	defer w.client.Close()
	wctx, stopWriter := context.WithCancel(c.ctx)
	var writing = make(chan struct{})
	go func() { defer close(writing); w.run(wctx, 20*time.Millisecond) }()
	defer func() { stopWriter(); <-writing }()

	c.world.Guard()
	c.start(t)
	c.say.line("writer", "writes to etcd through the voters that stay, one after another")
	if err := c.until(30*time.Second, "every host reports and every window is full", func() bool { return c.quiet() && c.measured() }); err != nil {
		return err
	}
	if err := c.rest(t.quiet); err != nil {
		return err
	}
	_, healthy := w.recent()
	for _, v := range c.judge.now().Verdicts {
		took, _ := c.judge.probes.way(v.Node)
		c.say.line("verdict", "%s is %s: its port is reached in %s", v.Node, v.Fitness, short(took))
		for _, r := range v.Reasons {
			c.say.line("verdict", "  %s", r.Sentence)
		}
	}

	var slow time.Duration
	if o.fault != faultNone {
		c.pods(out, in, 2*time.Second)
		c.say.line("FAULT", "the link of %s turns slow: %s more each way", out, slowEach)
		c.etcd.nodes[out].link.slow(slowEach)
		slow, err = c.swap(o, t, w, out)
		if err != nil {
			return err
		}
	}
	if err := c.rest(t.quiet); err != nil {
		return err
	}
	_, last := w.recent()
	stopWriter()
	<-writing
	return c.sum(o, w, before, [3]time.Duration{healthy, slow, last})
}

// swap waits for the fleet to notice and for the swap to end.
func (c *cluster) swap(o options, t timing, w *writer, out string) (slow time.Duration, err error) {
	if err := c.until(60*time.Second, "the fleet decides on a swap", func() bool { return c.state().Decision.Swap != nil }); err != nil {
		return 0, err
	}
	// The slow voter leads until it steps down.
	if err := c.until(90*time.Second, "the newcomer votes and serves", func() bool {
		_, took := w.recent()
		slow = max(slow, took)
		s := c.state().Decision.State
		return s == swap.StepDown || s == swap.End || s == swap.Idle
	}); err != nil {
		return slow, err
	}
	if o.fault == faultCrash {
		c.crash(out)
		if err := c.until(90*time.Second, "the removal is proven", func() bool {
			s := c.state().Decision.State
			return s == swap.Finish || s == swap.End || s == swap.Idle
		}); err != nil {
			return slow, err
		}
		c.boot(out)
	}
	return slow, c.until(t.limit, "the swap ends and leaves nothing behind", func() bool {
		return c.lastSwap() != nil && c.quiet() && len(c.world.Clean()) == 0
	})
}

// quiet says whether the controller has nothing to do.
func (c *cluster) quiet() bool {
	turn := c.state()
	fresh := len(turn.Observation.Hosts) > 0
	for _, h := range turn.Observation.Hosts {
		fresh = fresh && h.Fresh
	}
	return fresh && turn.Err == nil && turn.Decision.State == swap.Idle && !turn.Decision.Acts()
}

// measured says whether every window is full and every host was judged.
func (c *cluster) measured() bool {
	return c.judge.probes.full() && len(c.judge.now().Verdicts) == len(c.world.Names())
}

func (c *cluster) rest(d time.Duration) error {
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// sum prints the summary and gives what was wrong as one error.
func (c *cluster) sum(o options, w *writer, before map[string]fleet.MemberID, took [3]time.Duration) error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	after := c.world.Voters()

	c.say.heading("Summary")
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(c.say.out, "  "+format+"\n", args...) }
	last := c.lastSwap()
	if o.fault != faultNone && last == nil {
		// On a busy machine one read finds no API server that answers in time.
		_ = c.until(10*time.Second, "the outcome", func() bool { last = c.lastSwap(); return last != nil })
	}
	switch {
	case o.fault == faultNone && last != nil:
		bad("nothing was wrong and %s was swapped for %s", last.Out, last.In)
	case o.fault == faultNone:
		p("swap:           none, every voter was fit")
	case last == nil || last.Outcome != fleet.OutcomeCompleted:
		bad("the swap did not complete: %+v", last)
	default:
		p("swap:           %s out, %s in, %s after %s", last.Out, last.In, last.Outcome, last.EndedAt.Sub(last.ID.Started()).Round(time.Second))
		for _, s := range last.Steps {
			p("                %-10s +%s", s.Step, s.At.Sub(last.ID.Started()).Round(time.Second))
		}
	}
	p("members before: %s", members(before))
	p("members after:  %s", members(after))
	p("cluster id:     %s before and after", c.etcd.ClusterID())

	w.mu.Lock()
	acked, failed, again, gap := len(w.acked), slices.Clone(w.failures), w.again, w.gap
	w.mu.Unlock()
	var read []string
	lost := 0
	for _, n := range slices.Sorted(maps.Keys(after)) {
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
		missing, err := w.verify(ctx, c.etcd.nodes[n].client)
		cancel()
		if err != nil {
			bad("the writes could not be read back: %w", err)
			continue
		}
		read, lost = append(read, n), max(lost, len(missing))
	}
	p("writes:         %d acknowledged, %d failed, %d sent twice, longest gap %s, lost %d (read back from %s)",
		acked, len(failed), again, short(gap), lost, strings.Join(read, ", "))
	if o.fault != faultNone {
		p("a write took:   %s before, %s with the slow voter leading, %s after (median)", short(took[0]), short(took[1]), short(took[2]))
	}
	if lost > 0 {
		bad("%d acknowledged writes are lost", lost)
	}
	if len(failed) > 0 {
		bad("%d writes failed, the first: %s", len(failed), failed[0])
	}
	if acked == 0 {
		bad("nothing was written")
	}
	for _, v := range c.world.Violations() {
		bad("safety rule broken: %s", v)
	}
	for _, s := range c.world.Clean() {
		bad("left behind: %s", s)
	}
	return errors.Join(wrong...)
}

func voters(v map[string]fleet.MemberID) string {
	return strings.Join(slices.Sorted(maps.Keys(v)), " ")
}

func members(v map[string]fleet.MemberID) string {
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(v)) {
		parts = append(parts, fmt.Sprintf("%s (%s)", n, v[n]))
	}
	return strings.Join(parts, "  ")
}
