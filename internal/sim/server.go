package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

// foundServer makes h a voter of the first cluster.
func (w *World) foundServer(h *Host, n *Node) {
	h.Data, h.certs = Data{WAL: true, Name: w.memberName(h.Name)}, true
	h.server = serverRun{level: fleet.LevelFull, name: h.Data.Name, etcd: true, once: true, labelled: true}
	n.Labels[fleet.LabelControlPlane], n.Labels[fleet.LabelEtcd] = fleet.True, fleet.True
	n.Annotations[fleet.AnnotationEtcdName] = h.Data.Name
	n.Annotations[fleet.AnnotationEtcdAddress] = h.IP
	n.EtcdIsVoter = "True"
}

// memberName is a node name, a dash and eight hex digits (k3s-facts §3.4).
func (w *World) memberName(node string) string {
	return fmt.Sprintf("%s-%08x", node, w.rng.Uint32())
}

// servesAPI says whether h runs an API server that answers: a full server (or
// one at control-plane) on a datastore that answers it.
func (w *World) servesAPI(h *Host) bool {
	return h.Up && !h.Paused && h.Units[fleet.RoleServer].Process && h.server.etcd &&
		h.server.level != fleet.LevelEtcdOnly && w.etcd.Local(h.Name).View.Linearizable
}

// beginServer is k3s's start decision (k3s-facts §3.2).
func (w *World) beginServer(h *Host, u *Unit) {
	h.server = serverRun{level: h.Level}
	join := h.serverJoin()
	if !h.Token {
		join = "" // without a token there is nothing to join with (k3s-facts §3.2)
	}
	switch {
	case h.Data.WAL && h.Data.Tombstone && join == "":
		w.k3sDid("tombstone found and no server to join: exit 1", h.Name)
		w.exit(h, u, false)
		return
	case h.Data.WAL && h.Data.Tombstone:
		// The removed member comes back as a new one (safety rule 13).
		w.etcd.Wipe(h.Name)
		h.Data = Data{Backups: h.Data.Backups + 1, Aside: h.Data.Aside, Snapshots: h.Data.Snapshots}
		w.k3sDid("datastore moved away because of a tombstone", h.Name)
	}
	switch {
	case h.Data.WAL:
		h.server.name = h.Data.Name
		w.runEtcd(h, h.Data.Member, false)
	case join != "":
		h.server.join = true
	default:
		h.Data.SQLite = true
		w.k3sDid("started an empty cluster of its own", h.Name)
	}
}

func (w *World) runEtcd(h *Host, id fleet.MemberID, join bool) {
	if err := w.etcd.Start(h.Name, h.Data.Name, id, join); err != nil {
		w.k3sDid("etcd did not start: "+err.Error(), h.Name)
		w.exit(h, h.Units[fleet.RoleServer], false)
		return
	}
	h.server.etcd = true
}

// tickServer moves a server process on: joining, becoming ready, noticing its
// removal.
func (w *World) tickServer(h *Host) {
	s, u := &h.server, h.Units[fleet.RoleServer]
	switch {
	case s.pending != 0:
		// Added in the tick before; from here on a WAL exists.
		h.Data.WAL, h.Data.Member = true, s.pending
		id := s.pending
		s.pending, s.join, h.certs = 0, false, true
		w.runEtcd(h, id, true)
		w.k3sDid("etcd started as a learner", h.Name)
	case s.join:
		w.tryJoin(h, u)
	case s.etcd && w.etcd.Removed(h.Name):
		w.learnRemoval(h, u)
	case s.etcd && !u.Ready:
		if w.etcd.Local(h.Name).View.Linearizable {
			u.Ready, s.once = true, true
			if s.level == fleet.LevelFull {
				h.Shims = 2
			}
			w.k3sDid("k3s server ready", h.Name)
		}
	case !s.lost.IsZero() && s.level != fleet.LevelEtcdOnly && w.now.Sub(s.lost) >= leaseLost:
		// A full server that held some lease exits when it cannot renew it, and
		// systemd restarts it (k3s-facts §5.4). Half of them do.
		s.lost = time.Time{}
		if w.heads() {
			w.k3sDid("k3s server lost a lease: exit 1", h.Name)
			w.exit(h, u, false)
		}
	}
}

// leaseLost is how long a full server lingers at least after its removal.
const leaseLost = 10 * time.Second

// learnRemoval: etcd stops; a process that ran during the removal writes the
// tombstone, one that was started later does not (k3s-facts §5.3). The process
// itself stays.
func (w *World) learnRemoval(h *Host, u *Unit) {
	at, known := w.k3s.removedAt[h.Data.Member]
	w.etcd.Stop(h.Name, false)
	h.server.etcd, h.server.lost, u.Ready = false, w.now, false
	what := "removed from etcd while down: etcd stops, no tombstone"
	if w.cfg.TombstoneWhenDown || (known && u.Started.Before(at)) {
		h.Data.Tombstone = true
		what = "removed from etcd: tombstone written, etcd stops"
	}
	w.k3sDid(what, h.Name)
	// A full server's API server outlives its etcd by up to a second, in which
	// the etcd annotations can come back (k3s-facts §6.2).
	if h.server.level != fleet.LevelEtcdOnly && w.heads() {
		w.writeMetadata(h)
	}
}

// tryJoin is one attempt of k3s-facts §3.3.
func (w *World) tryJoin(h *Host, u *Unit) {
	j := w.joinHost(h.serverJoin())
	if j == nil || j == h || !w.reaches(h.Name, j.Name) || !j.Units[fleet.RoleServer].Process {
		return
	}
	view := w.etcd.Local(j.Name).View
	if !view.Linearizable {
		return
	}
	if h.Data.Name == "" {
		h.Data.Name = w.memberName(h.Name)
	}
	h.server.name = h.Data.Name
	for _, m := range view.Members {
		node, ok := fleet.MemberNodeName(m.Name)
		own := len(m.PeerURLs) > 0 && w.joinHost(m.PeerURLs[0]) == h
		switch {
		case ok && node == h.Name && m.Name != h.Data.Name:
			h.Data.Name = ""
			w.k3sDid("duplicate node name found: exit 0", h.Name)
			w.exit(h, u, false)
			return
		case own && (!m.Started() || m.Name == h.Data.Name):
			h.server.pending = m.ID // a left-over of its own is adopted
			return
		}
	}
	id, err := w.etcd.Add(h.Name)
	switch {
	case err == nil:
		h.server.pending = id
		w.k3sDid("added as a learner", h.Name)
	case errors.Is(err, ErrTooManyLearners), errors.Is(err, ErrUnhealthy), errors.Is(err, ErrNoQuorum):
		// retried for ever
	default:
		w.k3sDid("join failed: "+err.Error()+": exit 0", h.Name)
		w.exit(h, u, false)
	}
}
