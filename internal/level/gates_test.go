package level_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	. "github.com/exadev/regrade/internal/level"
)

// open is a situation in which a may step down to etcd-only.
func open() Situation {
	return Situation{
		Node: "a", From: fleet.LevelControlPlane, To: fleet.LevelEtcdOnly, Date: t0, Lease: lease.Lease{Exists: true},
		Server: true, Target: 3, Votes: true,
		Others: []Voter{{Node: "b", Ready: true, APIServer: true, Answers: true, Agrees: true}, {Node: "c", Ready: true, APIServer: true, Answers: true, Agrees: true}},
	}
}

func held(by string, ago time.Duration) lease.Lease {
	return lease.Lease{Exists: true, Holder: by, AcquireTime: t0.Add(-ago), RenewTime: t0.Add(-ago), Duration: 15 * time.Minute, Annotations: map[string]string{}}
}

func TestGatesOfALevelStep(t *testing.T) { // R-112-06, R-112-19, R-X-07, R-X-08, safety rules 1 and 26
	var out strings.Builder
	for _, tt := range []struct {
		name   string
		change func(*Situation)
		want   []string
	}{
		{"all gates are open", func(*Situation) {}, nil},
		{"a Lease that does not exist is free", func(s *Situation) { s.Lease = lease.Lease{} }, nil},
		{"a swap that holds the Lease refuses every step", func(s *Situation) {
			s.Lease = held(fleet.LeaseHolder, time.Minute)
			s.Lease.Annotations[fleet.LeaseSwapID] = "20261129T120000Z-b-d"
		}, []string{CodeLeaseTaken}},
		{"another host that holds the Lease refuses it", func(s *Situation) { s.Lease = held("b", time.Minute) }, []string{CodeLeaseTaken}},
		{"the own node that holds it for another step refuses it", func(s *Situation) { s.Lease = held("a", time.Minute) }, []string{CodeLeaseTaken}},
		{"a Lease that is just over may be taken", func(s *Situation) { s.Lease = held("b", 15*time.Minute+1) }, nil},
		{"a Lease at the end of its duration is held", func(s *Situation) { s.Lease = held("b", 15*time.Minute) }, []string{CodeLeaseTaken}},
		{"a Lease that a controller let run out may be taken where no Node carries a swap", func(s *Situation) { s.Lease = held(fleet.LeaseHolder, time.Hour) }, nil},
		{"and not where one does", func(s *Situation) { s.Lease, s.Swapping = held(fleet.LeaseHolder, time.Hour), []string{"d"} }, []string{CodeSwap}},
		{"the step that holds the Lease goes on", func(s *Situation) { s.Lease, s.Holds = held("a", time.Minute), t0.Add(-time.Minute) }, nil},
		{"a step whose Lease has run out stops", func(s *Situation) { s.Lease, s.Holds = held("a", time.Hour), t0.Add(-time.Hour) }, []string{CodeLeaseLost}},
		{"a step whose Lease another took stops", func(s *Situation) { s.Lease, s.Holds = held("b", time.Second), t0.Add(-time.Hour) }, []string{CodeLeaseLost}},
		{"a Lease that the own node took for another step is not this one's", func(s *Situation) { s.Lease, s.Holds = held("a", time.Second), t0.Add(-time.Minute) }, []string{CodeLeaseLost}},
		{"without a Date nothing is free", func(s *Situation) { s.Date = time.Time{} }, []string{CodeUnread}},
		{"a voter that is not Ready refuses it", func(s *Situation) { s.Others[0].Ready = false }, []string{CodeNotReady, CodeAPIServers}},
		{"a voter whose etcd is silent refuses it", func(s *Situation) { s.Others[0].Answers = false }, []string{CodeSilent, CodeQuorum, CodeAPIServers}},
		{"a voter with another list refuses it", func(s *Situation) { s.Others[1].Agrees, s.Others[1].Problem = false, "4 members" }, []string{CodeDisagrees, CodeQuorum}},
		{"a voter without an API server refuses it", func(s *Situation) { s.Others[1].APIServer = false }, []string{CodeAPIServers}},
		{"a voter that is etcd-only and whose Node still says Ready refuses it, of five as well", func(s *Situation) {
			s.Others[1].APIServer, s.Others[1].EtcdOnly, s.Target = false, true, 5
			s.Others = append(s.Others, s.Others[0], s.Others[0])
		}, []string{CodeNotReady}},
		{"two voters of five that cannot be reached refuse it, each by name", func(s *Situation) {
			s.Target = 5
			s.Others = append(s.Others, Voter{Node: "d"}, Voter{Node: "e", Ready: true, APIServer: true})
		}, []string{CodeNotReady, CodeSilent, CodeSilent, CodeQuorum}},
		{"a server that is alone refuses it", func(s *Situation) { s.Target, s.Others = 1, nil }, []string{CodeQuorum, CodeAPIServers}},
		{"an even number of voters refuses it", func(s *Situation) { s.Others = append(s.Others, s.Others[0]) }, []string{CodeCount}},
		{"a learner refuses it", func(s *Situation) { s.Learners = 1 }, []string{CodeLearner}},
		{"an own etcd that does not vote refuses it", func(s *Situation) { s.Votes = false }, []string{CodeNoVote}},
		{"a host that is no server refuses it", func(s *Situation) { s.Server = false }, []string{CodeNotServer}},
		{"a pause refuses it", func(s *Situation) { s.Paused = "paused since noon" }, []string{CodePaused}},
		{"two levels at once are refused", func(s *Situation) { s.From = fleet.LevelFull }, []string{CodeOneLevel}},
		{"no level at all is refused", func(s *Situation) { s.To = s.From }, []string{CodeOneLevel}},
		{"a job on the host refuses etcd-only, which would cut it", func(s *Situation) { s.Jobs = []string{"ci/job-1"} }, []string{CodeJobs}},
		{"a pod that cannot be evicted refuses etcd-only", func(s *Situation) { s.Left = []string{"x/db-0"} }, []string{CodePods}},
		{"pods that were not read refuse etcd-only", func(s *Situation) { s.PodsUnread = "list pods: no" }, []string{CodePodsUnread}},
		{"a job refuses no other step", func(s *Situation) {
			s.From, s.To, s.Jobs, s.Left, s.PodsUnread = fleet.LevelFull, fleet.LevelControlPlane, []string{"ci/job-1"}, []string{"x/db-0"}, "no"
		}, nil},
		{"the way up has the same gates", func(s *Situation) {
			s.From, s.To, s.Others[0].Ready = fleet.LevelEtcdOnly, fleet.LevelControlPlane, false
		}, []string{CodeNotReady, CodeAPIServers}},
		{"what could not be read refuses it", func(s *Situation) { s.Missing = []string{"list nodes: no answer"} }, []string{CodeUnread}},
	} {
		s := open()
		tt.change(&s)
		got := Gates(s)
		var codes []string
		_, _ = fmt.Fprintf(&out, "%s\n", tt.name)
		for _, g := range got {
			codes = append(codes, g.Code)
			_, _ = fmt.Fprintf(&out, "    %s: %s\n", g.Code, g.Sentence)
			if g.Sentence == "" {
				t.Errorf("%s: %s says nothing", tt.name, g.Code)
			}
		}
		if !slices.Equal(codes, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, codes, tt.want)
		}
	}
	golden(t, "gates.txt", out.String())
}
