package deliver

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// File is a document in a file.
type File struct {
	Path string
	Now  func() time.Time
}

// Read gives it, and this machine's clock.
func (f File) Read(context.Context) ([]byte, time.Time, error) {
	raw, err := readFile(f.Path, heartbeat.MaxDocument)
	if err == nil && raw == nil {
		err = fmt.Errorf("%s: %w", f.Path, fs.ErrNotExist)
	}
	return raw, f.Now(), err
}

// Page is a document at an address.
type Page struct {
	Web   *Web
	URL   *url.URL
	Token obs.Secret
}

// Read gives it, and the web server's clock.
func (p Page) Read(ctx context.Context) ([]byte, time.Time, error) {
	a, err := p.Web.do(ctx, request{
		method: http.MethodGet, url: p.URL, token: p.Token, limit: heartbeat.MaxDocument,
		header: map[string]string{"Cache-Control": "no-cache", "Accept": "application/json, */*"},
	})
	return a.body, a.date, err
}

// StateFile keeps a small state in a file that nobody else may read.
type StateFile struct{ Path string }

// Load is what is kept, nil when nothing is.
func (f StateFile) Load(context.Context) ([]byte, error) {
	return readFile(f.Path, alert.MaxState)
}

// Save writes it whole or not at all.
func (f StateFile) Save(_ context.Context, raw []byte) error {
	return atomicfile.Write(f.Path, raw, 0o600)
}
