package fitness

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
)

// EntryError is why an entry of the ConfigMap of the probes cannot be used. Its
// host is unknown then.
type EntryError struct {
	Code     string
	Sentence string
}

func (e *EntryError) Error() string { return "probe entry: " + e.Sentence }

// Codes of an EntryError.
const (
	CodeEntryMalformed = "ProbeEntryMalformed"
	CodeEntryTooLarge  = "ProbeEntryTooLarge"
	CodeEntryVersion   = "ProbeEntryVersion"
	CodeEntryDamaged   = "ProbeEntryDamaged"
	CodeEntryOrder     = "ProbeEntryOutOfOrder"
	CodeEntryNode      = "ProbeEntryOfAnotherNode"
)

func entryError(code, format string, args ...any) error {
	return &EntryError{Code: code, Sentence: fmt.Sprintf(format, args...)}
}

// Decode reads the entry of a node. The error is an *EntryError; nothing of the
// entry may be used then. Fields it does not know are ignored.
func Decode(node string, raw []byte) (Window, error) {
	if len(raw) > MaxEntry {
		return Window{}, entryError(CodeEntryTooLarge, "%d bytes are more than %d", len(raw), MaxEntry)
	}
	// The version first: what an entry of another version holds is not known.
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return Window{}, entryError(CodeEntryMalformed, "%v", err)
	}
	if v.Version != EntryVersion {
		return Window{}, entryError(CodeEntryVersion, "version %d, this program reads %d", v.Version, EntryVersion)
	}
	var e Entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return Window{}, entryError(CodeEntryMalformed, "%v", err)
	}
	if e.Node != node {
		return Window{}, entryError(CodeEntryNode, "it is of node %q", clip(e.Node, maxNameLen))
	}
	t, err := e.check()
	if err != nil {
		return Window{}, err
	}
	w := Window{
		Node: e.Node, BootID: e.BootID, Counter: e.Counter, Period: time.Duration(e.PeriodMS) * time.Millisecond,
		Size: e.Size, Members: e.Members,
	}
	s := state{at: e.FirstMS - e.PeriodMS, period: e.PeriodMS}
	if e.Samples > 0 {
		u := newUnpacker(e.Data)
		w.Samples = make([]Sample, e.Samples)
		before, readings := int64(-1<<62), 0
		for i := range w.Samples {
			s.get(u, t, &w.Samples[i])
			if u.fault != "" {
				return Window{}, entryError(CodeEntryDamaged, "sample %d of %d: %s", i+1, e.Samples, u.fault)
			}
			if s.at <= before {
				return Window{}, entryError(CodeEntryOrder, "sample %d of %d is not later than the one before", i+1, e.Samples)
			}
			before = s.at
			if readings += w.Samples[i].readings(); readings > maxReadings {
				return Window{}, entryError(CodeEntryTooLarge, "more than %d readings in %d of %d samples", maxReadings, i+1, e.Samples)
			}
		}
		if u.at != len(u.b) {
			return Window{}, entryError(CodeEntryDamaged, "%d bytes are left over", len(u.b)-u.at)
		}
	}
	if err := tell(w.Samples, e.Refused, Refused); err != nil {
		return Window{}, err
	}
	if err := tell(w.Samples, e.Unanswered, Unanswered); err != nil {
		return Window{}, err
	}
	return w, nil
}

