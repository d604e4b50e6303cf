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
	"net"
	"net/netip"
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
	ask := func(argv ...string) (Output, error) {
		out, err := p.Run(bounded, Command{Argv: append([]string{"docker"}, argv...)})
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			return Output{Code: 1}, nil
		}
		return out, err
	}
	out, err := ask("manifest", "inspect", name)
	if err != nil || out.Code == 0 {
		return err == nil, err
	}
	// The program asks registries itself and does not know which of them the engine, which
	// will pull, takes without TLS or with any certificate.
	if out, err = ask("info", "-f", insecure); err != nil || out.Code != 0 || !listed(registry(name), strings.Fields(out.Text)) {
		return false, err
	}
	out, err = ask("manifest", "inspect", "--insecure", name)
	return err == nil && out.Code == 0, err
}

// insecure prints the registries, by name or by network, that an engine trusts without TLS.
const insecure = `{{range $name, $r := .RegistryConfig.IndexConfigs}}{{if not $r.Secure}}{{$name}} {{end}}{{end}}{{range .RegistryConfig.InsecureRegistryCIDRs}}{{.}} {{end}}`

// registry is an image's, host:port, empty for Docker's own.
func registry(image string) string {
	host, _, there := strings.Cut(image, "/")
	if !there || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return ""
	}
	return host
}

// listed says whether a registry is among names and networks.
func listed(registry string, among []string) bool {
	host := registry
	if h, _, err := net.SplitHostPort(registry); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(host)
	return registry != "" && slices.ContainsFunc(among, func(v string) bool {
		network, none := netip.ParsePrefix(v)
		return v == registry || err == nil && none == nil && network.Contains(ip.Unmap())
	})
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

// Archive is what a file as `docker save` writes it has: the names of its images, and the
// architecture of the first as Go names it, empty where that is not told.
type Archive struct {
	Names []string
	Arch  string
}

// ReadArchive looks into one, packed with gzip or not.
func ReadArchive(path string) (Archive, error) {
	images, err := manifest(path)
	if err != nil {
		return Archive{}, fmt.Errorf("archive of images %s: %w", path, err)
	}
	a := Archive{Names: names(images)}
	if len(a.Names) == 0 {
		return Archive{}, fmt.Errorf("archive of images %s: its images have no names: save them by name, not by id", path)
	}
	if len(images) == 0 || images[0].Config == "" {
		return a, nil
	}
	var config struct {
		Architecture string `json:"architecture"`
	}
	if err := entry(path, images[0].Config, &config); err != nil && !errors.Is(err, io.EOF) {
		return Archive{}, fmt.Errorf("archive of images %s: %w", path, err)
	}
	a.Arch = config.Architecture
	return a, nil
}

// archived are the names of the images in an archive.
func archived(path string) ([]string, error) {
	images, err := manifest(path)
	return names(images), err
}

// saved is one image of an archive.
type saved struct {
	Config   string
	RepoTags []string
}

func names(images []saved) (out []string) {
	for _, i := range images {
		out = append(out, i.RepoTags...)
	}
	return out
}

func manifest(path string) (images []saved, err error) {
	err = entry(path, "manifest.json", &images)
	if errors.Is(err, io.EOF) {
		err = errors.New("has no manifest.json: not what docker save writes")
	}
	return images, err
}

// entry reads a JSON file of an archive, io.EOF where there is none of that name.
func entry(path, name string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var from io.Reader = f // a file is skipped through, not read
	head := make([]byte, 2)
	if _, err := io.ReadFull(f, head); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return err
		}
		from = z
	}
	for r := tar.NewReader(from); ; {
		found, err := r.Next()
		switch {
		case err != nil:
			return err
		case strings.TrimPrefix(found.Name, "./") != name:
			continue
		}
		if err := json.NewDecoder(io.LimitReader(r, maxManifest)).Decode(into); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}
