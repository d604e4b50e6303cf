// Package access talks to a supervisor with a token: it fetches the cluster's CA, checks it against the token's hash
// and then speaks TLS that is verified by it (k3s facts §10.1).
package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/token"
)

// Access is a verified way to one supervisor.
type Access struct {
	base   string
	user   string
	secret string
	// CA is the bundle that /cacerts gave.
	CA     []byte
	client *http.Client
}

// StatusError is an answer other than 2xx.
type StatusError struct {
	Code int
	Path string
	Text string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Path, e.Code, http.StatusText(e.Code), e.Text)
}

// Code is the HTTP status behind err, or 0.
func Code(err error) int {
	var s *StatusError
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

// Connect fetches /cacerts without trust, checks it with the token, and keeps it. user overrides the token's own, as
// an agent presents any secret as user node.
func Connect(ctx context.Context, base string, tok token.Token, user string) (*Access, error) {
	base = strings.TrimSuffix(base, "/")
	// The CA is what is being fetched: its hash is checked below, or, with a bare secret, nothing is, as in k3s.
	blind := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	ca, err := do(ctx, &http.Client{Transport: blind, Timeout: 5 * time.Second}, http.MethodGet, base+"/cacerts", nil, nil, "", "")
	if err != nil {
		return nil, fmt.Errorf("failed to get CA certs: %w", err)
	}
	if err := tok.Check(ca); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("failed to get CA certs: %s/cacerts holds no certificate", base)
	}
	if user == "" {
		user = tok.User
	}
	return &Access{
		base: base, user: user, secret: tok.Secret(), CA: ca,
		client: &http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, DisableKeepAlives: true,
		}},
	}, nil
}

// Get fetches a path within timeout.
func (a *Access) Get(ctx context.Context, path string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx, a.client, http.MethodGet, a.base+path, nil, nil, a.user, a.secret)
}

// GetJSON fetches a path and decodes it.
func (a *Access) GetJSON(ctx context.Context, path string, timeout time.Duration, into any) error {
	b, err := a.Get(ctx, path, timeout)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Post sends a body and gives the answer.
func (a *Access) Post(ctx context.Context, path string, body []byte, header http.Header, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx, a.client, http.MethodPost, a.base+path, body, header, a.user, a.secret)
}

func do(ctx context.Context, c *http.Client, method, url string, body []byte, header http.Header, user, secret string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	if user != "" {
		r.SetBasicAuth(user, secret)
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.URL.Path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &StatusError{Code: resp.StatusCode, Path: r.URL.Path, Text: strings.TrimSpace(string(b))}
	}
	return b, nil
}
