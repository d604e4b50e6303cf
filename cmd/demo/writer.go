package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/etcd/embedded"
)

// writer writes one number after another through the servers that stay, and
// remembers which writes were acknowledged. A write that has no answer within
// patience is sent again, which does no harm since it is the same write: a
// leader that is handing over drops what others pass on to it, and etcd answers
// that only after seven seconds.
type writer struct {
	client *embedded.Client

	mu       sync.Mutex
	acked    []int
	failures []string
	took     []time.Duration
	again    int // writes sent more than once
	last     time.Time
	gap      time.Duration
}

func newWriter(addresses []string) (*writer, error) {
	c, err := embedded.Dial(addresses...)
	if err != nil {
		return nil, err
	}
	return &writer{client: c}, nil
}

func (w *writer) run(ctx context.Context, every time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		w.note(n, began, w.write(context.WithoutCancel(ctx), n))
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// patience is how long one attempt waits, giveUp when a write has failed.
const (
	patience = 700 * time.Millisecond
	giveUp   = 5 * time.Second
)

func (w *writer) write(ctx context.Context, n int) error {
	for began, tries := time.Now(), 1; ; tries++ {
		c, cancel := context.WithTimeout(ctx, patience)
		err := w.client.Write(c, n)
		cancel()
		if err == nil || time.Since(began) > giveUp {
			if tries > 1 {
				w.mu.Lock()
				w.again++
				w.mu.Unlock()
			}
			return err
		}
	}
}

func (w *writer) note(n int, began time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failures = append(w.failures, err.Error())
		return
	}
	now := time.Now()
	if !w.last.IsZero() {
		w.gap = max(w.gap, now.Sub(w.last))
	}
	w.last = now
	w.acked = append(w.acked, n)
	w.took = append(w.took, now.Sub(began))
}

// recent is the median time of the last writes, and how many there were in all.
func (w *writer) recent() (writes int, median time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.took) == 0 {
		return 0, 0
	}
	s := slices.Sorted(slices.Values(w.took[max(0, len(w.took)-40):]))
	return len(w.acked), s[len(s)/2]
}

// verify reads every acknowledged write back from one server.
func (w *writer) verify(ctx context.Context, address string) (lost []int, err error) {
	c, err := embedded.Dial(address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	there, err := c.Written(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.acked {
		if !there[n] {
			lost = append(lost, n)
		}
	}
	return lost, nil
}
