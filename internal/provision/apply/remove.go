package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/status"
)

// Remove takes regrade off hosts and cluster, k3s going on as it runs. Every host is asked
// first: where one would not be as it was found, nothing is changed anywhere.
func (t *Turn) Remove(ctx context.Context) (Outcome, error) {
	if err := Known(t.Fleet, t.Limit); err != nil {
		return Outcome{}, err
	}
	t.leaving = true
	whole := func() bool { return len(t.Limit) == 0 }
	return t.carry(ctx, []phase{
		{"look at the cluster", always, t.look},
		{"reach the hosts", always, t.reach},
		{"which hosts they are", always, t.whose},
		{"ask the hosts", always, t.ask},
		// Nothing may begin a swap from here on.
		{"controller", whole, t.workloads},
		{"still nothing under way", func() bool { return whole() && !t.Check }, t.lookAgain},
		{"hosts", func() bool { return !t.Check }, t.takeOff},
		{"objects of the cluster", whole, t.uninstall},
		{"labels", always, t.unlabel},
	})
}

// ask has each host say what a removal would do.
func (t *Turn) ask(ctx context.Context) error {
	t.each(ctx, atOnce, t.hosts, func(ctx context.Context, h *host) error {
		at := ""
		for _, place := range h.places() {
			r, err := h.runner.Run(ctx, remote.Command{Argv: []string{"test", "-x", place}})
			if err != nil {
				return err
			}
			if r.Code == 0 {
				at = place
				break
			}
		}
		if at == "" {
			return h.without(ctx)
		}
		r, err := h.runner.Run(ctx, remote.Command{Argv: []string{at, "host", "remove", "--check"}})
		if err != nil {
			return err
		}
		switch {
		case r.Code == fleet.ExitRefused && strings.Contains(string(r.Err), "("+setup.CodeNotSetUp+")"):
			h.program = at // the program alone is there
		case r.Code == fleet.ExitRefused:
			return &problemError{Problem: status.Problem{Code: CodeHostRefused, Sentence: said(r)}, refused: true}
		case r.Code != 0:
			return failed(CodeHostFailed, "%s", said(r))
		default:
			h.program, h.changed = at, true
			if t.Check {
				t.screen.block(h.Name, "would be taken off", string(r.Out))
			}
		}
		return nil
	})
	var problems []status.Problem
	for _, h := range t.hosts {
		if h.problem != nil {
			problems = append(problems, status.Problem{Code: h.problem.Code, Sentence: h.Name + ": " + h.problem.Sentence})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	if len(t.Limit) == 0 {
		problems = append(problems, status.Problem{Code: CodeHostRefused, Sentence: "with --limit the other hosts are done alone; the cluster's objects stay then"})
	}
	return &Refusal{problems}
}

// without is a host on which the program is not: nothing is to be done there, unless units need
// it, which then start no k3s after the next boot, and no removal could be carried out.
func (h *host) without(ctx context.Context) error {
	if h.Platform == inventory.Docker {
		// No unit needs it, and its daemon would be left behind.
		r, err := h.runner.Run(ctx, remote.Command{Argv: []string{"test", "-e", fleet.FileInstalled}})
		if err == nil && r.Code == 0 {
			return failed(CodeProgramGone, "regrade is missing there, and the host was set up by it. regrade apply brings it back; then remove")
		}
		return err
	}
	r, err := h.run(ctx, nil, "sh", "-c", asking)
	if err != nil {
		return err
	}
	if units := strings.Fields(string(r.Out)); len(units) > 0 {
		return failed(CodeProgramGone, "%s is missing there, and without it these do not start: %s. regrade apply brings it back; then remove", installed, strings.Join(units, ", "))
	}
	return nil
}

// packaged says whether a package manager has the program on its list.
const packaged = `dpkg -S ` + installed + ` >/dev/null 2>&1 || rpm -qf ` + installed + ` >/dev/null 2>&1`

// asking prints the units that start, or ask before they start, the program: one that was set up
// by hand is none of ours to take off, and k3s would not start after the next boot.
const asking = `for d in /etc/systemd/system /run/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
	if [ -d "$d" ]; then grep -RlsF ` + installed + ` "$d"; fi
done; :`

// takeOff takes regrade off each host, one after another: should one go wrong, it is one.
func (t *Turn) takeOff(ctx context.Context) error {
	t.each(ctx, 1, t.hosts, func(ctx context.Context, h *host) error {
		if h.program == "" {
			return nil
		}
		if h.changed {
			r, err := h.run(ctx, nil, h.program, "host", "remove")
			if err != nil {
				return err
			}
			t.screen.block(h.Name, "taken off", string(r.Out))
		}
		for _, place := range h.places() {
			if err := t.withoutProgram(ctx, h, place); err != nil {
				return err
			}
		}
		return nil
	})
	for _, h := range t.hosts {
		if h.problem != nil {
			return errors.New("a host is not done; the next run goes on, and until then the cluster's objects stay")
		}
	}
	return nil
}

// withoutProgram takes the program out of a place, where no package has put it and no unit
// asks it.
func (t *Turn) withoutProgram(ctx context.Context, h *host, place string) error {
	if place == installed {
		r, err := h.runner.Run(ctx, remote.Command{Argv: []string{"sh", "-c", packaged}})
		if err != nil {
			return err
		}
		if r.Code == 0 {
			t.screen.line(h.Name, "a package has %s: it is left for the package manager to remove", installed)
			return nil
		}
		if r, err = h.run(ctx, nil, "sh", "-c", asking); err != nil {
			return err
		}
		if units := strings.Fields(string(r.Out)); len(units) > 0 {
			t.screen.line(h.Name, "%s is left, for without it these would not start: %s", installed, strings.Join(units, ", "))
			return nil
		}
	}
	_, err := h.run(ctx, nil, h.clean(place)...)
	h.changed = true
	return err
}

// workloads takes the processes away, and leaves what hosts need to be asked. The controller's
// rights go with it: its pod may live for half a minute more, and begins no swap then.
func (t *Turn) workloads(ctx context.Context) error {
	return t.delete(ctx, func(o manifests.Object) bool {
		return processes(o.Kind()) || strings.HasSuffix(o.Kind(), "RoleBinding") && o.Name() == fleet.ServiceAccountController
	})
}

// lookAgain finds a swap that began as its controller was taken away: no host is touched then.
func (t *Turn) lookAgain(ctx context.Context) error {
	err := t.look(ctx)
	if r, ok := errors.AsType[*Refusal](err); ok {
		return fmt.Errorf("%s. No host is changed, and the controller is taken away: regrade apply brings it back, and it goes on", r.Problems[0].Sentence)
	}
	return err
}

// uninstall takes everything else away but the namespace: runners, and what a person put
// there, may live in it.
func (t *Turn) uninstall(ctx context.Context) error {
	err := t.delete(ctx, func(o manifests.Object) bool { return !processes(o.Kind()) && o.Kind() != "Namespace" })
	if err != nil {
		return err
	}
	for _, name := range []string{fleet.ConfigMapActuators, fleet.ConfigMapProbe, fleet.ConfigMapStatus} {
		if err := t.gone(ctx, kube.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": t.Namespace}}); err != nil {
			return err
		}
	}
	lease := kube.Object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": fleet.LeaseName, "namespace": fleet.LeaseNamespace}}
	if err := t.gone(ctx, lease); err != nil {
		return err
	}
	for _, whose := range []string{fleet.HeartbeatLabelValue, fleet.ProbeHeartbeatLabelValue} {
		beats, err := t.cluster.Labelled(ctx, map[string]string{fleet.HeartbeatLabel: whose}, t.Namespace)
		if err != nil {
			return err
		}
		for _, o := range beats {
			if err := t.gone(ctx, o); err != nil {
				return err
			}
		}
	}
	t.screen.write("Namespace %s is left; delete it where nothing else is in it\n", t.Namespace)
	return nil
}

func (t *Turn) delete(ctx context.Context, which func(manifests.Object) bool) error {
	have, err := t.cluster.Labelled(ctx, manifests.Mine(), t.Namespace, fleet.LeaseNamespace)
	if err != nil {
		return err
	}
	for _, o := range have {
		if !which(manifests.Of(o)) {
			continue
		}
		if err := t.gone(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (t *Turn) gone(ctx context.Context, o kube.Object) error {
	got, err := t.cluster.Delete(ctx, o, t.Check)
	if err != nil {
		return err
	}
	t.show(got)
	return nil
}

// unlabel takes regrade's own labels and annotations off the Nodes. Further labels of
// fleet.yaml are the owner's and stay.
func (t *Turn) unlabel(ctx context.Context) error {
	for _, h := range t.hosts {
		n, there := t.nodes[h.Name]
		if h.problem != nil || !there {
			continue
		}
		p := execute.NodePatch{Labels: map[string]*string{}, Annotations: map[string]*string{}}
		for k := range n.Labels {
			if strings.HasPrefix(k, t.Keys.Prefix()) {
				p.Labels[k] = nil
			}
		}
		for k := range n.Annotations {
			if strings.HasPrefix(k, t.Keys.Prefix()) {
				p.Annotations[k] = nil
			}
		}
		if len(p.Labels)+len(p.Annotations) == 0 {
			continue
		}
		t.changed++
		t.screen.line(h.Name, "%d of regrade's labels and annotations are taken off its Node", len(p.Labels)+len(p.Annotations))
		if t.Check {
			continue
		}
		if err := t.patch(ctx, h.Name, p); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return nil
}
