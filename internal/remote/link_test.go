package remote

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
)

// piped is a link to a server in this process, over a pipe whose server side passes through
// gate.
func piped(t *testing.T, gate func(net.Conn) net.Conn) *link {
	t.Helper()
	hostKey, _ := newKey(t)
	user, _ := newKey(t)
	left, right := net.Pipe()
	near, far := buffered(left), buffered(right)
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return &ssh.Permissions{}, nil }}
	config.AddHostKey(hostKey)
	go func() {
		c, channels, requests, err := ssh.NewServerConn(gate(far), config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(requests)
		for nc := range channels {
			ch, reqs, err := nc.Accept()
			if err != nil {
				return
			}
			go func() {
				for r := range reqs {
					_ = r.Reply(true, nil) // and never ends
				}
			}()
			go func() { _, _ = io.Copy(io.Discard, ch) }()
		}
		_ = c.Wait()
	}()
	s := settings{name: "web1", user: "root", keyName: "web1:22", hostName: "web1", port: 22}
	s.knownHosts = []string{knownHosts(t, "web1 "+strings.TrimSpace(string(ssh.MarshalAuthorizedKey(hostKey.PublicKey()))))}
	h, err := readHostKeys(s)
	if err != nil {
		t.Fatal(err)
	}
	l, err := handshake(t.Context(), addressed{near}, s, h, &keys{signers: []ssh.Signer{user}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close(); _ = far.Close() })
	return l
}

// buffered gives a pipe the buffer that a network has: both sides greet first.
func buffered(c net.Conn) net.Conn {
	b := &bufferedConn{Conn: c, writes: make(chan []byte, 1000), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-b.writes:
				if _, err := c.Write(p); err != nil {
					return
				}
			case <-b.closed:
				return
			}
		}
	}()
	return b
}

type bufferedConn struct {
	net.Conn
	writes chan []byte
	closed chan struct{}
	once   sync.Once
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	select {
	case b.writes <- bytes.Clone(p):
		return len(p), nil
	case <-b.closed:
		return 0, net.ErrClosed
	}
}

func (b *bufferedConn) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// addressed is a pipe with the address of a network, which known_hosts asks for.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 22} }

// gate stops what a host sends, and no one of the two sides learns of it.
type gate struct {
	net.Conn
	shut chan struct{}
}

func (g gate) Write(p []byte) (int, error) {
	select {
	case <-g.shut:
		return len(p), nil
	default:
		return g.Conn.Write(p)
	}
}

func TestAHostThatDiesIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shut := make(chan struct{})
		l := piped(t, func(c net.Conn) net.Conn { return gate{c, shut} })
		began := time.Now()
		time.AfterFunc(time.Minute, func() { close(shut) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := (&sshRunner{link: l}).Run(ctx, Command{Argv: []string{"sleep", "1000"}})
		took := time.Since(began) - time.Minute
		if CodeOf(err) != HostLost || !strings.Contains(err.Error(), "nothing was heard for 15s") {
			t.Errorf("got %q: %v, want %s", CodeOf(err), err, HostLost)
		}
		if took < 10*time.Second || took > 20*time.Second {
			t.Errorf("noticed after %s, want some 15 s", took)
		}
	})
}

func TestAHostThatSaysLittleIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := piped(t, func(c net.Conn) net.Conn { return c })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := (&sshRunner{link: l}).Run(ctx, Command{Argv: []string{"sleep", "1000"}})
		if CodeOf(err) != "" || ctx.Err() == nil {
			t.Errorf("got %v", err)
		}
	})
}

