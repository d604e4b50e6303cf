package clustertest

import (
	"context"
	"errors"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
)

// Survey is what a look at the cluster for people finds beside what decisions are made of.
type Survey struct {
	OwnPods []observe.OwnPod
	// Logs are by namespace and name, of a container that ended before with "/previous".
	Logs   map[string]string
	Events map[string][]observe.Told // by namespace
}

// OwnPods are regrade's.
func (c *Cluster) OwnPods(ctx context.Context) ([]observe.OwnPod, error) {
	if err := c.call(ctx, "OwnPods"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.state.Survey.OwnPods), nil
}

// Log is a pod's.
func (c *Cluster) Log(ctx context.Context, pod observe.OwnPod, previous bool, _, limit int64) ([]byte, error) {
	if err := c.call(ctx, "Log "+pod.Name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	if previous {
		key += "/previous"
	}
	text, ok := c.state.Survey.Logs[key]
	if !ok {
		return nil, errors.New("there is no such log")
	}
	return []byte(text[:min(len(text), int(limit))]), nil
}

// Told are the Events of a namespace.
func (c *Cluster) Told(ctx context.Context, namespace string, most int64) ([]observe.Told, error) {
	if err := c.call(ctx, "Told "+namespace); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.state.Survey.Events[namespace]
	return slices.Clone(all[:min(len(all), int(most))]), nil
}

// Conditions are what the Nodes of the state say.
func (c *Cluster) Conditions(ctx context.Context) (map[string][]observe.Condition, error) {
	if err := c.call(ctx, "Conditions"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]observe.Condition{}
	for name, n := range c.state.Nodes {
		ready := "False"
		if n.Ready {
			ready = "True"
		}
		out[name] = []observe.Condition{{Type: "Ready", Status: ready}}
		if n.EtcdIsVoter != "" {
			out[name] = append(out[name], observe.Condition{Type: fleet.ConditionEtcdIsVoter, Status: n.EtcdIsVoter})
		}
	}
	return out, nil
}
