package fitness

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/level"
)

var began = time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)

func drawSample(t *rapid.T, at time.Time) Sample {
	s := Sample{At: at, Restart: rapid.SampledFrom(restarts).Draw(t, "restart")}
	took := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(-1, int64(2*time.Hour)).Draw(t, "ns"))
	})
	for _, to := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 5).Draw(t, "to") {
		s.Connect = append(s.Connect, Connect{To: to, Took: took.Draw(t, "took"), Failed: rapid.Bool().Draw(t, "failed"),
			Why: rapid.SampledFrom([]Failure{"", "", Refused, Unanswered, "odd"}).Draw(t, "why")})
	}
	s.Link = Link{rapid.SampledFrom([]LinkKind{"", Wired, WiFi, Unseen, "other"}).Draw(t, "kind"), rapid.StringN(0, 40, -1).Draw(t, "interface")}
	if rapid.Bool().Draw(t, "memory") {
		m := level.Reading{AvailableBytes: rapid.Uint64().Draw(t, "available"), TotalBytes: rapid.Uint64().Draw(t, "total")}
		if rapid.Bool().Draw(t, "psi") {
			f := rapid.OneOf(rapid.Float64Range(-1, 101), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)))
			m.Pressure = &level.Pressure{SomeAvg10: f.Draw(t, "s10"), SomeAvg60: f.Draw(t, "s60"), FullAvg10: f.Draw(t, "f10"), FullAvg60: f.Draw(t, "f60")}
		}
		s.Memory = &m
	}
	if rapid.Bool().Draw(t, "etcd") {
		e := Etcd{
			Member: fleet.MemberID(rapid.Uint64().Draw(t, "member")), HasLeader: rapid.Bool().Draw(t, "has"), IsLeader: rapid.Bool().Draw(t, "is"),
			IsLearner: rapid.Bool().Draw(t, "learner"), KnownMembers: rapid.Int().Draw(t, "known"), ActivePeers: rapid.Int().Draw(t, "active"),
			DBSizeBytes: rapid.Uint64().Draw(t, "db"), QuotaBytes: rapid.Uint64().Draw(t, "quota"),
		}
		if rapid.Bool().Draw(t, "gains") {
			h := rapid.Custom(func(t *rapid.T) Histogram {
				x := Histogram{Sum: took.Draw(t, "sum")}
				for i, c := range rapid.SliceOfN(rapid.Uint32(), 0, MaxBuckets).Draw(t, "counts") {
					x.Counts[i] = c
				}
				return x
			})
			e.Gains = &Gains{WALFsync: h.Draw(t, "wal"), BackendCommit: h.Draw(t, "commit"), LeaderChanges: rapid.Uint32().Draw(t, "changes")}
			for _, id := range rapid.SliceOfN(rapid.Uint64Range(1, 5), 0, 6).Draw(t, "peers") {
				e.Gains.RoundTrip = append(e.Gains.RoundTrip, PeerRoundTrip{fleet.MemberID(id), h.Draw(t, "trip")})
			}
		}
		s.Etcd = &e
	}
	if rapid.Bool().Draw(t, "fsync") {
		s.Fsync = &Fsync{rapid.Int().Draw(t, "count"), took.Draw(t, "p50"), took.Draw(t, "p99"), took.Draw(t, "max")}
	}
	for range rapid.IntRange(0, 2).Draw(t, "absences") {
		s.Absent = append(s.Absent, Absence{rapid.SampledFrom([]Reading{ReadingEtcd, ReadingFsync}).Draw(t, "reading"), rapid.SampledFrom([]string{"NoPage", "Timeout", "a b\"c"}).Draw(t, "why")})
	}
	return s
}

func TestAWindowIsReadAsItWasKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Window{Node: "n1", BootID: "b", Period: 15 * time.Second, Size: rapid.IntRange(1, 6).Draw(t, "size"), Members: []fleet.MemberID{1, 1 << 60}}
		at := began
		for range rapid.IntRange(0, 8).Draw(t, "samples") {
			at = at.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step")))
			w.Append(drawSample(t, at))
		}
		raw, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode("n1", raw)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if d := cmp.Diff(w, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestRoundingNeverMovesAValueToTheFitSide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t, began)
		n := s.normal()
		for _, c := range n.Connect {
			for _, was := range s.Connect {
				if was.To == c.To && !c.Failed && !was.Failed && c.Took < min(was.Took, maxTime) {
					if slices.ContainsFunc(s.Connect, func(x Connect) bool { return x.To == c.To && x != was }) {
						continue // named twice
					}
					t.Fatalf("%s became %s", was.Took, c.Took)
				}
			}
		}
		if s.Memory != nil {
			if n.Memory.AvailableBytes > s.Memory.AvailableBytes {
				t.Fatal("more memory than there is")
			}
			if p, q := s.Memory.Pressure, n.Memory.Pressure; p != nil && q != nil && q.FullAvg60 < min(p.FullAvg60, 100)-1e-7 {
				t.Fatalf("%v became %v", p.FullAvg60, q.FullAvg60)
			}
		}
		if s.Fsync != nil && n.Fsync.P99 < min(s.Fsync.P99, maxTime) {
			t.Fatal("a quicker disk than it is")
		}
		if d := cmp.Diff(n, n.normal()); d != "" {
			t.Fatal("rounding twice differs: " + d)
		}
	})
}

// worst is the entry of one host with the longest numbers that a fleet of seven
// voters can give: other voters and peers all slow and unhealthy, every bucket
// that fifteen seconds of one WAL can fill.
func worst(node string, voter bool, r *rand.Rand) Window {
	w := Window{Node: node, BootID: "8a1f2c3e-7b64-4f6e-9f0a-6f3f0f6f2a11", Counter: 1 << 40, Period: DefaultPeriod, Size: DefaultSize}
	at := began
	for i := range 7 {
		w.Members = append(w.Members, fleet.MemberID(1<<63+uint64(i)<<50+r.Uint64()%1e9))
	}
	for n := range DefaultSize {
		at = at.Add(15*time.Second + time.Duration(r.Intn(2000)-1000)*time.Millisecond)
		s := Sample{At: at, Link: Link{Wired, "enp0s31f6"}, Memory: &level.Reading{
			Pressure:       &level.Pressure{SomeAvg10: 10 + r.Float64()*89, SomeAvg60: 10 + r.Float64()*89, FullAvg10: 10 + r.Float64()*89, FullAvg60: 10 + r.Float64()*89},
			AvailableBytes: uint64(r.Int63n(64 << 30)), TotalBytes: 64 << 30,
		}}
		for v := range 7 {
			if name := fmt.Sprintf("a-host-with-a-rather-long-name-%02d", v); name != node {
				s.Connect = append(s.Connect, Connect{To: name, Took: 2*time.Second + time.Duration(r.Int63n(int64(13*time.Second)))})
			}
		}
		if voter {
			g := &Gains{LeaderChanges: uint32(r.Intn(3)), HeartbeatSendFailures: uint32(r.Intn(100)), SlowApplies: uint32(r.Intn(100))}
			e := &Etcd{Member: w.Members[0], HasLeader: true, KnownMembers: 7 + n%2, ActivePeers: 6 - n%2, DBSizeBytes: uint64(r.Int63n(2 << 30)), QuotaBytes: 2 << 30, Gains: g}
			g.WALFsync = full(r, diskBuckets, 15*time.Second)
			g.BackendCommit = full(r, diskBuckets, 15*time.Second)
			for _, id := range w.Members[1:] {
				h := Histogram{Sum: time.Duration(r.Int63n(int64(10 * time.Second)))}
				for range 2 {
					h.Counts[r.Intn(MaxBuckets)]++
				}
				g.RoundTrip = append(g.RoundTrip, PeerRoundTrip{id, h})
			}
			s.Etcd = e
		} else if n == 50 {
			s.Fsync = &Fsync{2000, 3 * time.Second, 10 * time.Second, 14 * time.Second}
		}
		w.Append(s)
	}
	return w
}