// A connection that breaks is an error: a status of 0 with half the output would be taken
// for the whole.
func TestABrokenConnectionIsNoResult(t *testing.T) {
	needRoot(t)
	for name, script := range map[string]string{
		"while the command runs": "echo half; echo >$0; cat; echo whole",
		"while it prints much":   "head -c 1000000 /dev/zero; echo >$0; cat; exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			s, o := host(t)
			r, err := dial(t, s, o)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "begun")
			done := make(chan struct{})
			go func() {
				defer close(done)
				eventually(t, "the command begins", func() bool { _, err := os.Stat(file); return err == nil })
				s.cut()
			}()
			in := readerFunc(func([]byte) (int, error) { <-done; return 0, io.EOF }) // what cat waits for
			got, err := r.Run(t.Context(), Command{Argv: []string{"sh", "-c", script, file}, In: in})
			if CodeOf(err) != HostLost || got.Out != nil {
				t.Errorf("got %d bytes, %q: %v, want %s", len(got.Out), CodeOf(err), err, HostLost)
			}
			if _, err := r.Run(t.Context(), Command{Argv: []string{"true"}}); CodeOf(err) != HostLost {
				t.Errorf("after it: %v, want %s", err, HostLost)
			}
		})
	}
}

// The break may come at any byte: the file holds what it did, and nothing lies beside it.
func TestABrokenConnectionLeavesTheFile(t *testing.T) {
	needRoot(t)
	content := bytes.Repeat([]byte("regrade\n"), 10_000)
	head := int64(len("80000 ") + 64 + 1)
	for _, after := range []int64{1, 5, head - 1, head, head + 1, head + 7999, head + 40_000, head + 79_999} {
		s, o := host(t)
		s.cutAfter = after
		r, err := dial(t, s, o)
		if err != nil {
			t.Fatal(err)
		}
		path := write(t, filepath.Join(t.TempDir(), "file"), "old", 0o640)
		err = r.Put(t.Context(), path, bytes.NewReader(content), 0o600)
		s.stop() // and what it ran
		if CodeOf(err) != HostLost || !strings.Contains(err.Error(), path) {
			t.Errorf("after %d bytes: %q: %v, want %s", after, CodeOf(err), err, HostLost)
		}
		if got := contentOf(t, path); got != "old" {
			t.Errorf("after %d bytes: the file holds %d bytes %.20q", after, len(got), got)
		}
		alone(t, path)
	}
}

// changing is content that is not the same when it is read again.
type changing struct {
	*bytes.Reader
	later []byte
}

func (c *changing) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		c.Reader = bytes.NewReader(c.later)
	}
	return c.Reader.Seek(offset, whence)
}

func TestWhatArrivedIsComparedWithWhatWasMeasured(t *testing.T) {
	needRoot(t)
	s, o := host(t)
	r, err := dial(t, s, o)
	if err != nil {
		t.Fatal(err)
	}
	for name, later := range map[string]string{"as long": "other", "shorter": "oth"} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "file"), "old", 0o640)
			err := r.Put(t.Context(), path, &changing{bytes.NewReader([]byte("first")), []byte(later)}, 0o600)
			if CodeOf(err) != NotArrived || contentOf(t, path) != "old" {
				t.Errorf("got %q: %v, the file holds %q", CodeOf(err), err, contentOf(t, path))
			}
			alone(t, path)
		})
	}
}

// A person who breaks a copy off leaves what was there.
func TestACopyThatIsBrokenOffLeavesTheFile(t *testing.T) {
	needRoot(t)
	s, o := host(t)
	r, err := dial(t, s, o)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, filepath.Join(t.TempDir(), "file"), "old", 0o640)
	ctx, cancel := context.WithCancel(t.Context())
	big := bytes.NewReader(make([]byte, 32<<20))
	go func() {
		eventually(t, "the copy begins", func() bool { e, _ := os.ReadDir(filepath.Dir(path)); return len(e) > 1 })
		cancel()
	}()
	if err := r.Put(ctx, path, big, 0o600); err == nil || contentOf(t, path) != "old" {
		t.Errorf("got %v, the file holds %.20q", err, contentOf(t, path))
	}
	alone(t, path)
}

