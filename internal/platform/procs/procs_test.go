package procs_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/procs"
)

// The kernel's own pages: what is listened on here is found, with this process.
func TestWhoListensOnAPortOfThisMachine(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Skipf("this machine has no such address: %v", err)
			}
			defer func() { _ = l.Close() }()
			at := l.Addr().(*net.TCPAddr)
			ps, err := procs.Processes("/proc")
			if err != nil {
				t.Fatal(err)
			}
			ss, err := procs.Listening("/proc", ps, at.Port)
			if err != nil {
				t.Fatal(err)
			}
			if len(ss) != 1 || ss[0].Address.String() != at.IP.String() || ss[0].PID != os.Getpid() || ss[0].Inode == 0 {
				t.Errorf("%+v, want one at %s of process %d", ss, at, os.Getpid())
			}
		})
	}
}

// tree is a /proc in a folder.
type tree struct {
	t   *testing.T
	dir string
}

func (f tree) process(pid, parent int, comm string, exe string, args ...string) {
	f.t.Helper()
	dir := filepath.Join(f.dir, strconv.Itoa(pid))
	f.write(filepath.Join(dir, "stat"), fmt.Sprintf("%d (%s) S %d 1 1 0", pid, comm, parent))
	f.write(filepath.Join(dir, "cmdline"), strings.Join(args, "\x00")+"\x00")
	if err := os.Symlink(exe, filepath.Join(dir, "exe")); err != nil {
		f.t.Fatal(err)
	}
}

func (f tree) socket(pid, fd, inode int) {
	f.t.Helper()
	dir := filepath.Join(f.dir, strconv.Itoa(pid), "fd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, strconv.Itoa(fd))); err != nil {
		f.t.Fatal(err)
	}
}

func (f tree) write(path, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// k3s binds with SO_REUSEPORT: two of its processes may have one port (k3s-facts §3.5).
func TestTwoProcessesOnOnePortAreBothSeen(t *testing.T) {
	f := tree{t, t.TempDir()}
	f.process(10, 1, "k3s-server", "/usr/local/bin/k3s", "/usr/local/bin/k3s server")
	f.process(11, 10, "etcd", "/usr/local/bin/k3s", "etcd")
	f.process(20, 1, "k3s-server", "/usr/local/bin/k3s (deleted)", "/usr/local/bin/k3s server")
	f.socket(11, 7, 100)
	f.socket(20, 9, 200)
	line := "   0: 0100000A:094C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1 0\n"
	f.write(filepath.Join(f.dir, "net/tcp"), head+fmt.Sprintf(line, 100)+fmt.Sprintf(line, 200)+
		strings.ReplaceAll(fmt.Sprintf(line, 300), " 0A ", " 01 ")) // a connection
	ps, err := procs.Processes(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	ss, err := procs.Listening(f.dir, ps, 2379, 2380)
	if err != nil {
		t.Fatal(err)
	}
	if len(ss) != 2 || ss[0].PID != 11 || ss[1].PID != 20 || ss[0].Address.String() != "10.0.0.1" || ss[0].Port != 2380 {
		t.Fatalf("%+v", ss)
	}
	by := func(pid int) procs.Process {
		return ps[slices.IndexFunc(ps, func(p procs.Process) bool { return p.PID == pid })]
	}
	if by(11).K3s(ps) != fleet.RoleServer || by(20).K3s(ps) != fleet.RoleServer {
		t.Errorf("whose the sockets are is not k3s: %q, %q", by(11).K3s(ps), by(20).K3s(ps))
	}
	if by(10).Replaced(f.dir) || !by(20).Replaced(f.dir) {
		t.Error("the process whose file was deleted is 20")
	}
}

func TestTheDaemonIsToldFromItsCommands(t *testing.T) {
	for args, want := range map[string]bool{
		"/usr/local/bin/regrade host":               true,
		"/usr/local/bin/regrade host --role server": true,
		"/usr/local/bin/regrade host doctor":        false,
		"/usr/local/bin/regrade host role-is agent": false,
		"/usr/local/bin/regrade controller":         false,
		"/bin/k3s server":                           false,
	} {
		if got := (procs.Process{Args: strings.Fields(args)}).Daemon(); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
}

func TestASocketOfAnotherContainerHasNoProcess(t *testing.T) {
	f := tree{t, t.TempDir()}
	f.process(1, 0, "regrade", "/usr/local/bin/regrade", "regrade", "host")
	f.write(filepath.Join(f.dir, "net/tcp"), head)
	f.write(filepath.Join(f.dir, "net/tcp6"), head+"   0: 00000000000000000000000000000000:192B 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0\n")
	ps, err := procs.Processes(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	ss, err := procs.Listening(f.dir, ps, 6443)
	if err != nil || len(ss) != 1 || ss[0].PID != 0 || ss[0].Address.String() != "::" {
		t.Errorf("%+v %v", ss, err)
	}
	if _, err := procs.Listening(filepath.Join(f.dir, "nowhere"), nil, 6443); err == nil {
		t.Error("a page that is not there is no empty one")
	}
}
