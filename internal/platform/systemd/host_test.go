package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/native"
	"github.com/exadev/regrade/internal/platform/platformtest"
	"github.com/exadev/regrade/internal/platform/systemd"
)

// bus is systemd in memory: jobs are done by settle, conditions are asked by the
// real start rule, processes appear in a /proc of files.
type bus struct {
	t     *testing.T
	root  string
	proc  string
	host  *native.Files
	units map[string]*systemd.UnitState
	calls []string
	pid   int
}

func newBus(t *testing.T) *bus {
	b := &bus{t: t, root: t.TempDir(), proc: t.TempDir(), units: map[string]*systemd.UnitState{}, pid: 100}
	for unit, role := range map[string]string{"k3s.service": "server", "k3s-agent.service": "agent"} {
		b.units[unit] = &systemd.UnitState{Loaded: true, Active: "inactive", Enabled: "enabled",
			Conditions: []string{"/usr/local/bin/regrade host role-is " + role}}
	}
	return b
}

func (b *bus) new() *systemd.Host {
	h := systemd.New(systemd.Options{Layout: native.Layout{Root: b.root}, Bus: b, Proc: b.proc, PeerAddress: "127.0.0.1:0", K3s: filepath.Join(b.root, "k3s")})
	h.BootID = func() (string, error) { return "boot-1", nil }
	b.host = h.Files
	return h
}

func (b *bus) Unit(_ context.Context, name string) (systemd.UnitState, error) {
	return *b.units[name], nil
}
func (b *bus) Start(_ context.Context, name string) error {
	b.calls = append(b.calls, "start "+name)
	if b.units[name].Active == "inactive" {
		b.units[name].Job = "start"
	}
	return nil
}
func (b *bus) Stop(_ context.Context, name string) error {
	b.calls = append(b.calls, "stop "+name)
	if b.units[name].Active != "inactive" || b.units[name].Job != "" {
		b.units[name].Job = "stop"
	}
	return nil
}
func (b *bus) Restart(_ context.Context, name string) error {
	b.calls = append(b.calls, "restart "+name)
	b.units[name].Job = "restart"
	return nil
}
func (b *bus) ResetFailed(_ context.Context, name string) error {
	b.calls = append(b.calls, "reset "+name)
	b.units[name].Active = "inactive"
	return nil
}
func (b *bus) Enable(_ context.Context, name string) error {
	b.calls = append(b.calls, "enable "+name)
	b.units[name].Enabled = "enabled"
	return nil
}
func (b *bus) Reload(context.Context) error { b.calls = append(b.calls, "reload"); return nil }

func (b *bus) settle() {
	b.t.Helper()
	for name, u := range b.units {
		job := u.Job
		u.Job = ""
		if job == "stop" || job == "restart" {
			if u.MainPID != 0 {
				if err := os.RemoveAll(filepath.Join(b.proc, fmt.Sprint(u.MainPID))); err != nil {
					b.t.Fatal(err)
				}
			}
			u.Active, u.MainPID = "inactive", 0
		}
		if job != "start" && job != "restart" {
			continue
		}
		role := fleet.RoleServer
		if name == "k3s-agent.service" {
			role = fleet.RoleAgent
		}
		a, _, err := b.host.RoleIs(role)
		if err != nil {
			b.t.Fatal(err)
		}
		if !a.May {
			continue
		}
		b.pid++
		u.Active, u.MainPID, u.Since = "active", uint32(b.pid), time.Unix(int64(b.pid), 0)
		b.process(b.pid, 1, "k3s-"+string(role), "/usr/local/bin/k3s "+string(role), "S")
	}
}

func (b *bus) process(pid, parent int, comm, cmdline, state string) {
	b.t.Helper()
	plant(b.t, filepath.Join(b.proc, strconv.Itoa(pid), "stat"), fmt.Sprintf("%d (%s) %s %d 1 1 0\n", pid, comm, state, parent))
	plant(b.t, filepath.Join(b.proc, strconv.Itoa(pid), "cmdline"), cmdline+"\x00")
}

