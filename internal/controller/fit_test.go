package controller_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fitness/fitnesstest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Safety rule 25: 64 hosts whose standbys do not reach the voters have more to say
// than one document holds. What is left is one that the next pass can read.
func TestTheStatusOf64HostsInAFaultCanBeRead(t *testing.T) {
	for _, nv := range []int{3, 5, 7} {
		f := fitnesstest.New(nv, 64-nv)
		for _, v := range f.Voters {
			f.Delay[v], f.Loss[v], f.Disk[v] = 700*time.Millisecond, 0.1, 30
		}
		for _, s := range f.Standbys {
			f.Disk[s] = 30
		}
		o := swap.Observation{Now: time.Unix(100, 0), Self: "0f4dd0b2-7d0c-4a8e-9a6f-0d5f0e0a5a01"}
		var list []status.Member
		for i, v := range f.Voters {
			list = append(list, status.Member{ID: fleet.MemberID(1<<60 + uint64(i)), Name: v + "-00000000"})
		}
		for i, v := range f.Voters {
			o.Hosts = append(o.Hosts, voter(v, list[i].ID, list...))
		}
		for _, s := range f.Standbys {
			var ps []status.Problem
			for i, v := range f.Voters {
				for _, port := range []string{"2379", "2380", "6443"} {
					ps = append(ps, status.Problem{Code: "Unreachable", Sentence: fmt.Sprintf("port %s of %s is not reached: dial tcp 10.91.0.%d:%s: i/o timeout", port, v, 11+i, port)})
				}
			}
			o.Hosts = append(o.Hosts, swap.Host{Name: s, Fresh: true, Node: swap.Node{Ready: true, Labels: map[string]string{keys.Eligible(): "true"}},
				Report: &status.Report{Role: fleet.RoleAgent, Preflight: &status.Preflight{Problems: ps}}})
		}
		st := controller.Compose(nil, &o, swap.Decision{State: swap.Idle, Code: "X"}, swap.DefaultPolicy())
		vs := fitness.Judge(f.Hosts(), fitness.DefaultPolicy())
		st.Verdicts = vs
		controller.Fit(&st)
		raw, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		v, err := json.Marshal(st.Verdicts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = status.ParseStatus(raw)
		t.Logf("%d voters: verdicts %d, all %d of %d: %v", nv, len(v), len(raw), status.MaxDocument, err)
		if err != nil {
			t.Error(err)
		}
	}
}
