package deliver

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

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

// StateFile keeps a small state in a file that nobody else may read. Who keeps it has the
// lock beside it for as long as its process lives, and no version of it is another's.
type StateFile struct {
	Path string
	// Glance: it is only read, beside whoever keeps it.
	Glance bool

	lock *flock.Flock
}

// Load is what is kept, nil when nothing is.
func (f *StateFile) Load(context.Context) (raw []byte, version string, err error) {
	if err := f.keep(); err != nil {
		return nil, "", err
	}
	raw, err = readFile(f.Path, alert.MaxState)
	return raw, "", err
}

// keep takes the lock. Where none can be had at all, as on a disk that takes nothing, the
// state cannot be written either, and that is named when it is tried.
func (f *StateFile) keep() error {
	if f.Glance || f.lock != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return nil
	}
	l := flock.New(f.Path+".lock", flock.SetPermissions(0o600))
	switch got, err := l.TryLock(); {
	case err != nil:
		return nil
	case !got:
		return fmt.Errorf("%w: it has the lock %s.lock", alert.ErrTaken, f.Path)
	}
	f.lock = l
	return nil
}

// Save writes it whole or not at all.
func (f *StateFile) Save(_ context.Context, raw []byte, _ string) (version string, err error) {
	return "", atomicfile.Write(f.Path, raw, 0o600)
}
