package preflight

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/k3s"
)

// maxAnswer bounds what is read from a join host.
const maxAnswer = 1 << 20

// member is one entry of /db/info (k3s-facts §14.1).
type member struct {
	ID        json.Number `json:"ID"`
	Name      string      `json:"name"`
	PeerURLs  []string    `json:"peerURLs"`
	IsLearner bool        `json:"isLearner"`
}

// join proves the server token live and reads the members, just as k3s will in
// its first step: GET /db/info as the user "server". That needs the server's
// secret, so an agent's is told from it here (k3s-facts §3.3).
func (c *Checker) join(ctx context.Context, l *list, in hostapi.PreflightInput, server Staged) {
	j := server.Join
	if server.JoinError != nil {
		l.add(CodeNoToken, "the server token cannot be read: %v", server.JoinError)
		return
	}
	if j.Token.Reveal() == "" {
		l.add(CodeNoToken, "the server configuration has no token")
		return
	}
	token, err := k3s.ParseToken(j.Token.Reveal())
	if err != nil {
		l.add(CodeNoToken, "%v", err)
		return
	}
	c.cred(l, token)
	hosts := joinHosts(in)
	if len(hosts) == 0 {
		l.add(CodeNoJoinHost, "no voter with a join URL is known to join (%q was asked for)", in.Join)
		return
	}
	// All at once: the first of them is often the slow host that goes out, and the
	// time is one for all.
	answers := make([]finding, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() { answers[i] = c.joinHost(ctx, host, token, in) })
	}
	all.Wait()
	var problems []string
	none := CodeJoinUnreachable
	for _, p := range answers {
		if p.code == CodeJoinFalters {
			none = CodeJoinFalters
		} else if p.code != CodeJoinUnreachable {
			if p.code != "" {
				l.add(p.code, "%s", p.sentence)
			}
			return
		}
		problems = append(problems, p.sentence)
	}
	l.add(none, "%s", strings.Join(problems, "; "))
}

type finding struct{ code, sentence string }

func found(code, format string, args ...any) finding {
	return finding{code, fmt.Sprintf(format, args...)}
}

func (c *Checker) joinHost(ctx context.Context, host string, token k3s.Token, in hostapi.PreflightInput) finding {
	// The CA is given out unauthenticated, as k3s fetches it; what is trusted is
	// what this host already knows, or the hash in the token.
	ca, _, err := get(ctx, host+"/cacerts", "", &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // compared below
	if err != nil {
		return found(CodeJoinUnreachable, "%s: %v", host, err)
	}
	if p := c.ca(host, ca, token); p.code != "" {
		return p
	}
	pool, err := k3s.TrustedCAs(ca)
	if err != nil {
		return found(CodeOtherCA, "%s gives no certificate at /cacerts: %v", host, err)
	}
	body, code, err := get(ctx, host+"/db/info", token.Secret.Reveal(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return found(CodeJoinFalters, "%s: %v", host, err)
	case err != nil:
		return found(CodeJoinUnreachable, "%s: %v", host, err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return found(CodeWrongToken, "%s refuses the server token (status %d): it may be an agent's", host, code)
	case code >= http.StatusInternalServerError:
		// It asks its etcd for the members: there is no leader for a moment, or it is slow.
		return found(CodeJoinFalters, "%s: /db/info says status %d", host, code)
	case code != http.StatusOK:
		return found(CodeJoinUnreachable, "%s: /db/info says status %d", host, code)
	}
	return members(host, body, in)
}

// ca compares the cluster's CA with the token's hash and with what the host
// keeps from its agent and from an earlier life as a server, as k3s tells one CA
// from another. Files of another cluster, or of another bundle under the same root,
// make k3s die with "newer than datastore" (k3s-facts §3.2); the agent fetches its
// own anew at each start.
func (c *Checker) ca(host string, ca []byte, token k3s.Token) finding {
	hash, err := k3s.HashCA(ca)
	if err != nil {
		return found(CodeOtherCA, "%s gives no certificate at /cacerts: %v", host, err)
	}
	if token.CAHash != "" && token.CAHash != hash {
		return found(CodeOtherCA, "the token is of another CA than the one of %s", host)
	}
	for _, path := range [][]string{{"agent", "server-ca.crt"}, {"server", "tls", "server-ca.crt"}} {
		full := c.Disk.Path(path...)
		kept, err := readKept(full)
		switch {
		case err != nil:
			return found(CodeOtherCA, "%s: %v", full, err)
		case kept == nil:
		case !k3s.SameCA(kept, ca):
			return found(CodeOtherCA, "%s is another CA than the one of %s", full, host)
		case path[0] == "server" && !bytes.Equal(bytes.TrimSpace(kept), bytes.TrimSpace(ca)):
			return found(CodeStaleCred, "%s is another bundle of the CA of %s: the files of an earlier life have to go", full, host)
		}
	}
	return finding{}
}

// cred compares the server's secret of an earlier life with today's.
func (c *Checker) cred(l *list, token k3s.Token) {
	path := c.Disk.Path("server", "cred", "passwd")
	raw, err := readKept(path)
	if err != nil {
		l.add(CodeStaleCred, "%s: %v", path, err)
		return
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if f := strings.Split(strings.TrimSpace(line), ","); len(f) >= 2 && f[1] == "server" && f[0] != token.Secret.Reveal() {
			l.add(CodeStaleCred, "%s holds another server secret than the configured token", path)
		}
	}
}

// members looks for a member under this node's name: k3s refuses a second one
// and retries for ever (k3s-facts §3.3).
func members(host string, body []byte, in hostapi.PreflightInput) finding {
	var info struct {
		Members []member `json:"members"`
	}
	if err := json.Unmarshal(body, &info); err != nil || len(info.Members) == 0 {
		return found(CodeJoinUnreachable, "%s: /db/info cannot be read", host)
	}
	var own []string
	for _, n := range in.Nodes {
		if n.Name == in.Node && n.InternalIP != "" {
			own = append(own, n.InternalIP)
		}
	}
	if u, err := url.Parse(in.JoinURLs[in.Node]); err == nil && u.Hostname() != "" {
		own = append(own, u.Hostname())
	}
	for _, m := range info.Members {
		if node, ok := fleet.MemberNodeName(m.Name); ok && node == in.Node {
			return found(CodeMemberExists, "etcd has a member %s of this host", m.Name)
		}
		for _, p := range m.PeerURLs {
			u, err := url.Parse(p)
			for _, ip := range own {
				if err == nil && u.Hostname() == ip {
					return found(CodeMemberExists, "etcd has a member at %s, the address of this host", p)
				}
			}
		}
	}
	return finding{}
}

// get asks once. The secret goes into a header and nowhere else (safety rule 31).
func get(ctx context.Context, address, secret string, cfg *tls.Config) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, errors.New("the join URL is no URL")
	}
	if secret != "" {
		req.SetBasicAuth("server", secret)
	}
	t := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext}
	client := &http.Client{Transport: t, Timeout: 4 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, plain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, 0, plain(err)
	}
	if secret == "" && resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode, fmt.Errorf("status %d", resp.StatusCode)
	}
	return body, resp.StatusCode, nil
}
