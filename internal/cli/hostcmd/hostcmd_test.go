package hostcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/hostcmd"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/hostd/preflight"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/platform/platformtest"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/project/projecttest"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

var id = fleet.NewSwapID(start, "a", "d")

// rig is a host of four: a, b, c and e vote, d is the standby.
type rig struct {
	t       *testing.T
	root    string
	node    string
	host    *platformtest.Fake
	now     time.Time
	self    *swap.Node
	lease   lease.Lease
	members []status.Member
	alarms  []string
	own     fleet.MemberID
	pre     []status.Problem
	ready   map[string]bool
	peer    bool // the daemon holds etcd's peer port
	reports []status.Report
	waited  time.Duration
	stuck   bool // k3s never gets a datastore
	noAPI   bool
	// good is the only kubeconfig that the API takes, empty for any; used the one in use.
	good, used string
	out        bytes.Buffer
	errs       bytes.Buffer

	memory level.Reading
	units  *units
	docker *projecttest.Machine
	silent []string // voters that do not answer
	others others
	ahead  time.Duration
	// journal is what journalctl prints of each unit.
	journal   string
	noJournal error
	serves    []status.Problem // of a server, by its ways
}

var ids = map[string]fleet.MemberID{"a": 0xa, "b": 0xb, "c": 0xc, "d": 0xd, "e": 0xe}

func newRig(t *testing.T, node string) *rig {
	r := bareRig(node)
	r.t, r.root = t, t.TempDir()
	r.plant(fleet.FileHostConfig, "node: "+node+"\nservers: [\"https://10.0.0.2:6443\"]\nlog-level: error\noperation-timeout: 10s\n")
	r.plant(fleet.FileJoinConfig, "a: https://10.0.0.1:6443\nb: https://10.0.0.2:6443\nd: https://10.0.0.4:6443\n")
	return r
}

// bareRig is one without files.
func bareRig(node string) *rig {
	r := &rig{node: node, now: start, host: platformtest.NewFake("boot-1"), ready: map[string]bool{"a": true, "b": true, "c": true, "e": true}}
	r.self = &swap.Node{Labels: map[string]string{}, Annotations: map[string]string{}, InternalIP: "10.0.0.4"}
	for _, n := range []string{"a", "b", "c", "e"} {
		r.members = append(r.members, status.Member{ID: ids[n], Name: n + "-0123abcd"})
	}
	r.host.OnAdvance = func(f *platform.Facts) {
		if f.Server.Process && !f.Files.WAL && !r.stuck {
			f.Files.WAL, f.Datastore, f.EtcdCerts = true, true, true
			r.own = ids[node]
			r.members = append(r.members, status.Member{ID: r.own, Name: node + "-0123abcd"})
		}
		if f.Server.Process && f.Server.State == platform.StateActivating {
			f.Server.State = platform.StateActive
		}
	}
	r.host.Change(func(f *platform.Facts) {
		if node == "d" {
			f.Files.Role, f.Agent.State, f.Agent.Process = fleet.RoleAgent, platform.StateActive, true
			return
		}
		r.own = ids[node]
		f.Files.Role, f.Files.WAL, f.Datastore, f.EtcdCerts = fleet.RoleServer, true, true, true
		f.Files.Identity = rolefile.Identity{ClusterID: 0xc1, MemberID: r.own}
		f.Server.State, f.Server.Process, f.Server.Level = platform.StateActive, true, fleet.LevelFull
	})
	return r
}

func (r *rig) plant(path, content string) {
	r.t.Helper()
	full := filepath.Join(r.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) order(step fleet.Step) {
	r.self.Labels[fleet.DefaultKeys().DesiredRole()] = string(step.DesiredRole())
	r.self.Annotations[fleet.DefaultKeys().JoinNode()] = "b"
	r.self.Annotations[fleet.DefaultKeys().LeadTo()] = "b"
	r.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: r.now, Duration: time.Hour, Annotations: map[string]string{fleet.LeaseSwapID: string(id)}}
}

// run is one command line; it gives the exit status.
func (r *rig) run(args ...string) int {
	r.t.Helper()
	r.out.Reset()
	r.errs.Reset()
	e := env.Env{Out: &r.out, Err: &r.errs, Getenv: func(string) string { return "" }, Now: func() time.Time { return r.now }}
	make := hostcmd.New
	if args[0] == "level" {
		make, args = hostcmd.NewLevel, args[1:]
	}
	cmd := make(e, r.deps())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&r.out)
	cmd.SetErr(&r.errs)
	cmd.SetArgs(append(args, "--root", r.root))
	code, message := env.Status(cmd.ExecuteContext(r.t.Context()))
	r.errs.WriteString(message)
	return code
}