// check holds the head to its bounds.
func (e *Entry) check() (*tables, error) {
	bad := func(what string, v any) (*tables, error) {
		return nil, entryError(CodeEntryMalformed, "%s is %v", what, v)
	}
	period := time.Duration(e.PeriodMS) * time.Millisecond
	switch {
	case e.PeriodMS < minPeriod.Milliseconds() || e.PeriodMS > maxPeriod.Milliseconds():
		return bad("period_ms", e.PeriodMS)
	case e.Size < 1 || e.Size > maxSamples:
		return bad("size", e.Size)
	case e.Samples < 0 || e.Samples > maxSamples:
		return bad("samples", e.Samples)
	case e.FirstMS < minUnixMS || e.FirstMS > maxUnixMS:
		return bad("first_ms", e.FirstMS)
	case clip(e.BootID, maxNameLen) != e.BootID || e.BootID == "":
		return bad("boot_id", "empty, too long, or not printable")
	case checksum(e.Data) != e.Sum:
		return nil, entryError(CodeEntryDamaged, "its data do not go with its sum")
	case e.Samples == 0 && len(e.Data) > 0:
		return nil, entryError(CodeEntryDamaged, "%d bytes hold no sample", len(e.Data))
	case !inOrder(e.Members) || !inOrder(e.Peers) || !inOrder(e.Voters) || !inOrder(e.Links) || !inOrder(e.Absent):
		return nil, entryError(CodeEntryMalformed, "a table is too long, or not sorted")
	case period <= 0:
		return bad("period", period)
	}
	for _, name := range e.Voters {
		if name == "" || clip(name, maxNameLen) != name {
			return bad("a voter's name", "empty, too long, or not printable")
		}
	}
	t := &tables{voters: e.Voters, peers: e.Peers, links: e.Links, absent: e.Absent}
	for _, word := range e.Links {
		l, ok := parseLink(word)
		if !ok {
			return bad("a link", "not a kind and an interface")
		}
		t.decodedLinks = append(t.decodedLinks, l)
	}
	for _, word := range e.Absent {
		reading, code, ok := strings.Cut(word, " ")
		if !ok || clip(reading, maxCodeLen) != reading || clip(code, maxCodeLen) != code {
			return bad("an absence", "not a reading and a code")
		}
		t.decodedAbsent = append(t.decodedAbsent, Absence{Reading(reading), code})
	}
	return t, nil
}

// minUnixMS and maxUnixMS are the years 1 and 9999, which JSON can write. A host
// without a battery begins in 1970, and a clock set back moves samples before it.
const (
	minUnixMS = -62135596800000
	maxUnixMS = 253402300799000
)

func inOrder[T string | fleet.MemberID](list []T) bool {
	if len(list) > maxNames {
		return false
	}
	for i := 1; i < len(list); i++ {
		if list[i] <= list[i-1] {
			return false
		}
	}
	return true
}

func parseLink(word string) (Link, bool) {
	kind, name, ok := strings.Cut(word, " ")
	l := Link{LinkKind(kind), name}
	return l, ok && slices.Contains([]LinkKind{Wired, WiFi, Unseen}, l.Kind) && clip(name, maxCodeLen) == name
}

func (s *state) get(u *unpacker, t *tables, x *Sample) {
	flags := u.upTo(colFlags, sampleBits, "the bits of a sample")
	x.Restart = restarts[flags&restartBits]
	step := u.int(colStep)
	if step < -maxUnixMS || step > maxUnixMS {
		u.fail("a step of %d ms", step)
		return
	}
	if s.at += s.period + step; s.at < minUnixMS || s.at > maxUnixMS {
		u.fail("a time of %d ms", s.at)
		return
	}
	x.At = time.UnixMilli(s.at).UTC()
	if flags&newLink != 0 {
		s.link = u.upTo(colLink, uint64(len(t.decodedLinks)), "a link")
	}
	if s.link > 0 {
		x.Link = t.decodedLinks[s.link-1]
	}
	if flags&newVoters != 0 {
		s.voters = u.upTo(colVoters, 1<<len(t.voters)-1, "a set of voters")
	}
	x.Connect = t.connects(u, s.voters)
	if flags&hasMemory != 0 {
		x.Memory = s.getMemory(u)
	}
	if flags&hasEtcd != 0 {
		x.Etcd = s.getEtcd(u, t)
	}
	if flags&hasFsync != 0 {
		f := Fsync{Count: int(u.upTo(colFsync, maxCount, "a count"))}
		f.P50, f.P99, f.Max = u.time(colFsync, maxTime), u.time(colFsync, maxTime), u.time(colFsync, maxTime)
		x.Fsync = &f
	}
	if flags&hasAbsent != 0 {
		n := u.upTo(colAbsent, uint64(len(t.decodedAbsent)), "a number of absences")
		for range n {
			if i := u.upTo(colAbsent, uint64(len(t.decodedAbsent)), "an absence"); i < uint64(len(t.decodedAbsent)) {
				x.Absent = append(x.Absent, t.decodedAbsent[i])
			} else {
				u.fail("an absence of %d", i)
			}
		}
	}
}

func (t *tables) connects(u *unpacker, voters uint64) []Connect {
	var cs []Connect
	for i := range t.voters {
		if voters&(1<<i) == 0 {
			continue
		}
		if cs == nil {
			cs = make([]Connect, 0, bits.OnesCount64(voters))
		}
		c := Connect{To: t.voters[i]}
		if c.Failed = u.flag(colConnect + column(i)); !c.Failed {
			c.Took = u.time(colConnect+column(i), maxTime)
		}
		cs = append(cs, c)
	}
	return cs
}

