package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/swap"
)

// snapshotTakes is how long an etcd snapshot of a small datastore takes.
const snapshotTakes = 2 * time.Second

// beginSnapshot is k3s etcd-snapshot save (k3s-facts §8).
func (w *World) beginSnapshot(h *Host, base string) {
	h.snapshot = snapshotRun{base: base, running: true, ends: w.now.Add(snapshotTakes)}
}

func (w *World) tickSnapshot(h *Host) {
	s := &h.snapshot
	if !s.running || w.now.Before(s.ends) {
		return
	}
	s.running = false
	if !h.Units[fleet.RoleServer].Process || !w.etcd.Local(h.Name).View.Linearizable {
		s.err = "etcd datastore disabled, or a learner"
		return
	}
	file := fmt.Sprintf("%s-%s-%d", s.base, h.Name, w.now.Unix())
	h.Data.Snapshots = append(h.Data.Snapshots, file)
	w.api.Snapshots = append(w.api.Snapshots, swap.Snapshot{Name: file, Node: h.Name, Ready: true})
	if n := w.api.node(h.Name); n != nil {
		n.Annotations[fleet.AnnotationLocalSnapshots] = w.now.Format(time.RFC3339)
		w.api.touch(n)
	}
	w.k3sDid("etcd snapshot "+strings.ToLower(file)+" published", h.Name)
}
