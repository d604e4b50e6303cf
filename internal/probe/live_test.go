package probe_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/etcd/embedded"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// asMember makes the test binary a member of etcd.
const asMember = "REGRADE_TEST_MEMBER"

func TestMain(m *testing.M) {
	if os.Getenv(asMember) != "" {
		os.Exit(embedded.Main(os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// A live member of the etcd that this module has as a library (3.7), beside the
// recorded pages of 3.5 and 3.6 (R-185-40). It is not beside the sensors' fuzz
// targets: fuzzing would compile all of etcd once more.
func TestALiveMembersPageIsRead(t *testing.T) {
	t.Setenv(asMember, "1")
	dir := t.TempDir()
	peer, client := freePort(t), freePort(t)
	p, err := embedded.Start([]string{os.Args[0]}, embedded.Spec{
		Name: "m1", Dir: dir + "/data", Peer: peer, Client: client, Advertised: "http://" + peer,
		Initial: "m1=http://" + peer, Heartbeat: 500 * time.Millisecond, Election: 5 * time.Second, Log: dir + "/log",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	e := &sensor.Etcd{URL: "http://" + client + "/metrics", Client: sensor.NewPageClient(10 * time.Second)}
	var last error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		r, err := e.Read(t.Context())
		if err == nil && r.HasLeader {
			if r.KnownMembers != 1 || len(r.Members) != 1 || r.Members[0] != r.Member || !r.IsLeader || r.ActivePeers != 0 {
				t.Errorf("%+v", r)
			}
			return
		}
		last = err
		select {
		case <-p.Done():
			t.Fatalf("the member ended: %v", last)
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("no leader: %v", last)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
