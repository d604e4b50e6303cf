package sim

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/exadev/regrade/internal/lease"
)

// ErrTimeout is a write that was not answered in time: it may have been made.
var ErrTimeout = errors.New("context deadline exceeded")

// failing is a client whose writes time out until then.
type failing struct {
	until time.Time
	made  func() bool // whether the write was made all the same
}

// FailWrites lets the API writes of a client (a host's name; empty is the
// controller) time out for d. Half of them are made all the same.
func (w *World) FailWrites(from string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing[from] = failing{until: w.now.Add(d), made: func() bool { return w.rng.IntN(2) == 0 }}
	w.record(Effect{By: "fault", What: "API writes time out for " + d.String(), Node: from})
}

// apiWrite is one effect on the API.
func (w *World) apiWrite(e Effect, do func()) error {
	f, fails := w.failing[e.By]
	if !fails || !w.now.Before(f.until) {
		return w.effect(e, func() error { do(); return nil })
	}
	if f.made() {
		if err := w.effect(e, func() error { do(); return nil }); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", e.What, ErrTimeout)
}

// date is the API servers' clock.
func (w *World) date() time.Time { return w.now.Add(w.dateOff) }

// dateOf is the clock of the API server that answers a client: the first that serves
// and is reached.
func (w *World) dateOf(from string, avoid bool) time.Time {
	for _, s := range w.hosts {
		if w.servesAPI(s) && w.reaches(from, s.Name) && (s.Name != from || !avoid) {
			return w.date().Add(w.clocks[s.Name])
		}
	}
	return w.date()
}

// SetClock puts the clock of a host's API server off by so much.
func (w *World) SetClock(name string, off time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clocks[name] == off {
		return
	}
	w.clocks[name] = off
	w.record(Effect{By: "fault", What: "the clock of its API server is off by " + off.String(), Node: name})
}

// JumpDate sets the API servers' clock forward, or back.
func (w *World) JumpDate(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dateOff += by
	w.record(Effect{By: "fault", What: "the API servers' clock jumps by " + by.String()})
}

// HoldWatch keeps from a host's daemon what is new on the Nodes of others.
func (w *World) HoldWatch(name string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.host(name).watchUntil = w.now.Add(d)
	w.record(Effect{By: "fault", What: "watch of the Nodes late by " + d.String(), Node: name})
}

// FalterFor lets the servers to join answer a host, and not say who the members are,
// for d.
func (w *World) FalterFor(name string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.host(name).faltersUntil = w.now.Add(d)
	w.record(Effect{By: "fault", What: "servers to join falter for " + d.String(), Node: name})
}

// Documents are copies of the objects that a person may put back later.
type Documents struct {
	lease lease.Lease
	maps  map[string]map[string]string
}

// Copy takes a copy of the Lease and the ConfigMaps.
func (w *World) Copy() Documents {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := Documents{lease: w.api.Lease, maps: map[string]map[string]string{}}
	d.lease.Annotations = maps.Clone(d.lease.Annotations)
	for name, cm := range w.api.ConfigMaps {
		d.maps[name] = maps.Clone(cm.Data)
	}
	return d
}

// PutBackLease puts an older Lease in the place of the present one.
func (a *API) PutBackLease(d Documents) {
	a.Lease, a.leaseAt = d.lease, a.next()
	a.Lease.Annotations = maps.Clone(d.lease.Annotations)
}

// PutBackConfigMap puts an older ConfigMap in the place of the present one.
func (a *API) PutBackConfigMap(d Documents, name string) {
	if data, ok := d.maps[name]; ok {
		a.ConfigMaps[name] = &ConfigMap{version: a.next(), Data: maps.Clone(data)}
	}
}

// Put writes one key of a ConfigMap.
func (a *API) Put(name, key, value string) { a.setKeys(name, map[string]*string{key: &value}) }
