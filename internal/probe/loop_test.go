package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// live runs one probe's loop for a while, acts, and goes on for a while.
func live(t *testing.T, c *maps, node string, m *machine, f func(p *Probe, pass func(n int))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if m.hangs {
			m.hang = make(chan struct{}) // the bubble's own, so that its time goes on
		}
		p := newProbe(c, node, m)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx, nil); close(ended) }()
		time.Sleep(period/4 + time.Second)
		synctest.Wait()
		f(p, func(n int) {
			time.Sleep(time.Duration(n) * period)
			synctest.Wait()
		})
		cancel()
		<-ended
		if m.hang != nil {
			close(m.hang)
		}
		time.Sleep(time.Minute)
	})
}

func TestOneSampleAPeriodIntoTheOwnKey(t *testing.T) { // R-185-01, R-185-02, R-185-10
	c := newMaps(3, 1)
	live(t, c, "n1", newMachine(1), func(p *Probe, pass func(int)) {
		pass(130)
		w := c.entry(t, "n1")
		if len(c.data) != 1 {
			t.Errorf("keys %v", c.data)
		}
		if w.BootID != "boot-1" || w.Size != 100 || !w.Full() || w.Period != period || len(w.Members) != 3 {
			t.Errorf("%+v", w)
		}
		s := w.Last()
		if len(s.Connect) != 2 || s.Etcd == nil || s.Etcd.Gains == nil || s.Memory == nil || s.Link.Kind != fitness.Wired || s.Fsync != nil || len(s.Absent) != 0 {
			t.Errorf("%+v", s)
		}
		if got := p.Window().Counter; got != 131 {
			t.Errorf("%d samples in 131 periods", got)
		}
		if c.reads != 1 || c.lists != 131 {
			t.Errorf("the own entry was read %d times, the Nodes %d times in 131 samples", c.reads, c.lists)
		}
		if beats := c.beats["n1"]; len(beats) != 131 || beats[130].Counter != 131 || beats[0].Counter != 1 {
			t.Errorf("%d heartbeats", len(beats))
		}
	})
}

func TestTheFirstSampleCarriesTheRestart(t *testing.T) { // R-185-10, R-X-11
	c := newMaps(3, 1)
	marks := func() (out []string) {
		for _, s := range c.entry(t, "n1").Samples {
			out = append(out, string(s.Restart))
		}
		return out
	}
	m := newMachine(1)
	live(t, c, "n1", m, func(*Probe, func(int)) {})
	if got := fmt.Sprintf("%q", marks()); got != `["probe"]` {
		t.Errorf("after a start %s", got)
	}
	live(t, c, "n1", m, func(*Probe, func(int)) {})
	if got := fmt.Sprintf("%q", marks()); got != `["probe" "probe"]` {
		t.Errorf("after a second start %s", got)
	}
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(c, "n1", m)
		p.s.BootID, p.window.BootID = "boot-2", "boot-2"
		p.Pass(t.Context())
	})
	if got := fmt.Sprintf("%q", marks()); got != `["probe" "probe" "host"]` || c.entry(t, "n1").BootID != "boot-2" {
		t.Errorf("after a boot %s", got)
	}
	if n := c.entry(t, "n1").Counter; n != 3 {
		t.Errorf("the counter begins anew: %d", n)
	}
}

func TestEtcdsRestartIsInTheSample(t *testing.T) {
	c, m := newMaps(3, 1), newMachine(1)
	live(t, c, "n1", m, func(p *Probe, pass func(int)) {
		pass(3)
		m.Forget()
		pass(1)
		w := p.Window()
		if s := w.Last(); s.Restart != fitness.RestartEtcd || s.Etcd.Gains != nil {
			t.Errorf("%+v", s)
		}
	})
}

func TestAHostThatIsNeitherRecordsNothingAndLosesItsKey(t *testing.T) { // R-185-09
	c, m := newMaps(3, 1), newMachine(1)
	c.data["n5"], c.data["n1"] = "an entry of an earlier life", "another host's"
	live(t, c, "n5", m, func(p *Probe, pass func(int)) {
		if _, there := c.data["n5"]; there || c.data["n1"] == "" || c.drops != 1 {
			t.Errorf("%v after %d removals", c.data, c.drops)
		}
		pass(20)
		if c.drops != 1 || c.puts != 0 || len(c.beats) != 0 || m.fsyncs != 0 || len(p.Window().Samples) != 0 {
			t.Errorf("%d removals, %d writes, %d heartbeats, %d disk runs", c.drops, c.puts, len(c.beats), m.fsyncs)
		}
		c.mu.Lock()
		c.eligible = append(c.eligible, "n5")
		c.mu.Unlock()
		pass(1)
		if w := c.entry(t, "n5"); len(w.Samples) != 1 || w.Samples[0].Restart != fitness.RestartProbe {
			t.Errorf("eligible now: %+v", w)
		}
		c.mu.Lock()
		c.eligible, c.refuse = c.eligible[:1], true
		c.mu.Unlock()
		pass(2)
		if _, there := c.data["n5"]; !there {
			t.Error("a refused removal removed it")
		}
		c.mu.Lock()
		c.refuse = false
		c.mu.Unlock()
		pass(1)
		if _, there := c.data["n5"]; there {
			t.Error("it is no candidate any more and keeps its key")
		}
	})
}