func (r *rig) deps() hostcmd.Deps {
	return hostcmd.Deps{
		Levels: func(settings.Host) hostd.LevelAPI { return levelAPI{r} },
		Memory: func(settings.Host, string) func() level.Reading { return func() level.Reading { return r.memory } },
		API: func(s settings.Host) (hostcmd.API, error) {
			raw, _ := os.ReadFile(s.Kubeconfig)
			r.used = strings.TrimSpace(string(raw))
			return r, nil
		},
		Host:     func(settings.Host, string) (platform.Host, error) { return r.host, nil },
		Etcd:     func(settings.Host, string) hostd.Etcd { return etcd{r} },
		Ways:     func(settings.Host, string, platform.Host) hostd.Ways { return r },
		PeerPort: func(context.Context) bool { return r.peer },
		Systemd:  func() setup.Manager { return r.units },
		Project:  func(string) project.Host { return r.docker.Host() },
		Version:  "v-test",
		Print: func(_ context.Context, argv ...string) ([]byte, error) {
			if argv[0] != "journalctl" {
				return nil, fmt.Errorf("%q is not for a bundle to run", argv)
			}
			return []byte(r.journal), r.noJournal
		},
		Proc: filepath.Join(r.root, "proc"),
		Dates: func(_ context.Context, urls []string, _ func() time.Time) (ds []preflight.Dated) {
			for _, u := range urls {
				ds = append(ds, preflight.Dated{URL: u, Ahead: r.ahead})
			}
			return ds
		},
		Wait: func(ctx context.Context, d time.Duration) error {
			r.now = r.now.Add(d)
			r.waited += d
			r.host.Advance()
			return ctx.Err()
		},
	}
}

func (r *rig) want(code int, text string, args ...string) {
	r.t.Helper()
	if got := r.run(args...); got != code || !strings.Contains(r.out.String()+r.errs.String(), text) {
		r.t.Errorf("%v: exit status %d, want %d and %q\n%s%s", args, got, code, text, &r.out, &r.errs)
	}
}

func (r *rig) Begin(context.Context, bool) error { return nil }
func (r *rig) Read(context.Context) (hostapi.View, error) {
	if r.noAPI || r.good != "" && r.used != r.good {
		return hostapi.View{}, errors.New("no candidate is ready")
	}
	return hostapi.View{Date: r.now, Server: "https://10.0.0.2:6443", Self: r.self, Lease: r.lease}, nil
}
func (r *rig) Nodes(context.Context) ([]hostapi.Node, error) {
	var out []hostapi.Node
	for n, ready := range r.ready {
		out = append(out, hostapi.Node{Name: n, Node: swap.Node{Ready: ready}})
	}
	return out, nil
}
func (r *rig) WriteReport(_ context.Context, rep status.Report) error {
	r.reports = append(r.reports, rep)
	return nil
}
func (r *rig) WriteHeartbeat(context.Context, hostapi.Beat) error { return nil }
func (r *rig) Changed() <-chan struct{}                           { return nil }
func (r *rig) Avoid(bool)                                         {}
func (r *rig) Preflight(context.Context, hostapi.PreflightInput) status.Preflight {
	return status.Preflight{OK: len(r.pre) == 0, Problems: r.pre}
}
func (r *rig) Serving(context.Context, hostapi.PreflightInput) []status.Problem { return r.serves }
func (r *rig) Dial(context.Context, []hostapi.Standby) []status.Dial            { return nil }

type etcd struct{ r *rig }

func (e etcd) listed() bool {
	for _, m := range e.r.members {
		if m.ID == e.r.own {
			return true
		}
	}
	return false
}

func (e etcd) Local(context.Context) hostapi.Member {
	f := e.r.host.Facts()
	if !f.Server.Process || !f.Files.WAL || !e.listed() {
		return hostapi.Member{View: status.EtcdView{Error: "connection refused"}}
	}
	return hostapi.Member{Answers: true, ID: e.r.own, View: status.EtcdView{ClusterID: 0xc1, Leader: 0xb, Linearizable: true, Members: e.r.members, Alarms: e.r.alarms}}
}

