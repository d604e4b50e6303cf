package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/etcd/embedded"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/status"
)

// datastore is sim.Datastore made of real etcd members, one process each. The
// simulated k3s decides when a member is added, promoted and removed; etcd does
// it. What the members say is asked for in the background, because the world
// asks for it all the time.
type datastore struct {
	command []string
	dir     string
	timing  timing
	nodes   map[string]*node // by host, fixed
	client  *embedded.Client

	mu      sync.Mutex
	cluster fleet.MemberID
	members []status.Member
	listed  time.Time
	stop    context.CancelFunc
	polls   sync.WaitGroup
}

// node is one host's place for a member.
type node struct {
	host, ip     string
	peer, client string
	link         *link
	own          *embedded.Client

	process *embedded.Process
	id      fleet.MemberID
	local   hostapi.Member
	asks    uint64 // questions begun, and the one that local answers
	answers uint64
	gone    bool // its member was removed
	before  <-chan struct{}
}

var _ sim.Datastore = (*datastore)(nil)

const callTimeout = 2 * time.Second

func newDatastore(command []string, dir string, t timing, hosts []string) (*datastore, error) {
	d := &datastore{command: command, dir: dir, timing: t, nodes: map[string]*node{}}
	for i, h := range hosts {
		n := &node{host: h, ip: fmt.Sprintf("10.0.0.%d", i+1)}
		var err error
		if n.peer, err = freeAddress(); err != nil {
			return nil, err
		}
		if n.client, err = freeAddress(); err != nil {
			return nil, err
		}
		if n.link, err = newLink(n.peer); err != nil {
			return nil, err
		}
		if n.own, err = embedded.Dial(n.client); err != nil {
			return nil, err
		}
		d.nodes[h] = n
	}
	var err error
	d.client, err = embedded.Dial(d.sorted()[0].client)
	return d, err
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

func (d *datastore) sorted() []*node {
	var ns []*node
	for _, n := range d.nodes {
		ns = append(ns, n)
	}
	slices.SortFunc(ns, func(a, b *node) int { return cmp.Compare(a.ip, b.ip) })
	return ns
}

// close ends every member and waits for them.
func (d *datastore) close() {
	if d.stop != nil {
		d.stop()
		d.polls.Wait()
	}
	d.mu.Lock()
	var procs []*embedded.Process
	for _, n := range d.sorted() {
		if n.process != nil {
			n.process.Kill()
			procs = append(procs, n.process)
		}
		n.link.close()
	}
	d.mu.Unlock()
	for _, p := range procs {
		<-p.Done()
	}
	for _, n := range d.sorted() {
		n.own.Close()
	}
	if d.client != nil {
		d.client.Close()
	}
}

// peerURL is what the others dial: the host's link.
func (n *node) peerURL() string { return "http://" + n.link.address() }

func (d *datastore) spec(n *node, name, initial string, join bool) embedded.Spec {
	return embedded.Spec{
		Name: name, Dir: filepath.Join(d.dir, n.host), Peer: n.peer, Client: n.client, Advertised: n.peerURL(),
		Initial: initial, Join: join, Heartbeat: d.timing.heartbeat, Election: d.timing.election,
		Log: filepath.Join(d.dir, n.host+".log"),
	}
}

// Found implements sim.Datastore.
func (d *datastore) Found(seeds []sim.Seed) ([]fleet.MemberID, error) {
	var initial, clients []string
	for _, s := range seeds {
		initial = append(initial, s.Name+"="+d.nodes[s.Host].peerURL())
		clients = append(clients, d.nodes[s.Host].client)
	}
	for _, s := range seeds {
		n := d.nodes[s.Host]
		p, err := embedded.Start(d.command, d.spec(n, s.Name, strings.Join(initial, ","), false))
		if err != nil {
			return nil, err
		}
		n.process = p
	}
	d.client.Use(clients...)
	members, err := d.await(len(seeds))
	if err != nil {
		return nil, err
	}
	ids := make([]fleet.MemberID, len(seeds))
	for i, s := range seeds {
		for _, m := range members {
			if m.Name == s.Name {
				ids[i], d.nodes[s.Host].id = m.ID, m.ID
			}
		}
	}
	d.cluster = d.nodes[seeds[0].Host].local.View.ClusterID
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	for _, n := range d.sorted() {
		d.polls.Add(1)
		go func() { defer d.polls.Done(); d.poll(ctx, n) }()
	}
	return ids, nil
}

// await waits for the first cluster to serve.
func (d *datastore) await(count int) ([]status.Member, error) {
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		serving := 0
		for _, n := range d.sorted() {
			if n.process == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			n.local = n.own.Local(ctx, n.client)
			cancel()
			if n.local.View.Linearizable {
				serving++
			}
			last = errors.New(n.local.View.Error)
		}
		if serving == count {
			d.members = d.translate(d.sorted()[0].local.View.Members)
			return d.members, nil
		}
	}
	return nil, fmt.Errorf("the first %d members do not serve: %w", count, last)
}

