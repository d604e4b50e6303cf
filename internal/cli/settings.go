package cli

import (
	"crypto/rand"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/swap"
)

// access are the settings of every command that reads the cluster.
type access struct {
	kubeconfig, context, servers string
	namespace, actuators         string
}

func (a *access) flags(fs *pflag.FlagSet) {
	fs.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the pod's service account, else what kubectl takes")
	fs.StringVar(&a.context, "context", "", "context in the kubeconfig")
	fs.StringVar(&a.servers, "servers", "", "API servers to try in this order, comma-separated, in place of the configured one")
	fs.StringVar(&a.namespace, "namespace", fleet.DefaultNamespace, "namespace of regrade's own objects")
	fs.StringVar(&a.actuators, "actuator-configmap", fleet.ConfigMapActuators, "ConfigMap of the host daemons' reports")
	env.Bind(fs, "servers", "FLEET_ROLE_API_SERVERS")
	env.Bind(fs, "namespace", "FLEET_ROLE_NAMESPACE")
	env.Bind(fs, "actuator-configmap", "FLEET_ROLE_ACTUATOR_CONFIGMAP")
}

func (a *access) connect(d Deps) (Cluster, error) {
	servers, err := kube.ParseServers(a.servers)
	if err != nil {
		return nil, env.Usage("%v", err)
	}
	if err := fleet.CheckNamespace(a.namespace); err != nil {
		return nil, env.Usage("%v", err)
	}
	if err := fleet.CheckName(a.actuators); err != nil {
		return nil, env.Usage("the ConfigMap of the reports: %v", err)
	}
	return d.Connect(
		kube.Access{Kubeconfig: a.kubeconfig, Context: a.context, Servers: servers, UserAgent: "regrade/" + version()},
		kube.Options{Namespace: a.namespace, ActuatorConfigMap: a.actuators},
	)
}

// settings are those of every command that decides.
type settings struct {
	access
	policy   swap.Policy
	rules    decide.Rules
	prefix   string
	lease    time.Duration
	selector string
	self     string
	wifi     string
	floorMiB int
}

func (s *settings) flags(fs *pflag.FlagSet) {
	s.access.flags(fs)
	s.policy = swap.DefaultPolicy()
	s.lease = controller.DefaultLeaseDuration
	p := &s.policy
	fs.Var(env.Bool{Value: &p.DryRun}, "dry-run", "report automatic swaps only; a request is carried out all the same, and a swap under way is always ended")
	fs.Lookup("dry-run").NoOptDefVal = "true"
	env.Bind(fs, "dry-run", "FLEET_ROLE_DRY_RUN")
	fs.Var(env.Int{Value: &p.Target, Min: 3, Max: 99}, "target", "number of voters, odd and at least 3")
	env.Bind(fs, "target", "FLEET_ROLE_TARGET")
	fs.StringVar(&s.prefix, "label-prefix", fleet.DefaultPrefix, "prefix of regrade's labels, annotations and taint")
	env.Bind(fs, "label-prefix", "FLEET_ROLE_LABEL_PREFIX")
	fs.StringVar(&s.selector, "runner-selector", fleet.DefaultRunnerSelector, "label selector of pods that a planned change never cuts")
	env.Bind(fs, "runner-selector", "FLEET_ROLE_RUNNER_SELECTOR")
	s.judgeFlags(fs)
	for _, b := range s.bounds() {
		fs.Var(env.Seconds{Value: b.value, Min: b.min, Max: b.max}, b.flag, b.usage)
		env.Bind(fs, b.flag, b.variable)
	}
}

// bound is one length of time that can be set.
type bound struct {
	flag, variable, usage string
	value                 *time.Duration
	min, max              time.Duration // of max zero is 30 days
}

