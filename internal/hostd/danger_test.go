package hostd

import (
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

// Safety rule 12: a list proves a removal only when it is of this host's own
// cluster and the host knows which member it was.
func TestOnlyAListOfTheOwnClusterProvesARemoval(t *testing.T) {
	const cluster, own, other = fleet.MemberID(0xc1), fleet.MemberID(0xa), fleet.MemberID(0xb)
	answer := func(cluster fleet.MemberID, ids ...fleet.MemberID) *hostapi.Answer {
		a := &hostapi.Answer{URL: "https://10.0.0.2:2379", ClusterID: cluster}
		for _, id := range ids {
			a.Members = append(a.Members, status.Member{ID: id})
		}
		return a
	}
	for name, test := range map[string]struct {
		identity rolefile.Identity
		answer   *hostapi.Answer
		want     bool
	}{
		"absent from a list of its cluster":     {rolefile.Identity{ClusterID: cluster, MemberID: own}, answer(cluster, other), true},
		"present in it":                         {rolefile.Identity{ClusterID: cluster, MemberID: own}, answer(cluster, other, own), false},
		"absent from a list of another cluster": {rolefile.Identity{ClusterID: cluster, MemberID: own}, answer(0xc2, other), false},
		"a host that does not know its member":  {rolefile.Identity{ClusterID: cluster}, answer(cluster, other), false},
		"a host that does not know its cluster": {rolefile.Identity{MemberID: own}, answer(cluster, other), false},
		"nobody to ask means start as before":   {rolefile.Identity{ClusterID: cluster, MemberID: own}, nil, false},
		"an answer that does not say of which":  {rolefile.Identity{MemberID: own}, answer(0, other), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{Answer: test.answer, Host: platform.Facts{Files: rolefile.Files{WAL: true, Identity: test.identity}}}
			if why, got := removed(f); got != test.want {
				t.Errorf("removed: %t (%s), want %t", got, why, test.want)
			}
		})
	}
}

// Safety rule 15: the agent's first start depends on its join URL alone.
func TestTheAgentJoinsAServerThatStays(t *testing.T) {
	policy := DefaultPolicy()
	policy.JoinURLs = map[string]string{"a": "https://10.0.0.1:6443", "b": "https://10.0.0.2:6443", "d": "https://10.0.0.4:6443"}
	leaving := order{record: &status.Record{Out: "a", In: "d"}}
	for name, test := range map[string]struct {
		node         string
		view, answer string // servers that answered
		has          string // what the drop-in names
		want         string
	}{
		"the one that answered":                            {node: "a", view: "https://10.0.0.2:6443", want: "https://10.0.0.2:6443"},
		"never itself":                                     {node: "a", view: "https://10.0.0.1:6443"},
		"never itself by another name":                     {node: "a", view: "https://127.0.0.1:6444"},
		"a voter that gave its list, rather than itself":   {node: "a", view: "https://10.0.0.1:6443", answer: "https://10.0.0.4:2379", want: "https://10.0.0.4:6443"},
		"not the outgoing one while another is known":      {node: "d", view: "https://10.0.0.1:6443", answer: "https://10.0.0.2:2379", want: "https://10.0.0.2:6443"},
		"the outgoing one when nobody else is known":       {node: "d", view: "https://10.0.0.1:6443", want: "https://10.0.0.1:6443"},
		"what the drop-in names, when that is up":          {node: "a", view: "https://10.0.0.2:6443", answer: "https://10.0.0.4:2379", has: "https://10.0.0.4:6443", want: "https://10.0.0.4:6443"},
		"nobody answered":                                  {node: "a"},
		"an address that no node has gets k3s's usual URL": {node: "a", view: "https://10.0.0.9:6444", want: "https://10.0.0.9:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{Node: test.node, Policy: policy, Host: platform.Facts{AgentJoin: test.has}}
			if test.view != "" {
				f.View = &hostapi.View{Server: test.view}
			}
			if test.answer != "" {
				f.Answer = &hostapi.Answer{URL: test.answer}
			}
			got, ok := agentJoin(f, leaving)
			if got != test.want || ok != (test.want != "") {
				t.Errorf("joins %q (%t), want %q", got, ok, test.want)
			}
		})
	}
}

// Safety rule 10: the old k3s is gone before the new one starts. A unit that is
// at rest while a process of its role lives has not stopped.
func TestAUnitWhoseProcessLivesHasNotStopped(t *testing.T) {
	for _, state := range []platform.State{platform.StateInactive, platform.StateFailed} {
		d, gone := stopped(platform.Unit{State: state, Process: true}, fleet.RoleServer)
		if gone || d.Acts() || d.Code != CodeProcessLives {
			t.Errorf("%s with a process: gone %t, %+v", state, gone, d)
		}
		if _, gone := stopped(platform.Unit{State: state}, fleet.RoleServer); !gone {
			t.Errorf("%s without a process is not gone", state)
		}
	}
}
