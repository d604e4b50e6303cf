package remote

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshd is OpenSSH's server, in the foreground on this machine's loopback, with keys and a
// configuration of its own. The service of this machine is not touched.
func sshd(t *testing.T) (Target, Options) {
	t.Helper()
	needRoot(t)
	const program = "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("OpenSSH's server is not installed (apt-get install openssh-server)")
	}
	// Where sshd looks for the folder it locks a child of its own in.
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hostKey, hostPrivate := newKey(t)
	user, private := newKey(t)
	authorized := write(t, filepath.Join(dir, "authorized"), string(ssh.MarshalAuthorizedKey(user.PublicKey())), 0o600)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	config := write(t, filepath.Join(dir, "sshd_config"), fmt.Sprintf(`ListenAddress 127.0.0.1
HostKey %s
AuthorizedKeysFile %s
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
PrintMotd yes
`, keyFile(t, hostPrivate, ""), authorized), 0o600)

	var out lockedBuffer
	cmd := exec.Command(program, "-D", "-e", "-p", fmt.Sprint(port), "-f", config)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if err := <-ended; err != nil {
			t.Logf("it ended: %v", err)
		}
		if t.Failed() {
			t.Logf("sshd said:\n%s", out.String())
		}
	})
	for end := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "Server listening"); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("sshd ended: %v: %s", err, out.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("sshd does not listen: %s", out.String())
		}
	}
	known := fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(hostKey.PublicKey()))
	return Target{Host: "127.0.0.1", Port: port}, Options{
		User: "root", KnownHosts: []string{knownHosts(t, known)}, IdentityFiles: []string{keyFile(t, private, "")},
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAHostWithOpenSSHIsARunner(t *testing.T) {
	target, o := sshd(t)
	conform(t, func(t *testing.T) Runner {
		r, err := Dial(t.Context(), target, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	})
	t.Run("a host key that changed", func(t *testing.T) {
		other, _ := newKey(t)
		o := o
		o.KnownHosts = []string{knownHosts(t, fmt.Sprintf("[127.0.0.1]:%d %s", target.Port, ssh.MarshalAuthorizedKey(other.PublicKey())))}
		if _, err := Dial(t.Context(), target, o); CodeOf(err) != HostKeyChanged {
			t.Errorf("got %v, want %s", err, HostKeyChanged)
		}
	})
	t.Run("a key that it does not let in", func(t *testing.T) {
		_, other := newKey(t)
		o := o
		o.IdentityFiles = []string{keyFile(t, other, "")}
		if _, err := Dial(t.Context(), target, o); CodeOf(err) != AuthRefused {
			t.Errorf("got %v, want %s", err, AuthRefused)
		}
	})
	t.Run("more keys than it looks at", func(t *testing.T) {
		o := o
		o.IdentityFiles = nil
		for range 8 {
			_, k := newKey(t)
			o.IdentityFiles = append(o.IdentityFiles, keyFile(t, k, ""))
		}
		if _, err := Dial(t.Context(), target, o); CodeOf(err) != AuthRefused {
			t.Errorf("got %v, want %s", err, AuthRefused)
		}
	})
	t.Run("through itself", func(t *testing.T) {
		o := o
		o.ConfigFiles = []string{write(t, filepath.Join(t.TempDir(), "config"), fmt.Sprintf("Host end\n HostName 127.0.0.1\n Port %d\n ProxyJump %s\n", target.Port, target), 0o600)}
		r, err := Dial(t.Context(), Target{Host: "end"}, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		if got, err := r.Run(t.Context(), Command{Argv: []string{"id", "-u"}}); err != nil || string(got.Out) != "0\n" {
			t.Errorf("got %q, %v", got.Out, err)
		}
	})
}
