package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/sleep"
	"github.com/exadev/regrade/internal/status"
)

func newPause(e env.Env, d Deps) *cobra.Command {
	var a access
	var reason string
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Let no swap and no level step begin until resume",
		Long: `Pause records in the cluster that nothing shall begin: no automatic swap, no
request, no level step. A swap under way is ended all the same. The pause stands
until "regrade resume", whatever restarts meanwhile. A second pause takes the
place of the first.`,
		Example: `  regrade pause --reason "new switch, back at six"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.Read(cmd, e.Getenv); err != nil {
				return err
			}
			if err := status.CheckPauseReason(reason); err != nil {
				return env.Usage("%v", err)
			}
			cluster, err := a.connect(d)
			if err != nil {
				return failed(err)
			}
			return failed(change(cmd.Context(), cluster, func(cm held) (*string, string, error) {
				raw, err := json.Marshal(status.Pause{Protocol: status.Protocol, At: cluster.Date(), Reason: reason})
				if err != nil {
					return nil, "", err
				}
				done := "paused: no swap and no level step begins"
				if cm.swap != nil {
					done += fmt.Sprintf("; the swap of %s for %s under way is ended all the same", cm.swap.Out, cm.swap.In)
				}
				return new(string(raw)), done, nil
			}, e, d.Look))
		},
	}
	a.flags(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look at the status")
	return cmd
}

func newResume(e env.Env, d Deps) *cobra.Command {
	var a access
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Take a pause away",
		Long: `Resume takes the pause away. What waited may begin at the next pass: a request
that is not older than ten minutes, or what the verdicts ask for. Without a pause
it changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := env.Read(cmd, e.Getenv); err != nil {
				return err
			}
			cluster, err := a.connect(d)
			if err != nil {
				return failed(err)
			}
			return failed(change(cmd.Context(), cluster, func(cm held) (*string, string, error) {
				if !cm.paused {
					return nil, "the fleet is not paused", errNothing
				}
				return nil, "resumed", nil
			}, e, d.Look))
		},
	}
	a.flags(cmd.Flags())
	return cmd
}

// errNothing: there is nothing to write.
var errNothing = errors.New("nothing to do")

// held is what the status map says to pause and resume.
type held struct {
	paused bool
	swap   *status.Swap
}

// patience is how long a pause is tried to be written: the moment at which a
// person wants one is often one in which the API is slow.
const patience = 30 * time.Second

// change writes pause.json on the very map that it was judged by.
func change(ctx context.Context, cluster Cluster, to func(held) (value *string, done string, err error), e env.Env, look time.Duration) error {
	failing := ""
	for end := time.Now().Add(patience); ; {
		err := changeOnce(ctx, cluster, to, e)
		if err == nil {
			return nil
		}
		if said := denied(err, server(cluster)); said != nil {
			return said
		}
		if !time.Now().Before(end) {
			return err
		}
		failing = sayOnce(e.Err, failing, fmt.Errorf("%w; tried again for up to %s", answered(err, server(cluster)), patience))
		if !sleep.For(ctx, look) {
			return ctx.Err()
		}
	}
}

func changeOnce(ctx context.Context, cluster Cluster, to func(held) (value *string, done string, err error), e env.Env) error {
	for tries := 1; ; tries++ {
		cm, err := cluster.ConfigMap(ctx, fleet.ConfigMapStatus)
		if err != nil {
			return err
		}
		if cluster.Date().IsZero() {
			return fmt.Errorf("the API server's answers carry no Date")
		}
		var h held
		_, h.paused = cm.Data[fleet.KeyPause]
		if st, err := status.ParseStatus([]byte(cm.Data[fleet.KeyStatus])); err == nil {
			h.swap = st.Swap
		}
		value, done, err := to(h)
		if errors.Is(err, errNothing) {
			_, _ = fmt.Fprintln(e.Out, done)
			return nil
		}
		if err != nil {
			return err
		}
		err = cluster.PatchConfigMap(ctx, fleet.ConfigMapStatus, cm.Version, map[string]*string{fleet.KeyPause: value})
		if errors.Is(err, execute.ErrConflict) && tries < askTries {
			continue
		}
		if err != nil {
			return fmt.Errorf("write the pause: %w", err)
		}
		_, _ = fmt.Fprintln(e.Out, done)
		return nil
	}
}
