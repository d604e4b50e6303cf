package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/status"
)

// look refuses while the Lease is held (R-C-07), by a swap or by a host that changes its level;
// a removal also by a swap that no controller renews.
func (t *Turn) look(ctx context.Context) error {
	read, err := t.cluster.Lease(ctx)
	if err != nil {
		return err
	}
	state := read.At(t.cluster.Date())
	switch {
	case read.Holder == fleet.LeaseHolder && (state == lease.Held || t.leaving && state == lease.Expired):
		return refuse(CodeSwapUnderWay, "swap %s is under way; nothing is changed meanwhile", read.SwapID())
	case state == lease.Held:
		return refuse(CodeLeaseTaken, "the Lease is held by %s, as it is while a host changes its level; nothing is changed meanwhile", read.Holder)
	}
	nodes, err := t.cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	t.nodes = map[string]observe.Node{}
	for _, n := range nodes {
		t.nodes[n.Name] = n
	}
	beats, err := t.cluster.Heartbeats(ctx)
	if err != nil {
		return err
	}
	t.beats = spoken(beats)
	t.compare()
	return nil
}

// compare holds the file against the cluster's servers: one that the file calls an agent
// and not eligible (R-C-06), and one that it does not name.
func (t *Turn) compare() {
	for _, h := range t.bystanders {
		if h.problem == nil && t.votes(h) {
			t.fail(h, &problemError{Problem: status.Problem{Code: CodeNotAgent, Sentence: "fleet.yaml calls it an agent that is not eligible, and it is a server of the cluster"}, refused: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		_, etcd := t.nodes[name].Labels[fleet.LabelEtcd]
		if etcd && !slices.ContainsFunc(t.Fleet.Hosts, func(h inventory.Host) bool { return h.Name == name }) {
			t.screen.line(name, "is a server of the cluster and not in fleet.yaml: without a host daemon no swap touches it, and none is safe to begin")
		}
	}
}

func refuse(code, format string, args ...any) error {
	return &Refusal{[]status.Problem{{Code: code, Sentence: fmt.Sprintf(format, args...)}}}
}

func spoken(beats []observe.Heartbeat) map[string]observe.Heartbeat {
	out := map[string]observe.Heartbeat{}
	for _, b := range beats {
		if !b.Probe {
			out[b.Node] = b
		}
	}
	return out
}

// processes are the kinds of objects that run something.
func processes(kind string) bool { return kind == "Deployment" || kind == "DaemonSet" }

func isNot(which func(string) bool) func(string) bool {
	return func(kind string) bool { return !which(kind) }
}

// objects applies manifests of some kinds. What is live is created and never replaced
// (safety rule 25).
func (t *Turn) objects(ctx context.Context, which func(kind string) bool) error {
	for _, o := range t.Objects {
		if !which(o.Kind()) {
			continue
		}
		do := t.cluster.Apply
		if o.CreateOnly() {
			do = t.cluster.Create
		}
		got, err := do(ctx, kube.Object(o), t.Check)
		if err != nil {
			return err
		}
		t.show(got)
	}
	return t.others(ctx, which)
}

// others names objects that a person installed with other settings.
func (t *Turn) others(ctx context.Context, which func(kind string) bool) error {
	have, err := t.cluster.Labelled(ctx, manifests.Mine(), t.Namespace, fleet.LeaseNamespace)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, o := range t.Objects {
		wanted[o.Kind()+"/"+o.Namespace()+"/"+o.Name()] = true
	}
	for _, raw := range have {
		o := manifests.Of(raw)
		if which(o.Kind()) && o.Kind() != "ConfigMap" && !wanted[o.Kind()+"/"+o.Namespace()+"/"+o.Name()] {
			t.screen.write("%s is installed and fleet.yaml does not ask for it; it is left\n", title(o.Kind(), o.Namespace(), o.Name()))
		}
	}
	return nil
}

func title(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

func (t *Turn) show(got kube.Installed) {
	if !got.Changed {
		return
	}
	t.changed++
	what := title(got.Kind, got.Namespace, got.Name)
	switch {
	case got.Before == nil:
		t.screen.write("%s: new\n", what)
	case got.After == nil:
		t.screen.write("%s: deleted\n", what)
	default:
		t.screen.block(what, "changed", string(diff.Diff("now", text(got.Before), "then", text(got.After))))
	}
}

func text(o kube.Object) []byte {
	raw, err := yaml.Marshal(o)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// tokenWait is how long k3s's token controller may take for a Secret.
const tokenWait = 30 * time.Second

// credential makes the daemons' kubeconfig of the token that the cluster has (R-D1-10).
func (t *Turn) credential(ctx context.Context) error {
	var err error
	if t.kubeconfigs.host, err = t.kubeconfig(ctx, manifests.HostToken); err != nil {
		return err
	}
	if t.Levels {
		t.kubeconfigs.level, err = t.kubeconfig(ctx, manifests.LevelToken)
	}
	return err
}

func (t *Turn) kubeconfig(ctx context.Context, secret string) (k3s.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenWait)
	defer cancel()
	for {
		token, ca, err := t.cluster.Token(ctx, t.Namespace, secret)
		switch {
		case err != nil:
			return "", err
		case token != "" && len(ca) > 0:
			return Kubeconfig(t.Fleet, token, ca)
		case t.Check:
			t.screen.write("Secret %s/%s: its token will be every host's credential\n", t.Namespace, secret)
			return Kubeconfig(t.Fleet, "to-come", []byte("to come"))
		case len(t.Limit) > 0:
			return "", refuse(CodeNoCredential, "Secret %s/%s has no token; run it once without --limit", t.Namespace, secret)
		}
		if !sleep.For(ctx, 200*time.Millisecond) {
			return "", fmt.Errorf("the cluster gave Secret %s/%s no token in %s: does its token controller run?", t.Namespace, secret, tokenWait)
		}
	}
}

// Kubeconfig is a daemon's. Which server it names does not matter: host.yaml has them all.
func Kubeconfig(f inventory.Fleet, token k3s.Secret, ca []byte) (k3s.Secret, error) {
	server := ""
	for _, h := range f.Hosts {
		if h.Role == fleet.RoleServer {
			server = h.JoinURL
			break
		}
	}
	if server == "" {
		return "", errors.New("kubeconfig: no server in the fleet")
	}
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "regrade",
		"clusters": []any{map[string]any{"name": "regrade", "cluster": map[string]any{"server": server, "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": "regrade", "user": map[string]any{"token": token.Reveal()}}},
		"contexts": []any{map[string]any{"name": "regrade", "context": map[string]any{"cluster": "regrade", "user": "regrade"}}},
	})
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return k3s.Secret(raw), nil
}

// labels are put on the Nodes at once: k3s sets those of its configuration at its next
// start only (R-185-34). A host that takes no part loses no label that it does not have.
func (t *Turn) labels(ctx context.Context) error {
	for _, h := range t.hosts {
		if h.problem != nil {
			continue
		}
		n, there := t.nodes[h.Name]
		if !there && h.newcomer {
			continue
		}
		if !there {
			t.fail(h, failed(CodeNodeMissing, "the cluster has no Node %s", h.Name))
			continue
		}
		want := map[string]string{t.Keys.Eligible(): fmt.Sprint(h.Eligible), t.Keys.Pinned(): fmt.Sprint(h.Pinned)}
		for k, v := range h.Labels {
			want[k] = v
		}
		if err := t.label(ctx, n, want); err != nil {
			t.fail(h, err)
		}
	}
	if len(t.Limit) > 0 {
		return nil
	}
	return t.unwanted(ctx)
}

// unwanted are Nodes that are eligible by their label and not by the file: the controller would
// make voters of them.
func (t *Turn) unwanted(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		if _, etcd := n.Labels[fleet.LabelEtcd]; etcd || n.Labels[t.Keys.Eligible()] != fleet.True {
			continue // a server has been named
		}
		i := slices.IndexFunc(t.Fleet.Hosts, func(h inventory.Host) bool { return h.Name == name })
		switch {
		case i < 0:
			t.screen.line(name, "eligible by its label, and not in fleet.yaml: it is left, and may be made a voter")
		case !t.Fleet.Hosts[i].Takes():
			if err := t.label(ctx, n, map[string]string{t.Keys.Eligible(): "false"}); err != nil {
				return err
			}
			t.screen.line(name, "not eligible any more; its k3s says that it is again when it starts, until on that host: sudo regrade host remove")
		}
	}
	return nil
}

func (t *Turn) label(ctx context.Context, n observe.Node, want map[string]string) error {
	patch, shown := map[string]*string{}, []string{}
	for k, v := range want {
		if have, there := n.Labels[k]; !there || have != v {
			patch[k] = &v
			shown = append(shown, k+"="+v)
		}
	}
	if len(patch) == 0 {
		return nil
	}
	t.changed++
	t.screen.line(n.Name, "label %s", strings.Join(slices.Sorted(slices.Values(shown)), ", "))
	if t.Check {
		return nil
	}
	return t.patch(ctx, n.Name, execute.NodePatch{Labels: patch})
}

// patch tries again where somebody else writes the Node in between, as a kubelet does all
// the time.
func (t *Turn) patch(ctx context.Context, name string, p execute.NodePatch) error {
	for range 10 {
		nodes, err := t.cluster.Nodes(ctx)
		if err != nil {
			return err
		}
		version := ""
		for _, n := range nodes {
			if n.Name == name {
				version = n.Version
			}
		}
		if err = t.cluster.PatchNode(ctx, name, version, p); !errors.Is(err, execute.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("patch node %s: somebody else writes it all the time", name)
}

// reports waits until each daemon speaks. One that was started anew has to speak anew.
func (t *Turn) reports(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.Wait)
	defer cancel()
	for {
		beats, err := t.cluster.Heartbeats(ctx)
		silent := t.silent(spoken(beats))
		if err == nil && len(silent) == 0 {
			return nil
		}
		if !sleep.For(ctx, 500*time.Millisecond) {
			if len(silent) == 0 && err != nil {
				return err
			}
			for _, h := range silent {
				t.fail(h, failed(CodeDaemonSilent, "its daemon has said nothing in %s; on the host, %s and regrade host status say why", t.Wait, logOf(h)))
			}
			return nil
		}
	}
}

// logOf is where a host's daemon says what is wrong with it.
func logOf(h *host) string {
	if h.Platform == inventory.Docker {
		return "docker logs of the project's regrade-host"
	}
	return "systemctl status regrade-host"
}

func (t *Turn) silent(beats map[string]observe.Heartbeat) (out []*host) {
	for _, h := range t.hosts {
		if h.problem != nil {
			continue
		}
		b, speaks := beats[h.Name]
		before, spoke := t.beats[h.Name]
		moved := !spoke || b != before
		recent := !h.restarted && t.cluster.Date().Sub(b.Renewed).Abs() <= 3*t.Period
		if !speaks || !moved && !recent {
			out = append(out, h)
		}
	}
	return out
}
