package probe

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/memory"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// EtcdSensor reads a member again and again.
type EtcdSensor interface {
	Read(ctx context.Context) (sensor.EtcdReading, error)
	Forget()
}

// Sensors are what a sample is taken with.
type Sensors struct {
	Connect func(ctx context.Context, peers []sensor.Peer, bound time.Duration) []sensor.Connected
	Etcd    EtcdSensor
	Fsync   func(ctx context.Context) (fitness.Fsync, error)
	Memory  func() (*level.Reading, []*sensor.Fault)
	Link    func() (sensor.Linked, error)
}

// Real are the sensors of a host. root is where paths begin, fsys the same
// folder as a file system.
func Real(dial sensor.Dial, fsys fs.FS, m memory.Reader, etcd *sensor.Etcd, disk sensor.Fsync) Sensors {
	return Sensors{
		Connect: func(ctx context.Context, peers []sensor.Peer, bound time.Duration) []sensor.Connected {
			return sensor.Connect(ctx, dial, peers, bound)
		},
		Etcd:   etcd,
		Fsync:  disk.Run,
		Memory: func() (*level.Reading, []*sensor.Fault) { return sensor.Memory(m) },
		Link:   func() (sensor.Linked, error) { return sensor.Link(fsys) },
	}
}

// Bound is how long a sensor may take: a third of the period, so that looking at
// the Nodes, measuring and writing fit into one, and no more than the five
// seconds of k3s's election timeout, past which no connect is worth anything.
func Bound(period time.Duration) time.Duration { return min(period/3, 5*time.Second) }

// sample takes all readings at once. It never fails: what cannot be read is
// named in the sample. The faults are those readings and the connects that failed,
// of which a sample keeps no reason.
func (p *Probe) sample(ctx context.Context) (fitness.Sample, []fitness.Absence) {
	ctx, cancel := context.WithTimeout(ctx, Bound(p.s.Period))
	defer cancel()
	s := fitness.Sample{At: time.Now()}
	var (
		all       sync.WaitGroup
		connected []sensor.Connected
		etcd      sensor.EtcdReading
		etcdErr   error
	)
	all.Go(func() { connected = p.s.Sensors.Connect(ctx, p.seen.peers, Bound(p.s.Period)) })
	asks := p.seen.member || p.seen.maybe
	if asks {
		all.Go(func() { etcd, etcdErr = p.s.Sensors.Etcd.Read(ctx) })
	} else {
		p.s.Sensors.Etcd.Forget()
	}
	p.memory(&s)
	p.link(&s)
	all.Wait()

	var faults []fitness.Absence
	for _, c := range connected {
		s.Connect = append(s.Connect, c.Connect)
		if c.Fault != nil {
			faults = append(faults, sensor.AbsenceOf(fitness.ReadingConnect, c.Fault))
		}
	}
	p.window.Members = nil
	switch {
	case asks && etcdErr == nil:
		s.Etcd, p.window.Members = &etcd.Etcd, etcd.Members
		if etcd.Restarted {
			s.Restart = fitness.RestartEtcd
		}
		p.disk.forget()
	case p.seen.member:
		p.absent(&s, fitness.ReadingEtcd, etcdErr)
		p.disk.forget()
	default: // no member, or one that is none any more
		p.fsync(&s)
	}
	p.noteAbsences(etcdErr)
	return s, append(faults, s.Absent...)
}

func (p *Probe) memory(s *fitness.Sample) {
	var faults []*sensor.Fault
	s.Memory, faults = p.s.Sensors.Memory()
	for _, f := range faults {
		s.Absent = append(s.Absent, sensor.AbsenceOf(fitness.ReadingMemory, f))
	}
	p.note("memory", faultsOf(faults))
}

func (p *Probe) link(s *fitness.Sample) {
	l, err := p.s.Sensors.Link()
	p.note("link", err)
	if err != nil {
		p.absent(s, fitness.ReadingLink, err)
		return
	}
	s.Link = l.Link
}

func (p *Probe) absent(s *fitness.Sample, r fitness.Reading, err error) {
	s.Absent = append(s.Absent, sensor.AbsenceOf(r, err))
}

func (p *Probe) noteAbsences(etcd error) {
	if p.seen.member {
		p.note("etcd", etcd)
	}
}

func faultsOf(faults []*sensor.Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
