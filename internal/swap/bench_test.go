package swap

import (
	"fmt"
	"testing"

	"github.com/exadev/regrade/internal/status"
)

// large is a fleet of a thousand Nodes, fifty of them eligible with a host
// daemon, in the middle of a swap.
func large() *given {
	g := steppedDown()
	for n := 5; n <= 1000; n++ {
		h := Host{Name: fmt.Sprintf("node-%04d", n), Node: Node{Ready: true, Labels: map[string]string{}, Annotations: map[string]string{}}}
		if n <= 50 {
			h.Node.Labels[keys.Eligible()] = "true"
			h.Fresh = true
			h.Report = &status.Report{Protocol: status.Protocol, Role: "agent", BootID: "b", Preflight: &status.Preflight{OK: true}}
		}
		g.Hosts = append(g.Hosts, h)
	}
	return g
}

// Figures: one decision with 1,000 nodes, 50 eligible (design §8: under 5 ms
// and under 10 MB allocated).
func BenchmarkNextInASwap(b *testing.B) {
	o, p := large().Observation, policy()
	b.ReportAllocs()
	for b.Loop() {
		if d := Next(o, p); d.Row != "RemovalAsked" {
			b.Fatal(d.Row)
		}
	}
}

func BenchmarkNextOfARequest(b *testing.B) {
	g := calm().asked()
	g.Hosts = append(g.Hosts, large().Hosts[4:]...)
	o, p := g.Observation, policy()
	b.ReportAllocs()
	for b.Loop() {
		if d := Next(o, p); d.Row != "RequestTaken" {
			b.Fatal(d.Row, d.Waits)
		}
	}
}
