package hostcmd_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
)

// wellRig is a host in which nothing is wrong, in the files as well.
func wellRig(t *testing.T, node string) *rig {
	r := newRig(t, node)
	r.units, r.ready["d"] = &units{root: r.root, enabled: true}, true
	for _, role := range []string{"k3s", "k3s-agent"} {
		r.plant("/etc/systemd/system/"+role+".service.d/10-regrade.conf", "x")
	}
	r.plant(fleet.FileKubeconfig, "secret")
	r.plant(fleet.FileJoinConfig, "a: https://10.0.0.1:6443\nb: https://10.0.0.2:6443\nc: https://10.0.0.3:6443\nd: https://10.0.0.4:6443\ne: https://10.0.0.5:6443\n")
	r.host.Change(func(f *platform.Facts) {
		f.Staged, f.Level, f.Password, f.K3sVersion = true, fleet.LevelFull, "0123", "v1"
		f.Server.Conditioned, f.Agent.Conditioned = true, true
	})
	r.self.Labels[fleet.LabelEtcd] = ""
	r.process(41, "regrade", "/usr/local/bin/regrade", "host")
	if node == "d" {
		r.process(42, "k3s-agent", "/usr/local/bin/k3s agent")
		r.listen(2380, 41)
	} else {
		r.process(42, "k3s-server", "/usr/local/bin/k3s server")
		r.listen(2379, 42)
		r.listen(2380, 42)
		r.listen(6443, 42)
	}
	return r
}

func (r *rig) process(pid int, comm string, args ...string) {
	r.plant(fmt.Sprintf("/proc/%d/stat", pid), fmt.Sprintf("%d (%s) S 1 1 1 0", pid, comm))
	r.plant(fmt.Sprintf("/proc/%d/cmdline", pid), strings.Join(args, "\x00"))
}

// listen has a process listen on a port of every address.
func (r *rig) listen(port, pid int) {
	r.t.Helper()
	page := filepath.Join(r.root, "/proc/net/tcp")
	old, err := os.ReadFile(page)
	if err != nil {
		old = []byte("head\n")
	}
	inode := port*100 + pid
	r.plant("/proc/net/tcp", string(old)+fmt.Sprintf("0: 00000000:%04X 00000000:0000 0A 0:0 0:0 0 0 0 %d 1\n", port, inode))
	link := filepath.Join(r.root, fmt.Sprintf("/proc/%d/fd/%d", pid, inode))
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), link); err != nil {
		r.t.Fatal(err)
	}
}

// examine runs the doctor and gives what is not well.
func (r *rig) examine(want int, args ...string) doctor.Document {
	r.t.Helper()
	if code := r.run(append([]string{"doctor", "-o", "json"}, args...)...); code != want {
		r.t.Errorf("exit status %d, want %d\n%s%s", code, want, &r.out, &r.errs)
	}
	var d doctor.Document
	if err := json.Unmarshal(r.out.Bytes(), &d); err != nil {
		r.t.Fatalf("%v\n%s", err, &r.out)
	}
	return d
}

