package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/bundle"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/swap"
)

// Bounds of what is taken along.
const (
	logLines = 2000
	logBytes = 1 << 20
	mostTold = 500
)

func newSupportBundle(e env.Env, d Deps) *cobra.Command {
	var s settings
	var f fleetFile
	var file string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what a bug report needs of the fleet into one file, secrets left out",
		Long: `Writes a .tar.gz that nobody but its owner may read: what regrade doctor finds, the status,
request and pause, the hosts' reports, the probes' windows, the published health, the Lease, Nodes
with labels, regrade's annotations and conditions, regrade's pods with the last lines of their
logs, Events about them. With -f it takes each host's own along, over SSH (regrade host
support-bundle). MANIFEST.txt in it says what is in and what was left out.

Each part is there because it is on a list; what looks like a secret is masked. Look through it
before you pass it on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(cmd, e); err != nil {
				return err
			}
			if err := s.read(cmd, e); err != nil {
				return err
			}
			return failed(s.collect(cmd.Context(), e, d, f, file))
		},
	}
	s.flags(cmd.Flags())
	f.flags(cmd.Flags())
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, which must not be there yet; - for standard output; default regrade-support-TIME.tar.gz here")
	return cmd
}

func (s *settings) collect(ctx context.Context, e env.Env, d Deps, f fleetFile, file string) error {
	now := e.Now().UTC()
	folder := "regrade-support-" + now.Format("20060102T150405Z")
	if file == "" {
		file = folder + ".tar.gz"
	}
	to, err := bundle.Open(file, e.Out)
	if err != nil {
		return err
	}
	b := bundle.New(to, folder, now)
	b.Add("version.txt", "regrade's version", []byte(version()+"\n"))
	if err := s.ofCluster(ctx, e, d, f, b); err != nil {
		if !f.given() {
			return to.Close(err)
		}
		// The hosts may know why.
		b.Leave("cluster", err.Error())
	}
	if f.given() {
		for _, a := range f.ask(ctx, d, 4*time.Minute, "host", "support-bundle", "-o", "-") {
			if a.problem == "" {
				if err := b.Take("hosts/"+a.host, a.out); err != nil {
					a.problem = err.Error()
				}
			}
			if a.problem != "" {
				b.Leave("hosts/"+a.host, a.problem)
			}
		}
	}
	if err := to.Close(b.Close()); err != nil {
		return err
	}
	if to.Path() != "" {
		_, _ = fmt.Fprintln(e.Out, to.Path())
	}
	return nil
}

func addJSON(b *bundle.Bundle, name, what string, read func() (any, error)) {
	b.Part(name, what, func() ([]byte, error) {
		v, err := read()
		if err != nil {
			return nil, err
		}
		raw, err := json.MarshalIndent(v, "", "  ")
		return append(raw, '\n'), err
	})
}

// ofCluster is what the API has. An error means that it does not answer at all.
func (s *settings) ofCluster(ctx context.Context, e env.Env, d Deps, f fleetFile, b *bundle.Bundle) error {
	cluster, err := s.connect(d)
	if err != nil {
		return err
	}
	x, err := s.survey(ctx, cluster, e, d)
	if err != nil {
		return err
	}
	x.Written = f.written()
	addJSON(b, "doctor.json", "what regrade doctor finds", func() (any, error) { return doctor.New(version(), "", doctor.JudgeFleet(x)), nil })
	for _, m := range []struct {
		name, folder string
		keys         []string // nil: one for each node
	}{
		{fleet.ConfigMapStatus, "status", []string{fleet.KeyStatus, fleet.KeyRequest, fleet.KeyPause}},
		{s.actuators, "reports", nil},
		{fleet.ConfigMapProbe, "probes", nil},
		{fleet.ConfigMapHealth, "health", []string{fleet.KeyHealth, fleet.KeyRoleStatus, fleet.FileHealthyUntil}},
	} {
		s.configMap(ctx, cluster, b, m.name, m.folder, m.keys)
	}
	addJSON(b, "lease.json", "the Lease of swaps", func() (any, error) { l, err := cluster.Lease(ctx); return l, err })
	addJSON(b, "heartbeats.json", "the heartbeats of hosts and probes", func() (any, error) { return cluster.Heartbeats(ctx) })
	addJSON(b, "nodes.json", "the Nodes: labels, regrade's and k3s's annotations, conditions", func() (any, error) { return s.nodes(ctx, cluster, x) })
	pods, err := cluster.OwnPods(ctx)
	addJSON(b, "pods.json", "regrade's pods", func() (any, error) { return pods, err })
	for _, p := range pods {
		at := "logs/" + p.Namespace + "_" + p.Name
		b.Part(at+".log", "the last lines of its log", func() ([]byte, error) { return cluster.Log(ctx, p, false, logLines, logBytes) })
		if p.Restarts > 0 {
			b.Part(at+".previous.log", "those of the container before", func() ([]byte, error) { return cluster.Log(ctx, p, true, logLines, logBytes) })
		}
	}
	addJSON(b, "events.json", "Events in regrade's namespace, and of Nodes", func() (any, error) { return s.told(ctx, cluster) })
	b.Leave("alerts", "the state in ConfigMap "+fleet.ConfigMapAlert+" is about receivers")
	return nil
}

// configMap takes the keys along that are known, or those that are a Node's.
func (s *settings) configMap(ctx context.Context, cluster Cluster, b *bundle.Bundle, name, folder string, keys []string) {
	cm, err := cluster.ConfigMap(ctx, name)
	if err == nil && !cm.Exists {
		err = errors.New("there is no such ConfigMap")
	}
	if err != nil {
		b.Leave(folder, err.Error())
		return
	}
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		if keys != nil && !slices.Contains(keys, key) {
			b.Leave(folder+"/"+key, "a key of ConfigMap "+name+" that regrade does not write")
			continue
		}
		b.Add(folder+"/"+key, "as it stands in ConfigMap "+name, []byte(cm.Data[key]))
	}
}

// node is what is shown of a Node.
type node struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Left are the names of annotations that are somebody else's.
	Left          []string            `json:"annotations_left_out"`
	Taints        []swap.Taint        `json:"taints"`
	Unschedulable bool                `json:"unschedulable"`
	InternalIP    string              `json:"internal_ip"`
	Version       string              `json:"kubelet_version"`
	Deleting      bool                `json:"deleting"`
	Conditions    []observe.Condition `json:"conditions"`
}

func (s *settings) nodes(ctx context.Context, cluster Cluster, x doctor.Fleet) (any, error) {
	conditions, err := cluster.Conditions(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]node, 0, len(x.Hosts))
	for _, h := range x.Hosts {
		n := node{
			Name: h.Name, Labels: h.Node.Labels, Annotations: map[string]string{}, Taints: h.Node.Taints, Unschedulable: h.Node.Unschedulable,
			InternalIP: h.Node.InternalIP, Version: h.Node.KubeletVersion, Deleting: h.Node.Deleting, Conditions: conditions[h.Name],
		}
		for key, v := range h.Node.Annotations {
			if shown, ok := s.annotation(key, v); ok {
				n.Annotations[key] = shown
			} else {
				n.Left = append(n.Left, key)
			}
		}
		slices.Sort(n.Left)
		out = append(out, n)
	}
	return out, nil
}

// annotation is a Node's as it is shown, false for one that is not: whoever set it may
// have put anything there.
func (s *settings) annotation(key, v string) (string, bool) {
	switch {
	case key == k3s.AnnotationArgs:
		// k3s masks what it knows to be secret; an older one may know less.
		var argv []string
		if json.Unmarshal([]byte(v), &argv) != nil {
			return "", false
		}
		return strings.Join(k3s.ShownArgs(argv), " "), true
	case strings.HasPrefix(key, s.policy.Keys.Prefix()), s.policy.Keys.ForeignSwapKey(key), strings.HasPrefix(key, fleet.EtcdAnnotationPrefix),
		key == fleet.AnnotationOutOfService, key == "k3s.io/hostname", key == "k3s.io/internal-ip", key == "k3s.io/external-ip", key == "k3s.io/node-config-hash":
		return v, true
	}
	return "", false
}

// told are the Events of regrade's namespace, and of Nodes.
func (s *settings) told(ctx context.Context, cluster Cluster) (any, error) {
	own, err := cluster.Told(ctx, s.namespace, mostTold)
	if err != nil {
		return nil, err
	}
	common, err := cluster.Told(ctx, "default", mostTold)
	if err != nil {
		return nil, err
	}
	for _, t := range common {
		if strings.HasPrefix(t.Object, "Node ") {
			own = append(own, t)
		}
	}
	return own, nil
}
