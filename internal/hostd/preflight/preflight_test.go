package preflight_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd/preflight"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/swap"
)

const secret = "server-secret"

// voter is a join host: /cacerts for everybody, /db/info for the server's secret.
type voter struct {
	*httptest.Server
	ca      []byte
	members string
	status  int
}

func newVoter(t *testing.T) *voter {
	v := &voter{members: `{"members":[{"ID":18446744073709551615,"name":"n1-0123abcd","peerURLs":["https://10.0.0.1:2380"]}]}`, status: http.StatusOK}
	v.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v.status < 0 {
			<-r.Context().Done()
			return
		}
		if r.URL.Path == "/cacerts" {
			_, _ = w.Write(v.ca)
			return
		}
		user, pass, _ := r.BasicAuth()
		if user != "server" || pass != secret {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		if v.status == 0 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(v.status)
		_, _ = w.Write([]byte(v.members))
	}))
	t.Cleanup(func() { v.Close() }) // whichever it is by then
	v.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate().Raw})
	return v
}

type standby struct {
	t     *testing.T
	root  string
	c     *preflight.Checker
	in    hostapi.PreflightInput
	voter *voter
	free  uint64
	k3s   string
	name  string
}

func (s *standby) plant(path, content string) {
	s.t.Helper()
	full := filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// newStandby is a standby in order: every problem is one change away.
func newStandby(t *testing.T) *standby {
	s := &standby{t: t, root: t.TempDir(), voter: newVoter(t), free: 10 << 30, k3s: "v1.36.3+k3s1", name: "n4"}
	s.plant(fleet.FileServerConf, "token: "+secret+"\nflannel-backend: none\ndisable: [traefik]\n")
	s.plant("/etc/rancher/node/password", "0123456789abcdef\n")
	s.plant(fleet.DefaultDataDir+"/agent/server-ca.crt", string(s.voter.ca))
	u, err := url.Parse(s.voter.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.c = &preflight.Checker{
		Disk: k3s.Disk{Root: s.root}, Version: func() string { return s.k3s },
		Server: func(ctx context.Context) preflight.Staged {
			staged := preflight.Native(k3s.Disk{Root: s.root}, fleet.FileServerConf, "/etc/systemd/system/k3s.service.env")(ctx)
			staged.HostName = s.name
			return staged
		},
		Free: func(string) (uint64, error) { return s.free, nil }, Ports: []string{u.Port()},
	}
	n := func(name, ip string, labels map[string]string) hostapi.Node {
		return hostapi.Node{Name: name, Node: swap.Node{Labels: labels, InternalIP: ip, KubeletVersion: "v1.36.3+k3s1",
			Annotations: map[string]string{k3s.AnnotationArgs: `["server","--flannel-backend","none","--disable","traefik","--token","********","--cluster-init"]`}}}
	}
	s.in = hostapi.PreflightInput{
		Node: "n4", Join: "n1", Out: "n1", JoinURLs: map[string]string{"n1": s.voter.URL, "n4": "https://10.0.0.4:6443"},
		Nodes: []hostapi.Node{
			n("n1", u.Hostname(), map[string]string{fleet.LabelEtcd: "true", "kubernetes.io/hostname": "n1"}),
			n("n4", "10.0.0.4", map[string]string{"kubernetes.io/hostname": "n4"}),
		},
	}
	return s
}

// Found by auto_swap: the first voter of the list was the slow host that goes out,
// and it took the time of the others as well.
func TestASlowVoterDoesNotTakeTheTimeOfTheOthers(t *testing.T) {
	s := newStandby(t)
	s.in.Join, s.in.Out = "", ""
	for _, name := range []string{"a1", "a2"} {
		slow := newVoter(t)
		slow.status = -1
		s.in.JoinURLs[name] = slow.URL
		n := s.in.Nodes[0]
		n.Name = name
		s.in.Nodes = append(s.in.Nodes, n)
	}
	for _, p := range s.c.Preflight(t.Context(), s.in).Problems {
		if p.Code == preflight.CodeJoinFalters || p.Code == preflight.CodeJoinUnreachable {
			t.Errorf("%s: %s", p.Code, p.Sentence)
		}
	}
}

// Each of the things that safety rule 17 lists, one at a time.
func TestPreflight(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *standby)
		code   string // empty: ready
	}{
		"a standby in order": {func(*standby) {}, ""},
		"with a full token of this CA": {func(s *standby) {
			s.plant(fleet.FileServerConf, "token: K10"+hash(s.voter.ca)+"::server:"+secret+"\nflannel-backend: none\ndisable: traefik\n")
		}, ""},
		"with nobody ordered to join": {func(s *standby) { s.in.Join, s.in.Out = "", "" }, ""},
		"a former server of this cluster": {func(s *standby) {
			s.plant(fleet.DefaultDataDir+"/server/tls/server-ca.crt", string(s.voter.ca))
			s.plant(fleet.DefaultDataDir+"/server/cred/passwd", secret+",server,server,k3s:server\nx,node,node,k3s:agent\n")
		}, ""},
		"a flag that an operator allows": {func(s *standby) {
			s.c.Allowed = []string{"flannel-backend"}
			s.plant(fleet.FileServerConf, "token: "+secret+"\ndisable: traefik\n")
		}, ""},

		"not staged (R-228-15)":           {func(s *standby) { s.remove(fleet.FileServerConf) }, preflight.CodeNotStaged},
		"a configuration that is no YAML": {func(s *standby) { s.plant(fleet.FileServerConf, "token: [") }, preflight.CodeBadConfig},
		"no token":                        {func(s *standby) { s.plant(fleet.FileServerConf, "flannel-backend: none\ndisable: traefik\n") }, preflight.CodeNoToken},
		"a token file that is not there":  {func(s *standby) { s.plant(fleet.FileServerConf+".d/1.yaml", "token-file: /nowhere\n") }, preflight.CodeNoToken},
		"an agent's token":                {func(s *standby) { s.plant(fleet.FileServerConf+".d/1.yaml", "token: agent-secret\n") }, preflight.CodeWrongToken},
		"a token of another CA": {func(s *standby) {
			s.plant(fleet.FileServerConf+".d/1.yaml", "token: K10"+strings.Repeat("0", 64)+"::server:"+secret+"\n")
		}, preflight.CodeOtherCA},
		"an agent of another cluster":   {func(s *standby) { s.plant(fleet.DefaultDataDir+"/agent/server-ca.crt", "other") }, preflight.CodeOtherCA},
		"server/tls of another cluster": {func(s *standby) { s.plant(fleet.DefaultDataDir+"/server/tls/server-ca.crt", "other") }, preflight.CodeOtherCA},
		"server/cred of a rotated token": {func(s *standby) {
			s.plant(fleet.DefaultDataDir+"/server/cred/passwd", "old,server,server,k3s:server\n")
		}, preflight.CodeStaleCred},
		"another k3s":                      {func(s *standby) { s.k3s = "v1.34.2+k3s1" }, preflight.CodeVersion},
		"no k3s":                           {func(s *standby) { s.k3s = "" }, preflight.CodeVersion},
		"another flannel backend":          {func(s *standby) { s.plant(fleet.FileServerConf+".d/1.yaml", "flannel-backend: vxlan\n") }, preflight.CodeFlags},
		"another server of unknown flags":  {func(s *standby) { delete(s.in.Nodes[0].Annotations, k3s.AnnotationArgs) }, preflight.CodeFlags},
		"no node password":                 {func(s *standby) { s.remove("/etc/rancher/node/password") }, preflight.CodePassword},
		"a member of its name":             {func(s *standby) { s.voter.members = strings.Replace(s.voter.members, "n1-0123abcd", "n4-89abcdef", 1) }, preflight.CodeMemberExists},
		"an unstarted member at its place": {func(s *standby) { s.voter.members = `{"members":[{"ID":1,"peerURLs":["https://10.0.0.4:2380"]}]}` }, preflight.CodeMemberExists},
		"a host name that exists":          {func(s *standby) { s.name = "N1" }, preflight.CodeHostName},
		"with-node-id": {func(s *standby) {
			s.plant(fleet.FileServerConf+".d/1.yaml", "with-node-id: true\n")
			s.c.Allowed = []string{"with-node-id"}
		}, preflight.CodeNodeID},
		"another node name":                           {func(s *standby) { s.plant(fleet.FileServerConf+".d/1.yaml", "node-name: other\n") }, preflight.CodeNodeName},
		"a stray datastore":                           {func(s *standby) { s.plant(fleet.DefaultDataDir+"/server/db/etcd/name", "x") }, preflight.CodeDatastore},
		"a stray sqlite":                              {func(s *standby) { s.plant(fleet.DefaultDataDir+"/server/db/state.db", "x") }, preflight.CodeDatastore},
		"a full disk":                                 {func(s *standby) { s.free = 1 << 20 }, preflight.CodeDisk},
		"a voter whose port is shut":                  {func(s *standby) { s.c.Ports = append(s.c.Ports, shut(s.t)) }, preflight.CodeUnreachable},
		"a join host without a quorum":                {func(s *standby) { s.voter.status = http.StatusInternalServerError }, preflight.CodeJoinFalters},
		"a join host that does not come to an answer": {func(s *standby) { s.voter.status = 0 }, preflight.CodeJoinFalters},
		"a join host that talks nonsense":             {func(s *standby) { s.voter.members = "[]" }, preflight.CodeJoinUnreachable},
		"a join host that is down":                    {func(s *standby) { s.in.JoinURLs["n1"] = "https://127.0.0.1:" + shut(s.t) }, preflight.CodeJoinUnreachable},
		"to join itself":                              {func(s *standby) { s.in.Join = "n4" }, preflight.CodeNoJoinHost},
		"to join a host without a URL":                {func(s *standby) { s.in.Join = "n9" }, preflight.CodeNoJoinHost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandby(t)
			c.change(s)
			p := s.c.Preflight(t.Context(), s.in)
			if c.code == "" {
				if !p.OK {
					t.Errorf("problems: %+v", p.Problems)
				}
				return
			}
			var codes []string
			for _, x := range p.Problems {
				codes = append(codes, x.Code)
				if strings.Contains(x.Sentence, secret) || strings.Contains(x.Sentence, "agent-secret") {
					t.Errorf("a secret is printed: %s", x.Sentence) // R-216-23, safety rule 31
				}
				if x.Sentence == "" {
					t.Errorf("%s says nothing", x.Code)
				}
			}
			codes = slices.Compact(codes)
			if p.OK || len(codes) != 1 || codes[0] != c.code {
				t.Errorf("problems %+v, want %s alone", p.Problems, c.code)
			}
		})
	}
}