func wrong(d doctor.Document) (codes []string) {
	for _, f := range d.Findings {
		if f.Grade != doctor.OK {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

func TestDoctorFindsNothingOnAHostInOrder(t *testing.T) {
	for _, node := range []string{"a", "d"} {
		t.Run(node, func(t *testing.T) {
			r := wellRig(t, node)
			before := tree(t, r.root)
			d := r.examine(fleet.ExitDone)
			if w := wrong(d); len(w) > 0 || d.Node != node || d.Version != "v-test" || d.Protocol != status.Protocol {
				t.Errorf("%v\n%s", w, &r.out)
			}
			r.want(fleet.ExitDone, "nothing is wrong", "doctor")
			if after := tree(t, r.root); !slices.Equal(before, after) || len(r.host.Calls) != 0 || len(r.reports) != 0 || len(r.units.calls) != 0 {
				t.Errorf("it changed something: %v, %v, %v", after, r.host.Calls, r.units.calls)
			}
		})
	}
}

// tree are the files and folders below a root.
func tree(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, fmt.Sprintf("%s %v", path, d.Type()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestDoctorFindsWhatIsWrongOnAHost(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		change func(r *rig)
		exit   int
		want   []string
	}{
		"a warning does not fail": {"d", func(r *rig) {
			r.host.Change(func(f *platform.Facts) {
				f.Warnings = []platform.Warning{{Code: "EngineVersion", Sentence: "the engine is 20.10"}}
			})
		}, fleet.ExitDone, []string{"EngineVersion"}},
		"the API is down":                {"d", func(r *rig) { r.noAPI = true }, fleet.ExitDone, []string{"NoAPI"}},
		"the cluster knows no such Node": {"d", func(r *rig) { r.self = nil }, fleet.ExitFailed, []string{"NoNode"}},
		"a clock":                        {"d", func(r *rig) { r.ahead = time.Minute }, fleet.ExitFailed, []string{"ClockSkew", "ClockSkew", "ClockSkew", "ClockSkew"}},
		"no kubeconfig":                  {"d", func(r *rig) { r.drop(fleet.FileKubeconfig) }, fleet.ExitFailed, []string{"NoKubeconfig"}},
		"what the preflight says": {"d", func(r *rig) {
			r.pre = []status.Problem{{Code: "WrongToken", Sentence: "refused"}, {Code: "NoOwnJoinURL", Sentence: "said elsewhere"}}
		}, fleet.ExitFailed, []string{"WrongToken"}},
		"what a server's ways say": {"a", func(r *rig) {
			r.serves = []status.Problem{{Code: "FlagsDiffer", Sentence: "disable"}}
		}, fleet.ExitFailed, []string{"FlagsDiffer"}},
		"a server that could not be an agent": {"a", func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.AgentProblem = "no token" })
		}, fleet.ExitFailed, []string{"AgentNotStaged"}},
		"two k3s on one port": {"a", func(r *rig) {
			r.process(50, "k3s-server", "/usr/local/bin/k3s server")
			r.listen(6443, 50)
		}, fleet.ExitFailed, []string{"TwoOnOnePort"}},
		"a forwarder": {"d", func(r *rig) {
			r.process(50, "socat", "socat")
			r.listen(6443, 50)
		}, fleet.ExitFailed, []string{"ForeignListener"}},
		"no daemon": {"d", func(r *rig) {
			for _, f := range []string{"stat", "cmdline"} {
				r.drop("/proc/41/" + f)
			}
			r.drop("/proc/net/tcp")
			r.plant("/proc/net/tcp", "head\n")
		}, fleet.ExitFailed, []string{"NoHostDaemon"}},
		"a file of SQLite":              {"a", func(r *rig) { r.plant(fleet.DefaultDataDir+"/server/db/state.db", "x") }, fleet.ExitFailed, []string{"SQLiteLeft"}},
		"an alarm":                      {"a", func(r *rig) { r.alarms = []string{"NOSPACE at b"} }, fleet.ExitFailed, []string{"EtcdAlarm"}},
		"settings that nobody can read": {"d", func(r *rig) { r.plant(fleet.FileHostConfig, "node: [") }, fleet.ExitFailed, []string{"BadSettings"}},
		"left by a swap that is over": {"d", func(r *rig) {
			r.host.Change(func(f *platform.Facts) { f.ServerJoin = "https://10.0.0.2:6443" })
		}, fleet.ExitDone, []string{"JoinDropInLeft"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := wellRig(t, c.node)
			c.change(r)
			d := r.examine(c.exit)
			if w := wrong(d); !slices.Equal(w, c.want) {
				t.Errorf("%v, want %v\n%s", w, c.want, &r.out)
			}
			r.want(c.exit, c.want[0], "doctor")
		})
	}
	r := wellRig(t, "d")
	r.want(fleet.ExitRefused, "want text or json", "doctor", "-o", "xml")
}

func (r *rig) drop(path string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.root, path)); err != nil {
		r.t.Fatal(err)
	}
}
