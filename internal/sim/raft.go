package sim

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// etcdVersion is what k3s 1.34.4 brings.
const etcdVersion = "3.6.7"

// settled is how long a connection must have stood for etcd's own guards, and
// how long a learner takes to catch up (k3s-facts §5.1, lab-notes).
const settled = 2 * time.Second

// raft is etcd's membership in memory: the committed list, who runs, who
// leads. It replicates nothing; what regrade depends on is who may vote.
type raft struct {
	w       *World
	cluster fleet.MemberID
	members []*member // in the order of their ids, as etcd lists them
	running map[string]fleet.MemberID
	// seen is what each host's member last knew of the list.
	seen    map[string][]status.Member
	leader  fleet.MemberID
	electAt time.Time
	added   int
	index   uint64
}

type member struct {
	status.Member
	host     string
	runSince time.Time
	serves   time.Time // when it answers clients, zero while a learner
	caughtUp bool
	// publishes is the name that a newcomer makes known once it reaches the others.
	publishes string
}

func newRaft(w *World) *raft {
	return &raft{w: w, running: map[string]fleet.MemberID{}, seen: map[string][]status.Member{}}
}

func (r *raft) newID(name string) fleet.MemberID {
	r.added++
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{byte(r.added), byte(r.w.cfg.Seed)})
	return fleet.MemberID(h.Sum64() | 1<<60) // above 2^53, as real ids are
}

func (r *raft) Found(seeds []Seed) ([]fleet.MemberID, error) {
	r.cluster = r.newID("cluster")
	ids := make([]fleet.MemberID, len(seeds))
	for i, s := range seeds {
		ids[i] = r.newID(s.Name)
		m := &member{host: s.Host, runSince: r.w.now, serves: r.w.now, caughtUp: true}
		m.ID, m.Name = ids[i], s.Name
		m.PeerURLs, m.ClientURLs = r.urls(s.Host)
		r.members = append(r.members, m)
		r.running[s.Host] = m.ID
	}
	r.sort()
	r.leader = ids[0]
	r.spread()
	return ids, nil
}

func (r *raft) urls(host string) (peer, client []string) {
	ip := r.w.host(host).IP
	return []string{"https://" + ip + ":2380"}, []string{"https://" + ip + ":2379"}
}

func (r *raft) sort() {
	slices.SortFunc(r.members, func(a, b *member) int { return cmp.Compare(a.ID, b.ID) })
}

func (r *raft) ClusterID() fleet.MemberID { return r.cluster }