// The DaemonSet ends the pod of a host that lost both labels; one that is ended
// for another reason keeps its window.
func TestAProbeThatEndsTakesItsKeyAwayOnlyFromAHostThatRecordsNoMore(t *testing.T) { // R-185-09, R-X-10
	c, m := newMaps(3, 1), newMachine(1)
	live(t, c, "n4", m, func(*Probe, func(int)) {})
	if _, there := c.data["n4"]; !there {
		t.Error("an eligible host lost its window with its pod")
	}
	live(t, c, "n4", m, func(*Probe, func(int)) {
		c.mu.Lock()
		c.eligible = nil
		c.mu.Unlock()
	})
	if _, there := c.data["n4"]; there {
		t.Error("the key of a host without labels stays")
	}
}

func TestARefusedWriteIsTriedAgainNextPeriod(t *testing.T) { // R-185-10
	c, m := newMaps(3, 1), newMachine(1)
	c.refuse = true
	live(t, c, "n1", m, func(p *Probe, pass func(int)) {
		pass(4)
		if len(c.data) != 0 || len(c.beats["n1"]) != 0 {
			t.Errorf("it vouches for what it could not write: %v", c.beats)
		}
		if n := len(p.Window().Samples); n != 5 {
			t.Errorf("%d samples kept", n)
		}
		c.mu.Lock()
		c.refuse = false
		c.mu.Unlock()
		pass(1)
		w := c.entry(t, "n1")
		if len(w.Samples) != 6 || w.Samples[0].Restart != fitness.RestartProbe {
			t.Errorf("%d samples, the first after %q", len(w.Samples), w.Samples[0].Restart)
		}
		if len(c.beats["n1"]) != 1 {
			t.Errorf("%d heartbeats", len(c.beats["n1"]))
		}
	})
}

func TestTheWindowOfAnEarlierLifeIsNotOverwrittenUnread(t *testing.T) { // R-185-10
	c, m := newMaps(3, 1), newMachine(1)
	live(t, c, "n1", m, func(_ *Probe, pass func(int)) { pass(50) })
	before := len(c.entry(t, "n1").Samples)
	c.noEntry = true
	live(t, c, "n1", m, func(_ *Probe, pass func(int)) {
		pass(5)
		if n := len(c.entry(t, "n1").Samples); n != before {
			t.Errorf("%d samples became %d", before, n)
		}
		c.mu.Lock()
		c.noEntry = false
		c.mu.Unlock()
		pass(1)
		w := c.entry(t, "n1")
		if n := len(w.Samples); n != before+7 {
			t.Errorf("%d samples and seven more are %d", before, n)
		}
		for i := 1; i < len(w.Samples); i++ {
			if !w.Samples[i].At.After(w.Samples[i-1].At) {
				t.Errorf("sample %d is not later", i)
			}
		}
	})
}