func (e etcd) Ask(_ context.Context, urls []string) (hostapi.Answer, error) {
	if slices.Equal(urls, e.r.others.Disagrees) && len(urls) > 0 {
		return hostapi.Answer{URL: urls[0], ClusterID: 0xc1, Members: e.r.members[1:]}, nil
	}
	return hostapi.Answer{URL: "https://10.0.0.2:2379", ClusterID: 0xc1, Members: e.r.members}, nil
}
func (e etcd) Answering(_ context.Context, _, _ fleet.MemberID, members []status.Member) []fleet.MemberID {
	var ids []fleet.MemberID
	for _, m := range members {
		if node, _ := fleet.MemberNodeName(m.Name); !slices.Contains(e.r.silent, node) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (e etcd) MoveLeader(context.Context, fleet.MemberID) error {
	return errors.New("it does not lead")
}

func (r *rig) remove() {
	var left []status.Member
	for _, m := range r.members {
		if m.ID != r.own {
			left = append(left, m)
		}
	}
	r.members = left
}

func TestEachCommand(t *testing.T) { // R-D1-14..18, R-D1-31
	t.Run("promote, and again", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.want(fleet.ExitDone, "promote: done", "promote", string(id))
		n := len(r.host.Calls)
		r.want(fleet.ExitDone, "promote: done", "promote", string(id))
		if len(r.host.Calls) != n {
			t.Error("a settled step was taken again")
		}
		if rep := r.reports[len(r.reports)-1]; rep.Phase != fleet.PhaseDone || rep.StartedAt.IsZero() {
			t.Errorf("report: %+v", rep)
		}
	})
	t.Run("promote without the Lease (R-D1-32)", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.lease = lease.Lease{}
		r.want(fleet.ExitRefused, "LeaseNotHeld", "promote", string(id))
	})
	t.Run("promote with a stale id (R-D1-32)", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.want(fleet.ExitRefused, "StaleSwap", "promote", "20260101T000000Z-a-d")
	})
	t.Run("promote for another swap than the Node's", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.self.Annotations[fleet.DefaultKeys().Swap()] = "20260101T000000Z-a-d"
		r.want(fleet.ExitRefused, "StaleSwap", "promote", string(id))
		if len(r.host.Calls) != 0 {
			t.Errorf("changed: %v", r.host.Calls)
		}
	})
	t.Run("promote of a host that is not provisioned (R-D1-17)", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.pre = []status.Problem{{Code: "NotStaged", Sentence: "no server.yaml"}}
		r.want(fleet.ExitRefused, "NotStaged", "promote", string(id))
	})
	t.Run("no API server, or a Node of another name: said at once", func(t *testing.T) {
		for _, args := range [][]string{{"promote", string(id)}, {"step-down", string(id)}, {"rollback", string(id)}} {
			r := newRig(t, "d")
			r.noAPI = true
			r.want(fleet.ExitRefused, "NoAPI", args...)
			r.noAPI, r.self = false, nil
			r.want(fleet.ExitRefused, "NoNode", args...)
			if len(r.host.Calls) != 0 || r.waited > 0 {
				t.Errorf("%v: changed %v, waited %s", args, r.host.Calls, r.waited)
			}
		}
		r := newRig(t, "d")
		r.noAPI = true
		r.want(fleet.ExitRefused, "NoAPI", "promote-local", "--join", "b")
		r.want(fleet.ExitRefused, "NoAPI", "snapshot", string(id))
	})
	t.Run("promote that does not end", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.stuck = true
		r.want(fleet.ExitNotYet, "Joining", "promote", string(id))
		if r.waited < 10*time.Second || r.waited > 11*time.Minute {
			t.Errorf("waited %s", r.waited)
		}
		// R-D1-16: and can be undone.
		r.order(fleet.StepRollback)
		r.want(fleet.ExitDone, "rollback: done", "rollback", string(id))
		if f := r.host.Facts(); !f.Agent.Process || f.Server.Process {
			t.Errorf("%+v", f)
		}
	})
	t.Run("step-down, not yet, finish, finished", func(t *testing.T) {
		r := newRig(t, "a")
		r.order(fleet.StepStepDown)
		r.want(fleet.ExitDone, "step-down: done", "step-down", string(id))
		r.reports = nil
		r.want(fleet.ExitNotYet, "nothing says", "finish-demote")
		if len(r.reports) != 0 {
			t.Error("reported although it is not due (R-216-23)")
		}
		r.remove()
		r.lease = lease.Lease{} // R-D1-20: it needs none
		r.want(fleet.ExitDone, "finish-demote: done", "finish-demote")
		if f := r.host.Facts(); f.Files.Role != fleet.RoleAgent || f.Datastore || !f.Agent.Process {
			t.Errorf("%+v", f)
		}
		r.want(fleet.ExitDone, "nothing to finish", "finish-demote")
	})
	t.Run("step-down that fails (R-D1-16)", func(t *testing.T) {
		r := newRig(t, "a")
		r.order(fleet.StepStepDown)
		r.host.OnAdvance = func(f *platform.Facts) { r.own = 0xff }
		r.want(fleet.ExitFailed, "EtcdNotBack", "step-down", string(id))
		if f := r.host.Facts(); f.Files.Role != fleet.RoleServer || f.Agent.Process {
			t.Errorf("role %q, agent %t", f.Files.Role, f.Agent.Process)
		}
	})
	t.Run("snapshot", func(t *testing.T) { // R-D1-28
		r := newRig(t, "b")
		r.order(fleet.StepPromote)
		r.want(fleet.ExitDone, "fleet-role-"+string(id), "snapshot", string(id))
	})
	t.Run("a host lock held too long (R-216-13)", func(t *testing.T) {
		r := newRig(t, "d")
		r.plant(fleet.FileHostConfig, "node: d\nservers: [\"https://10.0.0.2:6443\"]\noperation-timeout: 10s\nlock: /lock\n")
		l := flock.New(filepath.Join(r.root, "lock"))
		if err := l.Lock(); err != nil {
			t.Fatal(err)
		}
		go func() { time.Sleep(300 * time.Millisecond); _ = l.Unlock() }()
		r.order(fleet.StepPromote)
		r.want(fleet.ExitDone, "promote: done", "promote", string(id))
	})
	t.Run("wrong usage", func(t *testing.T) {
		r := newRig(t, "d")
		r.want(fleet.ExitRefused, "ID", "promote")
		r.want(fleet.ExitRefused, "swap id", "promote", "what")
		r.want(fleet.ExitRefused, "--join", "promote-local")
		r.want(fleet.ExitRefused, "json", "status", "-o", "xml")
		r.plant(fleet.FileHostConfig, "node: D\n")
		r.want(fleet.ExitRefused, "node:", "status")
	})
}

