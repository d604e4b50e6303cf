package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/exadev/regrade/lab/host"
)

// RegradeImage is the product's image on a Docker host; the others are that of k3s, and of both.
const (
	k3sImage     = "lab/k3s:standin"
	RegradeImage = "regrade:lab"
	bothImage    = "k3s-regrade:lab"
)

// images puts the images on a Docker host. The first to ask builds them, with the shipped Dockerfiles, and hands them on as a file:
// there is no registry. The file is kept for as long as what is in it stays the same.
func (c *Cluster) images(ctx context.Context, h *host.Host) error {
	if err := c.imagesOn(ctx, h); err != nil {
		return fmt.Errorf("images on %s: %w", h.Name(), err)
	}
	return nil
}

func (c *Cluster) imagesOn(ctx context.Context, h *host.Host) error {
	const file = "/srv/images.tar"
	lock, err := host.LockCache("images")
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	kept, err := c.imagesFile(ctx)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(kept)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.keepImages(ctx, h, file, kept)
	case err != nil:
		return err
	}
	_ = lock.Close() // it has been read whole
	if err := h.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	if _, err := c.Docker(ctx, h, "load", "-q", "-i", file); err != nil {
		return err
	}
	return h.Remove(file)
}

// ImagesFile is the file of docker save with the product's image and that of both, once a Docker host of this cluster is up.
func (c *Cluster) ImagesFile(ctx context.Context) (string, error) { return c.imagesFile(ctx) }

// imagesFile names the kept file by all that makes the images.
func (c *Cluster) imagesFile(ctx context.Context) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	cache, err := host.CacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.Spec.Env)) {
		fmt.Fprintf(sum, "%s=%s\n", name, c.Spec.Env[name])
	}
	deploy := filepath.Join(filepath.Dir(root), "deploy")
	for _, path := range []string{
		c.Binaries.K3s, c.Binaries.Regrade, filepath.Join(deploy, "image", "Dockerfile"), filepath.Join(deploy, "compose", "image", "Dockerfile"),
		filepath.Join(root, "cluster", "images.go"),
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%d\n", len(content))
		_, _ = sum.Write(content)
	}
	return filepath.Join(cache, "images-"+hex.EncodeToString(sum.Sum(nil)[:6])+".tar"), nil
}

// keepImages builds the images on the host and keeps them; older ones go.
func (c *Cluster) keepImages(ctx context.Context, h *host.Host, file, kept string) error {
	if err := c.buildImages(ctx, h); err != nil {
		return err
	}
	if _, err := c.Docker(ctx, h, "save", "-o", file, RegradeImage, bothImage); err != nil {
		return err
	}
	content, err := h.ReadFile(file)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(filepath.Dir(kept), "images-*.tar"))
	if err != nil {
		return err
	}
	slices.SortFunc(old, byAge)
	// One for each set of switches that scenarios use.
	for len(old) > 3 {
		if err := os.Remove(old[0]); err != nil {
			return err
		}
		old = old[1:]
	}
	whole := kept + ".tmp"
	if err := os.WriteFile(whole, content, 0o600); err != nil {
		return err
	}
	return errors.Join(os.Rename(whole, kept), h.Remove(file))
}

// byAge puts the older file first.
func byAge(a, b string) int {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	if err1 != nil || err2 != nil {
		return 0
	}
	return one.ModTime().Compare(two.ModTime())
}

func (c *Cluster) buildImages(ctx context.Context, h *host.Host) error {
	const work = "/srv/build"
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	dockerfile, err := os.ReadFile(filepath.Join(filepath.Dir(root), "deploy", "image", "Dockerfile"))
	if err != nil {
		return err
	}
	regrade, err := os.ReadFile(c.Binaries.Regrade)
	if err != nil {
		return err
	}
	archive, err := c.k3sArchive()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path    string
		content []byte
		mode    os.FileMode
	}{
		{work + "/deploy/image/Dockerfile", dockerfile, 0o644},
		{work + "/bin/regrade", regrade, 0o755},
		{"/srv/k3s.tar", archive, 0o644},
	} {
		if err := h.WriteFile(f.path, f.content, f.mode); err != nil {
			return err
		}
	}
	if _, err := c.Docker(ctx, h, "load", "-q", "-i", "/srv/k3s.tar"); err != nil {
		return err
	}
	if _, err := c.Docker(ctx, h, "build", "-q", "-f", work+"/deploy/image/Dockerfile", "-t", RegradeImage, work); err != nil {
		return err
	}
	if _, err := c.Compose(ctx, h, "build", "k3s"); err != nil {
		return err
	}
	return h.Remove("/srv/k3s.tar")
}

// k3sArchive is an image in the place of k3s's own, in the form that `docker save` writes: the program at /bin/k3s, and /var/run a
// folder, which the project mounts. The stand-in's switches are its variables.
func (c *Cluster) k3sArchive() ([]byte, error) {
	program, err := os.ReadFile(c.Binaries.K3s)
	if err != nil {
		return nil, fmt.Errorf("image of k3s: %w", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, folder := range []string{"bin", "etc", "run", "tmp", "var", "var/lib", "var/log", "var/run"} {
		mode := int64(0o755)
		if folder == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Name: folder, Mode: mode, Typeflag: tar.TypeDir}); err != nil {
			return nil, fmt.Errorf("image of k3s: %w", err)
		}
	}
	for _, f := range []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"bin/k3s", 0o755, program},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/false\n")}, // a kubelet reads it
		{"etc/group", 0o644, []byte("root:x:0:\n")},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, fmt.Errorf("image of k3s: %w", err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("image of k3s: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("image of k3s: %w", err)
	}
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for name, value := range c.Spec.Env {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Env": env, "Entrypoint": []string{"/bin/k3s"}, "Cmd": []string{"agent"},
			"Volumes": map[string]any{"/var/lib/kubelet": struct{}{}, "/var/lib/rancher/k3s": struct{}{}, "/var/lib/cni": struct{}{}, "/var/log": struct{}{}},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer.Bytes())}},
	})
	if err != nil {
		return nil, fmt.Errorf("image of k3s: %w", err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": digest(config) + ".json", "RepoTags": []string{k3sImage}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, fmt.Errorf("image of k3s: %w", err)
	}
	return tarOf(map[string][]byte{digest(config) + ".json": config, "layer.tar": layer.Bytes(), "manifest.json": manifest}, 0o644)
}
