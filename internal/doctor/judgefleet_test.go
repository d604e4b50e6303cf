package doctor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

var (
	noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	keys = fleet.DefaultKeys()
)

// calm is a fleet of three voters, a standby and a worker, with nothing wrong.
func calm() *doctor.Fleet {
	p := swap.DefaultPolicy()
	f := &doctor.Fleet{
		Observation: swap.Observation{Now: noon, Status: &status.Status{Protocol: status.Protocol, At: noon.Add(-10 * time.Second), Target: 3}},
		Policy:      p, API: "10.0.0.1:6443", Kubeconfig: "10.0.0.1:6443", Version: "v1",
		Started: map[string]doctor.Started{"w1": {Role: fleet.RoleAgent, Server: "https://10.0.0.2:6443"}, "n2": {Role: fleet.RoleServer, Server: "https://10.0.0.1:6443"}},
		Probes:  map[string]doctor.Beat{},
		Pods:    []doctor.Pod{{Namespace: "ns", Name: "c", Component: "controller", Image: "regrade:1", Ready: true}, {Namespace: "ns", Name: "p", Component: "probe", Image: "regrade:1", Ready: true}},
	}
	var members []status.Member
	for n := 1; n <= 3; n++ {
		members = append(members, status.Member{ID: fleet.MemberID(n), Name: fmt.Sprintf("n%d-0000000%d", n, n), PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", n)}})
	}
	for n := 1; n <= 4; n++ {
		h := swap.Host{
			Name: fmt.Sprintf("n%d", n), Fresh: true, Speaks: true,
			Node: swap.Node{
				Ready: true, InternalIP: fmt.Sprintf("10.0.0.%d", n), KubeletVersion: "v1.34.2+k3s1",
				Labels: map[string]string{keys.Eligible(): "true"}, Annotations: map[string]string{},
			},
			Report: &status.Report{Protocol: 1, BootID: "b", Counter: 1, At: noon, K3sVersion: "v1.34.2+k3s1", Role: fleet.RoleAgent, Preflight: &status.Preflight{OK: true}},
		}
		if n <= 3 {
			h.Node.Labels[fleet.LabelEtcd], h.Node.Labels[fleet.LabelControlPlane], h.Node.EtcdIsVoter = "true", "true", "True"
			r := h.Report
			r.Role, r.Level, r.Preflight, r.AsAgent = fleet.RoleServer, fleet.LevelFull, nil, &status.Preflight{OK: true}
			r.ClusterID, r.MemberID, r.Standbys = 0xc, fleet.MemberID(n), []status.Dial{{Node: "n4", OK: true}}
			r.Etcd = &status.EtcdView{Linearizable: true, ClusterID: 0xc, Leader: 1, Members: members, Version: "3.6.6"}
		}
		f.Hosts = append(f.Hosts, h)
		f.Probes[h.Name] = doctor.Beat{Moved: true}
	}
	f.Hosts = append(f.Hosts, swap.Host{Name: "w1", Node: swap.Node{Ready: true, InternalIP: "10.0.0.9", KubeletVersion: "v1.34.2+k3s1"}})
	return f
}

func TestAFleetInOrderHasNothingWrong(t *testing.T) {
	f := calm()
	f.Versions = map[string]string{"n1": "v1"}
	f.Written = []doctor.Written{}
	for n := 1; n <= 4; n++ {
		f.Written = append(f.Written, doctor.Written{Name: fmt.Sprintf("n%d", n), Takes: true, Eligible: true, Address: fmt.Sprintf("10.0.0.%d", n)})
	}
	fs := doctor.JudgeFleet(*f)
	for _, x := range fs {
		if x.Grade != doctor.OK || x.Code != "" || x.Sentence == "" {
			t.Errorf("%+v", x)
		}
	}
	if len(fs) != 13 {
		t.Errorf("%d checks said something\n%s", len(fs), doctor.New("v", "", fs).Words())
	}
}

func TestWhatIsWrongWithAFleet(t *testing.T) {
	type change = func(f *doctor.Fleet)
	host := func(f *doctor.Fleet, name string) *swap.Host { return f.Host(name) }
	held := lease.Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: noon, Duration: time.Minute, Annotations: map[string]string{fleet.LeaseSwapID: "20261129T110000Z-n1-n4"}}
	for name, c := range map[string]struct {
		change change
		want   []string // grade, node and code, in the order of the checks
	}{
		"something could not be read (rule 24)": {func(f *doctor.Fleet) { f.Missing = []string{"the hosts' heartbeats: 403"} }, []string{"fail - NotRead"}},
		"no controller":                         {func(f *doctor.Fleet) { f.Status = nil }, []string{"fail - NoController"}},
		"a controller that went away":           {func(f *doctor.Fleet) { f.Status.At = noon.Add(-3 * time.Minute) }, []string{"fail - NoController"}},
		"a status of a newer program": {func(f *doctor.Fleet) { f.Status, f.StatusProblem = nil, "protocol 9" },
			[]string{"fail - StatusUnreadable"}},
		"the dry run":                    {func(f *doctor.Fleet) { f.Status.DryRun = true }, []string{"warn - DryRun"}},
		"a pause":                        {func(f *doctor.Fleet) { f.Pause = &status.Pause{} }, []string{"warn - Paused"}},
		"a pause that nobody can read":   {func(f *doctor.Fleet) { f.PauseProblem = "JSON" }, []string{"warn - Paused"}},
		"a request that nobody can read": {func(f *doctor.Fleet) { f.RequestProblem = "JSON" }, []string{"warn - RequestMalformed"}},
		"a controller installed twice": {func(f *doctor.Fleet) {
			f.Pods = append(f.Pods, doctor.Pod{Namespace: "other", Name: "c", Component: "controller", Image: "regrade:1", Ready: true})
		}, []string{"fail - TwoControllers"}},
		"a controller that is being ended": {func(f *doctor.Fleet) {
			f.Pods = append(f.Pods, doctor.Pod{Component: "controller", Image: "regrade:0", Terminating: true})
		}, nil},
		"a pod whose image cannot be had": {func(f *doctor.Fleet) {
			f.Pods[1].Ready, f.Pods[1].Waiting, f.Pods[1].Node = false, "ImagePullBackOff", "n2"
		}, []string{"fail n2 PodNotReady"}},
		"pods that cannot be listed":        {func(f *doctor.Fleet) { f.Pods, f.PodsProblem = nil, "403" }, []string{"warn - PodsNotListed"}},
		"images of two versions":            {func(f *doctor.Fleet) { f.Pods[1].Image = "regrade:0" }, []string{"warn - ImagesDiffer"}},
		"a voter that never reported":       {func(f *doctor.Fleet) { host(f, "n2").Report = nil }, []string{"fail n2 NoHostDaemon"}},
		"a standby that never reported":     {func(f *doctor.Fleet) { host(f, "n4").Report = nil }, []string{"fail n4 NoHostDaemon"}},
		"a report of another protocol":      {func(f *doctor.Fleet) { h := host(f, "n4"); h.Report, h.ReportProblem = nil, "protocol 9" }, []string{"fail n4 BadReport"}},
		"a silent standby":                  {func(f *doctor.Fleet) { h := host(f, "n4"); h.Fresh, h.Speaks = false, false }, []string{"fail n4 Silent"}},
		"a worker without a daemon is none": {func(f *doctor.Fleet) { host(f, "w1").Fresh = false }, nil},
		"a daemon that has halted":          {func(f *doctor.Fleet) { host(f, "n4").Report.Code = "BadJournal" }, []string{"fail n4 DaemonHalts"}},
		"a voter's clock (rule 22)":         {func(f *doctor.Fleet) { host(f, "n1").Report.SkewMS = -31_000 }, []string{"fail n1 ClockSkew"}},
		"a standby's clock is said once":    {func(f *doctor.Fleet) { host(f, "n4").Report.SkewMS = 31_000 }, []string{"fail n4 ClockSkew"}},
		"four voters (R-F-02)": {func(f *doctor.Fleet) {
			for _, n := range []string{"n1", "n2", "n3"} {
				e := host(f, n).Report.Etcd
				e.Members = append(slices.Clone(e.Members), status.Member{ID: 4, Name: "n4-00000004", PeerURLs: []string{"https://10.0.0.4:2380"}})
			}
			h := host(f, "n4")
			h.Node.Labels[fleet.LabelEtcd], h.Report.Role, h.Report.Preflight = "true", fleet.RoleServer, nil
			h.Report.Etcd, h.Report.AsAgent, h.Report.MemberID, h.Report.ClusterID = host(f, "n1").Report.Etcd, &status.Preflight{OK: true}, 4, 0xc
		}, []string{"fail - EvenVoters", "warn - NoStandby"}},
		"a voter that is down": {func(f *doctor.Fleet) { host(f, "n2").Node.Ready = false }, []string{"fail n2 NotReady"}},
		"an alarm":             {func(f *doctor.Fleet) { host(f, "n1").Report.Etcd.Alarms = []string{"NOSPACE at n2"} }, []string{"fail n1 EtcdAlarm"}},
		"a voter that could not be an agent (rule 15)": {func(f *doctor.Fleet) {
			host(f, "n2").Report.AsAgent = &status.Preflight{Problems: []status.Problem{{Code: "AgentNotStaged", Sentence: "no agent.yaml"}}}
		}, []string{"fail n2 AgentNotStaged"}},
		"a standby that is not staged (rule 17)": {func(f *doctor.Fleet) {
			host(f, "n4").Report.Preflight = &status.Preflight{Problems: []status.Problem{{Code: "NotStaged", Sentence: "no server.yaml"}}}
		}, []string{"fail n4 NotStaged"}},
		"a standby whose port a voter does not reach": {func(f *doctor.Fleet) { host(f, "n3").Report.Standbys[0] = status.Dial{Node: "n4", Error: "refused"} },
			[]string{"fail n4 PeerPortUnreachable"}},
		"nobody to bring in":                        {func(f *doctor.Fleet) { delete(host(f, "n4").Node.Labels, keys.Eligible()) }, []string{"warn - NoStandby"}},
		"an old etcd (rule 9)":                      {func(f *doctor.Fleet) { host(f, "n1").Report.Etcd.Version = "3.6.3" }, []string{"fail n1 EtcdVersion"}},
		"k3s of two versions among voters (rule 9)": {func(f *doctor.Fleet) { host(f, "n3").Report.K3sVersion = "v1.35.0+k3s1" }, []string{"fail n3 K3sVersionsDiffer"}},
		"a worker of another k3s":                   {func(f *doctor.Fleet) { host(f, "w1").Node.KubeletVersion = "v1.33.0+k3s1" }, []string{"warn - K3sVersionsDiffer"}},
		"regrade of two versions":                   {func(f *doctor.Fleet) { f.Versions = map[string]string{"n1": "v1", "n2": "v0"} }, []string{"warn - RegradeVersionsDiffer"}},
		"a Lease that ran out with a holder": {func(f *doctor.Fleet) {
			f.Lease = held
			f.Lease.RenewTime = noon.Add(-time.Hour)
		}, []string{"warn - LeaseExpired"}},
		"a swap under way": {func(f *doctor.Fleet) {
			f.Lease, f.Status.Swap = held, &status.Swap{ID: held.SwapID()}
			for _, n := range []string{"n1", "n4"} {
				host(f, n).Node.Annotations[keys.Cordoned()] = string(held.SwapID())
			}
		}, nil},
		"marks without a swap": {func(f *doctor.Fleet) {
			host(f, "n4").Node.Annotations[keys.Cordoned()] = "20261129T110000Z-n1-n4"
			host(f, "w1").Node.Taints = []swap.Taint{{Key: keys.Taint(), Value: fleet.TaintValue, Effect: "NoSchedule"}}
		}, []string{"warn n4 MarksLeft", "warn w1 MarksLeft"}},
		"a swap of another prefix (rule 25)": {func(f *doctor.Fleet) {
			host(f, "w1").Node.Annotations = map[string]string{"other.example/role-swap": "x"}
		}, []string{"fail w1 ForeignPrefix"}},
		"a removal that was asked for (rule 5)": {func(f *doctor.Fleet) { host(f, "n4").Node.Annotations[fleet.AnnotationEtcdRemove] = "true" }, []string{"fail n4 RemoveRequested"}},
		"a demoted Node's labels (R-I-16)": {func(f *doctor.Fleet) { host(f, "w1").Node.Labels = map[string]string{fleet.LabelEtcd: "true"} },
			[]string{"fail w1 NoHostDaemon", "fail w1 RoleLabelsLeft", "warn w1 NoProbe"}},
		"a desired role that is not the role": {func(f *doctor.Fleet) { host(f, "n4").Node.Labels[keys.DesiredRole()] = "server" }, []string{"warn n4 DesiredRoleDiffers"}},
		"a label that says perhaps":           {func(f *doctor.Fleet) { host(f, "n1").Node.Labels[keys.Pinned()] = "perhaps" }, []string{"warn n1 BadLabel"}},
		"a voter that is not eligible":        {func(f *doctor.Fleet) { delete(host(f, "n1").Node.Labels, keys.Eligible()) }, []string{"warn n1 VoterNotEligible"}},
		"an agent of a demoted host (R-I-33)": {func(f *doctor.Fleet) {
			f.Started["w1"] = doctor.Started{Role: fleet.RoleAgent, Server: "https://10.0.0.4:6443"}
		}, []string{"warn w1 ServerDemoted"}},
		"an agent of a demoted host, by name": {func(f *doctor.Fleet) {
			f.Started["w1"] = doctor.Started{Role: fleet.RoleAgent, Server: "https://n4:6443"}
		}, []string{"warn w1 ServerDemoted"}},
		"an agent of a balancer": {func(f *doctor.Fleet) {
			f.Started["w1"] = doctor.Started{Role: fleet.RoleAgent, Server: "https://api.example:6443"}
		}, nil},
		"a kubeconfig of a demoted host": {func(f *doctor.Fleet) { f.Kubeconfig = "10.0.0.4:6443" }, []string{"warn - KubeconfigDemoted"}},
		"no probes":                      {func(f *doctor.Fleet) { f.Probes = nil }, []string{"warn - NoProbe"}},
		"a host without a probe":         {func(f *doctor.Fleet) { delete(f.Probes, "n4") }, []string{"warn n4 NoProbe"}},
		"a silent probe":                 {func(f *doctor.Fleet) { f.Probes["n4"] = doctor.Beat{Age: time.Hour} }, []string{"warn n4 ProbeSilent"}},
		"a probe between two beats":      {func(f *doctor.Fleet) { f.Probes["n4"] = doctor.Beat{Age: 20 * time.Second} }, nil},
		"probes that could not be read":  {func(f *doctor.Fleet) { f.ProbesProblem = "403" }, []string{"warn - NotRead"}},
		"a file that has other hosts": {func(f *doctor.Fleet) {
			for n := 1; n <= 3; n++ {
				f.Written = append(f.Written, doctor.Written{Name: fmt.Sprintf("n%d", n), Takes: true, Eligible: n < 3, Pinned: n == 2, Address: "10.0.0." + fmt.Sprint(n)})
			}
			f.Written[0].Address = "10.9.9.9"
			f.Written = append(f.Written, doctor.Written{Name: "n9", Takes: true})
		}, []string{"warn n1 AddressNotAsWritten", "warn n2 LabelNotAsWritten", "warn n3 LabelNotAsWritten", "fail n9 NoNode", "warn n4 LabelNotAsWritten"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := calm()
			c.change(f)
			var got []string
			fs := doctor.JudgeFleet(*f)
			for _, x := range fs {
				if x.Grade == doctor.OK {
					continue
				}
				node := x.Node
				if node == "" {
					node = "-"
				}
				got = append(got, fmt.Sprintf("%s %s %s", x.Grade, node, x.Code))
				if x.Sentence == "" || x.Cure == "" || x.Cure == doctor.Cure("nothing of the kind") {
					t.Errorf("a finding without words: %+v", x)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q\n%s", got, c.want, doctor.New("v", "", fs).Words())
			}
		})
	}
}
