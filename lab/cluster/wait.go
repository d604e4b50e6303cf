package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/host"
)

// poll is how often a wait looks.
const poll = 250 * time.Millisecond

// Eventually looks until the condition holds, for at most the limit. The condition says what it saw, which the error repeats.
func Eventually(ctx context.Context, limit time.Duration, what string, condition func(ctx context.Context) (bool, string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	last := "nothing seen yet"
	for {
		holds, seen := condition(ctx)
		if holds {
			return nil
		}
		// A look that the end of the time cut short says less than the one before it.
		if ctx.Err() == nil || last == "nothing seen yet" {
			last = seen
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, context.Cause(ctx), last)
		case <-time.After(poll):
		}
	}
}

// Never looks for the whole time and fails as soon as the condition holds.
func Never(ctx context.Context, during time.Duration, what string, condition func(ctx context.Context) (bool, string)) error {
	deadline := time.Now().Add(during)
	for time.Now().Before(deadline) {
		if holds, seen := condition(ctx); holds {
			return fmt.Errorf("%s: %s", what, seen)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
	return nil
}

// AwaitNodesReady waits until the named Nodes are Ready.
func (c *Cluster) AwaitNodesReady(ctx context.Context, limit time.Duration, names ...string) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	return Eventually(ctx, limit, fmt.Sprintf("nodes %v to be Ready", names), func(ctx context.Context) (bool, string) {
		list, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		left := slices.Clone(names)
		for i := range list.Items {
			if NodeReady(&list.Items[i]) {
				left = slices.DeleteFunc(left, func(name string) bool { return name == list.Items[i].Name })
			}
		}
		return len(left) == 0, fmt.Sprintf("not Ready: %v", left)
	})
}

// NodeReady says whether the Node's Ready condition is True.
func NodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// AwaitVoters waits until etcd's voters are exactly those of the named nodes, and nobody is a learner.
func (c *Cluster) AwaitVoters(ctx context.Context, limit time.Duration, names ...string) error {
	want := slices.Sorted(slices.Values(names))
	return Eventually(ctx, limit, fmt.Sprintf("voters %v", want), func(ctx context.Context) (bool, string) {
		list, err := c.Members(ctx)
		if err != nil {
			return false, err.Error()
		}
		return slices.Equal(list.Voters(), want) && len(list.Learners()) == 0, list.String()
	})
}

// AwaitAPI waits until the host's own API server says that it is ready, to somebody who is authenticated: an etcd-only server
// answers TLS and /ping as well.
func (c *Cluster) AwaitAPI(ctx context.Context, limit time.Duration, h *host.Host) error {
	var api *API
	return Eventually(ctx, limit, "the API server of "+h.Name(), func(ctx context.Context) (bool, string) {
		if api == nil {
			var err error
			if api, err = c.Via(h); err != nil {
				return false, err.Error()
			}
		}
		ctx, cancel := context.WithTimeout(ctx, attemptLimit)
		defer cancel()
		status := 0
		said, err := api.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Raw()
		if err != nil {
			return false, errors.Join(err, errors.New(string(said))).Error()
		}
		return status == http.StatusOK, string(said)
	})
}

// AwaitUnit waits until the unit's ActiveState is the one given.
func (c *Cluster) AwaitUnit(ctx context.Context, limit time.Duration, h *host.Host, unit, want string) error {
	return Eventually(ctx, limit, fmt.Sprintf("%s on %s to be %s", unit, h.Name(), want), func(ctx context.Context) (bool, string) {
		state, err := h.ActiveState(ctx, unit)
		if err != nil {
			return false, err.Error()
		}
		return state == want, state
	})
}

// AwaitRole waits until the one k3s process of the host is of this role ("" for none).
func (c *Cluster) AwaitRole(ctx context.Context, limit time.Duration, h *host.Host, want Role) error {
	return Eventually(ctx, limit, fmt.Sprintf("%s to run k3s as %q", h.Name(), want), func(context.Context) (bool, string) {
		processes, err := h.K3s()
		if err != nil {
			return false, err.Error()
		}
		var roles []string
		for _, p := range processes {
			roles = append(roles, p.K3sRole())
		}
		if want == "" {
			return len(roles) == 0, fmt.Sprint(roles)
		}
		return len(roles) == 1 && roles[0] == string(want), fmt.Sprint(roles)
	})
}