// Nothing of a file is in what a host's users can see of its processes.
func TestNoContentIsInAnyArgument(t *testing.T) {
	needRoot(t)
	s, o := host(t)
	r, err := dial(t, s, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "token")
	if err := r.Put(t.Context(), path, strings.NewReader("K10secret::server:words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(t.Context(), Command{Argv: []string{"cat"}, In: strings.NewReader("K10secret::server:words")}); err != nil {
		t.Fatal(err)
	}
	_, _, sum, _ := measured(strings.NewReader("K10secret::server:words"))
	ran := s.ran()
	if len(ran) != 2 {
		t.Errorf("the host ran %d commands, want 2", len(ran))
	}
	for _, c := range ran {
		// Nor its sum: it says whether a guess is right.
		if strings.Contains(c, "K10secret") || strings.Contains(c, sum) {
			t.Errorf("in the command line: %s", c)
		}
	}
}

// A user who is not root becomes it by sudo without a password, or it is said why not.
func TestSudo(t *testing.T) {
	needRoot(t)
	for name, test := range map[string]struct {
		sudo string // the program, empty for none
		code Code
		says string
		out  string
	}{
		"it lets":                        {sudo: "#!/bin/sh\necho noise\necho 'sudo: unable to resolve host x' >&2\n[ \"$1 $2\" = '-n --' ] || exit 9\nshift 2\nexport SUDO_UID=65534\nexec \"$@\"\n", out: "65534\n"},
		"it loses what was printed last": {sudo: "#!/bin/sh\nshift 2\nexport SUDO_UID=65534\n\"$@\" | head -c 45\n", code: OutputLost, says: "log_output"},
		"it wants a password":            {sudo: "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n", code: NoSudo, says: "sudo: a password is required"},
		"the user may nothing":           {sudo: "#!/bin/sh\necho \"me is not allowed to execute '/bin/sh' as root on web1.\" >&2\nexit 1\n", code: NoSudo, says: "is not allowed"},
		"there is none":                  {code: NoSudo, says: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("sudo"); test.sudo == "" && err == nil {
				test.says = "password" // this machine has one, which does not know nobody
			}
			s, o := host(t)
			dir, err := os.MkdirTemp("/tmp", "regrade-sudo-") // where nobody can look in
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, program := range []string{"sh", "id", "cat", "head"} { // and no sudo of this machine
				if err := os.Symlink("/usr/bin/"+program, filepath.Join(dir, program)); err != nil {
					t.Fatal(err)
				}
			}
			if test.sudo != "" {
				write(t, filepath.Join(dir, "sudo"), test.sudo, 0o755)
			}
			s.env = []string{"PATH=" + dir}
			s.user = &syscall.Credential{Uid: 65534, Gid: 65534}
			r, err := dial(t, s, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Run(t.Context(), Command{Argv: []string{"id", "-u"}})
			if CodeOf(err) != test.code || err != nil && !strings.Contains(err.Error(), test.says) || err == nil && test.code != "" {
				t.Fatalf("got %q: %v, want %q that says %q", CodeOf(err), err, test.code, test.says)
			}
			if string(got.Out) != test.out || len(got.Err) > 0 {
				t.Errorf("got %q %q, want %q and nothing of sudo's own", got.Out, got.Err, test.out)
			}
		})
	}
}

// What a login shell prints is not the command's; one that runs nothing is named.
func TestLoginShells(t *testing.T) {
	needRoot(t)
	for name, test := range map[string]struct {
		shell []string
		code  Code
		says  string
	}{
		"one that greets":          {shell: []string{"/bin/sh", "-c", `echo "Welcome"; echo "warning" >&2; exec sh -c "$0"`}},
		"one that starts a child":  {shell: []string{"/bin/sh", "-c", `sh -c "$0"; exit $?`}},
		"one that runs nothing":    {shell: []string{"/bin/sh", "-c", `echo "This account is currently not available."; exit 1`}, code: NoShell, says: "not available"},
		"a command that is forced": {shell: []string{"/bin/sh", "-c", `exit 0`}, code: NoShell, says: "it said nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := host(t)
			s.shell = test.shell
			r, err := dial(t, s, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Run(t.Context(), Command{Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 4"}})
			if CodeOf(err) != test.code || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %q: %v, want %q", CodeOf(err), err, test.code)
			}
			if test.code == "" && (got.Code != 4 || string(got.Out) != "out\n" || string(got.Err) != "err\n") {
				t.Errorf("got %d %q %q", got.Code, got.Out, got.Err)
			}
		})
	}
}