// full is what a disk that does one thing after another can have in its buckets
// after so long, with as many buckets in use as there are.
func full(r *rand.Rand, buckets int, within time.Duration) Histogram {
	h := Histogram{Sum: within - time.Duration(r.Intn(1e6))}
	share := within / time.Duration(buckets)
	for i := range buckets {
		h.Counts[i] = uint32(share / (time.Millisecond << i) * 2)
		if h.Counts[i] == 0 && i < len(diskBounds) {
			h.Counts[i] = uint32(r.Intn(2))
		}
	}
	return h
}

// R-185-09: the ConfigMap holds at most one mebibyte.
func TestSixtyFourFullWindowsOfWorstNumbersFitInOneConfigMap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	total := 0
	for i := range 64 {
		node := fmt.Sprintf("a-host-with-a-rather-long-name-%02d", i)
		w := worst(node, i < 7, r)
		raw, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(node, raw)
		if err != nil || len(got.Samples) != DefaultSize {
			t.Fatalf("%d samples, %v", len(got.Samples), err)
		}
		if i == 0 || i == 7 {
			t.Logf("%s: %d bytes", node, len(raw))
		}
		most := 6 << 10
		if i < 7 {
			most = 11 << 10
		}
		if len(raw) > most {
			t.Errorf("the entry of %s has %d bytes, want at most %d", node, len(raw), most)
		}
		total += len(node) + len(raw)
	}
	if most := 3 << 17; total > most {
		t.Errorf("64 entries have %d bytes, want at most three eighths of one mebibyte", total)
	}
	t.Logf("64 entries: %d bytes", total)
}

// A window that an entry cuts is never full: the worst host would be the one that is not
// judged.
func TestTheLargestWindowThatCanBeSetFitsInAnEntry(t *testing.T) {
	for name, voter := range map[string]bool{"a voter": true, "a standby": false} {
		w := worst("n1", voter, rand.New(rand.NewSource(1)))
		of := w.Samples
		w.Size, w.Samples = MaxWindow, nil
		for i := range MaxWindow {
			s := of[i%len(of)]
			s.At = began.Add(time.Duration(i) * DefaultPeriod)
			w.Append(s)
		}
		raw, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode("n1", raw)
		if t.Logf("%s: %d bytes of %d", name, len(raw), MaxEntry); err != nil || len(again.Samples) != MaxWindow {
			t.Errorf("%s: %d of %d samples, %v", name, len(again.Samples), MaxWindow, err)
		}
	}
}

