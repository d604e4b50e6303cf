package project

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// maxManifest bounds the list of images in an archive.
	maxManifest = 1 << 20
	// registryTimeout bounds a question to a registry, which may be out of reach.
	registryTimeout = 30 * time.Second
)

// images asks for what the engine, the archive and the registries have of the three.
func (h Host) images(ctx context.Context, p Programs, w map[string]string, archive string, s *Seen) error {
	if archive != "" {
		var err error
		if s.Archived, err = archived(h.at(archive)); err != nil {
			s.ArchiveProblem = fmt.Sprintf("the archive %s: %v", archive, err)
		}
	}
	if !p.Has("docker") {
		return nil
	}
	for _, name := range []string{w[varK3sImage], w[varImage], w[varBoth]} {
		if name == "" {
			continue
		}
		out, err := p.Run(ctx, Command{Argv: []string{"docker", "image", "inspect", "-f", "{{.Id}}", name}})
		switch {
		case err != nil:
			return err
		case out.Code == 0:
			s.Images[name] = strings.TrimSpace(out.Text)
			continue
		case !strings.Contains(strings.ToLower(out.Text), "no such image"):
			return fmt.Errorf("ask for the image %s: exit status %d: %s", name, out.Code, strings.TrimSpace(out.Text))
		case holds(s.Archived, name) || name == w[varBoth]:
			continue
		}
		// A look at a registry changes nothing here.
		if s.Pullable[name], err = pullable(ctx, p, name); err != nil {
			return err
		}
	}
	return nil
}

// pullable asks a registry for an image. One that does not answer in time has none.
func pullable(ctx context.Context, p Programs, name string) (bool, error) {
	bounded, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	out, err := p.Run(bounded, Command{Argv: []string{"docker", "manifest", "inspect", name}})
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil && out.Code == 0, err
}

// holds compares names of images as the engine does: without a tag is latest.
func holds(names []string, name string) bool {
	full := func(n string) string {
		if strings.Contains(n, "@") || strings.Contains(n[strings.LastIndex(n, "/")+1:], ":") {
			return n
		}
		return n + ":latest"
	}
	return slices.ContainsFunc(names, func(n string) bool { return full(n) == full(name) })
}

// archived are the images in a file as `docker save` writes it, packed with gzip or not.
func archived(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var from io.Reader = f // a file is skipped through, not read
	head := make([]byte, 2)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return nil, err
		}
		from = z
	}
	for r := tar.NewReader(from); ; {
		entry, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("has no manifest.json: not what docker save writes")
		case err != nil:
			return nil, err
		case strings.TrimPrefix(entry.Name, "./") != "manifest.json":
			continue
		}
		var images []struct{ RepoTags []string }
		if err := json.NewDecoder(io.LimitReader(r, maxManifest)).Decode(&images); err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		var out []string
		for _, i := range images {
			out = append(out, i.RepoTags...)
		}
		return out, nil
	}
}