func TestStatusAndPreflight(t *testing.T) {
	r := newRig(t, "d")
	r.want(fleet.ExitDone, "preflight  ok", "status")
	r.want(fleet.ExitDone, "preflight: ok", "preflight")
	r.pre = []status.Problem{{Code: "WrongToken", Sentence: "refused"}}
	r.want(fleet.ExitRefused, "WrongToken: refused", "preflight")
	if code := r.run("status", "-o", "json"); code != 0 {
		t.Fatal(code)
	}
	var rep status.Report
	if err := json.Unmarshal(r.out.Bytes(), &rep); err != nil || rep.Role != fleet.RoleAgent || rep.Preflight == nil {
		t.Errorf("%+v %v", rep, err)
	}
	if len(r.host.Calls) != 0 || len(r.reports) != 0 {
		t.Errorf("looking changed something: %v", r.host.Calls)
	}
	s := newRig(t, "a")
	s.want(fleet.ExitRefused, "NotStandby", "preflight")
	s.want(fleet.ExitDone, "member a of cluster c1", "status")
	s.alarms = []string{"NOSPACE at b"}
	s.want(fleet.ExitDone, "alarm      NOSPACE at b", "status")
}

// A command is another process than the daemon: what the daemon holds in its own was
// said to be still to do, on every standby and each time.
func TestStatusSaysWhatTheDaemonDoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		node  string
		given func(r *rig)
		want  []string
	}{
		{"a standby in order", "d", func(r *rig) { r.peer = true }, []string{"peer port  held", "next       nothing to do"}},
		{"a standby without its daemon", "d", func(*rig) {}, []string{"peer port  nothing answers", "next       hold etcd's peer port; the daemon does not hold it"}},
		{"a standby that is ordered to join", "d", func(r *rig) {
			r.peer = true
			r.order(fleet.StepPromote)
			r.self.Annotations[fleet.DefaultKeys().Swap()], r.self.Annotations[fleet.DefaultKeys().Step()] = string(id), string(fleet.StepPromote)
		}, []string{"next       note: promote running"}},
		{"a standby that cannot join", "d", func(r *rig) {
			r.peer, r.pre = true, []status.Problem{{Code: "WrongToken", Sentence: "refused"}}
		}, []string{"preflight  WrongToken: refused", "next       nothing to do"}},
		{"a voter whose port is etcd's", "a", func(r *rig) { r.peer = true }, []string{"next       nothing to do"}},
		{"a voter that takes a snapshot", "a", func(r *rig) {
			r.order(fleet.StepPromote)
			r.self.Annotations[fleet.DefaultKeys().SnapshotRequest()] = string(id)
			r.host.Change(func(f *platform.Facts) {
				f.Journal = fmt.Appendf(nil, `{"swap":%q,"step":"snapshot","phase":"running"}`, id)
			})
		}, []string{"next       waits: Snapshotting"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.node)
			r.host.Change(func(f *platform.Facts) {
				f.Staged = true
				f.Files.Identity.Voters = []string{}
			})
			c.given(r)
			for _, want := range c.want {
				r.want(fleet.ExitDone, want, "status")
			}
			if len(r.host.Calls) != 0 || len(r.reports) != 0 {
				t.Errorf("looking changed something: %v", r.host.Calls)
			}
		})
	}
}