func TestAnEntryThatCannotBeUsedSaysWhy(t *testing.T) {
	w := worst("n1", true, rand.New(rand.NewSource(1)))
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(map[string]any)) []byte {
		var m map[string]any
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		change(m)
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	packed := func(data []byte, change func(map[string]any)) []byte {
		return edit(func(m map[string]any) {
			m["data"], m["sum"] = data, checksum(data)
			if change != nil {
				change(m)
			}
		})
	}
	for name, tt := range map[string]struct {
		raw  []byte
		code string
	}{
		"nothing at all":                   {nil, CodeEntryMalformed},
		"something that is not JSON":       {[]byte("NaN"), CodeEntryMalformed},
		"half of it":                       {raw[:len(raw)/2], CodeEntryMalformed},
		"a megabyte":                       {make([]byte, 1<<20), CodeEntryTooLarge},
		"an older version":                 {edit(func(m map[string]any) { delete(m, "version") }), CodeEntryVersion},
		"a newer version of another form":  {[]byte(`{"version":2,"samples":"many"}`), CodeEntryVersion},
		"another node's entry":             {edit(func(m map[string]any) { m["node"] = "n2" }), CodeEntryNode},
		"a damaged column":                 {edit(func(m map[string]any) { m["sum"] = 1 }), CodeEntryDamaged},
		"data that end early":              {packed(dataOf(raw)[:1000], nil), CodeEntryDamaged},
		"samples without data":             {packed(nil, nil), CodeEntryDamaged},
		"data without samples":             {edit(func(m map[string]any) { m["samples"] = 0 }), CodeEntryDamaged},
		"data that go on":                  {packed(append(append([]byte{}, dataOf(raw)...), 0), nil), CodeEntryDamaged},
		"negative samples":                 {edit(func(m map[string]any) { m["samples"] = -1 }), CodeEntryMalformed},
		"a huge number of samples":         {edit(func(m map[string]any) { m["samples"] = 1 << 30 }), CodeEntryMalformed},
		"more readings than any fleet has": {crowded(t, maxReadings+maxSamples), CodeEntryTooLarge},
		"a fraction of a sample":           {edit(func(m map[string]any) { m["samples"] = 1.5 }), CodeEntryMalformed},
		"no period":                        {edit(func(m map[string]any) { m["period_ms"] = 0 }), CodeEntryMalformed},
		"no boot id":                       {edit(func(m map[string]any) { delete(m, "boot_id") }), CodeEntryMalformed},
		"a table that is not sorted":       {edit(func(m map[string]any) { m["voters"] = []string{"b", "a"} }), CodeEntryMalformed},
		"a link of no kind":                {edit(func(m map[string]any) { m["links"] = []string{"cable eth0"} }), CodeEntryMalformed},
		"samples out of order": {packed(numbers(colFlags, 0, colStep, 0, colFlags, 0, colStep, 2999), func(m map[string]any) {
			m["samples"], m["period_ms"] = 2, 1000
		}), CodeEntryOrder},
		"samples at one time": {packed(numbers(colFlags, 0, colStep, 0, colFlags, 0, colStep, 1999), func(m map[string]any) {
			m["samples"], m["period_ms"] = 2, 1000
		}), CodeEntryOrder},
		"a voter that is not in the table": {packed(numbers(colFlags, newVoters, colStep, 0, colVoters, 1<<20), func(m map[string]any) {
			m["samples"] = 1
		}), CodeEntryDamaged},
		"a set of sixty voters": {packed(numbers(colFlags, newVoters, colStep, 0, colVoters, 1<<60), func(m map[string]any) {
			m["samples"] = 1
		}), CodeEntryDamaged},
		"a negative memory": {packed(numbers(colFlags, hasMemory, colStep, 0, colMemoryFlags, 0, colAvailable, 1), func(m map[string]any) {
			m["samples"] = 1
		}), CodeEntryDamaged},
		"more than all of the time": {packed(numbers(colFlags, hasMemory, colStep, 0, colMemoryFlags, hasPressure|pressure0, colAverage, 10001), func(m map[string]any) {
			m["samples"] = 1
		}), CodeEntryDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode("n1", tt.raw)
			var e *EntryError
			if !errors.As(err, &e) || e.Code != tt.code {
				t.Errorf("got %v, want %s", err, tt.code)
			}
		})
	}
}

// A clock that is set back, or forth, loses no sample.
func TestAClockThatIsSetBackMovesTheOlderSamples(t *testing.T) {
	w := Window{Node: "n1", BootID: "b", Period: 15 * time.Second, Size: 3}
	for _, at := range []time.Duration{0, 15 * time.Second, -time.Hour, 24 * time.Hour} {
		w.Append(Sample{At: began.Add(at)})
	}
	if len(w.Samples) != 3 || w.Counter != 4 {
		t.Fatalf("%d samples, counter %d", len(w.Samples), w.Counter)
	}
	if d := w.Samples[1].At.Sub(w.Samples[0].At); d != 15*time.Second {
		t.Errorf("the sample before the step is %s before the one after it", d)
	}
	for i := 1; i < 3; i++ {
		if !w.Samples[i].At.After(w.Samples[i-1].At) {
			t.Errorf("sample %d is not after the one before", i)
		}
	}
}

