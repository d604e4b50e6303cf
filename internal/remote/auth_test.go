package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentOf is an agent that holds these keys, at a socket.
func agentOf(t *testing.T, keys ...agent.AddedKey) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, k := range keys {
		if err := ring.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { _ = agent.ServeAgent(ring, c); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); tasks.Wait() })
	return path
}

func TestKeysToLogInWith(t *testing.T) {
	hostKey, _ := newKey(t)
	user, private := newKey(t)
	_, stranger := newKey(t)
	authority, _ := newKey(t)
	cert := &ssh.Certificate{Key: user.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{"root"}, ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	public := string(ssh.MarshalAuthorizedKey(user.PublicKey()))
	withPublic := func(t *testing.T, file string) string {
		write(t, file+".pub", public, 0o644)
		return file
	}
	// Agents are asked for six keys before a server says no.
	var many []agent.AddedKey
	for range 10 {
		_, k, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, agent.AddedKey{PrivateKey: k})
	}
	mine := agent.AddedKey{PrivateKey: private}

	for name, test := range map[string]struct {
		files  func(t *testing.T) []string
		agent  []agent.AddedKey
		config func(t *testing.T) string
		let    ssh.PublicKey
		code   Code
		says   string
	}{
		"a file":                      {files: func(t *testing.T) []string { return []string{keyFile(t, private, "")} }},
		"the second of two files":     {files: func(t *testing.T) []string { return []string{keyFile(t, stranger, ""), keyFile(t, private, "")} }},
		"a file of the configuration": {config: func(t *testing.T) string { return "IdentityFile " + keyFile(t, private, "") }},
		"an agent":                    {agent: []agent.AddedKey{mine}},
		"an agent, by the public half in a file": {agent: append(many, mine), config: func(t *testing.T) string {
			return "IdentitiesOnly yes\nIdentityFile " + write(t, filepath.Join(t.TempDir(), "id.pub"), public, 0o644)
		}},
		"an agent that holds the key of a locked file": {agent: append(many, mine), files: func(t *testing.T) []string { return []string{keyFile(t, private, "secret")} }},
		"an agent that holds many, and a file":         {agent: many, files: func(t *testing.T) []string { return []string{keyFile(t, private, "")} }},
		"a certificate beside the file": {let: cert, files: func(t *testing.T) []string {
			f := keyFile(t, private, "")
			write(t, f+"-cert.pub", string(ssh.MarshalAuthorizedKey(cert)), 0o644)
			return []string{f}
		}},
		"a certificate of the configuration": {let: cert, files: func(t *testing.T) []string { return []string{keyFile(t, private, "")} }, config: func(t *testing.T) string {
			return "CertificateFile " + write(t, filepath.Join(t.TempDir(), "cert"), string(ssh.MarshalAuthorizedKey(cert)), 0o644)
		}},
		"a key that the host does not know": {files: func(t *testing.T) []string { return []string{keyFile(t, stranger, "")} }, code: AuthRefused, says: "as root with ssh-ed25519 SHA256:"},
		"too many keys":                     {agent: many, code: AuthRefused},
		"no key at all":                     {code: AuthRefused, says: "no key to log in with"},
		"a file that is not there":          {files: func(*testing.T) []string { return []string{"/no/such/key"} }, code: AuthRefused, says: "/no/such/key"},
		"a file that others can read": {files: func(t *testing.T) []string {
			return []string{write(t, keyFile(t, private, ""), "", 0o644)}
		}, code: AuthRefused, says: "chmod 600"},
		"a file that is no key": {files: func(t *testing.T) []string {
			return []string{write(t, filepath.Join(t.TempDir(), "id"), "secret words", 0o600)}
		}, code: AuthRefused, says: "no key found"},
		"a locked file": {files: func(t *testing.T) []string { return []string{keyFile(t, private, "secret")} }, code: KeyNeedsPassphrase, says: "ssh-add "},
		"a locked file whose key the agent has not":  {agent: many[:1], files: func(t *testing.T) []string { return []string{withPublic(t, keyFile(t, private, "secret"))} }, code: KeyNeedsPassphrase, says: "ssh-add "},
		"an agent that the configuration shuts out":  {agent: []agent.AddedKey{mine}, config: func(*testing.T) string { return "IdentityAgent none" }, code: AuthRefused},
		"an agent's key that is not among the files": {agent: []agent.AddedKey{mine}, config: func(*testing.T) string { return "IdentitiesOnly yes" }, code: AuthRefused},
		"an agent that is not there":                 {config: func(*testing.T) string { return "IdentityAgent /no/such/agent" }, code: AuthRefused, says: "agent /no/such/agent"},
	} {
		t.Run(name, func(t *testing.T) {
			let := test.let
			if let == nil {
				let = user.PublicKey()
			}
			s := newServer(t, []ssh.Signer{hostKey}, let)
			o := Options{User: "root", KnownHosts: []string{knownHosts(t, s.line(hostKey.PublicKey()))}}
			if test.files != nil {
				o.IdentityFiles = test.files(t)
			}
			if test.agent != nil {
				o.AgentSocket = agentOf(t, test.agent...)
			}
			if test.config != nil {
				o.ConfigFiles = []string{write(t, filepath.Join(t.TempDir(), "config"), test.config(t), 0o600)}
			}
			_, err := dial(t, s, o)
			if CodeOf(err) != test.code || err != nil && test.code == "" {
				t.Fatalf("got %q: %v, want %q", CodeOf(err), err, test.code)
			}
			if err != nil && (!strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%v does not say %q, or says a secret", err, test.says)
			}
		})
	}
}
