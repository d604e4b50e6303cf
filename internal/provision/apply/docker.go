package apply

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/sleep"
)

// Archive is a file as `docker save` writes it, on this machine, for Docker hosts that lack
// an image. Without a path there is none.
type Archive struct {
	Path string
	project.Archive
}

// newDocker sees whether a Docker host is new. The program there makes all of it, its
// project and its k3s; here only its Node counts, which is there from then on.
func (t *Turn) newDocker(ctx context.Context, h *host) error {
	if !t.joined(h) {
		h.newcomer = true
		t.screen.line(h.Name, "new: it becomes an agent in the project %s", h.Project)
		return nil
	}
	r, err := h.run(ctx, nil, "sh", "-c", `test -e "$1" && echo there; :`, "sh", path.Join(h.Project, ".env"))
	h.taken = err == nil && len(strings.TrimSpace(string(r.Out))) == 0
	return err
}

// unfounded refuses a Docker host that would be made a server out of nothing: a member more,
// which nobody has asked etcd for.
func (t *Turn) unfounded(h *host) error {
	if h.Platform != inventory.Docker || h.Role != fleet.RoleServer || t.joined(h) {
		return nil
	}
	return refusal(CodeNodeMissing, "the cluster has no Node %s, and a new host begins as an agent: write role: agent and eligible: true; a swap makes it a server", h.Name)
}

// ofProject fills in a Docker host's part of its document.
func (t *Turn) ofProject(h *host, d *setup.Docker) {
	if d.Images.Regrade == "" && t.ImageAsked {
		d.Images.Regrade = t.Image
	}
	d.Usual = setup.Images{K3s: t.k3sImage(), Regrade: t.Image}
	if n, there := t.nodes[h.Name]; there && h.NodeIP == "" && n.InternalIP != "" {
		// What its Node has is what etcd knows it by.
		if d.Flags == nil {
			d.Flags = k3s.Config{}
		}
		d.Flags["node-ip"] = []string{n.InternalIP}
	}
}

// k3sImage is upstream's of the version that the servers run, empty where that cannot be
// told.
func (t *Turn) k3sImage() string {
	versions := map[string]bool{}
	for _, n := range t.nodes {
		if _, etcd := n.Labels[fleet.LabelEtcd]; etcd && strings.Contains(n.KubeletVersion, "+k3s") {
			versions[n.KubeletVersion] = true
		}
	}
	if len(versions) != 1 {
		return ""
	}
	for v := range versions {
		return "rancher/k3s:" + strings.ReplaceAll(v, "+", "-")
	}
	return ""
}

// lacksImage says that a host refused because an image is missing there.
func lacksImage(r remote.Result) bool {
	return r.Code == fleet.ExitRefused && strings.Contains(string(r.Err), "("+project.CodeImage+")")
}

// withArchive sets a host up with the archive of images beside its project, and takes it
// away again. A look carries nothing: the host is told what the archive has.
func (t *Turn) withArchive(ctx context.Context, h *host, d setup.Desired) (remote.Result, error) {
	if t.Archive.Arch != "" && t.Archive.Arch != h.arch {
		return remote.Result{}, refusal(project.CodeImage, "an image is missing there, and the archive %s is for %s, the host is %s: give one for it with --limit %s", t.Archive.Path, t.Archive.Arch, h.arch, h.Name)
	}
	at := path.Join(h.Project, ".images.tar")
	d.Docker.Archive = at
	var holds []string
	for _, name := range t.Archive.Names {
		holds = append(holds, "--archive-holds", name)
	}
	// Asked first: one that does not help is not carried.
	r, err := h.wouldDo(ctx, d, holds...)
	if err == nil && lacksImage(r) {
		r.Err = fmt.Appendf(r.Err, "  - the archive %s has %s\n", path.Base(t.Archive.Path), strings.Join(t.Archive.Names, ", "))
	}
	if err != nil || r.Code != 0 || t.Check || h.taken {
		return r, err
	}
	f, err := os.Open(t.Archive.Path)
	if err != nil {
		return remote.Result{}, fmt.Errorf("the archive of images: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := h.run(ctx, nil, "mkdir", "-p", h.Project); err != nil {
		return remote.Result{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = h.runner.Run(ctx, remote.Command{Argv: takeAway(at, h.Project)}) // a leftover is written over next time
	}()
	if err := h.runner.Put(ctx, at, f, 0o600); err != nil {
		return remote.Result{}, err
	}
	t.screen.line(h.Name, "images from %s", path.Base(t.Archive.Path))
	return t.hostSetup(ctx, h, d)
}

// takeAway deletes a file, and folders that are empty then, the inner first.
func takeAway(file string, folders ...string) []string {
	return append([]string{"sh", "-c", `rm -f "$1"; shift; rmdir "$@" 2>/dev/null || :`, "sh", file}, folders...)
}

// arrivals waits for the Nodes of new Docker hosts. Those of others are there.
func (t *Turn) arrivals(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	for {
		away := t.away()
		if len(away) == 0 {
			return nil
		}
		nodes, err := t.cluster.Nodes(wait)
		for _, n := range nodes {
			if err == nil && n.Ready && slices.ContainsFunc(away, func(h *host) bool { return h.Name == n.Name }) {
				t.nodes[n.Name] = n
			}
		}
		if !sleep.For(wait, time.Second) {
			for _, h := range t.away() {
				t.fail(h, failed(CodeNotJoined, "its containers were made and its Node is not Ready after %s; on the host, docker logs of the project's k3s-agent says why", joinWait))
			}
			return nil
		}
	}
}

// away are the new Docker hosts whose Nodes are not there yet.
func (t *Turn) away() (out []*host) {
	for _, h := range t.hosts {
		if h.problem == nil && h.newcomer && h.Platform == inventory.Docker && !t.joined(h) {
			out = append(out, h)
		}
	}
	return out
}