func TestAnInstallersSteps(t *testing.T) { // R-D1-29, R-K-05, R-X-05
	t.Run("promote-local needs a free Lease", func(t *testing.T) {
		r := newRig(t, "d")
		r.order(fleet.StepPromote)
		r.want(fleet.ExitRefused, "LeaseTaken", "promote-local", "--join", "b")
		r.lease, r.now = lease.Lease{}, r.now.Add(time.Second)
		r.want(fleet.ExitDone, "promote: done", "promote-local", "--join", "b")
	})
	t.Run("demote-local needs a host that could be an agent", func(t *testing.T) {
		r := newRig(t, "a")
		r.host.Change(func(f *platform.Facts) { f.DatastoreProblem = "server/db/etcd is a mount point" })
		r.want(fleet.ExitRefused, "DatastoreMount: server/db/etcd is a mount point", "demote-local")
		r.want(fleet.ExitDone, "as agent   DatastoreMount", "status")
		r.host.Change(func(f *platform.Facts) { f.DatastoreProblem = "" })
		r.plant(fleet.FileJoinConfig, "b: https://10.0.0.2:6443\n")
		r.want(fleet.ExitRefused, "NoOwnJoinURL", "demote-local")
		if len(r.host.Calls) != 0 {
			t.Errorf("changed: %v", r.host.Calls)
		}
	})
	t.Run("demote-local needs three other Ready voters", func(t *testing.T) {
		r := newRig(t, "a")
		r.ready["c"] = false
		r.want(fleet.ExitRefused, "TooFewVoters", "demote-local")
		if len(r.host.Calls) != 0 {
			t.Errorf("changed: %v", r.host.Calls)
		}
		r.ready["c"] = true
		r.want(fleet.ExitNotYet, "etcd.k3s.cattle.io/remove=true", "demote-local")
		if f := r.host.Facts().Files; f.Leaving == "" || f.Role != fleet.RoleAgent {
			t.Errorf("%+v", f)
		}
		r.want(fleet.ExitNotYet, "remove", "demote-local")
		r.remove()
		r.want(fleet.ExitDone, "finish-demote: done", "demote-local")
	})
}

func TestStartConditions(t *testing.T) { // R-A-13, R-A-19, R-N-13
	r := newRig(t, "d")
	r.want(0, "as it was before regrade", "role-is", "server")
	r.plant(fleet.FileRole, "agent\n")
	r.want(1, "the role file says agent", "role-is", "server")
	r.want(0, "may start", "role-is", "agent")
	r.plant(fleet.FileServerConf, "server: https://10.0.0.2:6443\ntoken: x\n")
	r.want(0, "next reboot", "allow-join")
	r.want(0, "allow-join", "role-is", "server")
	r.want(1, "allow-join", "role-is", "agent")
	r.plant(fleet.FileRole, "server\n")
	r.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "")
	r.want(0, "datastore", "role-is", "server")
	host := fleet.FileHostConfig
	r.plant(host, "node: [\n")
	r.want(0, "datastore", "role-is", "server")
	if !strings.Contains(r.errs.String(), "host.yaml") {
		t.Errorf("a broken host.yaml is not named: %s", r.errs.String())
	}
	r.want(1, "the role file says server", "role-is", "agent")
	r.plant(fleet.DefaultDataDir+"/server/db/etcd/tombstone", "")
	r.want(1, "tombstone", "role-is", "server")
	r.plant(fleet.FileRole, "king\n")
	r.want(1, "king", "role-is", "agent")
	if code := r.run("role-is", "king"); code != fleet.ExitRefused {
		t.Errorf("an unknown role: %d", code)
	}
}
