// Package reach holds the settings by which a command reaches the API, and those of
// what it logs and shows: the same in every process.
package reach

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/web"
)

// Cluster are the settings of the way to the API.
type Cluster struct {
	kubeconfig, context, servers string
	Namespace                    string
}

// Flags adds them.
func (c *Cluster) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the pod's service account, else what kubectl takes")
	fs.StringVar(&c.context, "context", "", "context in the kubeconfig")
	fs.StringVar(&c.servers, "servers", "", "API servers to try in this order, comma-separated, in place of the configured one")
	env.Bind(fs, "servers", "FLEET_ROLE_API_SERVERS")
	fs.StringVar(&c.Namespace, "namespace", fleet.DefaultNamespace, "namespace of regrade's own objects")
	env.Bind(fs, "namespace", "FLEET_ROLE_NAMESPACE")
}

// Access is the way that they name.
func (c *Cluster) Access(agent string) (kube.Access, error) {
	servers, err := kube.ParseServers(c.servers)
	if err = errors.Join(err, fleet.CheckNamespace(c.Namespace)); err != nil {
		return kube.Access{}, env.Usage("%v", err)
	}
	return kube.Access{Kubeconfig: c.kubeconfig, Context: c.context, Servers: servers, UserAgent: agent}, nil
}

// Shown are the settings of what a process logs, and serves of itself.
type Shown struct{ format, level, metrics string }

// Flags adds them; example is an address that is free on most hosts.
func (s *Shown) Flags(fs *pflag.FlagSet, example string) {
	fs.StringVar(&s.metrics, "metrics-address", "", "serve /metrics, /healthz and /readyz here, such as "+example+"; empty for not at all")
	env.Bind(fs, "metrics-address", "FLEET_ROLE_METRICS_ADDRESS")
	fs.StringVar(&s.format, "log-format", "text", "text or json")
	env.Bind(fs, "log-format", "FLEET_ROLE_LOG_FORMAT")
	fs.StringVar(&s.level, "log-level", "info", "debug, info, warn or error")
	env.Bind(fs, "log-level", "FLEET_ROLE_LOG_LEVEL")
}

// Logger is the process's.
func (s *Shown) Logger(w io.Writer) (*slog.Logger, error) {
	log, err := obs.NewLogger(w, s.format, s.level)
	if err != nil {
		return nil, env.Usage("%v", err)
	}
	return log, nil
}

// Listen takes the address of the metrics, nil where there is none.
func (s *Shown) Listen() (net.Listener, error) {
	if s.metrics == "" {
		return nil, nil
	}
	l, err := web.Listen(s.metrics)
	if err != nil {
		return nil, env.Failed(err)
	}
	return l, nil
}

// Watched runs a process that shows itself at l, and ends it when that cannot be
// served: a process that nobody can see is not what was asked for. With l nil it
// only runs.
func Watched(ctx context.Context, l net.Listener, pages web.Pages, run func(context.Context)) error {
	if l == nil {
		run(ctx)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- web.Serve(ctx, l, pages)
		cancel()
	}()
	run(ctx)
	cancel()
	if err := <-served; err != nil {
		return env.Failed(err)
	}
	return nil
}
