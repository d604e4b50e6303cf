package decide

import (
	"slices"
	"testing"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// R-E1-03, safety rule 24: a slow leader makes the member lists come and go. The
// voters are judged by label and condition then, the slow one is named all the
// same, and nothing is swapped.
func TestVerdictsOutlastTheMemberLists(t *testing.T) {
	o, sp, hosts := large()
	for i := range 7 {
		o.Hosts[i].Node.Labels[fleet.LabelEtcd] = "true"
		o.Hosts[i].Node.EtcdIsVoter = "True"
	}
	rules := Rules{Fitness: fitness.DefaultPolicy(), Decide: DefaultPolicy()}
	rules.Decide.Target = 7
	if j := rules.Judge(o, hosts, sp); j.Decision.Pair == nil || j.Decision.Pair.Out != "n1" {
		t.Fatal(told(j.Decision))
	}
	o.Hosts[2].Report.Etcd.Linearizable, o.Hosts[2].Report.Etcd.Members = false, nil
	j := rules.Judge(o, hosts, sp)
	n := 0
	for _, v := range j.Verdicts {
		if v.Votes {
			n++
		}
		if v.Node == "n1" && (v.Fitness != fitness.Unfit || v.Part != fitness.Cause) {
			t.Errorf("n1 is %s, %s", v.Fitness, v.Part)
		}
	}
	if d := j.Decision; n != 7 || d.Pair != nil || d.Would == nil || d.Would.Out != "n1" {
		t.Errorf("%d voters; %s", n, told(d))
	}
	named := slices.ContainsFunc(j.Decision.Reasons, func(r status.Reason) bool { return r.Node == "n3" })
	if !named || !slices.ContainsFunc(j.Decision.Reasons, func(r status.Reason) bool { return r.Code == swap.CodeNoLists }) {
		t.Errorf("the missing list is not named: %s", told(j.Decision))
	}
	// A condition alone proves nothing, and the list that is missing is named even
	// where no pair is judged.
	for i := range 7 {
		delete(o.Hosts[i].Node.Labels, fleet.LabelEtcd)
	}
	j = rules.Judge(o, hosts, sp)
	if d := j.Decision; d.Pair != nil || d.Sentence != "who votes is not known: nothing is swapped" || !slices.ContainsFunc(d.Reasons, func(r status.Reason) bool { return r.Node == "n3" }) {
		t.Error(told(d))
	}
}
