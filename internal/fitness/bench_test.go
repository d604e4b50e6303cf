package fitness_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
)

// Figures: the verdicts of 64 hosts with full windows, seven of them voters
// (design §8: with the decision under 5 ms and under 10 MB).
func BenchmarkJudge64(b *testing.B) {
	f := fitnesstest.New(7, 57)
	f.Delay["n1"] = 620e6
	hosts := f.Hosts()
	b.ReportAllocs()
	for b.Loop() {
		if vs := fitness.Judge(hosts, fitness.DefaultPolicy()); vs[0].Fitness != fitness.Unfit {
			b.Fatal(vs[0])
		}
	}
}

func BenchmarkDecode64(b *testing.B) {
	var raws [][]byte
	hosts := fitnesstest.New(7, 57).Hosts()
	size := 0
	for _, h := range hosts {
		raw, err := h.Window.Encode()
		if err != nil {
			b.Fatal(err)
		}
		raws = append(raws, raw)
		size += len(raw)
	}
	b.Logf("64 entries: %d bytes, a voter %d, a standby %d", size, len(raws[0]), len(raws[63]))
	b.ReportAllocs()
	before := processorTime()
	defer func() {
		b.ReportMetric(float64((processorTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	}()
	for b.Loop() {
		for i, raw := range raws {
			if _, err := fitness.Decode(hosts[i].Node, raw); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkEncodeVoter(b *testing.B) {
	w := fitnesstest.New(7, 57).Hosts()[0].Window
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
