package hostcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/procs"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/probe/sensor"
	"github.com/exadev/regrade/internal/status"
)

// examined is how long one look at a host may take.
const examined = time.Minute

// serving is what a doctor asks of a server's ways beside what the daemon does.
type serving interface {
	Serving(ctx context.Context, in hostapi.PreflightInput) []status.Problem
}

func (h *host) doctor() *cobra.Command {
	var output string
	var fsync bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for whatever is wrong with this host, and say how to put it right",
		Long: `Looks at this host as its daemon does and at more: clock, credential, role files, units,
what an earlier role has left, etcd, the flags beside the other servers', disk, who listens on
which port, join URLs, programs that were replaced under a running process. It changes nothing,
ends within a minute, and works without the API; what only the API knows is then not judged.
In a Docker project run it in the daemon's container.

Exit statuses: 0 nothing fails, warnings or not; 1 something does; 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			d := h.examine(cmd.Context(), fsync)
			if output == "json" {
				raw, err := json.MarshalIndent(d, "", "  ")
				if err != nil {
					return env.Failed(err)
				}
				_, _ = fmt.Fprintln(h.e.Out, string(raw))
			} else {
				_, _ = fmt.Fprint(h.e.Out, d.Words())
			}
			if doctor.Worst(d.Findings) == doctor.Fail {
				return &env.Exit{Code: fleet.ExitFailed} // said already
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, or json (docs/cli-json.md)")
	cmd.Flags().BoolVar(&fsync, "fsync", false, "measure the disk as a standby's probe does, with a file of 2.3 MB that has no name; else only a server's etcd is asked")
	return cmd
}

// examine reads the host and judges it.
func (h *host) examine(ctx context.Context, fsync bool) doctor.Document {
	ctx, cancel := context.WithTimeout(ctx, examined)
	defer cancel()
	x, _ := h.read(ctx, fsync)
	return doctor.New(h.d.Version, x.Node, doctor.JudgeHost(x))
}

// read is everything that a host is judged by, and its report as the daemon would write
// it, nil where the host cannot be looked at.
func (h *host) read(ctx context.Context, fsync bool) (doctor.Host, *status.Report) {
	var x doctor.Host
	p, err := h.parts()
	if err != nil {
		x.SettingsProblem = err.Error()
		h.processes(&x, "")
		return x, nil
	}
	x.Node, x.JoinURLs = p.settings.Node, p.settings.Join
	h.processes(&x, p.settings.Platform)
	h.clocks(ctx, &x, p.settings)
	h.access(ctx, &x, p)
	p.begin(ctx)
	p.daemon.Host = bystander{Host: p.daemon.Host, answers: h.d.PeerPort}
	f, d, err := hostd.New(p.daemon).Look(ctx)
	if err != nil {
		x.Unseen = err.Error()
		return x, nil
	}
	h.facts(&x, p, f, d)
	h.units(ctx, &x, p.settings)
	h.readiness(ctx, &x, p, f)
	h.disk(ctx, &x, f, fsync)
	r := hostd.Report(f, d)
	return x, &r
}

// facts are what the daemon sees too.
func (h *host) facts(x *doctor.Host, p *parts, f hostd.Facts, d hostd.Decision) {
	s := p.settings
	files := nativeOf(s, h.root)
	in := f.Host.Files
	x.Files = doctor.Files{
		Role: in.Role, RoleProblem: in.RoleProblem, IdentityProblem: in.IdentityProblem, JoiningProblem: in.JoiningProblem,
		Leaving: in.Leaving, Joining: in.Joining.Swap, AllowJoin: in.AllowJoin,
		Datastore: f.Host.Datastore, WAL: in.WAL, Tombstone: in.Tombstone,
		Level: f.Host.Level, ServerJoin: f.Host.ServerJoin, AgentJoin: f.Host.AgentJoin,
		May: map[fleet.Role]bool{}, Why: map[fleet.Role]string{},
	}
	if info, err := os.Stat(files.Disk().Path("server", "db", "state.db")); err == nil {
		x.Files.SQLite = info.Mode().IsRegular()
	}
	x.Units = map[fleet.Role]doctor.Unit{}
	for role, u := range map[fleet.Role]platform.Unit{fleet.RoleServer: f.Host.Server, fleet.RoleAgent: f.Host.Agent} {
		a := rolefile.MayStart(in, role)
		x.Files.May[role], x.Files.Why[role] = a.May, a.Why
		x.Units[role] = doctor.Unit{
			Name: unitName(s, role), Conditioned: u.Conditioned, Problem: u.ConditionProblem, Process: u.Process, State: string(u.State), Level: u.Level,
		}
	}
	x.JournalProblem = f.JournalProblem
	if d.Code == hostd.CodeForeignCluster {
		x.Halts = &status.Problem{Code: d.Code, Sentence: d.Sentence}
	}
	if r := hostd.Report(f, d); r.Etcd != nil { // as the report has it: nil on an agent
		x.Etcd = &doctor.Etcd{Linearizable: r.Etcd.Linearizable, Version: r.Etcd.Version, Alarms: r.Etcd.Alarms, Error: r.Etcd.Error}
	}
	for _, w := range f.Host.Warnings {
		x.Warnings = append(x.Warnings, status.Problem{Code: w.Code, Sentence: w.Sentence})
	}
	for _, n := range f.Nodes {
		x.Nodes = append(x.Nodes, doctor.Node{
			Name: n.Name, InternalIP: n.InternalIP, Voter: n.Labels[fleet.LabelEtcd] != "", Eligible: n.Labels[f.Policy.Keys.Eligible()] == fleet.True,
		})
	}
	x.K3sOnDisk = f.Host.K3sVersion
	if i := slices.IndexFunc(f.Nodes, func(n hostapi.Node) bool { return n.Name == f.Node }); i >= 0 && f.View != nil {
		x.K3sRuns = f.Nodes[i].KubeletVersion
	}
	x.Password, x.PasswordProblem = f.Host.Password != "", in.Identity.PasswordProblem(f.Host.Password)
}

func unitName(s settings.Host, role fleet.Role) string {
	switch {
	case s.Platform == settings.PlatformDocker && role == fleet.RoleServer:
		return "the container of " + s.Docker.ServerService
	case s.Platform == settings.PlatformDocker:
		return "the container of " + s.Docker.AgentService
	case role == fleet.RoleServer:
		return s.ServerUnit
	}
	return s.AgentUnit
}

// clocks asks every server that others may join, and the API servers of the settings.
func (h *host) clocks(ctx context.Context, x *doctor.Host, s settings.Host) {
	var urls []string
	for name, u := range s.Join {
		if name != s.Node {
			urls = append(urls, u)
		}
	}
	urls = append(urls, s.Servers...)
	slices.Sort(urls)
	for _, d := range h.d.Dates(ctx, slices.Compact(urls), h.e.Now) {
		c := doctor.Clock{Server: d.URL, Ahead: d.Ahead}
		if d.Err != nil {
			c.Problem = d.Err.Error()
		}
		x.Clocks = append(x.Clocks, c)
	}
}

// access is the way to the API by the daemon's credential.
func (h *host) access(ctx context.Context, x *doctor.Host, p *parts) {
	a := &x.API
	a.Kubeconfig = p.settings.Kubeconfig
	info, err := os.Stat(a.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		a.Missing = true
		return
	}
	if err == nil {
		a.Mode = uint32(info.Mode().Perm())
	}
	v, err := p.api.Read(ctx)
	if err != nil {
		if said, denied := kube.Denied(err, ""); denied {
			a.Denied = said
		} else {
			a.Problem = err.Error()
		}
		return
	}
	a.Server, a.NoNode = v.Server, v.Self == nil
	a.SwapHeld = v.Lease.At(v.Date) == lease.Held
	if v.Self != nil {
		a.Swap = fleet.SwapID(v.Self.Annotations[p.daemon.Policy.Keys.Swap()])
	}
}

// processes are the daemon, k3s, and who listens. In a container of a Docker project the
// daemon is this PID namespace's; from outside it nothing can be told.
func (h *host) processes(x *doctor.Host, on settings.Platform) {
	proc := h.d.Proc
	if proc == "" {
		proc = "/proc"
	}
	ps, err := procs.Processes(proc)
	if err != nil {
		x.ListenersProblem = err.Error()
		return
	}
	for _, p := range ps {
		switch {
		case p.Daemon():
			x.Daemon = doctor.Program{PID: p.PID, Replaced: p.Replaced(proc)}
		case k3s.ProcessRole(p.Comm, p.Args) != "":
			x.K3s = doctor.Program{Looked: true, PID: p.PID, Replaced: p.Replaced(proc)}
		}
	}
	x.Daemon.Looked = x.Daemon.PID != 0 || on != settings.PlatformDocker
	if !x.Daemon.Looked {
		x.ListenersProblem = "no host daemon is seen from here: run this in its container"
		return
	}
	ss, err := procs.Listening(proc, ps, 2379, 2380, 6443)
	if err != nil {
		x.ListenersProblem = err.Error()
		return
	}
	for _, s := range ss {
		l := doctor.Listener{Address: s.Address.String(), Port: s.Port, Inode: s.Inode, PID: s.PID}
		if i := slices.IndexFunc(ps, func(p procs.Process) bool { return p.PID == s.PID }); i >= 0 {
			l.Name, l.Role, l.Regrade = ps[i].Comm, ps[i].K3s(ps), ps[i].Daemon()
		}
		x.Listeners = append(x.Listeners, l)
	}
}

// units are systemd's word on k3s's two, where they are its.
func (h *host) units(ctx context.Context, x *doctor.Host, s settings.Host) {
	if s.Platform == settings.PlatformDocker {
		return
	}
	x.Managed = true
	m := h.d.Systemd()
	for role, u := range x.Units {
		unit, err := m.Service(ctx, u.Name)
		if err != nil {
			x.Managed = false // the daemon's own look says why
			return
		}
		u.Loaded, u.Masked, u.Enabled, u.Stale = unit.Loaded, unit.Masked, unit.Enabled, unit.Stale
		x.Units[role] = u
	}
}

// elsewhere are codes that another check has.
var elsewhere = []string{hostd.CodeNoOwnJoinURL, hostd.CodeNoCondition, hostd.CodeBadJournal}

// readiness is whether the host could take the other role, and serve on in this one.
func (h *host) readiness(ctx context.Context, x *doctor.Host, p *parts, f hostd.Facts) {
	server, ways := f.Host.Files.Role == fleet.RoleServer && f.Host.Files.Leaving == "", p.daemon.Ways
	switch {
	case len(f.Nodes) == 0 && !server:
		return // there is nothing to compare with
	case f.Preflight != nil:
		x.Judged, x.Toward, x.Readiness = true, "this standby becoming a server", slices.Clone(f.Preflight.Problems)
	case server:
		x.Judged, x.Toward = true, "this server going on, nor against its way back as an agent"
		if back := hostd.AsAgent(f); back != nil {
			x.Readiness = slices.Clone(back.Problems)
		}
		if w, ok := ways.(serving); ok && len(f.Nodes) > 0 {
			x.Readiness = append(x.Readiness, w.Serving(ctx, hostapi.PreflightInput{Node: f.Node, Nodes: f.Nodes, JoinURLs: f.Policy.JoinURLs})...)
		}
	}
	x.Readiness = slices.DeleteFunc(x.Readiness, func(q status.Problem) bool { return slices.Contains(elsewhere, q.Code) })
}

// disk is the speed of the disk: of a server by what its etcd has counted, else measured
// where that was asked for.
func (h *host) disk(ctx context.Context, x *doctor.Host, f hostd.Facts, fsync bool) {
	x.Disk.Limit = fitness.DefaultPolicy().WALFsync
	switch {
	case fsync:
		// In the folder of the probe, on the disk that would hold the datastore.
		r, err := sensor.DefaultFsync(filepath.Join("/", h.root, fleet.DirFsync)).Run(ctx)
		if err != nil {
			x.Disk.Problem = err.Error()
			return
		}
		x.Disk.Source, x.Disk.Above, x.Disk.AtMost = fmt.Sprintf("%d appends with fdatasync", r.Count), r.P99, r.P99
	case f.Etcd.Answers && h.d.MetricsURL != "":
		m, err := sensor.ReadEtcd(ctx, sensor.NewPageClient(5*time.Second), h.d.MetricsURL)
		if err != nil {
			x.Disk.Problem = err.Error()
			return
		}
		wal := m.WALFsync.Histogram()
		if n := wal.Total(); n > 0 {
			x.Disk.Source = fmt.Sprintf("etcd's WAL, %d fsyncs since it began", n)
			x.Disk.Above, x.Disk.AtMost = wal.P99(fitness.DiskBounds())
		}
	}
	x.Disk.Problem = strings.TrimSpace(x.Disk.Problem)
}
