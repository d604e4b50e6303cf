package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// concerned are the nodes of a swap, a request or a verdict, and the nodes
// whose clean-up is still owed (safety rule 16). Only their pods and kubelet
// Leases are read, so that an idle pass costs the same at any size.
func (b *Observer) concerned(s *Sight, also []string) (inSwap, pending []string) {
	k := b.settings.Policy.Keys
	inSwap = slices.Clone(also)
	for i := range s.Hosts {
		a := s.Hosts[i].Node.Annotations
		_, swapped := a[k.Swap()]
		record, recorded := a[k.Record()]
		if swapped || recorded {
			inSwap = append(inSwap, s.Hosts[i].Name)
		}
		if r, err := status.ParseRecord(record); recorded && err == nil {
			inSwap = append(inSwap, r.Out, r.In)
		}
		if _, ours := a[k.Cordoned()]; ours && !swapped {
			pending = append(pending, s.Hosts[i].Name)
		}
	}
	if s.Lease.SwapID() != "" {
		for n := range strings.SplitSeq(s.Lease.Annotations[fleet.LeaseSwapNodes], ",") {
			inSwap = append(inSwap, strings.TrimSpace(n))
		}
	}
	if s.Status != nil && s.Status.Swap != nil {
		inSwap = append(inSwap, s.Status.Swap.Out, s.Status.Swap.In)
	}
	if s.Request != nil {
		inSwap = append(inSwap, s.Request.Out, s.Request.In)
	}
	if s.Automatic != nil {
		inSwap = append(inSwap, s.Automatic.Out, s.Automatic.In)
	}
	known := func(names []string) []string {
		slices.Sort(names)
		return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return s.Host(n) == nil })
	}
	return known(inSwap), known(pending)
}

// underWay says whether anything speaks of a swap: that alone makes etcd
// snapshots worth a read.
func underWay(o *swap.Observation, k fleet.Keys) bool {
	if o.Lease.SwapID() != "" {
		return true
	}
	return slices.ContainsFunc(o.Hosts, func(h swap.Host) bool {
		_, swapped := h.Node.Annotations[k.Swap()]
		return swapped
	})
}

func (b *Observer) readPods(ctx context.Context, s *Sight, nodes []string, now time.Time) {
	asked := map[string]triedEvict{}
	for _, name := range nodes {
		h := s.Host(name)
		pods, err := b.cluster.Pods(ctx, name)
		if err != nil {
			s.Missing = append(s.Missing, fmt.Sprintf("the pods of %s: %v", name, err))
			continue
		}
		read := true
		for _, p := range pods {
			if p.Finished {
				continue
			}
			q := Judge(p, b.settings.Protected)
			if !q.Protected && !q.Stays && !q.Terminating {
				t, ok := b.evicts[p.UID]
				if !ok || now.Sub(t.at) >= tryAgain {
					refusal, err := b.cluster.TryEvict(ctx, p)
					if err != nil {
						s.Missing = append(s.Missing, fmt.Sprintf("whether pod %s/%s may be evicted: %v", p.Namespace, p.Name, err))
						read = false
						continue
					}
					t = triedEvict{refusal: refusal, at: now}
				}
				asked[p.UID] = t
				q.Blocked = t.refusal
			}
			h.Pods = append(h.Pods, q)
		}
		slices.SortFunc(h.Pods, func(a, c swap.Pod) int {
			return strings.Compare(a.Namespace+"/"+a.Name, c.Namespace+"/"+c.Name)
		})
		h.PodsRead = read
	}
	b.evicts = asked
}

// Judge says what a drain may do with a pod. It leaves Blocked empty.
func Judge(p Pod, protected func(map[string]string) bool) swap.Pod {
	return swap.Pod{
		Namespace:   p.Namespace,
		Name:        p.Name,
		Protected:   protected(p.Labels),
		Stays:       p.Mirror || p.Owner == "DaemonSet",
		Owned:       p.Owner != "",
		Terminating: p.Terminating,
	}
}

func (b *Observer) readKubelets(ctx context.Context, s *Sight, nodes []string) {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for _, name := range nodes {
		h := s.Host(name)
		renewed, err := b.cluster.KubeletRenewed(ctx, name)
		if err != nil {
			s.Missing = append(s.Missing, fmt.Sprintf("the kubelet Lease of %s: %v", name, err))
			continue
		}
		h.KubeletRenewed = renewed
		if h.Report == nil {
			continue // what was seen of the last start stays: the report may only be unreadable now
		}
		seen := b.kubelets[name]
		if seen == nil {
			seen = &seenKubelet{}
			b.kubelets[name] = seen
		}
		h.KubeletChanged = seen.see(startOf(h.Report), renewed)
	}
	for name := range b.kubelets {
		if !slices.Contains(nodes, name) {
			delete(b.kubelets, name)
		}
	}
}
