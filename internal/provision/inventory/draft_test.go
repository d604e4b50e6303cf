package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/swap"
)

const release = "v1.36.3+k3s1"

func node(name, address, args string, labels ...string) k3s.Node {
	n := k3s.Node{Name: name, Internal: []string{address}, Version: release, OSImage: "Debian GNU/Linux 13 (trixie)", Labels: map[string]string{}, Annotations: map[string]string{}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	if args != "" {
		n.Annotations[k3s.AnnotationArgs] = args
	}
	return n
}

const (
	asServer = fleet.LabelControlPlane + "=true"
	asVoter  = fleet.LabelEtcd + "=true"
)

func cluster() []k3s.Node {
	return []k3s.Node{
		node("n4", "10.0.0.4", `["agent","--node-ip","10.0.0.4"]`),
		node("n2", "10.0.0.2", `["server","--token","********"]`, asServer, asVoter),
		node("n1", "10.0.0.1", `["server","--cluster-init"]`, asServer, asVoter),
		node("n3", "10.0.0.3", `["server"]`, asServer, asVoter),
		node("n5", "10.0.0.5", `["agent"]`),
	}
}

func written(t rapid.TB, d inventory.Draft) string {
	t.Helper()
	var b strings.Builder
	if err := d.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestADraftOfAClusterIsAFileThatIsReadAgain(t *testing.T) {
	d := inventory.DraftOf(cluster(), fleet.DefaultKeys())
	if len(d.Against) > 0 {
		t.Error(d.Against)
	}
	f := parsed(t, written(t, d))
	want := []inventory.Host{
		{Name: "n1", Address: "10.0.0.1", Role: fleet.RoleServer, Eligible: true},
		{Name: "n2", Address: "10.0.0.2", Role: fleet.RoleServer, Eligible: true},
		{Name: "n3", Address: "10.0.0.3", Role: fleet.RoleServer, Eligible: true},
		{Name: "n4", Address: "10.0.0.4", Role: fleet.RoleAgent, NodeIP: "10.0.0.4"},
		{Name: "n5", Address: "10.0.0.5", Role: fleet.RoleAgent},
	}
	for i := range want {
		want[i].SSH, want[i].Platform, want[i].JoinURL = want[i].Address, inventory.Native, "https://"+want[i].Address+":6443"
	}
	if d := cmp.Diff(want, f.Hosts, wheresoever); d != "" {
		t.Error(d)
	}
	if f.Target() != 3 || f.MaxServers != 5 {
		t.Errorf("target %d, max-servers %d", f.Target(), f.MaxServers)
	}
	if s, _ := f.Setting("dry-run"); s.Value != "true" {
		t.Error("a first file begins in the dry run")
	}
}

func TestWhatNodesTellStandsInTheDraft(t *testing.T) {
	nodes := cluster()
	n1, n4, n5 := &nodes[2], &nodes[0], &nodes[4]
	n1.OSImage, n1.Labels["x.example/voter-pinned"], n1.Internal = "K3s v1.36.3+k3s1", "true", []string{"fd00::1", "10.0.0.1"}
	n1.Annotations[k3s.AnnotationArgs] = `["server","--https-listen-port","7443","--node-ip","fd00::1","--node-ip=10.0.0.1"]`
	nodes[1].Labels["x.example/voter-eligible"] = "false"
	n4.Labels["x.example/voter-eligible"], n4.Labels[fleet.LabelControlPlane] = "true", "true"
	n5.Internal, n5.External, n5.Version = nil, []string{"192.0.2.5"}, "v1.35.1+k3s1"
	keys, err := fleet.NewKeys("x.example/")
	if err != nil {
		t.Fatal(err)
	}
	d := inventory.DraftOf(nodes, keys)
	text := written(t, d)
	f := parsed(t, text)
	if h := f.Hosts[0]; h.Platform != inventory.Docker || !h.Pinned || h.Address != "fd00::1" || h.JoinURL != "https://[fd00::1]:7443" || h.NodeIP != "fd00::1,10.0.0.1" || h.Project != inventory.DefaultProject {
		t.Errorf("%+v", h)
	}
	if f.Hosts[1].Eligible || !f.Hosts[3].Eligible || f.Hosts[3].Role != fleet.RoleAgent || f.Hosts[4].Address != "192.0.2.5" {
		t.Errorf("%+v", f.Hosts)
	}
	if s, _ := f.Setting("label-prefix"); s.Value != "x.example/" {
		t.Error("the prefix is lost")
	}
	for _, want := range []string{
		"  # n1: its system calls itself \"K3s v1.36.3+k3s1\", as k3s's own image does: taken for a container\n",
		"  # n4: labelled as a server, but k3s was last started as an agent: the labels are left over\n",
		"  # n5: the Node has no internal address; this is its external one\n",
		"  # n5: it runs k3s v1.35.1+k3s1, n1 runs v1.36.3+k3s1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s\n%s", want, text)
		}
	}
}

func TestWhatSpeaksAgainstAClusterIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(nodes []k3s.Node) []k3s.Node
		want   []string
	}{
		"nothing":      {func(n []k3s.Node) []k3s.Node { return n }, nil},
		"two servers":  {func(n []k3s.Node) []k3s.Node { return n[:3] }, []string{inventory.CodeFewServers}},
		"four servers": {func(n []k3s.Node) []k3s.Node { return append(n, node("n6", "10.0.0.6", "", asServer, asVoter)) }, []string{inventory.CodeEvenServers}},
		"no etcd":      {func(n []k3s.Node) []k3s.Node { delete(n[1].Labels, fleet.LabelEtcd); return n }, []string{inventory.CodeNoEtcd}},
		"an external datastore": {func(n []k3s.Node) []k3s.Node {
			delete(n[1].Labels, fleet.LabelEtcd)
			n[1].Annotations[k3s.AnnotationArgs] = `["server","--datastore-endpoint","********"]`
			return n
		}, []string{adopt.CodeUnsupported}},
		"a flag that is off": {func(n []k3s.Node) []k3s.Node {
			n[1].Annotations[k3s.AnnotationArgs] = `["server","--with-node-id","false"]`
			return n
		}, nil},
		"another flannel": {func(n []k3s.Node) []k3s.Node {
			n[1].Annotations[k3s.AnnotationArgs] = `["server","--flannel-backend","wireguard-native"]`
			return n
		}, []string{inventory.CodeServersFlags}},
		"two versions": {func(n []k3s.Node) []k3s.Node { n[3].Version = "v1.36.2+k3s1"; return n }, []string{swap.CodeK3sVersions}},
		"an old etcd, perhaps": {func(n []k3s.Node) []k3s.Node {
			for i := range n {
				n[i].Version = "v1.34.0+k3s1"
			}
			return n
		}, []string{swap.CodeEtcdVersion, swap.CodeEtcdVersion, swap.CodeEtcdVersion}},
		"no k3s": {func(n []k3s.Node) []k3s.Node {
			for i := range n {
				n[i].Version = "v1.36.3+rke2r1"
			}
			return n
		}, []string{inventory.CodeNotK3s, inventory.CodeNotK3s, inventory.CodeNotK3s}},
		"too few that may vote": {func(n []k3s.Node) []k3s.Node {
			n[1].Labels[fleet.DefaultKeys().Eligible()] = "false"
			return n
		}, []string{decide.CodeFewEligible}},
	} {
		t.Run(name, func(t *testing.T) {
			d := inventory.DraftOf(c.change(cluster()), fleet.DefaultKeys())
			var got []string
			for _, p := range d.Against {
				got = append(got, p.Code)
			}
			slices.Sort(got)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			text := written(t, d)
			parsed(t, text)
			for _, p := range d.Against {
				if !strings.Contains(text, p.Sentence) {
					t.Errorf("the file lacks %s", p.Sentence)
				}
			}
		})
	}
}

func TestTheTargetIsTheLargestOddNumberOfServers(t *testing.T) {
	for servers, want := range map[int]int{1: 3, 2: 3, 3: 3, 4: 3, 5: 5, 6: 5, 7: 7} {
		var nodes []k3s.Node
		for i := range servers {
			nodes = append(nodes, node(fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.0.%d", i+1), "", asServer, asVoter))
		}
		if f := parsed(t, written(t, inventory.DraftOf(nodes, fleet.DefaultKeys()))); f.Target() != want {
			t.Errorf("%d servers: target %d, want %d", servers, f.Target(), want)
		}
	}
}

func TestAgentsThatAFileDoesNotHoldAreLeftOut(t *testing.T) {
	nodes := cluster()
	for i := range 1200 {
		nodes = append(nodes, node(fmt.Sprintf("w%04d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), ""))
	}
	nodes[len(nodes)-1].Labels[fleet.DefaultKeys().Eligible()] = "true"
	d := inventory.DraftOf(nodes, fleet.DefaultKeys())
	f := parsed(t, written(t, d))
	if d.Left != 205 || len(f.Hosts) != 1000 || f.Hosts[999].Name != "w1199" || !f.Hosts[999].Eligible {
		t.Errorf("%d left, %d hosts, the last %+v", d.Left, len(f.Hosts), f.Hosts[len(f.Hosts)-1])
	}
}

// Whatever a Node says of itself, it is a comment or a value in the file and nothing else.
func TestNothingThatANodeSaysLeavesItsPlaceInTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := cluster()
		evil := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"x\nhosts: []", "\u2028hosts:", "a: b # c", "\xff", "\x85max-servers: 1"}))
		nodes[2].OSImage = "K3s " + evil.Draw(t, "system")
		nodes[1].Version = evil.Draw(t, "version")
		nodes[3].Annotations[k3s.AnnotationArgs] = fmt.Sprintf(`["server","--flannel-backend",%q,"--node-ip",%q,"--https-listen-port",%q]`, evil.Draw(t, "flag"), evil.Draw(t, "ip"), evil.Draw(t, "port"))
		text := written(t, inventory.DraftOf(nodes, fleet.DefaultKeys()))
		f, err := inventory.Parse([]byte(text), flags)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(f.Hosts) != 5 || f.MaxServers != 5 {
			t.Fatalf("%+v\n%s", f, text)
		}
	})
}
