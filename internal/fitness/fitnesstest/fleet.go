// Package fitnesstest makes the windows of whole fleets for tests, benchmarks
// and simulations: healthy hosts with ordinary noise, and what a test changes in
// them. It throws no dice: the noise is a function of a seed.
package fitnesstest

import (
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
)

// Began is when the first sample of a window stands, on every host's clock.
var Began = time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)

// Fleet is what is measured. The zero noise is a fleet that is as still as any:
// connects of 0.4 to 0.8 ms, fsyncs of one to two.
type Fleet struct {
	Voters, Standbys []string
	Period           time.Duration
	Size             int
	Seed             uint64

	// Delay is added to every way from or to a host, Loss is the share of connects
	// on them that fail, and Disk multiplies what its disk takes.
	Delay map[string]time.Duration
	Loss  map[string]float64
	Disk  map[string]float64
	// Edit changes a finished sample; n counts from the first that was ever taken.
	Edit map[string]func(n int, s *fitness.Sample)
}

// New is a fleet of n1, n2, … of which the first vote.
func New(voters, standbys int) *Fleet {
	f := &Fleet{
		Period: fitness.DefaultPeriod, Size: fitness.DefaultSize, Seed: 1, Delay: map[string]time.Duration{}, Loss: map[string]float64{},
		Disk: map[string]float64{}, Edit: map[string]func(int, *fitness.Sample){},
	}
	for i := range voters + standbys {
		name := fmt.Sprintf("n%d", i+1)
		if i < voters {
			f.Voters = append(f.Voters, name)
		} else {
			f.Standbys = append(f.Standbys, name)
		}
	}
	return f
}

// Member is the id of a host's member.
func Member(node string) fleet.MemberID { return fleet.MemberID(0xa0<<56 | hash(node)>>8) }

// Hosts are all hosts with full windows, seen to change just now.
func (f *Fleet) Hosts() []fitness.Host { return f.HostsAt(f.Size) }

// HostsAt are the hosts after n samples.
func (f *Fleet) HostsAt(n int) []fitness.Host {
	var hosts []fitness.Host
	for _, node := range slices.Concat(f.Voters, f.Standbys) {
		w := fitness.Window{Node: node, BootID: "boot-" + node, Period: f.Period, Size: f.Size}
		for i := max(0, n-f.Size); i < n; i++ {
			w.Append(f.Sample(node, i))
		}
		w.Counter = uint64(n)
		if f.votes(node) {
			for _, v := range f.Voters {
				w.Members = append(w.Members, Member(v))
			}
			slices.Sort(w.Members)
		}
		hosts = append(hosts, fitness.Host{Node: node, Votes: f.votes(node), Window: &w, Seen: true, Age: time.Second})
	}
	return hosts
}

func (f *Fleet) votes(node string) bool { return slices.Contains(f.Voters, node) }

// Sample is the n-th of a host.
func (f *Fleet) Sample(node string, n int) fitness.Sample {
	s := fitness.Sample{
		At: Began.Add(time.Duration(n) * f.Period), Link: fitness.Link{Kind: fitness.Wired, Interface: "eth0"},
		Memory: &level.Reading{
			Pressure:       &level.Pressure{SomeAvg10: f.noise(node, "some", n), SomeAvg60: f.noise(node, "some", n/4)},
			AvailableBytes: 5<<30 + uint64(f.noise(node, "memory", n)*(1<<29)), TotalBytes: 8 << 30,
		},
	}
	for _, to := range f.Voters {
		if to == node {
			continue
		}
		way := node + ">" + to
		took := 400*time.Microsecond + time.Duration(f.noise(way, "connect", n)*400)*time.Microsecond + f.Delay[node] + f.Delay[to]
		failed := f.noise(way, "loss", n) < max(f.Loss[node], f.Loss[to])
		s.Connect = append(s.Connect, fitness.Connect{To: to, Took: took, Failed: failed})
	}
	if f.votes(node) {
		s.Etcd = f.etcd(node, n)
	} else if n%f.Size == f.Size/2 {
		d := f.Disk[node]
		if d == 0 {
			d = 1
		}
		of := func(ms float64) time.Duration { return time.Duration(ms * d * float64(time.Millisecond)) }
		s.Fsync = &fitness.Fsync{Count: 2000, P50: of(1), P99: of(2.5), Max: of(6)}
	}
	if edit := f.Edit[node]; edit != nil {
		edit(n, &s)
	}
	return s
}

func (f *Fleet) etcd(node string, n int) *fitness.Etcd {
	d := f.Disk[node]
	if d == 0 {
		d = 1
	}
	g := &fitness.Gains{}
	for i := range 60 {
		Observe(&g.WALFsync, fitness.DiskBounds(), time.Duration((0.8+f.noise(node, "wal", n*60+i))*d*float64(time.Millisecond)))
	}
	for i := range 30 {
		Observe(&g.BackendCommit, fitness.DiskBounds(), time.Duration((3+4*f.noise(node, "commit", n*30+i))*d*float64(time.Millisecond)))
	}
	for _, to := range f.Voters {
		if to == node || n%2 != 0 { // one about every 30 s
			continue
		}
		r := fitness.PeerRoundTrip{Peer: Member(to)}
		Observe(&r.Histogram, fitness.PeerBounds(), 600*time.Microsecond+f.Delay[node]+f.Delay[to])
		g.RoundTrip = append(g.RoundTrip, r)
	}
	return &fitness.Etcd{
		Member: Member(node), HasLeader: true, IsLeader: node == f.Voters[0], KnownMembers: len(f.Voters), ActivePeers: len(f.Voters) - 1,
		DBSizeBytes: 40 << 20, QuotaBytes: 2 << 30, Gains: g,
	}
}

// Observe counts one observation.
func Observe(h *fitness.Histogram, bounds []time.Duration, took time.Duration) {
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += took
}

// noise is between 0 and 1, the same for the same words.
func (f *Fleet) noise(who, what string, n int) float64 {
	return float64(Dice(f.Seed, who+what, n)>>11) / (1 << 53)
}

// Dice is any number, the same for the same words.
func Dice(seed uint64, what string, n int) uint64 {
	x := hash(what) ^ seed*0x9e3779b97f4a7c15 ^ uint64(n)*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