func plant(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestSystemdConforms(t *testing.T) {
	platformtest.Run(t, func(t *testing.T) platformtest.Subject {
		b := newBus(t)
		return platformtest.Subject{
			Host: b.new(),
			Datastore: func() {
				plant(t, filepath.Join(b.root, fleet.DefaultDataDir, "server/db/etcd/member/wal/0.wal"), "")
				plant(t, filepath.Join(b.root, fleet.DefaultDataDir, "server/db/etcd/name"), "n1-0123abcd")
			},
			Settle: b.settle,
		}
	})
}

func TestProcessesAreLookedForNotAssumed(t *testing.T) { // safety rule 10
	for name, c := range map[string]struct {
		comm, cmdline, state string
		server, agent        bool
		shims                int
	}{
		"k3s hides its arguments":              {"k3s-server", "/usr/local/bin/k3s server", "S", true, false, 0},
		"arguments in plain sight":             {"k3s", "/usr/local/bin/k3s\x00server\x00--config\x00x", "S", true, false, 0},
		"an agent":                             {"k3s-agent", "/usr/local/bin/k3s agent", "S", false, true, 0},
		"a zombie holds nothing":               {"k3s-server", "", "Z", false, false, 0},
		"k3s's client is no server":            {"k3s", "k3s\x00kubectl\x00get\x00server", "S", false, false, 0},
		"k3s's snapshot command is no server":  {"k3s", "/usr/local/bin/k3s\x00etcd-snapshot\x00save", "S", false, false, 0},
		"somebody else's server":               {"server", "/usr/bin/server", "S", false, false, 0},
		"a pod shim":                           {"containerd-shim", "/var/lib/rancher/k3s/data/abc/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io", "S", false, false, 1},
		"a shim of a k3s with its own data":    {"containerd-shim", "/mnt/disk/data/abc/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io", "S", false, false, 1},
		"a shim that serves k3s's containerd":  {"containerd-shim", "/usr/bin/containerd-shim-runc-v2\x00-id\x00x\x00-address\x00/run/k3s/containerd/containerd.sock", "S", false, false, 1},
		"docker's shim on the same host":       {"containerd-shim", "/usr/bin/containerd-shim-runc-v2\x00-namespace\x00moby\x00-id\x00x\x00-address\x00/run/containerd/containerd.sock", "S", false, false, 0},
		"a name with a parenthesis and spaces": {"a) Z (b", "x", "S", false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t)
			h := b.new()
			b.process(7, 1, c.comm, c.cmdline, c.state)
			f, err := h.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f.Server.Process != c.server || f.Agent.Process != c.agent || f.Shims != c.shims {
				t.Errorf("server %t, agent %t, shims %d", f.Server.Process, f.Agent.Process, f.Shims)
			}
		})
	}
}

func TestStartEnablesReloadsAndResets(t *testing.T) { // R-216-24
	b := newBus(t)
	h := b.new()
	u := b.units["k3s.service"]
	u.Enabled, u.Active = "disabled", "failed"
	if err := h.Start(t.Context(), fleet.RoleServer); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(b.calls, ", "); got != "enable k3s.service, reload, reset k3s.service, start k3s.service" {
		t.Error(got)
	}
	u.Loaded = false
	if err := h.Start(t.Context(), fleet.RoleServer); err == nil || !strings.Contains(err.Error(), "k3s.service") {
		t.Errorf("a unit that is not there: %v", err)
	}
}

func TestUnitsWithoutTheConditionAreSeen(t *testing.T) {
	b := newBus(t)
	h := b.new()
	b.units["k3s.service"].Conditions = []string{"/usr/local/bin/regrade host role-is agent"}
	f, err := h.Observe(t.Context())
	if err != nil || f.Server.Conditioned || !f.Agent.Conditioned {
		t.Errorf("server %t, agent %t, %v", f.Server.Conditioned, f.Agent.Conditioned, err)
	}
}