// poll asks one host's member over and over.
func (d *datastore) poll(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		d.ask(ctx, n)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d *datastore) ask(ctx context.Context, n *node) {
	d.mu.Lock()
	p, gone := n.process, n.gone
	n.asks++
	asked := n.asks
	d.mu.Unlock()
	l := hostapi.Member{View: status.EtcdView{Error: "connection refused"}}
	if p != nil && !gone {
		select {
		case <-p.Done():
		default:
			c, cancel := context.WithTimeout(ctx, callTimeout)
			l = n.own.Local(c, n.client)
			cancel()
		}
	}
	l.View.Members = d.translate(l.View.Members)
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.process != p || n.gone || asked < n.answers {
		return // a question that was begun later has been answered
	}
	n.local, n.answers = l, asked
	if l.View.Linearizable {
		d.members, d.listed = l.View.Members, time.Now()
	}
}

// fresh is etcd as a host's daemon reaches it. A daemon takes an answer for one
// that was read after it asked, so the members are asked anew, not the last poll.
type fresh struct {
	*sim.HostEtcd
	store *datastore
	host  string
}

var _ hostd.Etcd = fresh{}

// Local implements hostd.Etcd.
func (f fresh) Local(ctx context.Context) hostapi.Member {
	f.store.ask(ctx, f.store.nodes[f.host])
	return f.HostEtcd.Local(ctx)
}

// Ask implements hostd.Etcd.
func (f fresh) Ask(ctx context.Context, urls []string) (hostapi.Answer, error) {
	f.store.askOthers(ctx, f.host)
	return f.HostEtcd.Ask(ctx, urls)
}

// askOthers asks every member but the host's own, all at once.
func (d *datastore) askOthers(ctx context.Context, host string) {
	var asked sync.WaitGroup
	for _, n := range d.sorted() {
		if n.host != host {
			asked.Go(func() { d.ask(ctx, n) })
		}
	}
	asked.Wait()
}

// Answering implements hostd.Etcd.
func (f fresh) Answering(ctx context.Context, cluster, leader fleet.MemberID, members []status.Member) []fleet.MemberID {
	f.store.askOthers(ctx, f.host)
	return f.HostEtcd.Answering(ctx, cluster, leader, members)
}

// translate gives members the addresses that their hosts have in the simulated
// network, by which k3s knows them.
func (d *datastore) translate(ms []status.Member) []status.Member {
	for i := range ms {
		for _, n := range d.nodes {
			if len(ms[i].PeerURLs) > 0 && ms[i].PeerURLs[0] == n.peerURL() {
				ms[i].PeerURLs = []string{"https://" + n.ip + ":2380"}
				if len(ms[i].ClientURLs) > 0 {
					ms[i].ClientURLs = []string{"https://" + n.ip + ":2379"}
				}
			}
		}
	}
	return ms
}

// ClusterID implements sim.Datastore.
func (d *datastore) ClusterID() fleet.MemberID { return d.cluster }

// Start implements sim.Datastore. A member that is still ending is waited for
// in the background: etcd locks its folder.
func (d *datastore) Start(host, name string, id fleet.MemberID, join bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[host]
	n.id, n.gone = id, false
	n.link.restore()
	initial := name + "=" + n.peerURL()
	for _, m := range d.members {
		for _, o := range d.nodes {
			if o != n && o.id == m.ID && m.Started() {
				initial += "," + m.Name + "=" + o.peerURL()
			}
		}
	}
	start := func() error {
		p, err := embedded.Start(d.command, d.spec(n, name, initial, join))
		if err == nil {
			n.process, n.before = p, p.Done()
		}
		return err
	}
	before := n.before
	if before == nil {
		return start()
	}
	select {
	case <-before:
		return start()
	default:
	}
	go func() {
		<-before
		d.mu.Lock()
		defer d.mu.Unlock()
		if n.id == id && n.process == nil && !n.gone {
			_ = start() // a member that does not come shows in what it answers: nothing
		}
	}()
	return nil
}

