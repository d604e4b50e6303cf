package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// keys are the keys to log in with, in the order they are tried.
type keys struct {
	signers []ssh.Signer
	// locked are files whose passphrase nobody is asked for and whose key the agent does
	// not have; passed are others that could not be used, and why.
	locked, passed []string
	agent          net.Conn // nil for none; open while its keys are used
}

func (k *keys) close() {
	if k.agent != nil {
		_ = k.agent.Close() // only read from
	}
}

// readKeys collects the keys of a host: of the files, through the agent where it has them,
// and then the agent's others. Secrets stay in the signers.
func readKeys(ctx context.Context, s settings) *keys {
	k := &keys{}
	var held []ssh.Signer // by the agent
	if s.agent != "" {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", s.agent)
		if err == nil {
			k.agent = conn
			// An agent that hangs ends with the connection's time.
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			held, err = agent.NewClient(conn).Signers()
			stop()
		}
		if err != nil {
			k.passed = append(k.passed, fmt.Sprintf("agent %s: %v", s.agent, err))
		}
	}
	taken := map[string]bool{}
	add := func(sg ssh.Signer) {
		if id := string(sg.PublicKey().Marshal()); !taken[id] {
			taken[id] = true
			k.signers = append(k.signers, sg)
		}
	}
	fromAgent := func(pub ssh.PublicKey) bool {
		found := false
		for _, sg := range held {
			if pub != nil && bytes.Equal(plain(sg.PublicKey()).Marshal(), pub.Marshal()) {
				add(sg)
				found = true
			}
		}
		return found
	}
	for _, id := range s.identities {
		pub := readPublic(id.path)
		sg, err := readPrivate(id.path)
		var needs *ssh.PassphraseMissingError
		if errors.As(err, &needs) && needs.PublicKey != nil {
			pub = needs.PublicKey
		}
		if sg != nil {
			pub = sg.PublicKey()
		}
		switch {
		case fromAgent(pub):
		case sg != nil:
			for _, file := range append([]string{id.path + "-cert.pub"}, s.certificates...) {
				if c, ok := parsePublic(file).(*ssh.Certificate); ok && bytes.Equal(c.Key.Marshal(), pub.Marshal()) {
					if with, err := ssh.NewCertSigner(c, sg); err == nil {
						add(with)
					}
				}
			}
			add(sg)
		case needs != nil:
			k.locked = append(k.locked, id.path)
		case id.usual && errors.Is(err, fs.ErrNotExist):
		default:
			k.passed = append(k.passed, err.Error())
		}
	}
	if !s.identitiesOnly {
		for _, sg := range held {
			add(sg)
		}
	}
	return k
}

// plain is the key that a certificate is for, or the key itself.
func plain(k ssh.PublicKey) ssh.PublicKey {
	if c, ok := k.(*ssh.Certificate); ok {
		return c.Key
	}
	return k
}

// readPublic reads the public half of an identity: the file beside it, or the file itself,
// as IdentityFile may name a key that only the agent has. Nil for none.
func readPublic(path string) ssh.PublicKey {
	if k := parsePublic(path + ".pub"); k != nil {
		return k
	}
	return parsePublic(path)
}

func parsePublic(path string) ssh.PublicKey {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	k, _, _, _, err := ssh.ParseAuthorizedKey(content)
	if err != nil {
		return nil
	}
	return k
}

// readPrivate reads a private key. One that others can read is refused, as ssh does.
func readPrivate(path string) (ssh.Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others may read it (chmod 600)", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sg, err := ssh.ParsePrivateKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err) // of the form, never of the content
	}
	return sg, nil
}

// refused is the problem of a host that took none of the keys.
func (k *keys) refused(s settings, err error) *Problem {
	p := &Problem{Code: AuthRefused, Host: s.name, Err: err}
	var offered []string
	for _, sg := range k.signers {
		offered = append(offered, fingerprint(sg.PublicKey()))
	}
	p.Sentence = fmt.Sprintf("%s lets nobody in as %s with %s", s.name, s.user, strings.Join(offered, ", "))
	if len(offered) == 0 {
		p.Sentence = fmt.Sprintf("%s: there is no key to log in with as %s", s.name, s.user)
	}
	if len(k.locked) > 0 {
		p.Code = KeyNeedsPassphrase
		p.Sentence += fmt.Sprintf("; nobody is asked for the passphrase of %s: ssh-add %s", strings.Join(k.locked, ", "), strings.Join(k.locked, " "))
	}
	if len(k.passed) > 0 {
		p.Sentence += "; not used: " + strings.Join(k.passed, "; ")
	}
	return p
}