// time reads what packer.time wrote.
func (u *unpacker) time(c column, most time.Duration) time.Duration {
	v := u.number(c, significantBits)
	if v > uint64(most/resolutionTime) {
		u.fail("a time of %d is more than %d", v, most/resolutionTime)
		return 0
	}
	return time.Duration(v) * resolutionTime
}

func (s *state) getMemory(u *unpacker) *level.Reading {
	flags := u.upTo(colMemoryFlags, memoryBits, "the bits of a memory reading")
	m := &level.Reading{}
	if flags&hasPressure != 0 {
		var v [4]float64
		for i := range v {
			if flags&(pressure0<<i) != 0 {
				v[i] = float64(u.upTo(colAverage+column(i), 100*percentParts, "a percentage")) / percentParts
			}
		}
		m.Pressure = &level.Pressure{SomeAvg10: v[0], SomeAvg60: v[1], FullAvg10: v[2], FullAvg60: v[3]}
	}
	if flags&newTotal != 0 {
		s.total = u.upTo(colTotal, maxBytes/resolutionMemory, "a memory total")
	}
	step := u.int(colAvailable)
	if step < -maxBytes || step > maxBytes {
		u.fail("a step of %d KiB", step)
		return m
	}
	if s.available += step; s.available < 0 || s.available > maxBytes/resolutionMemory {
		u.fail("an available memory of %d KiB", s.available)
		return m
	}
	m.TotalBytes, m.AvailableBytes = s.total*resolutionMemory, uint64(s.available)*resolutionMemory
	if m.TotalBytes == 0 {
		m.AvailableBytes = 0
	}
	return m
}

func (s *state) getEtcd(u *unpacker, t *tables) *Etcd {
	flags := u.upTo(colEtcdFlags, etcdBits, "the bits of an etcd reading")
	if flags&newMember != 0 {
		s.member = fleet.MemberID(u.uint(colMember))
	}
	if flags&newCounts != 0 {
		s.known, s.active = u.upTo(colCounts, maxKnown, "a number of members"), u.upTo(colCounts, maxKnown, "a number of peers")
	}
	if flags&newQuota != 0 {
		s.quota = u.upTo(colQuota, maxBytes/resolutionMemory, "a quota")
	}
	step := u.int(colDB)
	if step < -maxBytes || step > maxBytes {
		u.fail("a step of %d pages", step)
		return nil
	}
	if s.db += step; s.db < 0 || s.db > maxBytes/resolutionDB {
		u.fail("a database of %d pages", s.db)
		return nil
	}
	e := &Etcd{
		Member: s.member, HasLeader: flags&hasLeader != 0, IsLeader: flags&isLeader != 0, IsLearner: flags&isLearner != 0,
		KnownMembers: int(s.known), ActivePeers: int(s.active), DBSizeBytes: uint64(s.db) * resolutionDB, QuotaBytes: s.quota * resolutionMemory,
	}
	if flags&hasGains == 0 {
		return e
	}
	g := &Gains{}
	e.Gains = g
	if flags&hasEvents != 0 {
		for _, v := range []*uint32{&g.LeaderChanges, &g.HeartbeatSendFailures, &g.SlowApplies} {
			*v = uint32(u.upTo(colEvents, maxCount, "a count"))
		}
	}
	u.histogram(kindWAL, diskBuckets, &g.WALFsync)
	u.histogram(kindCommit, diskBuckets, &g.BackendCommit)
	peers := u.upTo(colPeers, 1<<len(t.peers)-1, "a set of peers")
	if n := bits.OnesCount64(peers); n > 0 {
		g.RoundTrip = make([]PeerRoundTrip, 0, n)
	}
	for i, id := range t.peers {
		if peers&(1<<i) != 0 && u.fault == "" {
			r := PeerRoundTrip{Peer: id}
			if u.histogram(kindTrip, MaxBuckets, &r.Histogram); r.Histogram.Total() == 0 {
				u.fail("a peer without a round trip")
			}
			g.RoundTrip = append(g.RoundTrip, r)
		}
	}
	return e
}

func (u *unpacker) histogram(kind column, buckets int, h *Histogram) {
	some := false
	for i := range buckets {
		col := colBucket + kind*MaxBuckets + column(i)
		if !u.flag(col) {
			continue
		}
		some = true
		if h.Counts[i] = uint32(u.upTo(col, maxCount, "a count")); h.Counts[i] == 0 {
			u.fail("an empty bucket is counted")
		}
	}
	if some {
		h.Sum = u.time(colSum+kind, maxInterval)
	}
}
