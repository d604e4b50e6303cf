package host

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// watchPeriod is how often the watcher looks.
const watchPeriod = 100 * time.Millisecond

// Overlap is a moment at which two k3s processes ran on one host.
type Overlap struct {
	Host      string
	At        time.Time
	Processes []Process
}

func (o Overlap) String() string {
	var each []string
	for _, p := range o.Processes {
		each = append(each, fmt.Sprintf("%d %s", p.PID, strings.Join(p.Args, " ")))
	}
	return fmt.Sprintf("%s %s: %s", o.At.Format(time.TimeOnly), o.Host, strings.Join(each, " and "))
}

// RoleChange is a moment at which the k3s role that runs on a host was seen to have changed.
type RoleChange struct {
	Host string
	At   time.Time
	// Role is server, agent or empty for none.
	Role string
}

// Watch looks at the processes of all hosts ten times a second.
type Watch struct {
	lab  *Lab
	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu       sync.Mutex
	overlaps []Overlap
	changes  []RoleChange
	samples  int
}

// Watch starts a watcher that ends with Stop or with the lab.
func (l *Lab) Watch() *Watch {
	w := &Watch{lab: l, stop: make(chan struct{}), done: make(chan struct{})}
	go w.loop()
	l.Defer(w.Stop)
	return w
}

// Stop ends the watcher; what it saw stays readable.
func (w *Watch) Stop() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
}

// Overlaps are the moments at which two k3s processes ran on one host, one entry for each pair seen.
func (w *Watch) Overlaps() []Overlap {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.overlaps)
}

// Changes are the changes of role seen, in order.
func (w *Watch) Changes() []RoleChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes)
}

// Samples is how often the watcher has looked; a proof of no overlap is worth as much as this number.
func (w *Watch) Samples() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.samples
}

func (w *Watch) loop() {
	defer close(w.done)
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	roles := map[string]string{}
	seen := map[string]bool{}
	for {
		w.sample(roles, seen)
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
	}
}

// sample reads the process table once for all hosts.
func (w *Watch) sample(roles map[string]string, seen map[string]bool) {
	hosts := w.lab.Hosts()
	own := map[string]*Host{}
	for _, h := range hosts {
		if pid := h.initPID(); pid != 0 {
			if space := pidSpace(pid); space != "" {
				own[space] = h
			}
		}
	}
	spaces := newSpaces(own)
	byHost := map[*Host][]Process{}
	_, err := processesWhere(func(pid int) bool {
		h := spaces.owner(pid)
		if h == nil {
			return false
		}
		if p, ok := readProcess(pid); ok && p.K3sRole() != "" {
			byHost[h] = append(byHost[h], p)
		}
		return false
	})
	if err != nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples++
	for _, h := range hosts {
		running := mainK3s(byHost[h])
		role := ""
		if len(running) > 0 {
			role = running[0].K3sRole()
		}
		if roles[h.name] != role {
			roles[h.name] = role
			w.changes = append(w.changes, RoleChange{Host: h.name, At: now, Role: role})
		}
		if len(running) < 2 {
			continue
		}
		key := h.name
		for _, p := range running {
			key += fmt.Sprintf(" %d/%s", p.PID, p.Started)
		}
		if !seen[key] {
			seen[key] = true
			w.overlaps = append(w.overlaps, Overlap{Host: h.name, At: now, Processes: running})
		}
	}
}