func (s *settings) bounds() []bound {
	p := &s.policy
	return []bound{
		{"period", "FLEET_ROLE_PERIOD_SECONDS", "time between two passes, reports and samples", &p.Period, time.Second, 5 * time.Minute},
		{"operation-timeout", "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS", "bound of one step of a host", &p.OperationTimeout, time.Second, 0},
		{"runner-wait", "FLEET_ROLE_RUNNER_WAIT_SECONDS", "how long running jobs are waited for", &p.RunnerWait, 0, 0},
		{"lease-duration", "FLEET_ROLE_LEASE_SECONDS", "duration of the Lease, renewed in each pass", &s.lease, 10 * time.Second, 0},
		{"learner-stall", "FLEET_ROLE_LEARNER_STALL_SECONDS", "how long k3s keeps a learner that makes no progress", &p.LearnerStall, time.Second, 0},
		{"snapshot-timeout", "FLEET_ROLE_SNAPSHOT_SECONDS", "bound of the etcd snapshot", &p.SnapshotTimeout, time.Second, 0},
		{"drain-timeout", "FLEET_ROLE_DRAIN_SECONDS", "bound of a drain", &p.DrainTimeout, time.Second, 0},
		{"finish-timeout", "FLEET_ROLE_FINISH_SECONDS", "how long an outgoing host may take to come back as an agent", &p.FinishTimeout, 90 * time.Second, 0}, // beyond hostd's join_alone, with room for the stop
		{"take-over", "FLEET_ROLE_TAKE_OVER_SECONDS", "how long another controller's Lease must stand still before its swap is taken over", &p.TakeOver, 5 * time.Second, 0},
		{"cooldown", "FLEET_ROLE_COOLDOWN_SECONDS", "time after a swap without an automatic one", &p.Cooldown, time.Second, 0},
		{"abandon-backoff", "FLEET_ROLE_ABANDON_BACKOFF_SECONDS", "time before an abandoned pair is tried again by itself, doubling", &p.AbandonBackoff, time.Second, 0},
		{"max-skew", "FLEET_ROLE_MAX_SKEW_SECONDS", "how far a standby's clock may be off the API server's", &p.MaxSkew, time.Second, 0},
		{"just-now", "FLEET_ROLE_JUST_NOW_SECONDS", "how old a report may be to count as an answer given now", &p.JustNow, time.Second, 0},
	}
}

// read finishes the settings: variables, then what hangs together.
func (s *settings) read(cmd *cobra.Command, e env.Env) error {
	if err := env.Read(cmd, e.Getenv); err != nil {
		return err
	}
	keys, err := fleet.NewKeys(s.prefix)
	if err != nil {
		return env.Usage("%v", err)
	}
	s.policy.Keys = keys
	if err := s.readJudge(cmd); err != nil {
		return err
	}
	if err := s.readLease(cmd); err != nil {
		return err
	}
	if s.actuators == fleet.ConfigMapStatus || s.actuators == "" {
		return env.Usage("the ConfigMap of the reports cannot be %q", s.actuators)
	}
	return nil
}

// readLease holds the Lease's times to the period, in which a controller renews it once:
// else its own Lease runs out between two passes, and the hosts refuse its orders, or a
// controller that lives is taken for gone (safety rule 21). The shortest time after which
// one is taken for gone follows from the period where it is not set.
func (s *settings) readLease(cmd *cobra.Command) error {
	p := &s.policy
	if s.lease < 2*p.Period {
		return env.Usage("FLEET_ROLE_LEASE_SECONDS: a Lease of %s is renewed every %s, want two periods or more", s.lease, p.Period)
	}
	switch {
	case !env.Given(cmd.Flags(), "take-over"):
		p.TakeOver = max(p.TakeOver, 2*p.Period)
	case p.TakeOver < p.Period:
		return env.Usage("FLEET_ROLE_TAKE_OVER_SECONDS: a controller that lives renews its Lease every %s and would be taken for gone after %s, want a period or more", p.Period, p.TakeOver)
	}
	return nil
}

func (s *settings) protected() (func(map[string]string) bool, error) {
	f, err := kube.Selector(s.selector)
	if err != nil {
		return nil, env.Usage("runner selector: %v", err)
	}
	return f, nil
}

// ownID is the controller's own id: its pod's UID where the Deployment gives
// it, else one made up for this process.
func ownID(given string) string {
	if given != "" {
		return given
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + rand.Text()[:8]
}
