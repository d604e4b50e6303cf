package parts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func etcdClient(t *testing.T, dir string, endpoints ...string) *clientv3.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(dir+"/etcd/client.crt", dir+"/etcd/client.key")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(dir + "/etcd/server-ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second,
		TLS:    &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
		Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// add makes the next member a learner, starts it, promotes it and waits until it serves.
func add(t *testing.T, client *clientv3.Client, cfg EtcdConfig) (*Etcd, *etcdserverpb.Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var added *clientv3.MemberAddResponse
	retry(t, ctx, "add "+cfg.Name, func() (err error) {
		added, err = client.MemberAddAsLearner(ctx, cfg.AdvertisePeerURLs)
		return err
	})
	etcd := start(t, cfg)
	retry(t, ctx, "promote "+cfg.Name, func() error {
		_, err := client.MemberPromote(ctx, added.Member.ID)
		return err
	})
	return etcd, added.Member
}

// remove repeats while etcd holds the cluster for unhealthy: for 5 s after a member came.
func remove(t *testing.T, ctx context.Context, client *clientv3.Client, member *etcdserverpb.Member) {
	t.Helper()
	retry(t, ctx, "remove a member", func() error {
		_, err := client.MemberRemove(ctx, member.ID)
		return err
	})
}

func retry(t *testing.T, ctx context.Context, what string, try func() error) {
	t.Helper()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// k3s-facts §5.3: a member that is removed while it runs hears of it in well under a second, one that was
// removed while down hears of it when it starts; both stop. §11.3: plain health and metrics.
func TestAMemberTellsOfItsRemovalWhetherItRunsOrStartsLater(t *testing.T) {
	dir := certificates(t)
	one := member(t, dir, "one", "", "new")
	one.HeartbeatMS, one.ElectionMS = 100, 1000
	first := start(t, one)
	await(t, first, EventReady, 20*time.Second)
	client := etcdClient(t, dir, one.AdvertiseClientURLs[0])

	two := member(t, dir, "two", one.InitialCluster, "existing")
	two.HeartbeatMS, two.ElectionMS = 100, 1000
	second, secondMember := add(t, client, two)
	three := member(t, dir, "three", two.InitialCluster, "existing")
	three.HeartbeatMS, three.ElectionMS = 100, 1000
	third, thirdMember := add(t, client, three)
	await(t, second, EventReady, 30*time.Second)
	await(t, third, EventReady, 30*time.Second)

	response, err := http.Get(three.ListenMetricsURLs[0] + "/health")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if !strings.Contains(string(text), `"health":"true"`) {
		t.Errorf("health of three: %s", text)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	remove(t, ctx, client, thirdMember)
	removed := time.Now()
	event := await(t, third, EventRemoved, 5*time.Second)
	t.Logf("three heard of its removal after %v", time.Since(removed))
	if !event.Running {
		t.Errorf("removal of a running member is told as %+v, want running", event)
	}
	await(t, third, EventStopped, 10*time.Second)
	if err := third.Wait(); err != nil {
		t.Errorf("three ended with %v, want status 0", err)
	}

	// Two is stopped in order, removed, and started again.
	stop, cancelStop := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancelStop()
	if err := second.Stop(stop); err != nil {
		t.Fatal(err)
	}
	await(t, second, EventStopped, time.Second)
	// One of two voters is down now: a removal needs both, so two must come back first.
	second = start(t, existing(two))
	await(t, second, EventReady, 20*time.Second)
	remove(t, ctx, client, secondMember)
	if event := await(t, second, EventRemoved, 5*time.Second); !event.Running {
		t.Errorf("removal of a running member is told as %+v, want running", event)
	}
	await(t, second, EventStopped, 10*time.Second)

	again := start(t, existing(three))
	event = await(t, again, EventRemoved, 15*time.Second)
	if event.Running {
		t.Errorf("removal before the start is told as %+v, want not running", event)
	}
	await(t, again, EventStopped, 10*time.Second)
}

// existing is how a member with a WAL is started: without initial-cluster settings.
func existing(cfg EtcdConfig) EtcdConfig {
	cfg.InitialCluster, cfg.InitialClusterState = "", ""
	return cfg
}

// A planned stop of the leader costs no election timeout: it hands leadership over first.
func TestALeaderThatIsStoppedHandsLeadershipOver(t *testing.T) {
	dir := certificates(t)
	one := member(t, dir, "one", "", "new")
	first := start(t, one)
	await(t, first, EventReady, 20*time.Second)
	client := etcdClient(t, dir, one.AdvertiseClientURLs[0])
	two := member(t, dir, "two", one.InitialCluster, "existing")
	second, _ := add(t, client, two)
	await(t, second, EventReady, 40*time.Second)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	other := etcdClient(t, dir, two.AdvertiseClientURLs[0])
	before, err := other.Status(ctx, two.AdvertiseClientURLs[0])
	if err != nil {
		t.Fatal(err)
	}
	if before.Leader == before.Header.MemberId {
		t.Fatal("two leads already")
	}
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	retry(t, ctx, "two leads at once", func() error {
		after, err := other.Status(ctx, two.AdvertiseClientURLs[0])
		if err == nil && after.Leader != after.Header.MemberId {
			t.Fatalf("after the stop %x leads, want two, %x", after.Leader, after.Header.MemberId)
		}
		return err
	})
}

func TestAnEtcdThatCannotStartSaysSo(t *testing.T) {
	dir := certificates(t)
	cfg := member(t, dir, "one", "", "new")
	cfg.Client.Cert = dir + "/missing.crt"
	etcd := start(t, cfg)
	if event := await(t, etcd, EventFatal, 10*time.Second); event.Detail == "" {
		t.Error("the event says nothing")
	}
	if status := ExitStatus(etcd.Wait()); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
}

func TestAKilledEtcdIsReported(t *testing.T) {
	dir := certificates(t)
	etcd := start(t, member(t, dir, "one", "", "new"))
	await(t, etcd, EventReady, 20*time.Second)
	etcd.Kill()
	await(t, etcd, EventFatal, 5*time.Second)
	if status := ExitStatus(etcd.Wait()); status != 137 {
		t.Errorf("exit status %d, want 137", status)
	}
}
