package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// end checks what every scenario must leave behind: the voters named and
// nobody else, one cluster id, no mark of a swap, a free Lease, no host on
// which two k3s processes ever ran at once, and every acknowledged write still
// there (design §6).
func (s *scenario) end(voters ...string) {
	s.t.Helper()
	ctx := s.t.Context()
	slices.Sort(voters)
	s.must(s.AwaitVoters(ctx, soon, voters...))
	s.eventually(soon, "the fleet to be clean", func(ctx context.Context) (bool, string) {
		problems := s.problems(ctx, voters)
		return len(problems) == 0, strings.Join(problems, "; ")
	})
	s.watch.Stop()
	for _, o := range s.watch.Overlaps() {
		s.t.Errorf("two k3s processes on one host: %s", o)
	}
	s.Logf("processes looked at %d times, no two k3s at once", s.watch.Samples())
	s.checkWrites()
}

// problems are everything about the cluster that is not as it must be.
func (s *scenario) problems(ctx context.Context, voters []string) []string {
	var ps []string
	add := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	members, err := s.Members(ctx)
	switch {
	case err != nil:
		add("%v", err)
	case members.ClusterID != s.clusterID:
		add("the cluster id was %s and is %s", s.clusterID, members.ClusterID)
	}
	if holder, err := s.leaseHolder(ctx); err != nil || holder != "" {
		add("the Lease is held by %q (%v)", holder, err)
	}
	for _, n := range s.nodes() {
		if uid, known := s.uids[n.Name]; known && uid != n.UID {
			add("%s is another Node object than before", n.Name)
		}
		ps = append(ps, marks(&n, slices.Contains(voters, n.Name))...)
	}
	return ps
}

// marks are a Node's labels, annotations and taints that do not belong there.
func marks(n *corev1.Node, votes bool) []string {
	var ps []string
	add := func(format string, args ...any) { ps = append(ps, n.Name+" "+fmt.Sprintf(format, args...)) }
	if !cluster.NodeReady(n) {
		add("is not Ready")
	}
	if n.Spec.Unschedulable {
		add("is cordoned")
	}
	for _, t := range n.Spec.Taints {
		if t.Key == keys.Taint() {
			add("has the taint %s", t.Key)
		}
	}
	for _, key := range append(keys.SwapAnnotations(), keys.Cordoned()) {
		if _, ok := n.Annotations[key]; ok {
			add("has the annotation %s", key)
		}
	}
	if _, ok := n.Labels[keys.Level()]; ok {
		add("has a level label")
	}
	for _, l := range fleet.ServerLabels() {
		if _, ok := n.Labels[l]; ok && !votes {
			add("is an agent with the label %s", l)
		}
	}
	for _, a := range fleet.EtcdAnnotations() {
		_, ok := n.Annotations[a]
		if ok && !votes {
			add("is an agent with the annotation %s", a)
		}
		if ok && (a == fleet.AnnotationEtcdRemove || a == fleet.AnnotationEtcdRemovedName) {
			add("has the annotation %s", a)
		}
	}
	if _, ok := n.Labels[fleet.LabelEtcd]; !ok && votes {
		add("votes without the label %s", fleet.LabelEtcd)
	}
	return ps
}

// checkWrites stops the writer and reads every acknowledged write back.
func (s *scenario) checkWrites() {
	s.t.Helper()
	if s.writer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := s.writer.Stop(ctx)
	s.must(err)
	s.writer = nil
	s.Logf("writer: %s", r)
	if r.Writes == 0 {
		s.t.Error("the writer had no write acknowledged: it proves nothing")
	}
	if len(r.Lost) > 0 {
		s.t.Errorf("%d acknowledged writes are lost: %v", len(r.Lost), r.Lost)
	}
	if s.outage || len(r.Failures) == 0 {
		return
	}
	// etcd drops a proposal that reaches a leader which is handing over, or has
	// just died, and its writer hears of it only by a timeout; a k3s without regrade
	// does the same. It is never lost silently, and it is no outage: the next write
	// succeeds within twice the election timeout (R-228-26).
	s.Logf("%d writes were not acknowledged while etcd's leadership moved: %v", len(r.Failures), r.Failures)
	bound, most := 2*electionTimeout, r.Writes/500
	if s.leaderDies {
		// Each write that is tried until the new leader is there may end by its own time.
		bound += writeTimeout
		most = max(most, int(bound/writeTimeout))
	}
	if r.LongestGap > bound {
		s.t.Errorf("no write succeeded for %s, more than %s", r.LongestGap, bound)
	}
	if len(r.Failures) > most {
		s.t.Errorf("%d of %d writes through servers that stay failed", len(r.Failures), r.Writes)
	}
}

// writeTimeout is how long the writer waits for one write.
const writeTimeout = 5 * time.Second

// electionTimeout is k3s's for etcd (k3s-facts §11.1).
const electionTimeout = 5 * time.Second
