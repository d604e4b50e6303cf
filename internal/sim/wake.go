package sim

import "context"

// waker is somebody who watches the API: one value ahead, never more.
type waker struct {
	wants func(Event) bool
	c     chan struct{}
}

func (w *World) listen(wants func(Event) bool) *waker {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &waker{wants: wants, c: make(chan struct{}, 1)}
	w.wakers = append(w.wakers, k)
	return k
}

func (w *World) wake(e Event) {
	for _, k := range w.wakers {
		if !k.wants(e) {
			continue
		}
		select {
		case k.c <- struct{}{}:
		default:
		}
	}
}

// Wake is the controller's watch: something that it did not do itself changed.
func (c *Cluster) Wake(context.Context) <-chan struct{} {
	return c.w.listen(func(e Event) bool { return e.By != c.from && e.Node != "" }).c
}
