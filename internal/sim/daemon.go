package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
)

// HostAPI is the cluster's API as a host daemon reaches it.
type HostAPI struct {
	m     Machine
	avoid bool
	nodes []hostapi.Node
	watch *waker
}

// HostAPI returns the API port of a host's daemon.
func (w *World) HostAPI(name string) *HostAPI {
	return &HostAPI{
		m: Machine{w: w, name: name},
		// Orders come from the controller; what k3s does to the own host matters too.
		watch: w.listen(func(e Event) bool { return e.Node != "" && (e.By == controllerName || e.By == "k3s" && e.Node == name) }),
	}
}

// server is the API server that answers the daemon, nil when none does.
func (a *HostAPI) server(h *Host) *Host {
	w := a.m.w
	for _, s := range w.hosts {
		if w.servesAPI(s) && w.reaches(h.Name, s.Name) && (s != h || !a.avoid) {
			return s
		}
	}
	return nil
}

func (a *HostAPI) ask(ctx context.Context, what string, f func(h, server *Host) error) error {
	return a.m.on(ctx, what, func(h *Host) error {
		s := a.server(h)
		if s == nil {
			return fmt.Errorf("%s: %w", what, ErrUnreachable)
		}
		return f(h, s)
	})
}

// Read implements hostd.API.
func (a *HostAPI) Read(ctx context.Context) (v hostapi.View, err error) {
	err = a.ask(ctx, "read node and lease", func(h, s *Host) error {
		v = hostapi.View{Date: a.m.w.dateOf(h.Name, a.avoid), Server: a.m.w.joinURL(s), Lease: a.m.w.api.Lease}
		if n := a.m.w.api.node(h.Name); n != nil {
			own := n.read().Node
			v.Self = &own
		}
		return nil
	})
	return v, err
}

// Nodes implements hostd.API: what the watch last showed, where there is one.
func (a *HostAPI) Nodes(ctx context.Context) ([]hostapi.Node, error) {
	err := a.ask(ctx, "list nodes", func(h, _ *Host) error {
		if a.m.w.now.Before(h.watchUntil) {
			return ErrUnreachable // the watch is late; what it last showed is all there is
		}
		a.nodes = nil
		for _, name := range a.m.w.api.names() {
			n := a.m.w.api.node(name).read()
			a.nodes = append(a.nodes, hostapi.Node{Name: n.Name, Node: n.Node})
		}
		return nil
	})
	if a.nodes != nil && !errors.Is(err, ErrKilled) {
		return slices.Clone(a.nodes), nil
	}
	return nil, err
}

// WriteReport implements hostd.API.
func (a *HostAPI) WriteReport(ctx context.Context, r status.Report) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return a.ask(ctx, "write report", func(h, _ *Host) error {
		text := string(raw)
		what := "report"
		if r.Step != "" {
			what = fmt.Sprintf("report: %s %s %s", r.Step, r.Phase, r.Code)
		}
		return a.m.w.apiWrite(Effect{By: h.Name, What: what, Node: h.Name}, func() {
			a.m.w.api.setKeys(fleet.ConfigMapActuators, map[string]*string{h.Name: &text})
		})
	})
}

// WriteHeartbeat implements hostd.API.
func (a *HostAPI) WriteHeartbeat(ctx context.Context, b hostapi.Beat) error {
	return a.ask(ctx, "renew heartbeat", func(h, _ *Host) error {
		a.m.w.changes++
		a.m.w.api.Heartbeats[h.Name] = observe.Heartbeat{
			Node: h.Name, BootID: b.BootID, Counter: strconv.FormatUint(b.Counter, 10), Renewed: b.At,
		}
		return nil
	})
}

// Changed implements hostd.API.
func (a *HostAPI) Changed() <-chan struct{} { return a.watch.c }

// Avoid implements hostd.API.
func (a *HostAPI) Avoid(own bool) { a.avoid = own }

// HostEtcd is etcd as a host daemon reaches it.
type HostEtcd struct{ m Machine }

// HostEtcd returns the etcd port of a host's daemon.
func (w *World) HostEtcd(name string) *HostEtcd { return &HostEtcd{Machine{w: w, name: name}} }

// Local implements hostd.Etcd.
func (e *HostEtcd) Local(ctx context.Context) hostapi.Member {
	var l hostapi.Member
	if err := e.m.on(ctx, "ask the own etcd", func(h *Host) error {
		l = e.m.w.etcd.Local(h.Name)
		return nil
	}); err != nil {
		l.View.Error = err.Error()
	}
	return l
}

// Ask implements hostd.Etcd.
func (e *HostEtcd) Ask(ctx context.Context, urls []string) (answer hostapi.Answer, err error) {
	err = e.m.on(ctx, "ask the voters", func(h *Host) error {
		for _, u := range urls {
			s := e.m.w.joinHost(u)
			if s == nil || !e.m.w.reaches(h.Name, s.Name) {
				continue
			}
			if l := e.m.w.etcd.Local(s.Name); l.View.Linearizable {
				answer = hostapi.Answer{URL: u, ClusterID: l.View.ClusterID, Leader: l.View.Leader, Members: l.View.Members}
				return nil
			}
		}
		return fmt.Errorf("ask the voters: none of %d answers", len(urls))
	})
	return answer, err
}

