package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/exadev/regrade/lab/host"
)

// image is what pods run. The stand-in pulls nothing; a real k3s is given it, and its sandboxes are of the same.
const image = "rancher/mirrored-pause:3.6"

// PodImage is the same, for scenarios that make pods themselves.
const PodImage = image

// imageFile is where k3s takes images from when its agent starts.
const imageFile = "/var/lib/rancher/k3s/agent/images/lab.tar"

// packed are programs that a released k3s carries packed and puts on its own path. One built from source without
// them has them beside it.
var packed = []string{"containerd", "containerd-shim-runc-v2"}

// realKubelet is what the kubelet of a real k3s needs under cgroup v1.
var realKubelet = []string{"fail-cgroupv1=false", "cgroup-driver=cgroupfs", "cgroups-per-qos=false", "enforce-node-allocatable="}

// realEnv hides systemd from k3s: it would tell containerd to use systemd's cgroups, which a host under cgroup v1 has not.
const realEnv = "INVOCATION_ID=\n"

// realPackages are what containers need besides k3s's own programs.
var realPackages = []string{"containernetworking-plugins", "runc"}

const cniConfig = `{"cniVersion":"0.4.0","name":"lab","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,
"ipam":{"type":"host-local","ranges":[[{"subnet":"10.42.%d.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},{"type":"portmap","capabilities":{"portMappings":true}}]}
`

// containerdConfig is for a root that may not raise a process's priority against being killed for memory, which pods want.
const containerdConfig = `version = 3
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
`

const containerdFile = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/lab.toml"

// realBinds puts on the hosts' path what stands beside a real k3s.
func (b Binaries) realBinds() map[string]string {
	binds := map[string]string{}
	for _, name := range packed {
		beside := filepath.Join(filepath.Dir(b.K3s), name)
		if _, err := os.Stat(beside); err == nil {
			binds["/usr/local/bin/"+name] = beside
		}
	}
	return binds
}

// provisionReal puts on the host's disk what a real k3s needs to run pods with no network and no registry.
func (c *Cluster) provisionReal(h *host.Host) error {
	if err := h.WriteFile("/etc/lab/containers", nil, 0o644); err != nil {
		return err
	}
	number := h.IP().As4()[3]
	if err := h.WriteFile("/etc/cni/net.d/10-lab.conflist", fmt.Appendf(nil, cniConfig, number), 0o644); err != nil {
		return err
	}
	if err := h.Link("/usr/lib/cni", "/opt/cni/bin"); err != nil {
		return err
	}
	if err := h.WriteFile(containerdFile, []byte(containerdConfig), 0o644); err != nil {
		return err
	}
	archive, err := imageArchive(c.Binaries.Pause)
	if err != nil {
		return err
	}
	return h.WriteFile(imageFile, archive, 0o644)
}

// buildPause makes the program of the lab's image.
func buildPause(ctx context.Context, root, cache string) (string, error) {
	out := filepath.Join(cache, "pause")
	return out, goBuild(ctx, root, out, "-ldflags", "-s -w", "./cmd/pause")
}

// imageArchive is an image of one program, in the form that `docker save` writes.
func imageArchive(program string) ([]byte, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("image of the lab's pods: %w", err)
	}
	layer, err := tarOf(map[string][]byte{"pause": content}, 0o755)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": digest(config) + ".json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	return tarOf(map[string][]byte{digest(config) + ".json": config, "layer.tar": layer, "manifest.json": manifest}, 0o644)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func tarOf(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			return nil, fmt.Errorf("archive %s: %w", name, err)
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, fmt.Errorf("archive %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return out.Bytes(), nil
}
