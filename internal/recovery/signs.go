package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/recover"
)

// signs are what processes on hosts keep renewing, as it was last seen to move.
type signs map[signKey]seenSign

type signKey struct {
	node string
	of   recover.SignOf
}

type seenSign struct {
	mark  string
	since time.Time // by the own clock
	moved bool
}

// beat is one sign as it was read. renewed is by the host's own clock.
type beat struct {
	mark    string
	renewed time.Time
}

// see takes in one look: what is there now, in the place of what was. What was not there
// at the look before is seen for the first time, which is no move.
func (s *signs) see(read map[signKey]beat, now time.Time) {
	seen := make(signs, len(read))
	for key, b := range read {
		one, ok := (*s)[key]
		if !ok || one.mark != b.mark {
			one = seenSign{mark: b.mark, since: now, moved: ok}
		}
		seen[key] = one
	}
	*s = seen
}

// of are a node's, with how long each has stood still.
func (s signs) of(node string, now time.Time) (all []recover.Sign) {
	for _, of := range []recover.SignOf{recover.SignProbe, recover.SignDaemon, recover.SignKubelet} {
		if one, ok := s[signKey{node, of}]; ok {
			all = append(all, recover.Sign{Of: of, Still: now.Sub(one.since), Moved: one.moved})
		}
	}
	return all
}

// watchSigns reads the heartbeats of probes and host daemons and the kubelets' Leases,
// and notes them in the silent Nodes.
func (r *Recovery) watchSigns(ctx context.Context, o *recover.Observation, now time.Time) (beats []observe.Heartbeat, err error) {
	beats, err = r.cluster.Heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	kubelets, err := r.cluster.KubeletLeases(ctx)
	if err != nil {
		return nil, err
	}
	silent := map[string]bool{}
	for i := range o.Nodes {
		silent[o.Nodes[i].Name] = o.Nodes[i].Ready == recover.ReadyUnknown
	}
	read := map[signKey]beat{}
	for _, b := range beats {
		of := recover.SignDaemon
		if b.Probe {
			of = recover.SignProbe
		}
		if silent[b.Node] {
			read[signKey{b.Node, of}] = beat{fmt.Sprint(b.BootID, " ", b.Counter, " ", b.Renewed), b.Renewed}
		}
	}
	for node, renewed := range kubelets {
		if silent[node] {
			read[signKey{node, recover.SignKubelet}] = beat{renewed.String(), renewed}
		}
	}
	r.signs.see(read, now)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !silent[n.Name] {
			continue
		}
		n.Signs = r.signs.of(n.Name, now)
		for k := range n.Signs {
			// Who looks once goes by the clocks (Settings.ByDate).
			if s := &n.Signs[k]; r.s.ByDate && !s.Moved {
				s.Still = max(s.Still, o.Now.Sub(read[signKey{n.Name, s.Of}].renewed))
			}
		}
	}
	return beats, nil
}
