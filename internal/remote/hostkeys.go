package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys are what known_hosts says of one host.
type hostKeys struct {
	s     settings
	check ssh.HostKeyCallback
	known []knownhosts.KnownKey // plain ones
	ca    bool                  // an authority vouches for the host's certificate
	files []string              // those that are there
}

// readHostKeys reads the files. A line that cannot be read is an error that names it: it
// may be the one that revokes a key.
func readHostKeys(s settings) (*hostKeys, error) {
	h := &hostKeys{s: s}
	for _, f := range s.knownHosts {
		switch info, err := os.Stat(f); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("read known_hosts: %w", err)
		case info.IsDir():
			return nil, fmt.Errorf("read known_hosts: %s is a folder", f)
		default:
			h.files = append(h.files, f)
		}
	}
	var err error
	if h.check, err = knownhosts.New(h.files...); err != nil {
		return nil, fmt.Errorf("read known_hosts: %w", err)
	}
	return h, h.list()
}

// list asks for the host with a key that nobody has: the refusal names those that are
// known.
func (h *hostKeys) list() error {
	err := h.check(h.s.keyName, &net.TCPAddr{IP: net.IPv4zero}, noKey{})
	var unknown *knownhosts.KeyError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("read known_hosts for %s: %w", h.s.keyName, err)
	}
	for _, k := range unknown.Want {
		// The package tells keys of authorities from a host's own by a field it keeps to
		// itself, so the line is looked at.
		ca, err := marked(k.Filename, k.Line, "@cert-authority")
		if err != nil {
			return err
		}
		if ca {
			h.ca = true
		} else {
			h.known = append(h.known, k)
		}
	}
	return nil
}

// noKey is a public key that no host has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

func marked(file string, line int, marker string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, fmt.Errorf("read known_hosts: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if n == line {
			words := strings.Fields(lines.Text())
			return len(words) > 0 && words[0] == marker, nil
		}
	}
	return false, lines.Err()
}

// algorithms are those that the host is asked for: first those of the keys that are known.
// A host shows one key, of the first algorithm that both have; asked for another kind than
// is known it would look like one whose key changed.
func (h *hostKeys) algorithms() []string {
	all := ssh.SupportedAlgorithms().HostKeys
	rank := func(algorithm string) int {
		if strings.Contains(algorithm, "-cert-") {
			if h.ca {
				return 0
			}
			return 3 // nobody vouches for it
		}
		for _, k := range h.known {
			if k.Key.Type() == algorithm || k.Key.Type() == ssh.KeyAlgoRSA && strings.HasPrefix(algorithm, "rsa-sha2-") {
				return 1
			}
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	return all
}

// verify is the callback that a connection is made with. The name it is given is keyName.
func (h *hostKeys) verify(name string, at net.Addr, key ssh.PublicKey) error {
	err := h.check(name, at, key)
	cert, isCert := key.(*ssh.Certificate)
	if err == nil && !isCert && !slices.ContainsFunc(h.known, func(k knownhosts.KnownKey) bool { return bytes.Equal(k.Key.Marshal(), key.Marshal()) }) {
		// The package takes an authority's key for a host's own as well.
		err = &knownhosts.KeyError{}
	}
	if err == nil {
		return nil
	}
	var revoked *knownhosts.RevokedError
	if isCert && !errors.As(h.check(name, at, cert.Key), &revoked) {
		_ = errors.As(h.check(name, at, cert.SignatureKey), &revoked)
	}
	shown := fingerprint(key)
	p := &Problem{Host: h.s.name, Err: err}
	var unknown *knownhosts.KeyError
	where := strings.Join(h.files, ", ")
	if where == "" {
		where = "none of " + strings.Join(h.s.knownHosts, ", ") + " is there"
	}
	switch {
	case revoked != nil, errors.As(err, &revoked):
		p.Code = HostKeyRevoked
		p.Sentence = fmt.Sprintf("%s shows a key that %s:%d revokes: %s", h.s.name, revoked.Revoked.Filename, revoked.Revoked.Line, shown)
	case errors.As(err, &unknown) && len(h.known) > 0:
		p.Code = HostKeyChanged
		var want []string
		for _, k := range h.known {
			want = append(want, fmt.Sprintf("%s (%s:%d)", fingerprint(k.Key), k.Filename, k.Line))
		}
		p.Sentence = fmt.Sprintf("%s shows another key than it had: %s. Known is %s. Somebody may stand between; if the host was set up anew, compare the key on its console and then run: ssh-keygen -R %q",
			h.s.name, shown, strings.Join(want, ", "), knownhosts.Normalize(h.s.keyName))
	default:
		p.Code = HostKeyUnknown
		p.Sentence = fmt.Sprintf("%s (%s) shows a key that is not known: %s. Compare it on the host (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), then accept it with: %s. Looked in: %s",
			h.s.name, knownhosts.Normalize(h.s.keyName), shown, h.s.command, where)
		if h.ca {
			p.Sentence += fmt.Sprintf(" (for whose certificates there is an authority: %v)", err)
		}
		if h.s.lax != "" {
			p.Sentence += "; " + h.s.lax
		}
	}
	return p
}

func fingerprint(key ssh.PublicKey) string {
	if c, ok := key.(*ssh.Certificate); ok {
		return fmt.Sprintf("%s %s of authority %s", c.Type(), ssh.FingerprintSHA256(c.Key), ssh.FingerprintSHA256(c.SignatureKey))
	}
	return key.Type() + " " + ssh.FingerprintSHA256(key)
}
