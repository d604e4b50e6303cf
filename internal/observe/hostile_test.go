package observe_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// hostile is the entry that costs a reader the most for its size: as many samples as
// may be, all alike, which pack to next to nothing.
func hostile(t *testing.T, node string) string {
	t.Helper()
	w := fitness.Window{Node: node, BootID: "b", Period: 15 * time.Second, Size: fitness.MaxSize}
	s := fitness.Sample{Etcd: &fitness.Etcd{Member: 1, Gains: &fitness.Gains{}}}
	for i := range 15 {
		h := fitness.Histogram{Sum: time.Millisecond}
		h.Counts[0] = 1
		s.Etcd.Gains.RoundTrip = append(s.Etcd.Gains.RoundTrip, fitness.PeerRoundTrip{Peer: fleet.MemberID(i + 2), Histogram: h})
	}
	for i := range fitness.MaxSize {
		s.At = time.Date(2026, 11, 30, 12, 0, 15*i, 0, time.UTC)
		w.Append(s)
	}
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Issue 4, bad input: with a probe's account anybody writes any key. What is no
// voter's and no eligible host's is not decoded, what is not judged is not kept.
func TestHostileEntriesOfManyHostsCostLittleMemory(t *testing.T) {
	const most = 64 << 20 / 4 // a quarter of what a controller may take, design §8
	state := clustertest.State{Nodes: map[string]observe.Node{}, Maps: map[string]observe.ConfigMap{}}
	data := map[string]string{}
	for i := range 60 {
		name := fmt.Sprintf("n%03d", i)
		n := observe.Node{Node: swap.Node{Labels: map[string]string{}}}
		if i < 39 {
			n.Labels[fleet.DefaultKeys().Eligible()] = "true"
		}
		if i == 39 {
			n.Labels[fleet.LabelEtcd] = "true"
		}
		state.Nodes[name], data[name] = n, hostile(t, name)
	}
	size := 0
	for _, raw := range data {
		size += len(raw)
	}
	if size > 1<<20 {
		t.Fatalf("%d bytes are no ConfigMap", size)
	}
	state.Maps[fleet.ConfigMapProbe] = observe.ConfigMap{Exists: true, Data: data}
	judged, samples := 0, 0
	b := observe.New(clustertest.New(state), observe.Settings{Policy: swap.DefaultPolicy(), Window: fitness.DefaultSize, Judge: func(_ swap.Observation, hosts []fitness.Host, _ swap.Policy) decide.Judgement {
		judged, samples = len(hosts), len(hosts[0].Window.Samples)
		return decide.Judgement{}
	}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := look(t, b, 0)
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d entries of %d bytes each: %d KiB are kept", len(data), size/len(data), kept>>10)
	if judged != 40 || samples != fitness.DefaultSize || kept > most {
		t.Errorf("%d hosts judged, %d samples of one, %d bytes kept", judged, samples, kept)
	}
	if len(s.Unjudged) != 20 || !slices.IsSorted(s.Unjudged) || s.Unjudged[0] != "n040" {
		t.Errorf("%d entries are named as not judged: %.60q", len(s.Unjudged), s.Unjudged)
	}
	runtime.KeepAlive(b)
}