// Answering implements hostd.Etcd.
func (e *HostEtcd) Answering(ctx context.Context, cluster, leader fleet.MemberID, members []status.Member) (ids []fleet.MemberID) {
	_ = e.m.on(ctx, "ask each voter", func(h *Host) error {
		for _, name := range e.m.w.Names() {
			l := e.m.w.etcd.Local(name)
			wanted := slices.ContainsFunc(members, func(m status.Member) bool { return m.ID == l.ID })
			if wanted && e.m.w.reaches(h.Name, name) && l.Answers && leader != 0 && l.View.Leader == leader && l.View.ClusterID == cluster {
				ids = append(ids, l.ID)
			}
		}
		return nil
	})
	return ids
}

// MoveLeader implements hostd.Etcd.
func (e *HostEtcd) MoveLeader(ctx context.Context, to fleet.MemberID) error {
	return e.m.on(ctx, "move leader", func(h *Host) error {
		l := e.m.w.etcd.Local(h.Name)
		if !l.Answers || l.View.Leader != l.ID {
			return errors.New("move leader: the own etcd does not lead")
		}
		what := "leadership handed to " + to.String()
		return e.m.w.effect(Effect{By: h.Name, What: what, Node: h.Name}, func() error {
			return e.m.w.etcd.MoveLeader(to)
		})
	})
}

// Ways are the network checks of a host daemon.
type Ways struct{ m Machine }

// Ways returns the port of a host's daemon to its network.
func (w *World) Ways(name string) *Ways { return &Ways{Machine{w: w, name: name}} }

// Preflight implements hostd.Ways: what of safety rule 17 a host in memory can
// lack.
func (y *Ways) Preflight(ctx context.Context, in hostapi.PreflightInput) status.Preflight {
	var p status.Preflight
	lack := func(code, format string, args ...any) {
		p.Problems = append(p.Problems, status.Problem{Code: code, Sentence: fmt.Sprintf(format, args...)})
	}
	if err := y.m.on(ctx, "preflight", func(h *Host) error {
		w := y.m.w
		if !h.Staged {
			lack("NotStaged", "%s has no server configuration", h.Name)
		}
		if !h.Token {
			lack("NoToken", "the server configuration of %s has no token", h.Name)
		}
		if h.Data.WAL || h.Data.Tombstone {
			lack("StrayDatastore", "%s still has a datastore", h.Name)
		}
		if w.now.Before(h.faltersUntil) {
			lack(status.CodeJoinHostFalters, "the servers to join cannot say who the members are")
		}
		members, err := w.etcd.Members()
		if err != nil {
			lack("NoQuorum", "etcd has no quorum")
		}
		for _, m := range members {
			if node, ok := fleet.MemberNodeName(m.Name); ok && node == h.Name {
				lack("DuplicateMember", "etcd already lists member %s", m.Name)
			}
			if s := w.memberHost(m); s != nil && s != h && !m.Learner && !w.reaches(h.Name, s.Name) {
				lack("VoterOutOfReach", "%s does not reach %s", h.Name, s.Name)
			}
		}
		return nil
	}); err != nil {
		lack("Unknown", "%v", err)
	}
	p.OK = len(p.Problems) == 0
	return p
}

// Dial implements hostd.Ways.
func (y *Ways) Dial(ctx context.Context, standbys []hostapi.Standby) []status.Dial {
	var out []status.Dial
	_ = y.m.on(ctx, "dial", func(h *Host) error {
		for _, s := range standbys {
			t := y.m.w.host(s.Node)
			ok := t != nil && !h.PeerBlocked && !t.PeerBlocked && y.m.w.reaches(h.Name, s.Node) && (t.PeerPort || t.Units[fleet.RoleServer].Process)
			d := status.Dial{Node: s.Node, OK: ok}
			if !ok {
				d.Error = "connection refused"
			}
			out = append(out, d)
		}
		return nil
	})
	return out
}

// HostLock is the lock of a host.
type HostLock struct{ m Machine }

// HostLock returns the host lock as one process sees it.
func (w *World) HostLock(name string) *HostLock { return &HostLock{Machine{w: w, name: name}} }

// TryLock implements hostd.Lock.
func (l *HostLock) TryLock() (ok bool, err error) {
	err = l.m.on(context.Background(), "lock", func(h *Host) error {
		if ok = h.locks == 0; ok {
			h.locks++
		}
		return nil
	})
	return ok, err
}

// Unlock implements hostd.Lock.
func (l *HostLock) Unlock() error {
	l.m.w.mu.Lock()
	defer l.m.w.mu.Unlock()
	l.m.w.host(l.m.name).locks = 0
	return nil
}
