package scenarios

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/host"
	"github.com/exadev/regrade/lab/writer"
)

// Bounds of the waits. They are far above what is measured; a scenario fails on
// them only when something does not happen at all.
const (
	soon      = time.Minute
	swapLimit = 6 * time.Minute
)

var keys = fleet.DefaultKeys()

// scenario is a running cluster with a writer, a watcher of processes and a
// controller.
type scenario struct {
	*cluster.Cluster
	t          *testing.T
	controller *cluster.Controller
	writer     *writer.Writer
	watch      *host.Watch
	clusterID  fleet.MemberID
	uids       map[string]types.UID
	// lastSwap is the swap that ended last: the next one is another.
	lastSwap fleet.SwapID
	// outage: the scenario takes the quorum away, so writes may fail for a while.
	outage bool
	// leaderDies: the scenario kills or freezes the host that may lead etcd. An election begins
	// within twice its timeout, and the write that was under way is given up after its own.
	leaderDies bool
}

// begin makes the cluster and starts what runs through every scenario. The
// writer goes to the servers named. With controllerEnv nil no controller runs.
func begin(t *testing.T, spec cluster.Spec, controllerEnv []string, writeThrough ...string) *scenario {
	t.Helper()
	return beginOn(t, shared.own(t, spec), controllerEnv, writeThrough...)
}

// beginOn is begin on a cluster that is up.
func beginOn(t *testing.T, c *cluster.Cluster, controllerEnv []string, writeThrough ...string) *scenario {
	t.Helper()
	s := &scenario{Cluster: c, t: t, uids: map[string]types.UID{}}
	ctx := t.Context()
	s.watch = s.Lab.Watch()
	members, err := s.Members(ctx)
	s.must(err)
	s.clusterID = members.ClusterID
	for _, n := range s.nodes() {
		s.uids[n.Name] = n.UID
	}
	if controllerEnv == nil {
		s.must(s.EnsureReports(ctx))
	} else {
		before, _ := s.published(ctx) // of a cluster that was lent
		s.controller = s.NewController()
		s.controller.Env = controllerEnv
		s.must(s.controller.Start(ctx))
		t.Cleanup(func() {
			if running, err := s.controller.Running(); err != nil {
				t.Error(err)
			} else if running {
				if err := s.controller.Stop(); err != nil {
					t.Error(err)
				}
			}
		})
		// What another scenario's controller judged is not what this one knows.
		s.eventually(soon, "a status of this controller", func(ctx context.Context) (bool, string) {
			st, err := s.published(ctx)
			return err == nil && st.Controller != before.Controller, fmt.Sprintf("%s's status, %v", st.Controller, err)
		})
	}
	s.awaitReports()
	if controllerEnv != nil {
		if last := s.status().LastSwap; last != nil {
			s.lastSwap = last.ID
		}
	}
	s.startWriter(writeThrough)
	return s
}

// awaitReports waits until every host daemon has spoken, every voter has reached
// the peer port of the standby that is staged, and every standby has judged itself. Who
// votes is what etcd says: a cluster that was lent may have swapped.
func (s *scenario) awaitReports() {
	s.t.Helper()
	members, err := s.Members(s.t.Context())
	s.must(err)
	votes := func(name string) bool { return slices.Contains(members.Voters(), name) }
	standby := "n4"
	if votes(standby) {
		standby = "n1"
	}
	s.eventually(2*time.Minute, "every host daemon to report", func(ctx context.Context) (bool, string) {
		cm, err := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace).Get(ctx, fleet.ConfigMapActuators, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, h := range s.Spec.Hosts {
			if h.Role == cluster.Agent && !h.Standby {
				continue
			}
			r, err := status.ParseReport([]byte(cm.Data[h.Name]))
			switch {
			case err != nil:
				return false, fmt.Sprintf("%s: %v", h.Name, err)
			case !votes(h.Name) && r.Preflight == nil:
				return false, h.Name + " has not judged itself"
			case votes(h.Name) && (r.Etcd == nil || !r.Etcd.Linearizable):
				return false, h.Name + " reports no etcd that answers"
			case votes(h.Name) && !slices.Contains(r.Standbys, status.Dial{Node: standby, OK: true}):
				return false, h.Name + " has not reached " + standby
			}
		}
		return true, ""
	})
}

