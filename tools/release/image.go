package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// image is what its Dockerfile says of it: one file copied into nothing.
type image struct {
	binary     string // where the program goes, without the first slash
	Env        []string
	User       string
	Entrypoint []string
}

// readDockerfile reads the product's. It is so small that it is read whole: an
// instruction that is not known here would be missing in the release's image.
func readDockerfile(raw []byte) (image, error) {
	var im image
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"), line == "FROM scratch":
		case word == "COPY" && strings.HasPrefix(rest, "bin/regrade /"):
			im.binary = strings.TrimPrefix(rest, "bin/regrade /")
		case word == "ENV":
			im.Env = append(im.Env, rest)
		case word == "USER":
			im.User = rest
		case word == "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &im.Entrypoint); err != nil {
				return image{}, fmt.Errorf("Dockerfile: %q: %w", line, err)
			}
		default:
			return image{}, fmt.Errorf("Dockerfile: %q is not known to this tool", line)
		}
	}
	if im.binary == "" || im.User == "" || len(im.Entrypoint) == 0 {
		return image{}, fmt.Errorf("Dockerfile: %+v", im)
	}
	return im, nil
}

// Media types and parts of an image, as the OCI image specification has them.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type (
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Variant      string `json:"variant,omitempty"`
	}
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	config struct {
		platform
		Created string `json:"created"`
		Config  struct {
			User       string            `json:"User"`
			Env        []string          `json:"Env"`
			Entrypoint []string          `json:"Entrypoint"`
			Labels     map[string]string `json:"Labels"`
		} `json:"config"`
		RootFS struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
		History []history `json:"history"`
	}
	history struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	}
	// saved is one image of what `docker save` writes, which older engines load.
	saved struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
)

// layout is an image layout in the making: its blobs by their place in it.
type layout map[string]file

func (l layout) add(content []byte) string {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	l["blobs/sha256/"+digest] = file{"blobs/sha256/" + digest, 0o644, content}
	return "sha256:" + digest
}

func (l layout) addJSON(kind string, v any) (descriptor, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return descriptor{MediaType: kind, Digest: l.add(raw), Size: len(raw)}, nil
}

// reference is the name that `regrade manifests` of this version asks for.
func (s Source) reference() string { return "ghcr.io/exadev/regrade:" + s.Version }

// images writes one archive for each kind of machine, which docker and containerd load,
// and one of all of them, for a registry. No engine is needed: the image is one layer of
// files made here, so that no program of the other machine has to run.
func (r *release) images(context.Context) error {
	raw, err := os.ReadFile(filepath.Join(r.Dir, "deploy/image/Dockerfile"))
	if err != nil {
		return err
	}
	im, err := readDockerfile(raw)
	if err != nil {
		return err
	}
	all := layout{}
	var manifests []descriptor
	for _, a := range r.arches {
		files, err := r.inImage(im, a)
		if err != nil {
			return err
		}
		one := layout{}
		d, old, err := one.image(im, r.Source, a, files)
		if err != nil {
			return err
		}
		for name, blob := range one {
			all[name] = blob
		}
		manifests = append(manifests, d)
		named := d
		named.Annotations = map[string]string{"io.containerd.image.name": r.reference(), "org.opencontainers.image.ref.name": r.Version}
		if err := one.write(filepath.Join(r.dist, r.name(a, ".image.tar")), r.Time, []descriptor{named}, []saved{old}); err != nil {
			return err
		}
	}
	d, err := all.addJSON(typeIndex, index{2, typeIndex, manifests})
	if err != nil {
		return err
	}
	d.Annotations = map[string]string{"io.containerd.image.name": r.reference(), "org.opencontainers.image.ref.name": r.Version}
	return all.write(filepath.Join(r.dist, "regrade-"+r.Version+".image.tar"), r.Time, []descriptor{d}, nil)
}

func (r *release) inImage(im image, a arch) ([]file, error) {
	files := []file{{name: im.binary, mode: 0o755}, {name: "usr/share/doc/regrade/LICENSE", mode: 0o644}, {name: "usr/share/doc/regrade/" + noticesFile, mode: 0o644}}
	for i, p := range []string{r.binary(a), filepath.Join(r.Dir, "LICENSE"), filepath.Join(r.stage, noticesFile)} {
		raw, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files[i].content = raw
	}
	return files, nil
}

// image adds one, and gives its manifest and its form in docker's own format.
func (l layout) image(im image, s Source, a arch, files []file) (descriptor, saved, error) {
	var layer bytes.Buffer
	if err := pack(&layer, files, s.Time); err != nil {
		return descriptor{}, saved{}, err
	}
	small, err := zipped(layer.Bytes())
	if err != nil {
		return descriptor{}, saved{}, err
	}
	c := config{platform: platform{Architecture: a.goarch, OS: "linux"}, Created: s.Time.Format(time.RFC3339)}
	if a.goarm != "" {
		c.Variant = "v" + a.goarm
	}
	c.Config.User, c.Config.Env, c.Config.Entrypoint = im.User, im.Env, im.Entrypoint
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "regrade", "org.opencontainers.image.version": s.Version, "org.opencontainers.image.revision": s.Commit,
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/exadev/regrade",
	}
	sum := sha256.Sum256(layer.Bytes())
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{"sha256:" + hex.EncodeToString(sum[:])}
	c.History = []history{{c.Created, "tools/release"}}
	d := descriptor{MediaType: typeLayer, Digest: l.add(small), Size: len(small)}
	cfg, err := l.addJSON(typeConfig, c)
	if err != nil {
		return descriptor{}, saved{}, err
	}
	m, err := l.addJSON(typeManifest, manifest{2, typeManifest, cfg, []descriptor{d}})
	if err != nil {
		return descriptor{}, saved{}, err
	}
	m.Platform = &c.platform
	return m, saved{blob(cfg.Digest), []string{s.reference()}, []string{blob(d.Digest)}}, nil
}

func blob(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

// write makes the archive of a layout; with old in docker's own form as well.
func (l layout) write(to string, at time.Time, manifests []descriptor, old []saved) error {
	top, err := json.Marshal(index{2, typeIndex, manifests})
	if err != nil {
		return err
	}
	files := []file{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, top}}
	if old != nil {
		raw, err := json.Marshal(old)
		if err != nil {
			return err
		}
		files = append(files, file{"manifest.json", 0o644, raw})
	}
	for _, f := range l {
		files = append(files, f)
	}
	var b bytes.Buffer
	if err := pack(&b, files, at); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}
