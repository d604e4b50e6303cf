package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// server is an SSH server in this process: it lets the keys in that it knows, and runs what
// it is told with the real sh.
type server struct {
	t        *testing.T
	addr     string
	config   *ssh.ServerConfig
	hostKeys []ssh.Signer

	// What it does, set before the first connection.
	env      []string            // of commands, nil for this process's
	user     *syscall.Credential // who runs them, nil for who runs this
	shell    []string            // runs a command, nil for sh -c
	cutAfter int64               // breaks the connection once a session sent so much, 0 for never

	mu       sync.Mutex
	commands []string // every command line it was given
	conns    []net.Conn
	tasks    sync.WaitGroup
	listener net.Listener
}

// newServer starts a server with these host keys, which lets in who has one of the keys.
func newServer(t *testing.T, hostKeys []ssh.Signer, let ...ssh.PublicKey) *server {
	t.Helper()
	s := &server{t: t, hostKeys: hostKeys}
	s.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		for _, k := range let {
			if string(k.Marshal()) == string(key.Marshal()) {
				return &ssh.Permissions{}, nil
			}
		}
		return nil, errors.New("not let in")
	}}
	for _, k := range hostKeys {
		s.config.AddHostKey(k)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.listener, s.addr = l, l.Addr().String()
	s.tasks.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

// stop ends the server and every connection, and waits for what ran.
func (s *server) stop() {
	_ = s.listener.Close()
	s.cut()
	s.tasks.Wait()
}

// cut breaks every connection.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

func (s *server) ran() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.commands...)
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.tasks.Go(func() { s.serve(conn) })
	}
}

func (s *server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	s.tasks.Go(func() {
		for r := range requests {
			if r.WantReply {
				_ = r.Reply(false, nil)
			}
		}
	})
	for nc := range channels {
		switch nc.ChannelType() {
		case "session":
			ch, reqs, err := nc.Accept()
			if err != nil {
				return
			}
			s.tasks.Go(func() { s.session(conn, ch, reqs) })
		case "direct-tcpip":
			s.tasks.Go(func() { s.forward(nc) })
		default:
			_ = nc.Reject(ssh.UnknownChannelType, "")
		}
	}
}

func (s *server) forward(nc ssh.NewChannel) {
	var to struct {
		Host     string
		Port     uint32
		From     string
		FromPort uint32
	}
	if err := ssh.Unmarshal(nc.ExtraData(), &to); err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	out, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	if err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		_ = out.Close()
		return
	}
	s.tasks.Go(func() { ssh.DiscardRequests(reqs) })
	s.tasks.Go(func() { _, _ = io.Copy(out, ch); _ = out.Close() })
	_, _ = io.Copy(ch, out)
	_ = out.Close()
	_ = ch.Close()
}

func (s *server) session(conn net.Conn, ch ssh.Channel, requests <-chan *ssh.Request) {
	defer func() { _ = ch.Close() }()
	var started *exec.Cmd
	for r := range requests {
		switch {
		case r.Type == "exec" && started == nil:
			var p struct{ Command string }
			if err := ssh.Unmarshal(r.Payload, &p); err != nil {
				_ = r.Reply(false, nil)
				continue
			}
			s.mu.Lock()
			s.commands = append(s.commands, p.Command)
			s.mu.Unlock()
			started = s.start(conn, ch, p.Command)
			_ = r.Reply(started != nil, nil)
		case r.Type == "signal" && started != nil:
			var p struct{ Signal string }
			_ = ssh.Unmarshal(r.Payload, &p)
			if sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[p.Signal]; sig != 0 {
				_ = syscall.Kill(-started.Process.Pid, sig)
			}
		case r.WantReply:
			_ = r.Reply(false, nil)
		}
	}
}

func (s *server) start(conn net.Conn, ch ssh.Channel, command string) *exec.Cmd {
	shell := s.shell
	if shell == nil {
		shell = []string{"/bin/sh", "-c"}
	}
	cmd := exec.Command(shell[0], append(shell[1:], command)...)
	cmd.Env, cmd.Dir = s.env, "/tmp"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.user}
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return nil
	}
	s.tasks.Go(func() {
		defer func() { _ = in.Close() }()
		if s.cutAfter > 0 {
			if _, err := io.CopyN(in, ch, s.cutAfter); err == nil {
				_ = conn.Close()
			}
			return
		}
		_, _ = io.Copy(in, ch)
	})
	s.tasks.Go(func() {
		err := cmd.Wait()
		var exit *exec.ExitError
		status := 0
		if errors.As(err, &exit) {
			if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
				names := map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGKILL: "KILL", syscall.SIGHUP: "HUP"}
				_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
					Signal string
					Core   bool
					Msg    string
					Lang   string
				}{Signal: names[ws.Signal()]}))
				_ = ch.Close()
				return
			}
			status = exit.ExitCode()
		}
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
		_ = ch.Close()
	})
	return cmd
}

// newKey makes a key pair.
func newKey(t *testing.T) (ssh.Signer, ed25519.PrivateKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sg, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return sg, key
}

// keyFile writes a private key, with a passphrase where one is given.
func keyFile(t *testing.T, key any, passphrase string) string {
	t.Helper()
	var block *pem.Block
	var err error
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "test")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "test", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "id"), string(pem.EncodeToMemory(block)), 0o600)
}

func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// knownHosts writes a known_hosts of these lines.
func knownHosts(t *testing.T, lines ...string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "known_hosts"), strings.Join(lines, "\n")+"\n", 0o600)
}

// line is the line of known_hosts for a server.
func (s *server) line(key ssh.PublicKey) string { return knownhosts.Line([]string{s.addr}, key) }

// host is a server with one host key and one who is let in, and options that reach it.
func host(t *testing.T) (*server, Options) {
	t.Helper()
	hostKey, _ := newKey(t)
	user, private := newKey(t)
	s := newServer(t, []ssh.Signer{hostKey}, user.PublicKey())
	return s, Options{
		User: "root", KnownHosts: []string{knownHosts(t, s.line(hostKey.PublicKey()))},
		IdentityFiles: []string{keyFile(t, private, "")},
	}
}

// dial connects to a server, and closes the connection at the test's end.
func dial(t *testing.T, s *server, o Options) (Runner, error) {
	t.Helper()
	target, err := ParseTarget(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Dial(t.Context(), target, o)
	if err == nil {
		t.Cleanup(func() { _ = r.Close() })
	}
	return r, err
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}