func TestAJoinCutShortIsNotAJoin(t *testing.T) {
	b := newBus(t)
	h := b.new()
	const url = "https://10.0.0.1:6443"
	if err := h.SetJoin(t.Context(), fleet.RoleServer, url); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.root, fleet.FileUnitJoin)); err != nil { // R-D1-23's name
		t.Fatal(err)
	}
	f, err := h.Observe(t.Context())
	if err != nil || f.ServerJoin == url || f.ServerJoin == "" {
		t.Errorf("half a join reads as %q, %v", f.ServerJoin, err)
	}
	if _, err := os.Stat(filepath.Join(b.root, fleet.FileJoinDropIn)); err != nil { // R-D1-22's name
		t.Error(err)
	}
}

func TestThePeerPortAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b := newBus(t)
	h := systemd.New(systemd.Options{Layout: native.Layout{Root: b.root}, Bus: b, Proc: b.proc, PeerAddress: address})
	if err := h.HoldPeerPort(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the listener says something")
		}
		_ = c.Close()
	}
	if err := h.HoldPeerPort(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		_ = c.Close()
		t.Error("it still answers")
	}
}

func TestSnapshotCommand(t *testing.T) { // R-D1-28
	b := newBus(t)
	h := b.new()
	run := func(script string) (string, error) {
		t.Helper()
		plant(t, filepath.Join(b.root, "k3s"), "#!/bin/sh\n"+script)
		if err := h.SaveSnapshot(t.Context(), "fleet-role-x"); err != nil {
			return "", err
		}
		for range 500 {
			f, err := h.Observe(t.Context())
			if err != nil {
				return "", err
			}
			if !f.Snapshot.Running {
				return f.Snapshot.Error, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return "", errors.New("it never ended")
	}
	if msg, err := run(`[ "$1" = --version ] && exec echo "k3s version v1.36.3+k3s1 (abc)"; echo "$@" > ` + b.root + `/args`); err != nil || msg != "" {
		t.Fatal(msg, err)
	}
	args, err := os.ReadFile(filepath.Join(b.root, "args"))
	if err != nil || !strings.HasPrefix(string(args), "etcd-snapshot save ") || !strings.Contains(string(args), "--name fleet-role-x") {
		t.Errorf("%q %v", args, err)
	}
	if f, err := h.Observe(t.Context()); err != nil || f.K3sVersion != "v1.36.3+k3s1" {
		t.Errorf("version %q, %v", f.K3sVersion, err)
	}
	if msg, err := run("echo first; echo no space left >&2; exit 1"); err != nil || !strings.Contains(msg, "no space left") {
		t.Errorf("%q %v", msg, err)
	}
}

// Found by a breaker: a masked unit was said not to be there, or not to ask before it
// starts. The break check: take it for one that is not loaded.
func TestAMaskedUnitIsNamedSo(t *testing.T) { // safety rules 10 and 28
	b := newBus(t)
	h := b.new()
	*b.units["k3s-agent.service"] = systemd.UnitState{Masked: true, Active: "inactive", Enabled: "masked"}
	f, err := h.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if u := f.Agent; u.Conditioned || !strings.Contains(u.ConditionProblem, "k3s-agent.service is masked") || !f.Server.Conditioned || f.Server.ConditionProblem != "" {
		t.Errorf("agent %+v, server %+v", u, f.Server)
	}
	if err := h.Start(t.Context(), fleet.RoleAgent); err == nil || !strings.Contains(err.Error(), "is masked") {
		t.Errorf("started: %v", err)
	}
	*b.units["k3s-agent.service"] = systemd.UnitState{Active: "inactive"}
	if f, err = h.Observe(t.Context()); err != nil || !strings.Contains(f.Agent.ConditionProblem, "has not loaded") {
		t.Errorf("not there: %+v, %v", f.Agent, err)
	}
}
