package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// maps is the cluster of all probes of a test: one ConfigMap, and a count of
// what etcd writes.
type maps struct {
	mu       sync.Mutex
	servers  []hostapi.Node
	eligible []string
	data     map[string]string

	written        int // bytes into etcd
	puts, reads    int
	drops, lists   int
	beats          map[string][]hostapi.Beat
	refuse, noAPI  bool // writes are refused; nothing answers
	noEntry        bool // the entry cannot be read
	refuseBeatOnly bool
}

func newMaps(voters, standbys int) *maps {
	m := &maps{data: map[string]string{}, beats: map[string][]hostapi.Beat{}}
	for i := range voters {
		m.servers = append(m.servers, server(fmt.Sprintf("n%d", i+1), fmt.Sprintf("10.0.0.%d", i+1)))
	}
	for i := range standbys {
		m.eligible = append(m.eligible, fmt.Sprintf("n%d", voters+i+1))
	}
	return m
}

// of is the cluster as one probe has it.
type of struct {
	*maps
	node string
}

var errRefused = errors.New("forbidden")

func (o of) Nodes(context.Context) ([]hostapi.Node, []string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lists++
	if o.noAPI {
		return nil, nil, errors.New("no API server answers")
	}
	return o.servers, o.eligible, nil
}

func (o of) Entry(context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	if o.noAPI || o.noEntry {
		return "", errors.New("no API server answers")
	}
	return o.data[o.node], nil
}

func (o of) PutEntry(_ context.Context, entry string) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse || o.noAPI {
		return 0, errRefused
	}
	o.data[o.node] = entry
	o.puts++
	size := 0
	for k, v := range o.data {
		size += len(k) + len(v)
	}
	o.written += size + mapOverhead + keyOverhead*len(o.data)
	return size, nil
}

func (o of) DropEntry(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse || o.noAPI {
		return errRefused
	}
	o.drops++
	delete(o.data, o.node)
	return nil
}

func (o of) Beat(_ context.Context, b hostapi.Beat) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.noAPI || o.refuseBeatOnly {
		return errRefused
	}
	o.beats[o.node] = append(o.beats[o.node], b)
	o.written += beatBytes
	return nil
}

func (m *maps) entry(t *testing.T, node string) fitness.Window {
	t.Helper()
	m.mu.Lock()
	raw, ok := m.data[node]
	m.mu.Unlock()
	if !ok {
		t.Fatalf("%s has no entry", node)
	}
	w, err := fitness.Decode(node, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// machine is a host whose sensors a test moves.
type machine struct {
	mu        sync.Mutex
	etcd      sensor.EtcdReading
	etcdErr   error
	forgotten int
	fresh     bool // the next reading of etcd is after a restart
	fsyncs    int
	fsyncTime time.Duration
	fsyncErr  error
	hangs     bool
	hang      chan struct{}
	noise     *rand.Rand
}

func newMachine(seed uint64) *machine {
	m := &machine{fresh: true, fsyncTime: 10 * time.Second, noise: rand.New(rand.NewPCG(seed, 1))}
	m.etcd = sensor.EtcdReading{
		Etcd:    fitness.Etcd{Member: fleet.MemberID(1<<63 + seed), HasLeader: true, KnownMembers: 3, ActivePeers: 2, DBSizeBytes: 50 << 20, QuotaBytes: 2 << 30},
		Members: []fleet.MemberID{1 << 63, 1<<63 + 1, 1<<63 + 2},
	}
	return m
}

// times of a fleet that is well: some milliseconds, all of them different.
func (m *machine) time() time.Duration {
	return 500*time.Microsecond + time.Duration(m.noise.IntN(9000))*time.Microsecond
}

func (m *machine) Read(context.Context) (sensor.EtcdReading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.etcdErr != nil {
		return sensor.EtcdReading{}, m.etcdErr
	}
	r := m.etcd
	if r.Restarted = m.fresh; m.fresh {
		m.fresh = false
		return r, nil
	}
	g := &fitness.Gains{}
	for range 300 {
		d := m.time()
		bucket := 0
		for bucket < 4 && d > fitness.DiskBounds()[bucket] {
			bucket++
		}
		g.WALFsync.Counts[bucket]++
		g.WALFsync.Sum += d
		g.BackendCommit.Counts[bucket]++
		g.BackendCommit.Sum += d
	}
	for p := range uint64(2) {
		h := fitness.Histogram{Sum: m.time()}
		h.Counts[m.noise.IntN(6)] = 1
		g.RoundTrip = append(g.RoundTrip, fitness.PeerRoundTrip{Peer: fleet.MemberID(1<<63 + p), Histogram: h})
	}
	r.Gains = g
	r.DBSizeBytes += uint64(m.noise.IntN(1 << 20))
	return r, nil
}

func (m *machine) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgotten++
	m.fresh = true
}

func (m *machine) sensors() Sensors {
	return Sensors{
		Connect: func(_ context.Context, peers []sensor.Peer, _ time.Duration) (out []sensor.Connected) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range peers {
				out = append(out, sensor.Connected{Connect: fitness.Connect{To: p.Node, Took: m.time()}})
			}
			return out
		},
		Etcd: m,
		Fsync: func(context.Context) (fitness.Fsync, error) {
			m.mu.Lock()
			m.fsyncs++
			took, err, hang := m.fsyncTime, m.fsyncErr, m.hang
			m.mu.Unlock()
			<-time.After(took)
			if hang != nil {
				<-hang
			}
			return fitness.Fsync{Count: 1000, P50: time.Millisecond, P99: 4 * time.Millisecond, Max: 9 * time.Millisecond}, err
		},
		Memory: func() (*level.Reading, []*sensor.Fault) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return &level.Reading{Pressure: &level.Pressure{SomeAvg10: float64(m.noise.IntN(200)) / 100}, AvailableBytes: 3<<30 + uint64(m.noise.IntN(100<<20)), TotalBytes: 8 << 30}, nil
		},
		Link: func() (sensor.Linked, error) {
			return sensor.Linked{Link: fitness.Link{Kind: fitness.Wired, Interface: "eth0"}}, nil
		},
	}
}

const period = fitness.DefaultPeriod

func newProbe(c *maps, node string, m *machine) *Probe {
	return New(Settings{
		Node: node, BootID: "boot-1", Period: period, Size: fitness.DefaultSize, Cluster: of{c, node}, Sensors: m.sensors(),
		Random: m.noise.IntN,
	})
}
