package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
)

// Survey is what a look for people asks of the API beside what decisions are made of.
type Survey interface {
	OwnPods(ctx context.Context) ([]observe.OwnPod, error)
	Log(ctx context.Context, pod observe.OwnPod, previous bool, lines, limit int64) ([]byte, error)
	Told(ctx context.Context, namespace string, most int64) ([]observe.Told, error)
	Conditions(ctx context.Context) (map[string][]observe.Condition, error)
}

func newDoctor(e env.Env, d Deps) *cobra.Command {
	var s settings
	var out output
	var f fleetFile
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for whatever is wrong with the fleet, and say how to put it right",
		Long: `Looks at the cluster: reports, clocks, voters beside the target, standbys, versions of
k3s, etcd and regrade, the controller and whether there is one, the Lease, what a swap left
behind, labels, agents that were told to join a host that serves no more, probes. It looks until
every host that reports has been seen to, up to two periods, and changes nothing.

With -f it compares the fleet with its file, and has each host look at itself, over SSH
(regrade host doctor).

Exit statuses: 0 nothing fails, warnings or not; 1 something does, or the API is not reached;
2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(cmd, e); err != nil {
				return err
			}
			if err := s.read(cmd, e); err != nil {
				return err
			}
			if err := out.check(); err != nil {
				return err
			}
			doc, err := s.doctor(cmd.Context(), e, d, f)
			if err != nil {
				return failed(err)
			}
			if out.json() {
				err = printJSON(e.Out, doc)
			} else {
				_, err = fmt.Fprint(e.Out, doc.Words())
			}
			if err != nil {
				return failed(err)
			}
			if doctor.Worst(doc.Findings) == doctor.Fail {
				return &env.Exit{Code: fleet.ExitFailed} // said already
			}
			return nil
		},
	}
	s.flags(cmd.Flags())
	out.flags(cmd.Flags())
	f.flags(cmd.Flags())
	return cmd
}

// doctor looks at the fleet and judges it. Where hosts are asked too, an API that does not
// answer is one more finding: they may know why.
func (s *settings) doctor(ctx context.Context, e env.Env, d Deps, f fleetFile) (doctor.Document, error) {
	var ofHosts []doctor.Finding
	var versions map[string]string
	if f.given() {
		ofHosts, versions = f.doctors(ctx, d)
	}
	cluster, err := s.connect(d)
	if err == nil {
		var x doctor.Fleet
		if x, err = s.survey(ctx, cluster, e, d); err == nil {
			x.Written, x.Versions = f.written(), versions
			return doctor.New(version(), "", append(doctor.JudgeFleet(x), ofHosts...)), nil
		}
	}
	if !f.given() {
		return doctor.Document{}, err
	}
	return doctor.New(version(), "", append(doctor.Unreached(err.Error()), ofHosts...)), nil
}

// survey reads all that a fleet is judged by.
func (s *settings) survey(ctx context.Context, cluster Cluster, e env.Env, d Deps) (doctor.Fleet, error) {
	f := doctor.Fleet{Policy: s.policy, Version: version()}
	before, _ := cluster.Heartbeats(ctx)
	b := observe.New(cluster, observe.Settings{Policy: s.policy, ActuatorConfigMap: s.actuators})
	sight, err := looker{observe: observing(b), limit: 2 * s.policy.Period, look: d.Look, server: server(cluster), errs: e.Err}.until(ctx, settled)
	if err != nil {
		return f, err
	}
	f.Observation, f.ActuatorsMissing = sight.Observation, sight.ActuatorsMissing
	if f.Status != nil && f.Status.Target > 0 {
		f.Policy.Target = f.Status.Target // the controller's own, whatever this command was told
	}
	f.API, f.Kubeconfig = name(server(cluster)), kube.Named(kube.Access{Kubeconfig: s.kubeconfig, Context: s.context})
	if f.API == "" {
		f.API = "the API"
	}
	f.Started = started(f)
	after, err := cluster.Heartbeats(ctx)
	if err != nil {
		f.ProbesProblem = err.Error()
	}
	f.Probes = beats(before, after, f.Now)
	f.Pods, f.PodsProblem = ownPods(ctx, cluster)
	return f, nil
}

// started is how each k3s says that it was started.
func started(f doctor.Fleet) map[string]doctor.Started {
	out := map[string]doctor.Started{}
	for _, h := range f.Hosts {
		raw := h.Node.Annotations[k3s.AnnotationArgs]
		if raw == "" {
			continue
		}
		role, c, err := k3s.ParseArgs(raw)
		if err != nil {
			continue // a preflight says so where it matters
		}
		out[h.Name] = doctor.Started{Role: fleet.Role(role), Server: c.Get("server")}
	}
	return out
}

// beats are the probes' heartbeats, with whether each was seen to move.
func beats(before, after []observe.Heartbeat, now time.Time) map[string]doctor.Beat {
	old := map[string]observe.Heartbeat{}
	for _, b := range before {
		if b.Probe {
			old[b.Node] = b
		}
	}
	out := map[string]doctor.Beat{}
	for _, b := range after {
		if b.Probe {
			o, seen := old[b.Node]
			out[b.Node] = doctor.Beat{Moved: !seen || o != b, Age: now.Sub(b.Renewed)}
		}
	}
	return out
}

func ownPods(ctx context.Context, cluster Cluster) ([]doctor.Pod, string) {
	ps, err := cluster.OwnPods(ctx)
	if err != nil {
		return nil, err.Error()
	}
	var out []doctor.Pod
	for _, p := range ps {
		out = append(out, doctor.Pod{
			Namespace: p.Namespace, Name: p.Name, Component: p.Component, Node: p.Node, Image: p.Image,
			Ready: p.Ready, Finished: p.Finished(), Terminating: p.Terminating, Restarts: p.Restarts, Waiting: p.Waiting,
		})
	}
	return out, ""
}