func (s *standby) remove(path string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.root, path)); err != nil {
		s.t.Fatal(err)
	}
}

// shut is a port that nobody listens on.
func shut(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

func hash(ca []byte) string {
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:])
}

func TestDial(t *testing.T) {
	v := newVoter(t)
	u, err := url.Parse(v.URL)
	if err != nil {
		t.Fatal(err)
	}
	got := (&preflight.Checker{}).Dial(t.Context(), []hostapi.Standby{{Node: "a", Address: u.Host}, {Node: "b", Address: "127.0.0.1:" + shut(t)}})
	if len(got) != 2 || !got[0].OK || got[1].OK || got[1].Error == "" || got[1].Node != "b" {
		t.Errorf("%+v", got)
	}
}

// A report is written only when something in it changed (safety rule 29).
func TestProblemsReadAlikeEachTime(t *testing.T) {
	s := newStandby(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset, whose error names both ports
			_ = c.Close()
		}
	}()
	s.in.JoinURLs["n1"] = "https://" + l.Addr().String()
	first := s.c.Preflight(t.Context(), s.in)
	for range 3 {
		again := s.c.Preflight(t.Context(), s.in)
		if len(again.Problems) != 1 || again.Problems[0].Code != first.Problems[0].Code || strings.Contains(again.Problems[0].Sentence, "->") {
			t.Fatalf("%+v, then %+v", first.Problems, again.Problems)
		}
	}
}
