package probecmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// check is `regrade probe check`: one reading, to be set beside one taken by
// hand (R-185-08, R-185-48).
type check struct {
	*command
	output   string
	election time.Duration
	bound    time.Duration
}

func (c *command) check() *cobra.Command {
	k := &check{command: c, election: fitness.DefaultPolicy().ElectionTimeout, bound: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "check link|connect|memory|etcd|fsync",
		Short: "Take one reading and print it; touches no cluster",
		Long: `Check takes one reading as a probe does and prints it in words, with the limit
that it will be held to, or as JSON. It touches no cluster; fsync writes a file
of 2.3 MB without a name in --fsync-dir.

Exit statuses: 0 the reading was taken, whatever it says; 1 it could not be, or
only in part; 2 wrong usage.`,
		Args: func(_ *cobra.Command, args []string) error {
			what := "link, connect, memory, etcd or fsync"
			if len(args) == 0 {
				return env.Usage("want a reading: %s", what)
			}
			return env.Usage("there is no reading %q: want %s", args[0], what)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	fs := cmd.PersistentFlags()
	fs.StringVarP(&k.output, "output", "o", "text", "text or json")
	fs.Var(env.Duration{Value: &k.election, Min: 100 * time.Millisecond, Max: time.Minute}, "election-timeout", "etcd's election timeout, of which network limits are parts")
	env.Bind(fs, "election-timeout", "FLEET_ROLE_ELECTION_TIMEOUT")
	fs.Var(env.Seconds{Value: &k.bound, Min: time.Second}, "timeout", "how long a connect or the metrics page may take")
	cmd.AddCommand(
		k.one("link", "Where the default route leaves: wired, Wi-Fi or unseen", cobra.NoArgs, k.link),
		k.one("connect ADDRESS...", "TCP connect times to peer ports; an address without a port gets 2380", addresses, k.connect),
		k.one("memory", "Memory pressure and available memory", cobra.NoArgs, k.memory),
		k.one("etcd", "What this host's etcd shows in its metrics, since it began", cobra.NoArgs, k.etcd),
		k.one("fsync", "1,000 appends of 2,300 bytes with fdatasync", cobra.NoArgs, k.fsync),
	)
	return cmd
}

func addresses(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return env.Usage("want the addresses of the voters to connect to, such as 10.0.0.1 10.0.0.2")
	}
	for _, a := range args {
		if _, err := peer(a); err != nil {
			return env.Usage("%v", err)
		}
	}
	return nil
}

// peer reads host, host:port, an IPv6 address or one in brackets with a port.
func peer(s string) (sensor.Peer, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), "2380"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ ") {
		return sensor.Peer{}, fmt.Errorf("address %q: want a host, or host:port", s)
	}
	return sensor.Peer{Node: s, Address: net.JoinHostPort(host, port)}, nil
}

// one is the command of one reading. take fills in the answer.
func (k *check) one(use, short string, args cobra.PositionalArgs, take func(cmd *cobra.Command, args []string) Reading) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if k.output != "text" && k.output != "json" {
				return env.Usage("output %q: want text or json", k.output)
			}
			if err := k.read(cmd); err != nil {
				return err
			}
			r := take(cmd, args)
			if err := k.print(r); err != nil {
				return env.Failed(err)
			}
			if len(r.Faults) > 0 {
				return &env.Exit{Code: 1} // said already
			}
			return nil
		},
	}
}

func (k *check) print(r Reading) error {
	if k.output == "json" {
		enc := json.NewEncoder(k.e.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	_, err := k.e.Out.Write([]byte(r.words(k.policy())))
	return err
}

func (k *check) policy() fitness.Policy {
	p := fitness.DefaultPolicy()
	p.ElectionTimeout = k.election
	return p
}

func (k *check) link(*cobra.Command, []string) Reading {
	r := Reading{Reading: fitness.ReadingLink}
	root, err := os.OpenRoot(k.root)
	if err != nil {
		r.fail(err)
		return r
	}
	defer func() { _ = root.Close() }()
	l, err := sensor.Link(root.FS())
	if err != nil {
		r.fail(err)
		return r
	}
	r.Link = &Link{Kind: string(l.Kind), Interface: l.Interface, Device: l.Device, Metric: l.Route.Metric, IPv6: l.Route.IPv6}
	return r
}

func (k *check) connect(cmd *cobra.Command, args []string) Reading {
	r := Reading{Reading: fitness.ReadingConnect}
	peers := make([]sensor.Peer, 0, len(args))
	for _, a := range args {
		if p, err := peer(a); err == nil {
			peers = append(peers, p)
		}
	}
	for _, c := range sensor.Connect(cmd.Context(), k.d.Dial, peers, k.bound) {
		one := Connect{To: c.To, Milliseconds: milliseconds(c.Took), Failed: c.Failed}
		if c.Fault != nil {
			one.Milliseconds, one.Error = 0, c.Fault.Sentence
		}
		r.Connect = append(r.Connect, one)
	}
	return r
}

func (k *check) memory(*cobra.Command, []string) Reading {
	r := Reading{Reading: fitness.ReadingMemory}
	m, faults := sensor.Memory(k.sensing.memory(k.root))
	for _, f := range faults {
		r.fail(f)
	}
	if m == nil {
		return r
	}
	r.Memory = &Memory{AvailableBytes: m.AvailableBytes, TotalBytes: m.TotalBytes}
	if p := m.Pressure; p != nil {
		r.Memory.Pressure = &Pressure{p.SomeAvg10, p.SomeAvg60, p.FullAvg10, p.FullAvg60}
	}
	var reasons []level.Reason
	r.Memory.Over, reasons = level.Over(*m, k.policy().Memory)
	for _, reason := range reasons {
		r.Memory.Reasons = append(r.Memory.Reasons, reason.Sentence)
	}
	return r
}

func (k *check) etcd(cmd *cobra.Command, _ []string) Reading {
	r := Reading{Reading: fitness.ReadingEtcd}
	m, err := sensor.ReadEtcd(cmd.Context(), sensor.NewPageClient(k.bound), k.sensing.MetricsURL)
	if err != nil {
		r.fail(err)
		return r
	}
	r.Etcd = etcdOf(m)
	return r
}

func (k *check) fsync(cmd *cobra.Command, _ []string) Reading {
	r := Reading{Reading: fitness.ReadingFsync}
	run := k.sensing.fsync(k.root)
	f, err := run.Run(cmd.Context())
	if err != nil {
		r.fail(err)
		return r
	}
	r.Fsync = &Fsync{Dir: k.sensing.FsyncDir, Count: f.Count, P50Milliseconds: milliseconds(f.P50), P99Milliseconds: milliseconds(f.P99), MaxMilliseconds: milliseconds(f.Max)}
	return r
}

func (r *Reading) fail(err error) {
	f, ok := errors.AsType[*sensor.Fault](err)
	if !ok {
		f = &sensor.Fault{Code: sensor.CodeUnreadable, Sentence: err.Error()}
	}
	r.Faults = append(r.Faults, Fault{Code: f.Code, Sentence: f.Sentence})
}
