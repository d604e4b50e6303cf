package probe

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/sleep"
)

// Cluster is what a probe needs of the API. Every call is bounded.
type Cluster interface {
	// Nodes are the servers with etcd's label, and the names of the eligible hosts.
	Nodes(ctx context.Context) (servers []hostapi.Node, eligible []string, err error)
	// Entry is the own key's value in the ConfigMap of the probes, empty when
	// there is none.
	Entry(ctx context.Context) (string, error)
	// PutEntry writes the own key and says how large the whole map now is.
	PutEntry(ctx context.Context, entry string) (mapBytes int, err error)
	// DropEntry removes the own key.
	DropEntry(ctx context.Context) error
	// Beat writes the heartbeat Lease.
	Beat(ctx context.Context, b hostapi.Beat) error
}

// Settings make a Probe.
type Settings struct {
	Node    string
	BootID  string
	Period  time.Duration
	Size    int // samples of a full window
	Cluster Cluster
	Sensors Sensors
	Log     *slog.Logger
	// Random gives a number from zero to under n; nil for chance.
	Random func(n int) int
}

// Probe is one host's. It is not safe for use by several goroutines.
type Probe struct {
	s   Settings
	log *slog.Logger

	window fitness.Window
	// loaded: the entry of an earlier life has been read, or there is none.
	loaded bool
	// mark is what began anew and is in no sample yet (R-185-10).
	mark fitness.Restart
	// dropped: this host records nothing, and its key is known to be gone.
	dropped bool

	seen   view
	looked bool

	mapBytes, entryBytes int
	written              time.Time
	// wait is how many periods the next write is away; none before the first one.
	wait    int
	ago     int  // periods since the last write
	unsaid  bool // the last write that was due has failed, or removal
	members []fleet.MemberID

	disk disk
	said map[string]string // the last problem logged of each kind
}

// New makes a Probe.
func New(s Settings) *Probe {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Random == nil {
		s.Random = rand.N[int]
	}
	p := &Probe{s: s, log: s.Log, mark: fitness.RestartProbe, said: map[string]string{}}
	p.window = p.fresh()
	return p
}

func (p *Probe) fresh() fitness.Window {
	return fitness.Window{Node: p.s.Node, BootID: p.s.BootID, Period: p.s.Period, Size: p.s.Size}
}

// Window is what the probe keeps now.
func (p *Probe) Window() fitness.Window { return p.window }

// Run takes a sample each period until ctx ends. A pass that takes longer than a
// period delays the next one; none is made up for. after is called with every turn
// that was not cut short, and may be nil.
func (p *Probe) Run(ctx context.Context, after func(Turn)) {
	// Probes that were started together look at different moments.
	if !sleep.For(ctx, time.Duration(p.s.Random(int(p.s.Period/time.Millisecond)))*time.Millisecond/4) {
		return
	}
	tick := time.NewTicker(p.s.Period)
	defer tick.Stop()
	for {
		if t := p.Pass(ctx); after != nil && ctx.Err() == nil {
			after(t)
		}
		select {
		case <-ctx.Done():
			p.leave(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		}
	}
}

// leaveBound is how long a probe that is told to end may still ask and remove.
const leaveBound = 10 * time.Second

// leave takes the key away when this probe ends because its host has lost its
// labels: the DaemonSet removes the pod, and nobody else would (R-185-09). A probe
// that ends for another reason leaves its window for the next one.
func (p *Probe) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveBound)
	defer cancel()
	if servers, eligible, err := p.s.Cluster.Nodes(ctx); err == nil && !look(p.s.Node, servers, eligible).records() {
		_ = p.rest(ctx) // it has been logged, and nobody comes after this
	}
}

// Pass is one period: look at the Nodes, take a sample, write the window when
// that is due, beat. What fails is logged once and tried again next period; a
// sample is kept whatever the API says.
func (p *Probe) Pass(ctx context.Context) Turn {
	begun := time.Now()
	did, err := p.pass(ctx)
	return p.turn(begun, did, err)
}

// done is what of a pass is nowhere else.
type done struct {
	sampled bool
	faults  []fitness.Absence
}

func (p *Probe) pass(ctx context.Context) (did done, err error) {
	servers, eligible, err := p.s.Cluster.Nodes(ctx)
	p.note("nodes", err)
	if err == nil {
		p.seen, p.looked = look(p.s.Node, servers, eligible), true
	}
	if !p.looked || ctx.Err() != nil {
		return did, err // nobody has said yet what this host is and who votes
	}
	if !p.seen.records() {
		return did, errors.Join(err, p.rest(ctx))
	}
	p.dropped = false
	err = errors.Join(err, p.load(ctx))
	s, faults := p.sample(ctx)
	p.record(s)
	did = done{sampled: true, faults: faults}
	if ctx.Err() != nil {
		return did, err
	}
	return did, errors.Join(err, p.write(ctx), p.beat(ctx))
}