func (s *scenario) startWriter(through []string) {
	s.t.Helper()
	var hosts []*host.Host
	for _, n := range through {
		hosts = append(hosts, s.Host(n))
	}
	w, err := writer.Start(s.t.Context(), s.Cluster, hosts...)
	s.must(err)
	s.writer = w
}

// writeThrough changes the servers that the writer uses.
func (s *scenario) writeThrough(names ...string) {
	s.t.Helper()
	var hosts []*host.Host
	for _, n := range names {
		hosts = append(hosts, s.Host(n))
	}
	servers, err := writer.Servers(s.Cluster, hosts...)
	s.must(err)
	s.writer.Use(servers...)
}

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) api() *cluster.API {
	s.t.Helper()
	api, err := s.API()
	s.must(err)
	return api
}

func (s *scenario) nodes() []corev1.Node {
	s.t.Helper()
	var list *corev1.NodeList
	s.eventually(soon, "the nodes to be listed", func(ctx context.Context) (bool, string) {
		var err error
		list, err = s.api().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return list.Items
}

func (s *scenario) node(name string) *corev1.Node {
	s.t.Helper()
	for _, n := range s.nodes() {
		if n.Name == name {
			return &n
		}
	}
	s.t.Fatalf("there is no Node %s", name)
	return nil
}

func (s *scenario) eventually(limit time.Duration, what string, condition func(context.Context) (bool, string)) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), limit, what, condition))
}

// status is status.json as the controller last published it.
func (s *scenario) status() status.Status {
	s.t.Helper()
	var st status.Status
	s.eventually(soon, "a published status", func(ctx context.Context) (ok bool, why string) {
		var err error
		st, err = s.published(ctx)
		return err == nil, fmt.Sprint(err)
	})
	return st
}

func (s *scenario) published(ctx context.Context) (status.Status, error) {
	cm, err := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace).Get(ctx, fleet.ConfigMapStatus, metav1.GetOptions{})
	if err != nil {
		return status.Status{}, err
	}
	return status.ParseStatus([]byte(cm.Data[fleet.KeyStatus]))
}

// report is what a host's daemon last said.
func (s *scenario) report(node string) status.Report {
	s.t.Helper()
	var r status.Report
	s.eventually(soon, "a report of "+node, func(ctx context.Context) (bool, string) {
		cm, err := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace).Get(ctx, fleet.ConfigMapActuators, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		r, err = status.ParseReport([]byte(cm.Data[node]))
		return err == nil, fmt.Sprint(err)
	})
	return r
}

// swap runs `regrade swap OUT IN --wait` as an operator does and gives what it
// said; the status says how long each step took.
func (s *scenario) swap(out, in string) cluster.Outcome {
	s.t.Helper()
	began := time.Now()
	o, err := s.CLI(s.t.Context(), "swap", out, in, "--wait", "--timeout", swapLimit.String())
	s.must(err)
	s.Logf("regrade swap %s %s: exit %d after %.1f s", out, in, o.Code, time.Since(began).Seconds())
	if o.Code != fleet.ExitDone {
		s.Logf("it said: %s%s", o.Stdout, o.Stderr)
	}
	return o
}

// mustSwap is a swap that has to be completed.
func (s *scenario) mustSwap(out, in string) *status.LastSwap {
	s.t.Helper()
	if o := s.swap(out, in); o.Code != fleet.ExitDone {
		s.t.Fatalf("the swap of %s for %s ended with exit status %d", out, in, o.Code)
	}
	last := s.ended(out, in)
	s.printSteps(last)
	return last
}

// ended waits until the status shows the end of the pair's swap and the Lease
// is free.
func (s *scenario) ended(out, in string) *status.LastSwap {
	s.t.Helper()
	return s.endedWithin(swapLimit, out, in)
}

