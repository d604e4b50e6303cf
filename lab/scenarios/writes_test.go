package scenarios

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/exadev/regrade/internal/fleet"
)

// written is what one kind of object cost etcd: its writes, and their keys and values in bytes.
type written struct{ writes, bytes int }

// writesOf watches every key of the datastore for a while and says what regrade's own objects cost, and all others together.
func (s *scenario) writesOf(during time.Duration) map[string]written {
	s.t.Helper()
	client, err := s.Etcd(s.Host("n2"))
	s.must(err)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(s.t.Context(), during)
	defer cancel()
	sum := map[string]written{}
	for answer := range client.Watch(ctx, "/registry/", clientv3.WithPrefix()) {
		s.must(answer.Err())
		for _, e := range answer.Events {
			if e.Type != mvccpb.PUT {
				continue
			}
			kind := kindOf(string(e.Kv.Key))
			w := sum[kind]
			sum[kind] = written{w.writes + 1, w.bytes + len(e.Kv.Key) + len(e.Kv.Value)}
		}
	}
	return sum
}

const others = "everything else"

func kindOf(key string) string {
	own := "/" + fleet.DefaultNamespace + "/"
	switch {
	case strings.HasPrefix(key, "/registry/configmaps"+own):
		return strings.TrimPrefix(key, "/registry/configmaps"+own)
	case strings.HasPrefix(key, "/registry/leases"+own+fleet.ProbeHeartbeatPrefix):
		return "heartbeat Leases of probes"
	case strings.HasPrefix(key, "/registry/leases"+own+fleet.HeartbeatPrefix):
		return "heartbeat Leases of host daemons"
	case strings.HasPrefix(key, "/registry/leases/kube-system/"+fleet.LeaseName):
		return fleet.LeaseName
	}
	return others
}

// writesWithinBudget holds the writes of probes and host daemons, as etcd gets them, against safety rule 29: 5 KiB a second
// for up to nine hosts. The status is the controller's, a write a minute, and is printed beside them.
func (s *scenario) writesWithinBudget(during time.Duration) {
	s.t.Helper()
	sum := s.writesOf(during)
	probesAndReports := 0
	for kind, w := range sum {
		s.Logf("into etcd in %s: %s: %d writes, %d bytes, %.2f KiB/s", during, kind, w.writes, w.bytes, float64(w.bytes)/1024/during.Seconds())
		if kind != others && kind != fleet.ConfigMapStatus && kind != fleet.LeaseName {
			probesAndReports += w.bytes
		}
	}
	if sum[fleet.ConfigMapProbe].writes == 0 || sum[others].writes == 0 {
		s.t.Error("no write of a probe, or of k3s, was seen")
	}
	rate := float64(probesAndReports) / 1024 / during.Seconds()
	s.Logf("probes and host daemons of %d hosts: %.2f KiB/s", 4, rate)
	if rate > 5 {
		s.t.Errorf("probes and host daemons write %.2f KiB/s into etcd, more than 5", rate)
	}
}
