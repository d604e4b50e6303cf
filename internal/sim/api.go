package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// API is what the API servers hold. Every object carries the resource version
// of its last change; a write names the one it was made for.
type API struct {
	version    int
	Nodes      map[string]*Node
	Lease      lease.Lease
	leaseAt    int
	ConfigMaps map[string]*ConfigMap
	Heartbeats map[string]observe.Heartbeat
	// Kubelets are the renew times of the kubelets' Leases, by node.
	Kubelets  map[string]time.Time
	Pods      []*Pod
	Snapshots []swap.Snapshot
}

// Node is a Node object.
type Node struct {
	swap.Node
	Name       string
	version    int
	ReadySince time.Time
}

// ConfigMap is a named ConfigMap.
type ConfigMap struct {
	version int
	Data    map[string]string
}

// Pod is one pod bound to a node.
type Pod struct {
	observe.Pod
	Node string
	// Blocked are the words of a disruption budget that refuses its eviction.
	Blocked string
	// Ends is when a job is over by itself, zero for never.
	Ends time.Time

	evicted time.Time
	bound   time.Time // zero: it was there from the beginning
}

func newAPI() *API {
	return &API{
		Nodes:      map[string]*Node{},
		ConfigMaps: map[string]*ConfigMap{},
		Heartbeats: map[string]observe.Heartbeat{},
		Kubelets:   map[string]time.Time{},
	}
}

func (a *API) next() int { a.version++; return a.version }

func version(v int) string {
	if v == 0 {
		return ""
	}
	return strconv.Itoa(v)
}

// node returns the live object, nil when there is none.
func (a *API) node(name string) *Node { return a.Nodes[name] }

// touch records a change of a Node.
func (a *API) touch(n *Node) { n.version = a.next() }

// names are the Nodes' names, sorted.
func (a *API) names() []string { return slices.Sorted(maps.Keys(a.Nodes)) }

// read is a copy that shares nothing with the live object.
func (n *Node) read() observe.Node {
	c := observe.Node{Name: n.Name, Version: version(n.version), Node: n.Node}
	c.Labels = maps.Clone(n.Labels)
	c.Annotations = maps.Clone(n.Annotations)
	c.Taints = slices.Clone(n.Taints)
	return c
}

func (a *API) configMap(name string) observe.ConfigMap {
	c := a.ConfigMaps[name]
	if c == nil {
		return observe.ConfigMap{}
	}
	return observe.ConfigMap{Exists: true, Version: version(c.version), Data: maps.Clone(c.Data)}
}

// setKeys writes keys of a ConfigMap, which is made when absent; nil deletes.
func (a *API) setKeys(name string, keys map[string]*string) {
	c := a.ConfigMaps[name]
	if c == nil {
		c = &ConfigMap{Data: map[string]string{}}
		a.ConfigMaps[name] = c
	}
	apply(c.Data, keys)
	c.version = a.next()
}

func apply(to map[string]string, keys map[string]*string) {
	for k, v := range keys {
		if v == nil {
			delete(to, k)
		} else {
			to[k] = *v
		}
	}
}

// request fails when no API server answers the client at from (a host's name;
// empty is the controller), or when a fault has killed the client.
func (w *World) request(from, what string) error {
	w.follow()
	if w.cut {
		return fmt.Errorf("%s: %w", what, ErrKilled)
	}
	if !w.apiAnswers(from) {
		return fmt.Errorf("%s: %w", what, ErrUnreachable)
	}
	return nil
}

// apiAnswers says whether an API server can be reached from a host, or from
// the controller (empty), which runs where the network is.
func (w *World) apiAnswers(from string) bool {
	for _, h := range w.hosts {
		if w.servesAPI(h) && w.reaches(from, h.Name) {
			return true
		}
	}
	return false
}

// AddPod binds a pod to its node.
func (w *World) AddPod(p Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.api.Pods = append(w.api.Pods, &p)
}

// Edit gives f the API's objects to change as a person with kubectl would.
func (w *World) Edit(what string, f func(*API)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.api)
	for _, n := range w.api.Nodes {
		w.api.touch(n)
	}
	w.record(Effect{By: "fault", What: what})
}

// DeleteLease deletes the regrade Lease.
func (a *API) DeleteLease() { a.Lease, a.leaseAt = lease.Lease{}, 0 }

// DeleteConfigMap deletes a ConfigMap.
func (a *API) DeleteConfigMap(name string) { delete(a.ConfigMaps, name) }

// TakeLease makes the Lease another's, whoever had it.
func (a *API) TakeLease(holder string, now time.Time, d time.Duration) {
	a.Lease = lease.Lease{Exists: true, Holder: holder, AcquireTime: now, RenewTime: now, Duration: d}
	a.leaseAt = a.next()
}

// GiveLeaseBack ends a holder's Lease, unless it has passed on.
func (a *API) GiveLeaseBack(holder string) {
	if a.Lease.Holder == holder {
		a.Lease.Holder, a.leaseAt = "", a.next()
	}
}