func TestAnOwnEntryOfGarbageBeginsAnew(t *testing.T) {
	for name, garbage := range map[string]string{
		"no JSON": "garbage", "another version": `{"version":99,"node":"n1"}`, "another host's": `{"version":1,"node":"n2"}`,
		"huge": `{"version":1,"x":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newMaps(3, 1)
			c.data["n1"] = garbage
			live(t, c, "n1", newMachine(1), func(*Probe, func(int)) {
				if w := c.entry(t, "n1"); len(w.Samples) != 1 {
					t.Errorf("%+v", w)
				}
			})
		})
	}
}

func TestWithoutAnAPISamplesAreTakenAllTheSame(t *testing.T) {
	c, m := newMaps(3, 1), newMachine(1)
	live(t, c, "n1", m, func(p *Probe, pass func(int)) {
		c.mu.Lock()
		c.noAPI = true
		c.mu.Unlock()
		pass(10)
		if n := len(p.Window().Samples); n != 11 {
			t.Errorf("%d samples of eleven periods", n)
		}
	})
	c = newMaps(3, 1)
	c.noAPI = true
	live(t, c, "n1", m, func(p *Probe, pass func(int)) {
		pass(3)
		if n := len(p.Window().Samples); n != 0 {
			t.Errorf("%d samples though nobody said who votes", n)
		}
	})
}

func TestWhatCannotBeReadIsNamedAndTheRestWorks(t *testing.T) { // issue 4, "bad input"
	c, m := newMaps(3, 1), newMachine(1)
	m.etcdErr = &sensor.Fault{Code: sensor.CodeTruncated, Sentence: "x"}
	live(t, c, "n1", m, func(p *Probe, pass func(int)) {
		p.s.Sensors.Link = func() (sensor.Linked, error) { return sensor.Linked{}, errors.New("x") }
		pass(1)
		w := p.Window()
		s := w.Last()
		if fmt.Sprint(s.Absent) != "[{etcd Truncated} {link Unreadable}]" || s.Etcd != nil || s.Memory == nil || len(s.Connect) != 2 || w.Members != nil {
			t.Errorf("%+v", s)
		}
	})
}

// Between two samples the wall clock is set back or forward: nothing is lost,
// and the samples stay in order.
func TestClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newMaps(3, 1), newMachine(1)
		p := newProbe(c, "n1", m)
		p.loaded = true
		p.seen, p.looked = look("n1", c.servers, c.eligible), true
		for _, step := range []time.Duration{0, period, -time.Hour, period, 48 * time.Hour, period, -72 * time.Hour} {
			s, _ := p.sample(t.Context())
			s.At = s.At.Add(step)
			p.record(s)
			time.Sleep(period)
		}
		raw, err := p.window.Encode()
		if err != nil {
			t.Fatal(err)
		}
		w, err := fitness.Decode("n1", raw)
		if err != nil || len(w.Samples) != 7 {
			t.Errorf("%d samples, %v", len(w.Samples), err)
		}
	})
}

func TestAStandbysDiskIsReadOnceAWindow(t *testing.T) { // R-185-05
	c, m := newMaps(3, 1), newMachine(1)
	count := func(p *Probe) (n int) {
		for _, s := range p.Window().Samples {
			if s.Fsync != nil {
				n++
			}
		}
		return n
	}
	live(t, c, "n4", m, func(p *Probe, pass func(int)) {
		pass(2)
		if m.fsyncs != 1 || count(p) != 1 {
			t.Errorf("%d runs, %d in the window", m.fsyncs, count(p))
		}
		pass(95)
		if m.fsyncs != 1 {
			t.Errorf("%d runs in one window", m.fsyncs)
		}
		pass(10)
		if m.fsyncs != 2 || count(p) != 1 {
			t.Errorf("%d runs, %d in the window", m.fsyncs, count(p))
		}
	})
	// A probe that is restarted does not write to the disk again.
	live(t, c, "n4", m, func(_ *Probe, pass func(int)) {
		pass(20)
		if m.fsyncs != 2 {
			t.Errorf("%d runs after a restart", m.fsyncs)
		}
	})
}

// A run takes its time: the next one begins early enough that no full window is
// without one. A host would be unknown for a while each window.
func TestNoFullWindowIsWithoutARun(t *testing.T) {
	c, m := newMaps(3, 1), newMachine(1)
	m.fsyncTime = 18 * time.Second
	live(t, c, "n4", m, func(p *Probe, pass func(int)) {
		pass(p.Window().Size)
		for i := range 3 * p.Window().Size {
			pass(1)
			if !slices.ContainsFunc(p.Window().Samples, func(s fitness.Sample) bool { return s.Fsync != nil }) {
				t.Fatalf("sample %d: a window without a run, %d runs", i, m.fsyncs)
			}
		}
		if m.fsyncs > 5 {
			t.Errorf("%d runs in four windows", m.fsyncs)
		}
	})
}

func TestADiskThatHangsIsNamedAndNotWrittenToAgain(t *testing.T) {
	c, m := newMaps(3, 1), newMachine(1)
	m.hangs = true
	live(t, c, "n4", m, func(p *Probe, pass func(int)) {
		pass(10)
		w := p.Window()
		if fmt.Sprint(w.Last().Absent) != "[{fsync DiskHangs}]" || len(w.Samples) != 11 {
			t.Errorf("%+v", w.Last())
		}
		c.mu.Lock()
		c.servers = append(c.servers, server("n4", "10.0.0.4"))
		c.mu.Unlock()
		pass(2)
		c.mu.Lock()
		c.servers = c.servers[:3]
		c.mu.Unlock()
		pass(20)
		if m.fsyncs != 1 {
			t.Errorf("%d runs on a disk that hangs", m.fsyncs)
		}
	})
}

func TestARunThatFailsIsNamedOnceAWindow(t *testing.T) {
	c, m := newMaps(3, 1), newMachine(1)
	m.fsyncErr = &sensor.Fault{Code: sensor.CodeDiskFull, Sentence: "x"}
	live(t, c, "n4", m, func(p *Probe, pass func(int)) {
		pass(50)
		n := 0
		for _, s := range p.Window().Samples {
			n += len(s.Absent)
		}
		if n != 1 || m.fsyncs != 1 {
			t.Errorf("named %d times in %d runs", n, m.fsyncs)
		}
	})
}

// A host that was swapped out keeps etcd's label until somebody cleans it, and a
// learner has it already: the metrics page tells them apart.
func TestAMaybeMember(t *testing.T) { // R-X-10
	c, m := newMaps(3, 1), newMachine(1)
	c.servers[2].EtcdIsVoter = "False"
	m.etcd.IsLearner = true
	live(t, c, "n3", m, func(p *Probe, pass func(int)) {
		pass(1)
		if w := p.Window(); w.Last().Etcd == nil || !w.Last().Etcd.IsLearner {
			t.Errorf("a learner: %+v", w.Last())
		}
		m.mu.Lock()
		m.etcdErr = &sensor.Fault{Code: sensor.CodeRefused, Sentence: "x"}
		m.mu.Unlock()
		pass(3)
		if w := p.Window(); w.Last().Etcd != nil || len(w.Last().Absent) != 0 || m.fsyncs != 1 {
			t.Errorf("no member any more: %+v, %d disk runs", w.Last(), m.fsyncs)
		}
	})
}

func TestAChangeOfTheMembersIsWrittenEarly(t *testing.T) { // R-228-35
	c, m := newMaps(3, 61), newMachine(1)
	c.data["filler"] = strings.Repeat("x", 400<<10)
	live(t, c, "n1", m, func(_ *Probe, pass func(int)) {
		pass(20) // a quarter of the about fifty between two writes
		puts := c.puts
		m.mu.Lock()
		m.etcd.Members = append([]fleet.MemberID{1}, m.etcd.Members...)
		m.mu.Unlock()
		pass(1)
		if c.puts != puts+1 || len(c.entry(t, "n1").Members) != 4 {
			t.Errorf("%d writes, then %d: %v", puts, c.puts, c.entry(t, "n1").Members)
		}
	})
}

// Safety rule 29, with a counting fake: what all probes of a fleet and their
// heartbeats write into etcd, over a window after the windows are full.
func TestProbesWriteNoMoreThanTheirBudget(t *testing.T) {
	for name, tt := range map[string]struct{ voters, hosts, budget int }{
		"nine hosts": {3, 9, 5 << 10}, "64 hosts": {7, 64, 50 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMaps(tt.voters, tt.hosts-tt.voters)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range tt.hosts {
					p := newProbe(c, fmt.Sprintf("n%d", i+1), newMachine(uint64(i)))
					all.Go(func() { p.Run(ctx, nil) })
				}
				window := fitness.DefaultSize * period
				time.Sleep(window + time.Minute)
				synctest.Wait()
				c.mu.Lock()
				filling, puts := c.written, c.puts
				c.mu.Unlock()
				time.Sleep(window)
				synctest.Wait()
				cancel()
				all.Wait()
				rate := float64(c.written-filling) / window.Seconds()
				size := 0
				for _, v := range c.data {
					size += len(v)
				}
				t.Logf("%d hosts: a map of %d bytes, each host writes every %.0f s, %.2f KiB/s into etcd, %.2f while the windows fill",
					tt.hosts, size, window.Seconds()*float64(tt.hosts)/float64(c.puts-puts), rate/1024, float64(filling)/window.Seconds()/1024)
				// The host daemons' heartbeats and reports come on top.
				others := float64(tt.hosts*beatBytes)/period.Seconds() + float64(tt.budget)*reports
				if rate+others > float64(tt.budget) {
					t.Errorf("%.0f bytes a second and %.0f for the host daemons, the budget is %d", rate, others, tt.budget)
				}
				if len(c.data) != tt.hosts {
					t.Errorf("%d entries", len(c.data))
				}
				for node := range c.data {
					if w := c.entry(t, node); !w.Full() {
						t.Errorf("the window of %s has %d samples", node, len(w.Samples))
					}
				}
			})
		})
	}
}
