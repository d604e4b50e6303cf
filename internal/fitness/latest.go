package fitness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// latest is the last sample in words, for a person who looks at the ConfigMap.
func latest(s *Sample) json.RawMessage {
	words := map[string]any{"at": s.At}
	if s.Restart != NoRestart {
		words["restart"] = s.Restart
	}
	if s.Link.Kind != "" {
		words["link"] = linkWord(s.Link)
	}
	if len(s.Connect) > 0 {
		to := map[string]string{}
		for _, c := range s.Connect {
			if to[c.To] = c.Took.String(); c.Failed {
				to[c.To] = cmp.Or(string(c.Why), "failed")
			}
		}
		words["connect"] = to
	}
	if m := s.Memory; m != nil {
		if m.TotalBytes > 0 {
			words["memory"] = fmt.Sprintf("%d of %d MiB available", m.AvailableBytes>>20, m.TotalBytes>>20)
		}
		if m.Pressure != nil {
			words["pressure"] = fmt.Sprintf("some %.2f %.2f, full %.2f %.2f", m.Pressure.SomeAvg10, m.Pressure.SomeAvg60, m.Pressure.FullAvg10, m.Pressure.FullAvg60)
		}
	}
	if e := s.Etcd; e != nil {
		etcd := map[string]any{
			"member": e.Member, "leader": e.IsLeader, "has_leader": e.HasLeader, "learner": e.IsLearner,
			"members": e.KnownMembers, "peers": e.ActivePeers, "db_mib": e.DBSizeBytes >> 20,
		}
		if g := e.Gains; g != nil {
			for name, h := range map[string]*Histogram{"wal_fsync": &g.WALFsync, "backend_commit": &g.BackendCommit} {
				if mean, ok := h.Mean(); ok {
					etcd[name] = fmt.Sprintf("%d, mean %s", h.Total(), mean.Round(time.Microsecond))
				}
			}
		}
		words["etcd"] = etcd
	}
	if f := s.Fsync; f != nil {
		words["fsync"] = fmt.Sprintf("%d, p50 %s, p99 %s, max %s", f.Count, f.P50, f.P99, f.Max)
	}
	for _, a := range s.Absent {
		words["no_"+string(a.Reading)] = a.Code
	}
	raw, err := json.Marshal(words)
	if err != nil {
		return nil
	}
	return raw
}
