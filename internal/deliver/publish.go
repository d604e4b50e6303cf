package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// Folder publishes into a folder, each file whole or not at all.
type Folder struct{ Path string }

// Name of the publisher.
func (Folder) Name() string { return "file" }

// Publish implements a publisher.
func (f Folder) Publish(_ context.Context, files heartbeat.Files) error {
	var errs []error
	for name, content := range files {
		errs = append(errs, atomicfile.Write(filepath.Join(f.Path, name), content, 0o644))
	}
	return errors.Join(errs...)
}

// Read is what is published, nil when nothing is.
func (f Folder) Read(_ context.Context, name string) ([]byte, error) {
	return readFile(filepath.Join(f.Path, name), heartbeat.MaxDocument)
}

// readFile reads a file, one byte more than limit at most, nil when there is none.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return raw, nil
}

// Put publishes by HTTP PUT, each file under an address.
type Put struct {
	Web   *Web
	Base  *url.URL
	Token obs.Secret // sent as a bearer token, none when empty
	Tags  *Tags      // nil: what is there is written over, whatever it is
}

// Tags are the names that a server gave the content of files. A file is put over the
// content that was there last: a request that comes late, out of some proxy, is refused
// by it and replaces nothing newer.
type Tags struct {
	mu sync.Mutex
	of map[string]string
	// gives: the server names contents.
	gives bool
}

func (t *Tags) note(name, tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]string{}
	}
	t.of[name], t.gives = tag, t.gives || tag != ""
}

func (t *Tags) get(name string) (tag string, ask bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name], t.gives && t.of[name] == ""
}

// put puts one file. Of a request whose answer was lost nobody knows whether it was
// carried out: what is there is asked for before the next one.
func (p Put) put(ctx context.Context, name string, content []byte) error {
	header := map[string]string{"Content-Type": "application/json"}
	if p.Tags != nil {
		tag, ask := p.Tags.get(name)
		if ask {
			a, err := p.Web.do(ctx, request{method: http.MethodGet, url: p.Base.JoinPath(name), token: p.Token, header: map[string]string{"Accept-Encoding": "identity"}})
			if err != nil && status(err) != http.StatusNotFound {
				return err
			}
			tag = a.tag
		}
		if tag != "" {
			header["If-Match"] = tag
		}
		p.Tags.note(name, "")
	}
	a, err := p.Web.do(ctx, request{method: http.MethodPut, url: p.Base.JoinPath(name), token: p.Token, body: content, header: header})
	if err == nil && p.Tags != nil {
		p.Tags.note(name, a.tag)
	}
	return err
}

// Name of the publisher.
func (Put) Name() string { return "put" }

// Publish implements a publisher.
func (p Put) Publish(ctx context.Context, files heartbeat.Files) error {
	var errs []error
	for name, content := range files {
		if len(content) == 0 {
			errs = append(errs, fmt.Errorf("%s: it would be empty", name))
			continue
		}
		err := p.put(ctx, name, content)
		if p.Tags != nil && status(err) == http.StatusPreconditionFailed {
			err = p.put(ctx, name, content) // over what somebody, or a late request, has put there
		}
		if p.Tags != nil && status(err) == http.StatusPreconditionFailed {
			err = Put{Web: p.Web, Base: p.Base, Token: p.Token}.put(ctx, name, content) // a server whose names do not hold
		}
		if err != nil {
			errs = append(errs, tooLarge(fmt.Errorf("%s: %w", name, err)))
		}
	}
	return errors.Join(errs...)
}

// Read is what is published, nil when nothing is.
func (p Put) Read(ctx context.Context, name string) ([]byte, error) {
	a, err := p.Web.do(ctx, request{method: http.MethodGet, url: p.Base.JoinPath(name), token: p.Token, limit: heartbeat.MaxDocument})
	if status(err) == http.StatusNotFound {
		return nil, nil
	}
	return a.body, err
}

// tooLarge marks an answer that the files are.
func tooLarge(err error) error {
	if status(err) == http.StatusRequestEntityTooLarge {
		return fmt.Errorf("%w (%w)", err, heartbeat.ErrTooLarge)
	}
	return err
}

// GitHub is where gists are.
const GitHub = "https://api.github.com"

// Gist publishes into a gist of GitHub, all files in one request.
type Gist struct {
	Web   *Web
	API   *url.URL
	ID    string
	Token obs.Secret
}

// CheckGist says what is wrong with a gist's id.
func CheckGist(id string) error {
	if len(id) < 8 || len(id) > 64 {
		return errors.New("a gist's id has 8 to 64 characters")
	}
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return errors.New("a gist's id has letters and digits only")
		}
	}
	return nil
}

// Name of the publisher.
func (Gist) Name() string { return "gist" }

type gistFile struct {
	Content   string `json:"content"`
	Truncated bool   `json:"truncated,omitempty"`
}

func (g Gist) request(method string) request {
	return request{
		method: method, url: g.API.JoinPath("gists", g.ID), token: g.Token,
		header: map[string]string{"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
	}
}

// Publish implements a publisher. GitHub deletes a file whose content is empty, and
// leaves alone those that are not named.
func (g Gist) Publish(ctx context.Context, files heartbeat.Files) error {
	body := map[string]map[string]gistFile{"files": {}}
	for name, content := range files {
		body["files"][name] = gistFile{Content: string(content)}
	}
	r := g.request(http.MethodPatch)
	var err error
	if r.body, err = json.Marshal(body); err != nil {
		return fmt.Errorf("gist: %w", err)
	}
	if _, err := g.Web.do(ctx, r); err != nil {
		if status(err) == http.StatusUnprocessableEntity { // GitHub's word for a gist that is too large, among others
			return fmt.Errorf("gist: %w (%w)", err, heartbeat.ErrTooLarge)
		}
		return tooLarge(fmt.Errorf("gist: %w", err))
	}
	return nil
}

// maxGist is how much of a gist is read: GitHub cuts a file off at a mebibyte.
const maxGist = 4 << 20

// Read is what is published, nil when nothing is.
func (g Gist) Read(ctx context.Context, name string) ([]byte, error) {
	r := g.request(http.MethodGet)
	r.limit = maxGist
	a, err := g.Web.do(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("gist: %w", err)
	}
	return parseGist(a.body, name)
}

func parseGist(raw []byte, name string) ([]byte, error) {
	var gist struct {
		Files map[string]gistFile `json:"files"`
	}
	if err := json.Unmarshal(raw, &gist); err != nil {
		return nil, fmt.Errorf("gist: %w", err)
	}
	f, ok := gist.Files[name]
	switch {
	case !ok:
		return nil, nil
	case f.Truncated || len(f.Content) > heartbeat.MaxDocument:
		return nil, fmt.Errorf("gist: %s is larger than anything of ours", name)
	}
	return []byte(f.Content), nil
}