func (r *raft) byID(id fleet.MemberID) *member {
	for _, m := range r.members {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// up says whether a member runs and reaches the others.
func (r *raft) up(m *member) bool {
	h := r.w.host(m.host)
	return r.running[m.host] == m.ID && h.Up && !h.Paused && !h.Isolated && !h.PeerBlocked
}

// connected is up for a while, as etcd's guards want it.
func (r *raft) connected(m *member) bool { return r.up(m) && r.w.now.Sub(m.runSince) >= settled }

func (r *raft) voters() (voters, up int) {
	for _, m := range r.members {
		if m.Learner {
			continue
		}
		voters++
		if r.up(m) {
			up++
		}
	}
	return voters, up
}

func (r *raft) quorate() bool {
	voters, up := r.voters()
	l := r.byID(r.leader)
	return voters > 0 && up >= quorum.Need(voters) && l != nil && r.up(l)
}

func (r *raft) Start(host, name string, id fleet.MemberID, join bool) error {
	r.running[host] = id
	m := r.byID(id)
	if m == nil || m.host != host {
		return nil // a member no more: it learns so from its peers
	}
	m.runSince = r.w.now
	if join {
		m.publishes = name
		r.publish(m)
	}
	if !m.Learner {
		m.serves = r.w.now.Add(settled)
	}
	return nil
}

// publish makes the newcomer's name and address known.
func (r *raft) publish(m *member) {
	if m.publishes != "" && r.up(m) && r.quorate() {
		m.Name, m.publishes = m.publishes, ""
		_, m.ClientURLs = r.urls(m.host)
	}
}

func (r *raft) Stop(host string, gracefully bool) {
	id, ok := r.running[host]
	if !ok {
		return
	}
	delete(r.running, host)
	if id != r.leader {
		return
	}
	r.lost()
	if gracefully {
		r.electAt = r.w.now
		r.elect()
	}
}

func (r *raft) Wipe(host string) { delete(r.seen, host) }

func (r *raft) lost() {
	if r.leader != 0 {
		r.leader = 0
		r.electAt = r.w.now.Add(r.w.cfg.Election)
	}
}

// elect makes the first voter that is up the leader, when there is a quorum.
func (r *raft) elect() {
	voters, up := r.voters()
	if r.leader != 0 || r.w.now.Before(r.electAt) || up < quorum.Need(voters) {
		return
	}
	for _, m := range r.members {
		if !m.Learner && r.up(m) {
			r.leader = m.ID
			return
		}
	}
}

// spread shows the committed list to every member that is up.
func (r *raft) spread() {
	if !r.quorate() {
		return
	}
	for _, m := range r.members {
		if r.up(m) {
			r.seen[m.host] = r.list()
		}
	}
}

func (r *raft) list() []status.Member {
	l := make([]status.Member, len(r.members))
	for i, m := range r.members {
		l[i] = m.Member
		l[i].PeerURLs = slices.Clone(m.PeerURLs)
		l[i].ClientURLs = slices.Clone(m.ClientURLs)
	}
	return l
}

func (r *raft) Local(host string) hostapi.Member {
	id, ok := r.running[host]
	h := r.w.host(host)
	if !ok || !h.Up || h.Paused {
		return hostapi.Member{View: status.EtcdView{Error: "connection refused"}}
	}
	l := hostapi.Member{Answers: true, ID: id}
	v := &l.View
	v.ClusterID, v.Version, v.AppliedIndex = r.cluster, etcdVersion, r.index
	m := r.byID(id)
	switch {
	case m != nil && m.Learner:
		l.Learner = true
		v.Error = "etcdserver: rpc not supported for learner"
		if r.up(m) {
			v.Leader = r.leader
		}
	case m == nil || !r.up(m):
		v.Members, v.Error = slices.Clone(r.seen[host]), "context deadline exceeded"
	case !r.quorate():
		v.Members, v.Error = slices.Clone(r.seen[host]), "etcdserver: no leader"
	case r.w.now.Before(m.serves):
		v.Leader, v.Error = r.leader, "etcdserver: not ready"
	default:
		v.Leader, v.Linearizable, v.Members = r.leader, true, r.list()
	}
	return l
}

func (r *raft) Removed(host string) bool {
	id, ok := r.running[host]
	if h := r.w.host(host); !ok || r.byID(id) != nil || !h.Up || h.Paused || h.Isolated || h.PeerBlocked {
		return false
	}
	return slices.ContainsFunc(r.members, r.up)
}

func (r *raft) Members() ([]status.Member, error) {
	if !r.quorate() {
		return r.list(), ErrNoQuorum
	}
	return r.list(), nil
}

func (r *raft) Leader() fleet.MemberID {
	if !r.quorate() {
		return 0
	}
	return r.leader
}

// Add refuses a second learner and, as etcd's guard does, a cluster in which
// no majority would stand with the newcomer counted as down.
func (r *raft) Add(host string) (fleet.MemberID, error) {
	if !r.quorate() {
		return 0, ErrNoQuorum
	}
	connected, voters := 0, 0
	for _, m := range r.members {
		if m.Learner {
			return 0, ErrTooManyLearners
		}
		voters++
		if r.connected(m) {
			connected++
		}
	}
	if connected < quorum.Need(voters+1) {
		return 0, ErrUnhealthy
	}
	m := &member{host: host}
	m.ID = r.newID(host)
	m.Learner = true
	m.PeerURLs, _ = r.urls(host)
	r.members = append(r.members, m)
	r.sort()
	r.spread()
	return m.ID, nil
}

func (r *raft) Promote(id fleet.MemberID) error {
	m := r.byID(id)
	switch {
	case !r.quorate():
		return ErrNoQuorum
	case m == nil || !m.Learner:
		return ErrNoMember
	case !m.caughtUp:
		return ErrNotCaughtUp
	}
	m.Learner = false
	m.serves = r.w.now.Add(r.w.cfg.Serve)
	r.spread()
	return nil
}

// Remove has etcd's guards of k3s-facts §5.1: enough started voters must
// remain, and enough connected ones unless the victim is down itself.
func (r *raft) Remove(id fleet.MemberID) error {
	m := r.byID(id)
	switch {
	case !r.quorate():
		return ErrNoQuorum
	case m == nil:
		return ErrNoMember
	}
	if !m.Learner {
		left, started, connected := 0, 0, 0
		for _, o := range r.members {
			if o.Learner {
				continue
			}
			if r.connected(o) {
				connected++
			}
			if o.ID == id {
				continue
			}
			left++
			if o.Started() {
				started++
			}
		}
		if left == 0 || started < quorum.Need(left) {
			return ErrNotEnough
		}
		if r.up(m) && connected-1 < quorum.Need(left) {
			return ErrUnhealthy
		}
	}
	r.members = slices.DeleteFunc(r.members, func(o *member) bool { return o.ID == id })
	if r.leader == id {
		r.lost()
	}
	r.spread()
	return nil
}

func (r *raft) MoveLeader(to fleet.MemberID) error {
	m := r.byID(to)
	switch {
	case !r.quorate():
		return ErrNoQuorum
	case m == nil || m.Learner:
		return ErrNoMember
	case !r.up(m):
		return ErrUnhealthy
	}
	r.leader = to
	return nil
}

func (r *raft) Tick(now time.Time) {
	if l := r.byID(r.leader); l == nil || !r.up(l) {
		r.lost()
	}
	r.elect()
	for _, m := range r.members {
		r.publish(m)
		switch {
		case !r.up(m):
			m.runSince = now // a connection counts anew from here
		case m.Learner && r.quorate() && now.Sub(m.runSince) >= settled:
			m.caughtUp = true
		}
	}
	if r.quorate() {
		r.index += 3
	}
	r.spread()
}