// Stop implements sim.Datastore.
func (d *datastore) Stop(host string, gracefully bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[host]
	n.local = hostapi.Member{View: status.EtcdView{Error: "connection refused"}}
	if n.process == nil {
		return
	}
	if gracefully {
		n.process.Stop(5 * time.Second)
	} else {
		if !n.gone {
			n.link.lose() // a power cut takes the link as well
		}
		n.process.Kill()
	}
	n.before, n.process = n.process.Done(), nil
}

// Wipe implements sim.Datastore.
func (d *datastore) Wipe(host string) {
	d.mu.Lock()
	before := d.nodes[host].before
	d.mu.Unlock()
	if before != nil {
		<-before
	}
	_ = os.RemoveAll(filepath.Join(d.dir, host)) // the whole folder goes at the end in any case
}

// Local implements sim.Datastore.
func (d *datastore) Local(host string) hostapi.Member {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.nodes[host].local
	l.View.Members = slices.Clone(l.View.Members)
	return l
}

// Removed implements sim.Datastore: the member is in no list any more.
func (d *datastore) Removed(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[host]
	return n.process != nil && n.gone
}

// Members implements sim.Datastore.
func (d *datastore) Members() ([]status.Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.listed) > 2*callTimeout && !d.listed.IsZero() {
		return slices.Clone(d.members), sim.ErrNoQuorum
	}
	return slices.Clone(d.members), nil
}

// Leader implements sim.Datastore.
func (d *datastore) Leader() fleet.MemberID {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.sorted() {
		if n.local.View.Linearizable && n.local.View.Leader != 0 {
			return n.local.View.Leader
		}
	}
	return 0
}

// change makes one change of the membership through the living voters, and
// reads the list again.
func (d *datastore) change(f func(context.Context, *embedded.Client) error) error {
	var clients []string
	for _, n := range d.sorted() {
		if n.local.View.Linearizable && !n.gone {
			clients = append(clients, n.client)
		}
	}
	if len(clients) == 0 {
		return sim.ErrNoQuorum
	}
	d.client.Use(clients...)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := f(ctx, d.client); err != nil {
		return known(err)
	}
	if ms, err := d.client.Members(ctx); err == nil {
		d.members, d.listed = d.translate(ms), time.Now()
	}
	return nil
}

// known turns etcd's refusals into those that k3s tells apart.
func known(err error) error {
	for _, k := range []error{sim.ErrTooManyLearners, sim.ErrUnhealthy, sim.ErrNotEnough, sim.ErrNotCaughtUp, sim.ErrNoMember} {
		if strings.Contains(err.Error(), strings.TrimPrefix(k.Error(), "etcdserver: ")) {
			return fmt.Errorf("%w: %w", k, err)
		}
	}
	return fmt.Errorf("%w: %w", sim.ErrNoQuorum, err)
}

// Add implements sim.Datastore.
func (d *datastore) Add(host string) (id fleet.MemberID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.change(func(ctx context.Context, c *embedded.Client) error {
		id, err = c.Add(ctx, d.nodes[host].peerURL())
		return err
	})
	return id, err
}

// Promote implements sim.Datastore.
func (d *datastore) Promote(id fleet.MemberID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.change(func(ctx context.Context, c *embedded.Client) error { return c.Promote(ctx, id) })
}

// Remove implements sim.Datastore. The member is not asked any more from
// before its removal on: upstream etcd panics when it is (k3s-facts §14.2).
func (d *datastore) Remove(id fleet.MemberID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var victim *node
	for _, n := range d.nodes {
		if n.id == id {
			victim = n
		}
	}
	if victim != nil {
		victim.gone = true
	}
	err := d.change(func(ctx context.Context, c *embedded.Client) error { return c.Remove(ctx, id) })
	if victim == nil {
		return err
	}
	victim.gone = err == nil
	if err == nil {
		victim.local = hostapi.Member{View: status.EtcdView{Error: "the member has been removed"}}
	}
	return err
}

// MoveLeader implements sim.Datastore.
func (d *datastore) MoveLeader(to fleet.MemberID) error {
	d.mu.Lock()
	var own *node
	for _, n := range d.nodes {
		if n.local.Answers && n.local.View.Leader == n.local.ID {
			own = n
		}
	}
	d.mu.Unlock()
	if own == nil {
		return sim.ErrNoQuorum
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	err := own.own.MoveLeader(ctx, to)
	if err == nil {
		for _, n := range d.sorted() {
			d.ask(ctx, n)
		}
	}
	return err
}

// Tick implements sim.Datastore: real members need nobody to wind them.
func (d *datastore) Tick(time.Time) {}
