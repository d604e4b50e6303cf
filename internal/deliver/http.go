package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/exadev/regrade/internal/obs"
)

// Web sends requests.
type Web struct {
	client *http.Client
	agent  string
}

// NewWeb makes one. Servers are trusted by the machine's certificate authorities, by
// those that SSL_CERT_FILE names, or, where there are none as in regrade's image, by
// Mozilla's as of the day this was built.
func NewWeb(version string) *Web {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = 1, time.Minute
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots()}
	return &Web{
		client: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		agent:  "regrade/" + version,
	}
}

func roots() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err == nil && !pool.Equal(x509.NewCertPool()) {
		return pool
	}
	pool = x509.NewCertPool()
	for root := range bundle.Roots() {
		c, err := x509.ParseCertificate(root.Certificate)
		switch {
		case err != nil:
		case root.Constraint == nil:
			pool.AddCert(c)
		default:
			pool.AddCertWithConstraint(c, root.Constraint)
		}
	}
	return pool
}

// CheckURL reads an address. It is shown by nothing that comes of it.
func CheckURL(s obs.Secret) (*url.URL, error) {
	u, err := url.Parse(s.Reveal())
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.Fragment != "" {
		return nil, errors.New("want an address like https://host/path") // what it is may hold a secret
	}
	return u, nil
}

// request is one of them.
type request struct {
	method string
	url    *url.URL
	token  obs.Secret
	header map[string]string
	body   []byte
	// limit is how much of the answer is read; zero for none of it.
	limit int64
}

// answer is what came of it.
type answer struct {
	status int
	date   time.Time // the server's clock, zero when it says none
	tag    string    // what names just this content, empty when the server has no such name
	body   []byte
}

// Refusal is an answer other than success.
type Refusal struct {
	Host   string
	Status int
}

func (r *Refusal) Error() string {
	words := fmt.Sprintf("%s answers %d %s", r.Host, r.Status, http.StatusText(r.Status))
	switch {
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden:
		words += ": the credentials are not accepted"
	case r.Status/100 == 3:
		words += ": redirects are not followed"
	}
	return words
}

// do sends a request. Any answer but a success is an error, a Refusal.
func (w *Web) do(ctx context.Context, r request) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), bytes.NewReader(r.body))
	if err != nil {
		return answer{}, fmt.Errorf("%s to %s: the request cannot be made", r.method, r.url.Host)
	}
	req.Header.Set("User-Agent", w.agent)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token.Reveal())
	}
	resp, err := w.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address
		}
		return answer{}, fmt.Errorf("%s to %s: %w", r.method, r.url.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode}
	if d, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.date = d.UTC()
	}
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) { // a weak one names several
		a.tag = tag
	}
	// The status is the answer. What comes after it is waited for only where somebody
	// wants it: a body that stalls would make a message that was taken one that was not.
	if resp.StatusCode/100 != 2 {
		return a, &Refusal{Host: r.url.Host, Status: resp.StatusCode}
	}
	if r.limit == 0 {
		return a, nil
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, r.limit+1))
	if err != nil {
		return a, fmt.Errorf("answer of %s: %w", r.url.Host, err)
	}
	if int64(len(a.body)) > r.limit {
		return a, fmt.Errorf("answer of %s: more than %d bytes", r.url.Host, r.limit)
	}
	return a, nil
}

// status is the answer in an error, zero for none.
func status(err error) int {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Status
	}
	return 0
}
