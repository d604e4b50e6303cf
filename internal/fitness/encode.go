package fitness

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
)

// EntryVersion is the version of an entry that this program writes and reads.
const EntryVersion = 1

// MaxEntry is the size above which an entry is refused unread: sixteen of them
// fill a ConfigMap.
const MaxEntry = 64 << 10

// Entry is the JSON of a probe's key: a head for people and the packed samples.
type Entry struct {
	Version  int              `json:"version"`
	Node     string           `json:"node"`
	BootID   string           `json:"boot_id"`
	Counter  uint64           `json:"counter"`
	PeriodMS int64            `json:"period_ms"`
	Size     int              `json:"size"`
	Members  []fleet.MemberID `json:"members,omitempty"`

	// Latest is the last sample in words, which no program reads.
	Latest json.RawMessage `json:"latest,omitempty"`

	// The tables that the packed samples point into.
	Voters []string         `json:"voters,omitempty"`
	Peers  []fleet.MemberID `json:"peers,omitempty"`
	Links  []string         `json:"links,omitempty"`  // kind and interface
	Absent []string         `json:"absent,omitempty"` // reading and code

	// Why connects failed, by voter: bit i is that of the i-th newest sample. They are
	// not among the packed samples, which a program of before them must go on reading.
	Refused    map[string]uint32 `json:"refused,omitempty"`
	Unanswered map[string]uint32 `json:"unanswered,omitempty"`

	Samples int    `json:"samples"`
	FirstMS int64  `json:"first_ms"` // of the first sample, by the host's clock
	Sum     uint32 `json:"sum"`      // FNV-1a of the packed samples
	Data    []byte `json:"data"`
}

// Encode is the value of the host's key in the ConfigMap of the probes. A
// window with more samples, or more readings, voters and peers over its life, than
// an entry can hold loses the oldest.
func (w Window) Encode() ([]byte, error) {
	if over := len(w.Samples) - maxSamples; over > 0 {
		w.Samples = w.Samples[over:]
	}
	for {
		raw, err := w.encode()
		if err != nil || len(raw) <= MaxEntry {
			return raw, err
		}
		if len(w.Samples) == 0 {
			return nil, fmt.Errorf("probe entry of %s: %d bytes without a sample are more than %d", w.Node, len(raw), MaxEntry)
		}
		w.Samples = w.Samples[(len(w.Samples)+9)/10:]
	}
}

func (w Window) encode() ([]byte, error) {
	e := Entry{
		Version: EntryVersion, Node: clip(w.Node, maxNameLen), BootID: clip(w.BootID, maxNameLen), Counter: w.Counter,
		PeriodMS: min(max(w.Period, minPeriod), maxPeriod).Milliseconds(), Size: min(max(w.Size, 1), maxSamples),
	}
	if len(w.Members) > 0 {
		e.Members = slices.Compact(slices.Sorted(slices.Values(w.Members)))
		e.Members = e.Members[:min(len(e.Members), maxNames)]
	}
	samples := make([]Sample, len(w.Samples))
	for i, s := range w.Samples {
		samples[i] = s.normal()
	}
	t := tables{}
	first := len(samples)
	for first > 0 && placed(samples, first-1) && t.take(samples[first-1]) {
		first--
	}
	samples = samples[first:]
	t.sort()
	e.Voters, e.Peers, e.Links, e.Absent = t.voters, t.peers, t.links, t.absent
	e.Refused, e.Unanswered = failures(samples, Refused), failures(samples, Unanswered)
	e.Samples = len(samples)
	if len(samples) > 0 {
		p := newPacker()
		e.FirstMS = samples[0].At.UnixMilli()
		e.Latest = latest(&samples[len(samples)-1])
		s := state{at: e.FirstMS - e.PeriodMS, period: e.PeriodMS}
		for i := range samples {
			s.put(p, &t, &samples[i])
		}
		e.Data = p.end()
	}
	e.Sum = checksum(e.Data)
	return json.Marshal(e)
}

// placed says whether a sample stands before the next one, at a time that an
// entry can hold. Append leaves no other.
func placed(samples []Sample, i int) bool {
	at := samples[i].At.UnixMilli()
	return at >= minUnixMS && at <= maxUnixMS && (i == len(samples)-1 || samples[i].At.Before(samples[i+1].At))
}

