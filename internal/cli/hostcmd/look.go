package hostcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/platform/native"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/status"
)

func nativeOf(h settings.Host, root string) *native.Files { return native.New(h.Layout(root)) }

func (h *host) look(cmd *cobra.Command) (hostd.Facts, hostd.Decision, error) {
	p, err := h.parts()
	if err != nil {
		return hostd.Facts{}, hostd.Decision{}, err
	}
	p.begin(cmd.Context())
	p.daemon.Host = bystander{Host: p.daemon.Host, answers: h.d.PeerPort}
	f, d, err := hostd.New(p.daemon).Look(cmd.Context())
	if err != nil {
		return hostd.Facts{}, hostd.Decision{}, env.Failed(err)
	}
	return f, d, nil
}

func (h *host) status() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how this host stands, and what its daemon would do next",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return env.Usage("--output %q: want text or json", output)
			}
			f, d, err := h.look(cmd)
			if err != nil {
				return err
			}
			r := hostd.Report(f, d)
			if output == "json" {
				raw, err := json.MarshalIndent(r, "", "  ")
				if err != nil {
					return env.Failed(err)
				}
				_, _ = fmt.Fprintln(h.e.Out, string(raw))
				return nil
			}
			printStatus(h.e.Out, f, d, r)
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, or json: the report as it is published")
	return cmd
}

func printStatus(w io.Writer, f hostd.Facts, d hostd.Decision, r status.Report) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("node", "%s", f.Node)
	line("role", "%s, level %s, leaving %s", or(string(r.Role), "none"), r.Level, or(string(f.Host.Files.Leaving), "no"))
	for _, u := range []struct {
		role fleet.Role
		text string
	}{
		{fleet.RoleServer, fmt.Sprintf("%s, process %t", f.Host.Server.State, f.Host.Server.Process)},
		{fleet.RoleAgent, fmt.Sprintf("%s, process %t", f.Host.Agent.State, f.Host.Agent.Process)},
	} {
		a := rolefile.MayStart(f.Host.Files, u.role)
		line(string(u.role), "%s; may start: %t, %s", u.text, a.May, a.Why)
	}
	if s := f.Host.Server; s.Process && s.Level != r.Level {
		line("runs at", "%s", or(string(s.Level), "a level that was not noted at its start"))
	}
	switch {
	case r.Etcd == nil:
		line("etcd", "none")
	case r.Etcd.Linearizable:
		line("etcd", "member %s of cluster %s, leader %s, %d members", r.MemberID, r.Etcd.ClusterID, r.Etcd.Leader, len(r.Etcd.Members))
	default:
		line("etcd", "member %s: %s", r.MemberID, r.Etcd.Error)
	}
	if r.Etcd != nil && len(r.Etcd.Alarms) > 0 {
		// Under NOSPACE etcd takes no write, so that no report can tell of it.
		line("alarm", "%s", strings.Join(r.Etcd.Alarms, ", "))
	}
	if r.Preflight != nil {
		line("preflight", "%s", preflightText(r.Preflight))
	}
	if r.AsAgent != nil {
		line("as agent", "%s", preflightText(r.AsAgent))
	}
	for _, w := range f.Host.Warnings {
		line("warns", "%s: %s", w.Code, w.Sentence)
	}
	if f.View == nil {
		line("api", "%s", f.ViewProblem)
	} else {
		line("api", "%s, clock skew %d ms", f.View.Server, r.SkewMS)
	}
	if f.Journal.Step != "" {
		line("step", "%s %s of swap %s %s", f.Journal.Step, f.Journal.Phase, or(string(f.Journal.Swap), "none"), strings.TrimSpace(f.Journal.Code+" "+f.Journal.Message))
	}
	if r.Preflight != nil {
		line("peer port", "%s", peerPortText(f.Host))
	}
	switch {
	case d.Acts():
		line("next", "%s", intent(d.Effect))
	case d.Code != "":
		line("next", "waits: %s: %s", d.Code, d.Sentence)
	default:
		line("next", "nothing to do")
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func preflightText(p *status.Preflight) string {
	if p.OK {
		return "ok"
	}
	var all []string
	for _, x := range p.Problems {
		all = append(all, x.Code+": "+x.Sentence)
	}
	return strings.Join(all, "; ")
}

func (h *host) preflight() *cobra.Command {
	return &cobra.Command{
		Use:   "preflight",
		Short: "Judge whether this standby could become a server now; changes nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, _, err := h.look(cmd)
			if err != nil {
				return err
			}
			if f.Preflight == nil {
				return refused(hostd.CodeNotStandby, "this host is a server, or on its way to be one")
			}
			if f.Preflight.OK {
				_, _ = fmt.Fprintln(h.e.Out, "preflight: ok")
				return nil
			}
			for _, x := range f.Preflight.Problems {
				_, _ = fmt.Fprintf(h.e.Out, "%s: %s\n", x.Code, x.Sentence)
			}
			return refused(hostd.CodePreflightFailed, fmt.Sprintf("%d problems", len(f.Preflight.Problems)))
		},
	}
}

// files are the host's files alone: start conditions need no bus, no API and no
// complete settings.
func (h *host) files() (*native.Files, error) {
	l, err := settings.LoadLayout(h.root)
	if err != nil {
		return nil, env.Failed(err)
	}
	return native.New(l), nil
}

// conditionFiles are the files of a start condition. Where host.yaml cannot be
// read, a datastore at k3s's own place says where things are: a typing error
// takes no vote away. Without one nothing is started on a guess.
func (h *host) conditionFiles() (*native.Files, error) {
	files, err := h.files()
	if err == nil {
		return files, nil
	}
	usual := native.New(native.Layout{Root: h.root})
	if wal, _, look := usual.Disk().Initialised(); look != nil || !wal {
		return nil, err
	}
	_, _ = fmt.Fprintf(h.e.Err, "host.yaml is left aside, there is a datastore at its usual place: %v\n", err)
	return usual, nil
}

func (h *host) roleIs() *cobra.Command {
	return &cobra.Command{
		Use:   "role-is server|agent",
		Short: "Start condition of k3s's units: 0 the unit may start, 1 it is skipped",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return env.Usage("want server or agent")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			role, err := fleet.ParseRole(args[0])
			if err != nil {
				return env.Usage("%v", err)
			}
			files, err := h.conditionFiles()
			if err != nil {
				return err
			}
			a, unnoted, err := files.RoleIs(role)
			if err != nil {
				// What cannot be read starts nothing.
				return env.Failed(err)
			}
			if !a.May {
				return env.Failed(fmt.Errorf("k3s %s is not started: %s", role, a.Why))
			}
			if unnoted != nil {
				_, _ = fmt.Fprintf(h.e.Err, "the level that k3s starts with is not noted: %v\n", unnoted)
			}
			_, _ = fmt.Fprintf(h.e.Out, "k3s %s may start: %s\n", role, a.Why)
			return nil
		},
	}
}

func (h *host) allowJoin() *cobra.Command {
	return &cobra.Command{
		Use:   "allow-join",
		Short: "Let the server join without a swap until the next reboot",
		Long: `The operator's override of the start condition: a server without a datastore may
join the server that its configuration names, until the next reboot. Use it when
no controller is there to confirm a join, and only on a host whose old member has
been removed.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := h.files()
			if err != nil {
				return err
			}
			if err := files.AllowJoin(); err != nil {
				return env.Failed(err)
			}
			_, _ = fmt.Fprintln(h.e.Out, "the server may join until the next reboot")
			return nil
		},
	}
}