// rest is a pass of a host that is neither voter nor eligible: it has no entry
// (R-185-09), and begins anew when it becomes one.
func (p *Probe) rest(ctx context.Context) error {
	p.window, p.mark, p.loaded, p.wait, p.unsaid, p.members = p.fresh(), fitness.RestartProbe, true, 0, false, nil
	p.written, p.entryBytes = time.Time{}, 0
	p.disk.forget()
	p.s.Sensors.Etcd.Forget()
	if p.dropped {
		return nil
	}
	err := p.s.Cluster.DropEntry(ctx)
	p.note("entry", err)
	p.dropped, p.unsaid = err == nil, err != nil
	return err
}

// load reads the entry of an earlier life once, so that its window goes on
// (R-185-10). Until the API gives it, samples are kept beside it.
func (p *Probe) load(ctx context.Context) error {
	if p.loaded {
		return nil
	}
	raw, err := p.s.Cluster.Entry(ctx)
	p.note("own entry", err)
	if err != nil {
		return err
	}
	p.loaded = true
	if raw == "" {
		return nil
	}
	old, err := fitness.Decode(p.s.Node, []byte(raw))
	if err != nil {
		p.log.Warn("own entry cannot be read, the window begins anew", obs.Err, err)
		return nil
	}
	p.resume(old)
	return nil
}

// resume puts the samples taken since the start behind those of an earlier life.
// Which of them are too old is for whoever judges them.
func (p *Probe) resume(old fitness.Window) {
	if old.BootID != p.s.BootID {
		if p.mark != fitness.NoRestart {
			p.mark = fitness.RestartHost
		} else if len(p.window.Samples) > 0 {
			p.window.Samples[0].Restart = fitness.RestartHost
		}
	}
	mine := p.window.Samples
	p.window = p.fresh()
	p.window.Counter, p.window.Samples = old.Counter, old.Samples
	for _, s := range mine {
		p.window.Append(s)
	}
}

func (p *Probe) record(s fitness.Sample) {
	if p.mark != fitness.NoRestart {
		s.Restart = p.mark
	}
	p.window.Append(s)
	p.mark = fitness.NoRestart
}

// write writes the window when that is due: at first, then every few periods,
// and earlier when etcd's members have changed. A write that is refused is due
// again in the next period (R-185-10).
func (p *Probe) write(ctx context.Context) error {
	p.wait--
	p.ago++
	early := !slices.Equal(p.members, p.window.Members) && p.ago >= p.every()/4
	if p.wait > 0 && !early {
		return nil
	}
	if !p.loaded {
		p.unsaid = true
		return nil // it would overwrite the window of the life before; load has said why
	}
	raw, err := p.window.Encode()
	if err == nil {
		p.mapBytes, err = p.put(ctx, string(raw))
	}
	p.note("entry", err)
	p.unsaid = err != nil
	if err != nil {
		p.wait = 0
		return err
	}
	p.members = slices.Clone(p.window.Members)
	p.wait, p.ago = jittered(p.every(), p.s.Random), 0
	p.written, p.entryBytes = time.Now(), len(raw)
	return nil
}

// every is how many periods lie between two writes: so few that a heartbeat is never
// more than a window ahead of the entry, chance included. Further ahead nobody takes
// its word, and the host would be unknown until the next write, however large the
// fleet.
func (p *Probe) every() int {
	return writeEvery(p.seen.hosts, p.mapBytes, p.s.Period, p.s.Size*4/5)
}

func (p *Probe) put(ctx context.Context, entry string) (int, error) {
	size, err := p.s.Cluster.PutEntry(ctx, entry)
	if err != nil {
		return p.mapBytes, err
	}
	return max(size, len(entry)), nil
}

// beat says that the probe goes on: its counter runs ahead of the entry's by the
// samples that are not written yet. While a write that is due has not been made
// there is nothing to vouch for, and the probe falls silent.
func (p *Probe) beat(ctx context.Context) error {
	if p.unsaid {
		return nil
	}
	err := p.s.Cluster.Beat(ctx, hostapi.Beat{BootID: p.s.BootID, Counter: p.window.Counter, At: time.Now().UTC()})
	p.note("heartbeat", err)
	return err
}

// note logs a problem when it is another than the last of its kind.
func (p *Probe) note(kind string, err error) {
	text := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		text = err.Error()
	}
	if text != "" && text != p.said[kind] {
		p.log.Warn("pass failed in part", "part", kind, obs.Err, err)
	}
	p.said[kind] = text
}
