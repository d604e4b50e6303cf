package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// kinds makes one host key of each kind.
func kinds(t *testing.T) map[string]ssh.Signer {
	t.Helper()
	made := map[string]ssh.Signer{}
	made["ed25519"], _ = newKey(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]any{"ecdsa": ec, "rsa": r} {
		if made[name], err = ssh.NewSignerFromKey(key); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func TestAHostsKeyIsEnforced(t *testing.T) {
	keys := kinds(t)
	all := []ssh.Signer{keys["rsa"], keys["ecdsa"], keys["ed25519"]}
	other, _ := newKey(t)
	authority, _ := newKey(t)
	user, private := newKey(t)
	id := keyFile(t, private, "")
	certificate := func(principal string, until time.Time) ssh.Signer {
		c := &ssh.Certificate{Key: keys["ed25519"].PublicKey(), CertType: ssh.HostCert, KeyId: "host", ValidPrincipals: []string{principal}, ValidBefore: uint64(until.Unix())}
		if err := c.SignCert(rand.Reader, authority); err != nil {
			t.Fatal(err)
		}
		sg, err := ssh.NewCertSigner(c, keys["ed25519"])
		if err != nil {
			t.Fatal(err)
		}
		return sg
	}
	entry := func(k ssh.Signer) func(s *server) string {
		return func(s *server) string { return s.line(k.PublicKey()) }
	}
	tomorrow, yesterday := time.Now().Add(24*time.Hour), time.Now().Add(-24*time.Hour)

	for name, test := range map[string]struct {
		has    []ssh.Signer // of the host
		lines  []func(s *server) string
		config string
		code   Code
		says   []string
	}{
		"a known key": {has: all, lines: []func(*server) string{entry(keys["rsa"]), entry(keys["ecdsa"]), entry(keys["ed25519"])}},
		"a host with three keys of which ed25519 is known": {has: all, lines: []func(*server) string{entry(keys["ed25519"])}},
		"a host with three keys of which ecdsa is known":   {has: all, lines: []func(*server) string{entry(keys["ecdsa"])}},
		"a host with three keys of which rsa is known":     {has: all, lines: []func(*server) string{entry(keys["rsa"])}},
		"one of two keys of a kind that are known":         {has: all[2:], lines: []func(*server) string{entry(other), entry(keys["ed25519"])}},
		"a hashed name": {has: all, lines: []func(*server) string{func(s *server) string {
			return knownhosts.HashHostname(knownhosts.Normalize(s.addr)) + " " + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[1]
		}}},
		"a name by pattern": {has: all, lines: []func(*server) string{func(s *server) string {
			_, port, _ := net.SplitHostPort(s.addr)
			return "[127.0.*.?]:" + port + " " + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[1]
		}}},
		"a name that is excepted": {has: all, lines: []func(*server) string{func(s *server) string {
			return "!" + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[0] + "," + s.line(keys["ed25519"].PublicKey())
		}}, code: HostKeyUnknown},
		"a known alias": {has: all, config: "HostKeyAlias db\n", lines: []func(*server) string{func(s *server) string { return "db " + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[1] }}},
		"a key that nobody knows": {has: all[2:], code: HostKeyUnknown,
			says: []string{ssh.FingerprintSHA256(keys["ed25519"].PublicKey()), "ssh -p ", "ssh-keygen -lf"}},
		"a key that is known of another host": {has: all, lines: []func(*server) string{func(s *server) string { return knownhosts.Line([]string{"other"}, keys["ed25519"].PublicKey()) }}, code: HostKeyUnknown},
		"a key that changed": {has: all[2:], lines: []func(*server) string{entry(other)}, code: HostKeyChanged,
			says: []string{ssh.FingerprintSHA256(keys["ed25519"].PublicKey()), ssh.FingerprintSHA256(other.PublicKey()), ":1)", "ssh-keygen -R"}},
		"a key of another kind than is known": {has: all[:2], lines: []func(*server) string{entry(keys["ed25519"])}, code: HostKeyChanged},
		"a key that is revoked": {has: all[2:], lines: []func(*server) string{func(s *server) string {
			return "@revoked * " + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[1]
		}}, code: HostKeyRevoked, says: []string{":1 revokes"}},
		"a known key that is revoked": {has: all[2:], lines: []func(*server) string{entry(keys["ed25519"]), func(s *server) string {
			return "@revoked * " + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[1]
		}}, code: HostKeyRevoked},
		"a certificate of an authority": {has: append(all[:2:2], certificate("127.0.0.1", tomorrow)),
			lines: []func(*server) string{func(s *server) string { return "@cert-authority " + s.line(authority.PublicKey()) }}},
		"a certificate beside keys that are known": {has: append(all[:2:2], certificate("127.0.0.1", tomorrow)),
			lines: []func(*server) string{entry(keys["rsa"]), func(s *server) string { return "@cert-authority " + s.line(authority.PublicKey()) }}},
		"a certificate that has run out": {has: []ssh.Signer{certificate("127.0.0.1", yesterday)},
			lines: []func(*server) string{func(s *server) string { return "@cert-authority " + s.line(authority.PublicKey()) }}, code: HostKeyUnknown, says: []string{"expired"}},
		"a certificate of another host": {has: []ssh.Signer{certificate("other", tomorrow)},
			lines: []func(*server) string{func(s *server) string { return "@cert-authority " + s.line(authority.PublicKey()) }}, code: HostKeyUnknown},
		"a certificate of an authority for others": {has: []ssh.Signer{certificate("127.0.0.1", tomorrow)},
			lines: []func(*server) string{func(s *server) string {
				return "@cert-authority " + knownhosts.Line([]string{"other"}, authority.PublicKey())
			}}, code: HostKeyUnknown},
		"a certificate whose key is revoked": {has: []ssh.Signer{certificate("127.0.0.1", tomorrow)},
			lines: []func(*server) string{func(s *server) string { return "@cert-authority " + s.line(authority.PublicKey()) }, func(s *server) string {
				return "@revoked * " + strings.SplitN(s.line(keys["ed25519"].PublicKey()), " ", 2)[1]
			}}, code: HostKeyRevoked},
		"the authority's key as a host's own": {has: []ssh.Signer{authority},
			lines: []func(*server) string{func(s *server) string { return "@cert-authority " + s.line(authority.PublicKey()) }}, code: HostKeyUnknown},
		"a configuration that checks nothing":    {has: all, config: "StrictHostKeyChecking no\n", code: HostKeyUnknown, says: []string{"StrictHostKeyChecking no (", ":1) is not followed"}},
		"a configuration that takes what is new": {has: all, config: "StrictHostKeyChecking accept-new\n", code: HostKeyUnknown, says: []string{"is not followed"}},
		"a line that cannot be read":             {has: all, lines: []func(*server) string{entry(keys["ed25519"]), func(*server) string { return "@revoked * ssh-ed25519 !" }}, code: ConfigUnsupported, says: []string{"known_hosts:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, test.has, user.PublicKey())
			asked := false
			let := s.config.PublicKeyCallback
			s.config.PublicKeyCallback = func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
				asked = true
				return let(c, k)
			}
			var lines []string
			for _, l := range test.lines {
				lines = append(lines, l(s))
			}
			known := knownHosts(t, lines...)
			o := Options{User: "root", KnownHosts: []string{known, filepath.Join(t.TempDir(), "none")}, IdentityFiles: []string{id},
				ConfigFiles: []string{write(t, filepath.Join(t.TempDir(), "config"), test.config, 0o600)}}
			before, _ := os.ReadFile(known)
			_, err := dial(t, s, o)
			if CodeOf(err) != test.code || err != nil && test.code == "" {
				t.Fatalf("got %q: %v, want %q", CodeOf(err), err, test.code)
			}
			for _, says := range test.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
			s.stop()
			if asked != (test.code == "") {
				t.Errorf("the host was shown a key: %t", asked)
			}
			if after, _ := os.ReadFile(known); string(after) != string(before) {
				t.Error("known_hosts was written")
			}
		})
	}
}

func TestAHostWithoutAnyKnownHostsIsUnknown(t *testing.T) {
	s, o := host(t)
	for name, files := range map[string][]string{"no file is there": {filepath.Join(t.TempDir(), "none")}, "no file is named": {}, "nothing is said": nil} {
		t.Run(name, func(t *testing.T) {
			o.KnownHosts = files
			if _, err := dial(t, s, o); CodeOf(err) != HostKeyUnknown {
				t.Errorf("got %v, want %s", err, HostKeyUnknown)
			}
		})
	}
	t.Run("a folder", func(t *testing.T) {
		o.KnownHosts = []string{t.TempDir()}
		if _, err := dial(t, s, o); CodeOf(err) != ConfigUnsupported {
			t.Errorf("got %v, want %s", err, ConfigUnsupported)
		}
	})
}
