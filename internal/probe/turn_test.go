package probe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// turns runs a probe and has each of its turns.
func turns(t *testing.T, p *Probe, f func(pass func(n int), last func() Turn)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all []Turn
	ended := make(chan struct{})
	go func() { p.Run(ctx, func(t Turn) { all = append(all, t) }); close(ended) }()
	time.Sleep(period/4 + time.Second)
	synctest.Wait()
	f(func(n int) {
		time.Sleep(time.Duration(n) * period)
		synctest.Wait()
	}, func() Turn { return all[len(all)-1] })
	cancel()
	<-ended
}

func TestATurnSaysWhatThePassDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newMaps(3, 1), newMachine(1)
		p := newProbe(c, "n1", m)
		p.s.Sensors.Connect = func(_ context.Context, peers []sensor.Peer, _ time.Duration) (out []sensor.Connected) {
			for _, peer := range peers {
				out = append(out, sensor.Connected{Connect: fitness.Connect{To: peer.Node, Failed: true}, Fault: &sensor.Fault{Code: sensor.CodeRefused}})
			}
			return out
		}
		turns(t, p, func(pass func(int), last func() Turn) {
			pass(4)
			now := last()
			if now.Err != nil || !now.Records || now.Samples != 5 || now.Overdue || now.Written.IsZero() || now.EntryBytes == 0 || now.MapBytes < now.EntryBytes {
				t.Errorf("%+v", now)
			}
			if now.Sample == nil || now.Sample.Etcd.Gains == nil || len(now.Members) != 3 || now.Fsync != nil {
				t.Errorf("%+v", now.Sample)
			}
			if len(now.Faults) != 2 || now.Faults[0] != (fitness.Absence{Reading: fitness.ReadingConnect, Code: sensor.CodeRefused}) {
				t.Errorf("faults %v", now.Faults)
			}
			m.mu.Lock()
			m.etcdErr = &sensor.Fault{Code: sensor.CodeTimeout, Sentence: "late"}
			m.mu.Unlock()
			c.mu.Lock()
			c.refuse = true
			c.mu.Unlock()
			pass(10)
			written := now.Written
			if now = last(); !now.Overdue || !errors.Is(now.Err, errRefused) || now.Written.Before(written) || len(now.Faults) != 3 {
				t.Errorf("refused: %+v", now)
			}
			c.mu.Lock()
			c.refuse, c.noAPI = false, true
			c.mu.Unlock()
			pass(1)
			if now = last(); now.Err == nil || !strings.Contains(now.Err.Error(), "no API server answers") || !now.Records || now.Sample == nil {
				t.Errorf("without the API: %+v", now)
			}
			c.mu.Lock()
			c.noAPI, c.servers = false, c.servers[1:]
			c.mu.Unlock()
			pass(1)
			if now = last(); now.Err != nil || now.Records || now.Sample != nil || now.Samples != 0 || now.Overdue || !now.Written.IsZero() {
				t.Errorf("a host that records nothing: %+v", now)
			}
		})
	})
}

func TestATurnBeforeTheNodesWereSeenSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMaps(3, 1)
		c.noAPI = true
		turns(t, newProbe(c, "n1", newMachine(1)), func(_ func(int), last func() Turn) {
			if now := last(); now.Err == nil || now.Records || now.Sample != nil {
				t.Errorf("%+v", now)
			}
		})
	})
}

func TestAStandbysLastRunStaysInItsTurnsUntilItVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newMaps(3, 1), newMachine(4)
		turns(t, newProbe(c, "n4", m), func(pass func(int), last func() Turn) {
			pass(20)
			if now := last(); now.Fsync == nil || now.Fsync.P99 != 4*time.Millisecond || now.Sample.Fsync != nil {
				t.Errorf("%+v", now)
			}
			c.mu.Lock()
			c.servers = append(c.servers, server("n4", "10.0.0.4"))
			c.mu.Unlock()
			pass(1)
			if now := last(); now.Fsync != nil || now.Sample.Etcd == nil {
				t.Errorf("it votes: %+v", now)
			}
		})
	})
}