// crowded is an entry with so many readings, as Encode would never write it.
func crowded(t *testing.T, readings int) []byte {
	t.Helper()
	e := Entry{Version: EntryVersion, Node: "n1", BootID: "b", PeriodMS: 15000, Size: maxSamples, Samples: maxSamples, FirstMS: 1e12}
	tab := tables{}
	one := Sample{}
	for i := range readings / maxSamples {
		one.Connect = append(one.Connect, Connect{To: fmt.Sprintf("n%02d", i+2), Took: time.Millisecond})
	}
	if !tab.take(one) {
		t.Fatal("not even one sample has room")
	}
	e.Voters = tab.voters
	p := newPacker()
	s := state{at: e.FirstMS - e.PeriodMS, period: e.PeriodMS}
	for i := range maxSamples {
		one.At = time.UnixMilli(e.FirstMS + int64(i)*e.PeriodMS)
		s.put(p, &tab, &one)
	}
	e.Data = p.end()
	e.Sum = checksum(e.Data)
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// An entry may hold so many readings: what Encode writes can be read again, and of more
// the oldest go.
func TestAnEntryHoldsSoManyReadings(t *testing.T) {
	w, err := Decode("n1", crowded(t, maxReadings))
	if err != nil || len(w.Samples) != maxSamples {
		t.Fatalf("%d samples, %v", len(w.Samples), err)
	}
	for i := range w.Samples {
		w.Samples[i].Connect = append(w.Samples[i].Connect, Connect{To: "one-more", Took: time.Millisecond})
	}
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode("n1", raw)
	if want := maxReadings / (maxReadings/maxSamples + 1); err != nil || len(again.Samples) != want || again.Last().At != w.Last().At {
		t.Errorf("%d samples, want %d; %v", len(again.Samples), want, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, voter := range []bool{true, false} {
		w := worst("n1", voter, rand.New(rand.NewSource(1)))
		w.Samples = w.Samples[:3]
		raw, err := w.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(dataOf(raw))
	}
	f.Add([]byte(`{"version":1}`))
	failed := withFailures(Refused, Unanswered, "", Refused)
	raw, err := failed.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkDecoded(t, raw)
		// The packed samples by themselves, with a head that fits: garbage would
		// hardly ever get past the sum.
		e := Entry{
			Version: EntryVersion, Node: "n1", BootID: "b", PeriodMS: 15000, Size: 100, Samples: 3, FirstMS: 1e12,
			Voters: []string{"a", "b"}, Peers: []fleet.MemberID{1, 2}, Links: []string{"wired eth0"}, Absent: []string{"etcd NoPage"}, Data: raw, Sum: checksum(raw),
		}
		whole, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		checkDecoded(t, whole)
	})
}

// numbers packs pairs of a column and a number.
func numbers(pairs ...column) []byte {
	p := newPacker()
	for i := 0; i < len(pairs); i += 2 {
		p.uint(pairs[i], uint64(pairs[i+1]))
	}
	return p.end()
}

func dataOf(raw []byte) []byte {
	var e Entry
	_ = json.Unmarshal(raw, &e)
	return e.Data
}

// checkDecoded: an error has a code; what was read is kept as it is.
func checkDecoded(t *testing.T, raw []byte) {
	w, err := Decode("n1", raw)
	if err != nil {
		var e *EntryError
		if !errors.As(err, &e) || e.Code == "" || e.Sentence == "" {
			t.Fatalf("%v is no EntryError with a code", err)
		}
		return
	}
	again, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	x, err := Decode("n1", again)
	if err != nil {
		t.Fatalf("%v\n%s", err, again)
	}
	// Only a list of absences may be sorted by being written again.
	for i := range w.Samples {
		w.Samples[i].Absent = normalAbsent(w.Samples[i].Absent)
	}
	if d := cmp.Diff(w, x); d != "" {
		t.Fatal(d)
	}
}
