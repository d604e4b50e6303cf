package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
	"github.com/exadev/regrade/internal/swap"
)

// R-185-04, R-185-50, R-185-20.
func TestProbeGates(t *testing.T) {
	last := func(n int, change func(*fitness.Etcd)) func([]fitness.Host) {
		return func(hs []fitness.Host) { change(hs[n-1].Window.Last().Etcd) }
	}
	for name, tt := range map[string]struct {
		change func([]fitness.Host)
		want   []string
	}{
		"a calm fleet":               {func([]fitness.Host) {}, nil},
		"a voter without a leader":   {last(2, func(e *fitness.Etcd) { e.HasLeader = false }), []string{swap.CodeNoLeader}},
		"a voter that is a learner":  {last(2, func(e *fitness.Etcd) { e.IsLearner = true }), []string{swap.CodeLearner}},
		"a member more than vote":    {last(2, func(e *fitness.Etcd) { e.KnownMembers = 4 }), []string{swap.CodeVoterCount}},
		"etcd 3.5, which says none":  {last(2, func(e *fitness.Etcd) { e.KnownMembers = 0 }), nil},
		"voters that know different": {func(hs []fitness.Host) { hs[2].Window.Members = hs[2].Window.Members[1:] }, []string{swap.CodeListsDisagree}},
		"a voter whose list is not known": {
			func(hs []fitness.Host) { hs[0].Window.Members = nil }, nil,
		},
		"old gauges of a silent probe are taken for nothing": {func(hs []fitness.Host) {
			hs[1].Window.Last().Etcd.HasLeader, hs[1].Age = false, time.Hour
		}, nil},
		"a voter without an entry": {func(hs []fitness.Host) { hs[1].Window = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			hosts := fitnesstest.New(3, 1).Hosts()
			tt.change(hosts)
			slices.Reverse(hosts)
			var got []string
			for _, r := range ProbeGates(hosts, fitness.DefaultPeriod) {
				got = append(got, r.Code)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