func checksum(b []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(b)
	return h.Sum32()
}

// tables are the names that samples point to.
type tables struct {
	voters, links, absent []string
	peers                 []fleet.MemberID

	readings int // of the samples taken

	decodedLinks  []Link
	decodedAbsent []Absence
}

// take notes the names of a sample, false when there is no room for them.
func (t *tables) take(s Sample) bool {
	n := *t
	for _, c := range s.Connect {
		n.voters = with(n.voters, c.To)
	}
	if s.Link.Kind != "" {
		n.links = with(n.links, linkWord(s.Link))
	}
	for _, a := range s.Absent {
		n.absent = with(n.absent, absenceWord(a))
	}
	if s.Etcd != nil && s.Etcd.Gains != nil {
		for _, r := range s.Etcd.Gains.RoundTrip {
			n.peers = with(n.peers, r.Peer)
		}
	}
	if n.readings += s.readings(); n.readings > maxReadings || max(len(n.voters), len(n.links), len(n.absent), len(n.peers)) > maxNames {
		return false
	}
	*t = n
	return true
}

func (t *tables) sort() {
	slices.Sort(t.voters)
	slices.Sort(t.links)
	slices.Sort(t.absent)
	slices.Sort(t.peers)
}

func with[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

func linkWord(l Link) string       { return string(l.Kind) + " " + l.Interface }
func absenceWord(a Absence) string { return string(a.Reading) + " " + a.Code }

// Bits that say what a sample has. The rare ones are last: below 128 they are
// one byte.
const (
	restartBits = 3 // the lowest two
	hasMemory   = 1 << 2
	hasEtcd     = 1 << 3
	hasFsync    = 1 << 4
	newLink     = 1 << 5
	newVoters   = 1 << 6
	hasAbsent   = 1 << 7
)

var restarts = []Restart{NoRestart, RestartProbe, RestartEtcd, RestartHost}

// Bits of a memory reading.
const (
	hasPressure = 1 << 0
	newTotal    = 1 << 1
	pressure0   = 1 << 2 // this and the next three: the average is not zero
)

// Bits of an etcd reading.
const (
	hasLeader  = 1 << 0
	isLeader   = 1 << 1
	isLearner  = 1 << 2
	hasGains   = 1 << 3
	hasEvents  = 1 << 4
	newMember  = 1 << 5
	newCounts  = 1 << 6
	newQuota   = 1 << 7
	etcdBits   = 1<<8 - 1
	memoryBits = 1<<6 - 1
	sampleBits = 1<<8 - 1
)

// state is what one sample leaves for the next, which says only what changed.
type state struct {
	at, period int64 // ms
	link       uint64
	voters     uint64 // a bit for each of the table
	available  int64  // KiB
	total      uint64 // KiB
	member     fleet.MemberID
	known      uint64
	active     uint64
	quota      uint64 // KiB
	db         int64  // pages
}

func (s *state) put(p *packer, t *tables, x *Sample) {
	flags := uint64(max(slices.Index(restarts, x.Restart), 0))
	var link, voters uint64
	if x.Link.Kind != "" {
		link = 1 + uint64(slices.Index(t.links, linkWord(x.Link)))
	}
	for _, c := range x.Connect {
		voters |= 1 << slices.Index(t.voters, c.To)
	}
	set := func(is bool, bit uint64) {
		if is {
			flags |= bit
		}
	}
	set(x.Memory != nil, hasMemory)
	set(x.Etcd != nil, hasEtcd)
	set(x.Fsync != nil, hasFsync)
	set(link != s.link, newLink)
	set(voters != s.voters, newVoters)
	set(len(x.Absent) > 0, hasAbsent)
	p.uint(colFlags, flags)
	at := x.At.UnixMilli()
	p.int(colStep, at-s.at-s.period)
	s.at = at
	if link != s.link {
		p.uint(colLink, link)
		s.link = link
	}
	if voters != s.voters {
		p.uint(colVoters, voters)
		s.voters = voters
	}
	for _, c := range x.Connect { // sorted as the table is
		way := colConnect + column(slices.Index(t.voters, c.To))
		p.flag(way, c.Failed)
		if !c.Failed {
			p.time(way, c.Took)
		}
	}
	if x.Memory != nil {
		s.putMemory(p, x.Memory)
	}
	if x.Etcd != nil {
		s.putEtcd(p, t, x.Etcd)
	}
	if f := x.Fsync; f != nil {
		p.uint(colFsync, uint64(f.Count))
		for _, d := range []time.Duration{f.P50, f.P99, f.Max} {
			p.time(colFsync, d)
		}
	}
	if len(x.Absent) > 0 {
		p.uint(colAbsent, uint64(len(x.Absent)))
		for _, a := range x.Absent {
			p.uint(colAbsent, uint64(slices.Index(t.absent, absenceWord(a))))
		}
	}
}

func (s *state) putMemory(p *packer, m *level.Reading) {
	var flags uint64
	var averages [4]uint64
	if m.Pressure != nil {
		flags |= hasPressure
		for i, v := range []float64{m.Pressure.SomeAvg10, m.Pressure.SomeAvg60, m.Pressure.FullAvg10, m.Pressure.FullAvg60} {
			if averages[i] = parts(v); averages[i] > 0 {
				flags |= pressure0 << i
			}
		}
	}
	total := m.TotalBytes / resolutionMemory
	if total != s.total {
		flags |= newTotal
	}
	p.uint(colMemoryFlags, flags)
	for i, v := range averages {
		if v > 0 {
			p.uint(colAverage+column(i), v)
		}
	}
	if total != s.total {
		p.uint(colTotal, total)
		s.total = total
	}
	available := int64(m.AvailableBytes / resolutionMemory)
	p.int(colAvailable, available-s.available)
	s.available = available
}

func (s *state) putEtcd(p *packer, t *tables, e *Etcd) {
	var flags uint64
	set := func(is bool, bit uint64) {
		if is {
			flags |= bit
		}
	}
	known, active, quota := uint64(e.KnownMembers), uint64(e.ActivePeers), e.QuotaBytes/resolutionMemory
	g := e.Gains
	events := g != nil && (g.LeaderChanges > 0 || g.HeartbeatSendFailures > 0 || g.SlowApplies > 0)
	set(e.HasLeader, hasLeader)
	set(e.IsLeader, isLeader)
	set(e.IsLearner, isLearner)
	set(g != nil, hasGains)
	set(events, hasEvents)
	set(e.Member != s.member, newMember)
	set(known != s.known || active != s.active, newCounts)
	set(quota != s.quota, newQuota)
	p.uint(colEtcdFlags, flags)
	if e.Member != s.member {
		p.uint(colMember, uint64(e.Member))
	}
	if known != s.known || active != s.active {
		p.uint(colCounts, known)
		p.uint(colCounts, active)
	}
	if quota != s.quota {
		p.uint(colQuota, quota)
	}
	s.member, s.known, s.active, s.quota = e.Member, known, active, quota
	db := int64(e.DBSizeBytes / resolutionDB)
	p.int(colDB, db-s.db)
	s.db = db
	if g == nil {
		return
	}
	if events {
		p.uint(colEvents, uint64(g.LeaderChanges))
		p.uint(colEvents, uint64(g.HeartbeatSendFailures))
		p.uint(colEvents, uint64(g.SlowApplies))
	}
	p.histogram(kindWAL, diskBuckets, &g.WALFsync)
	p.histogram(kindCommit, diskBuckets, &g.BackendCommit)
	var peers uint64
	for _, r := range g.RoundTrip {
		peers |= 1 << slices.Index(t.peers, r.Peer)
	}
	p.uint(colPeers, peers)
	for i := range g.RoundTrip {
		p.histogram(kindTrip, MaxBuckets, &g.RoundTrip[i].Histogram)
	}
}

// histogram writes of each bucket whether it is empty and if not its count, and
// the sum where there is any.
func (p *packer) histogram(kind column, buckets int, h *Histogram) {
	some := false
	for i, c := range h.Counts[:buckets] {
		col := colBucket + kind*MaxBuckets + column(i)
		p.flag(col, c > 0)
		if c > 0 {
			p.uint(col, uint64(c))
			some = true
		}
	}
	if some {
		p.time(colSum+kind, h.Sum)
	}
}

// time writes a time that normal has rounded.
func (p *packer) time(c column, d time.Duration) {
	p.number(c, uint64(d/resolutionTime), significantBits)
}