func (s *scenario) endedWithin(limit time.Duration, out, in string) *status.LastSwap {
	s.t.Helper()
	var last *status.LastSwap
	if s.Binaries.Real {
		limit *= 2 // a real k3s evicts a learner that never started after five minutes
	}
	s.eventually(limit, fmt.Sprintf("the swap of %s for %s to end", out, in), func(ctx context.Context) (bool, string) {
		st := s.status()
		last = st.LastSwap
		if last == nil || last.ID == s.lastSwap || last.Out != out || last.In != in {
			return false, fmt.Sprintf("state %s: %s", st.Next.State, st.Next.Sentence)
		}
		holder, err := s.leaseHolder(ctx)
		return err == nil && holder == "", fmt.Sprintf("Lease held by %q, %v", holder, err)
	})
	s.lastSwap = last.ID
	return last
}

func (s *scenario) printSteps(last *status.LastSwap) {
	s.t.Helper()
	for i, step := range last.Steps {
		until := last.EndedAt
		if i+1 < len(last.Steps) {
			until = last.Steps[i+1].At
		}
		s.Logf("  %-10s %5.0f s", step.Step, until.Sub(step.At).Seconds())
	}
	if len(last.Steps) > 0 {
		s.Logf("  %-10s %5.0f s", "all", last.EndedAt.Sub(last.Steps[0].At).Seconds())
	}
}

func (s *scenario) leaseHolder(ctx context.Context) (string, error) {
	l, err := s.api().CoordinationV1().Leases(fleet.LeaseNamespace).Get(ctx, fleet.LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	case l.Spec.HolderIdentity == nil:
		return "", nil
	}
	return *l.Spec.HolderIdentity, nil
}

// patchNode merges into a Node's metadata; a nil value deletes a key.
func (s *scenario) patchNode(name string, labels, annotations map[string]any) {
	s.t.Helper()
	meta := map[string]any{}
	if labels != nil {
		meta["labels"] = labels
	}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	raw, err := json.Marshal(map[string]any{"metadata": meta})
	s.must(err)
	s.eventually(soon, "a patch of Node "+name, func(ctx context.Context) (bool, string) {
		_, err := s.api().CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// identity is what a host keeps through every change of role (R-X-03).
type identity struct {
	UID      types.UID
	Address  string
	Password string // of /etc/rancher/node/password, as a digest
	Secret   string // the hash in its node-password Secret
}

func (s *scenario) identity(name string) identity {
	s.t.Helper()
	n := s.node(name)
	id := identity{UID: n.UID, Address: internalIP(n)}
	password, err := s.NodePassword(s.Host(name))
	s.must(err)
	id.Password = fmt.Sprintf("%x", sha256.Sum256([]byte(password)))
	s.eventually(soon, "the node password Secret of "+name, func(ctx context.Context) (bool, string) {
		secret, err := s.api().CoreV1().Secrets("kube-system").Get(ctx, name+".node-password.k3s", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		id.Secret = string(secret.Data["hash"])
		return id.Secret != "", "no hash in it"
	})
	return id
}

func internalIP(n *corev1.Node) string {
	i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	if i < 0 {
		return ""
	}
	return n.Status.Addresses[i].Address
}

// printMemory prints what regrade's processes hold resident: the host daemons
// on the named hosts, and the controller.
func (s *scenario) printMemory(names ...string) {
	s.t.Helper()
	for _, name := range names {
		pid, err := s.DaemonPID(s.t.Context(), s.Host(name))
		s.must(err)
		lines, err := s.Host(name).Run(s.t.Context(), "grep", "-E", "^(VmRSS|RssAnon)", "/proc/"+pid+"/status")
		s.must(err)
		s.Logf("host daemon of %s: %s", name, strings.Join(strings.Fields(lines), " "))
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.controller.PID()))
	s.must(err)
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			s.Logf("controller: %s", strings.Join(strings.Fields(line), " "))
		}
	}
}
