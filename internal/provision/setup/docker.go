package setup

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/docker"
)

// DefaultFolder is where a host's Compose project stands.
const DefaultFolder = "/srv/k3s"

// Docker is what a host needs whose k3s runs in containers: what the .env of its Compose
// project and the files beside it hold. What is not named here stays as the host has it;
// a host that has no project takes the defaults of the shipped one.
type Docker struct {
	// Folder is the project's, Project its name.
	Folder  string `json:"folder,omitempty"`
	Project string `json:"project,omitempty"`
	Images  Images `json:"images,omitzero"`
	// Usual are the images of a host that has no .env yet, where Images names none.
	Usual Images `json:"usual,omitzero"`
	// Archive is a file on the host as `docker save` writes it, loaded where an image is
	// missing.
	Archive string `json:"archive,omitempty"`
	// AgentToken is the agents', where the cluster has one; the files name tokens as the
	// containers see them. The servers' token is the document's.
	AgentToken     k3s.Secret `json:"agent-token,omitempty"`
	TokenFile      string     `json:"token-file,omitempty"`
	AgentTokenFile string     `json:"agent-token-file,omitempty"`
	// Founder: this host begins a new cluster, so it has no server to join. ClusterInit
	// is a person's word for a founder whose other servers' hosts are not up yet.
	Founder     bool `json:"founder,omitempty"`
	ClusterInit bool `json:"cluster-init,omitempty"`
	// JoinServer and AgentServer are the servers that this host joins as a server and as
	// an agent; the first other one by default.
	JoinServer  string `json:"join-server,omitempty"`
	AgentServer string `json:"agent-server,omitempty"`
	// Flags are k3s's of this host alone, such as node-ip: from them its two
	// configuration files are made, with those of Voter.
	Flags k3s.Config `json:"flags,omitempty"`
	// Files are the project's, in Compose's order, by paths in its folder; those that it
	// does not ship must be there. Identity adds identity.yaml (R-D2-05).
	Files    []string `json:"files,omitempty"`
	Identity bool     `json:"identity,omitempty"`
	// Network is host or container:NAME; LogDriver the engine's; Socket the engine's on the
	// host; Program what is executed as k3s in the containers.
	Network   string `json:"network,omitempty"`
	LogDriver string `json:"log-driver,omitempty"`
	Socket    string `json:"socket,omitempty"`
	Program   string `json:"program,omitempty"`
}

// Images are k3s's, regrade's, and the name of the one that is made of both.
type Images struct {
	K3s     string `json:"k3s,omitempty"`
	Regrade string `json:"regrade,omitempty"`
	Both    string `json:"both,omitempty"`
}

// OnDocker says whether the host's k3s runs in containers.
func (d Desired) OnDocker() bool {
	h, err := d.Settings()
	return err == nil && h.Platform == settings.PlatformDocker
}

// DockerPart is the document's, with the folder filled in.
func (d Desired) DockerPart() Docker {
	out := Docker{}
	if d.Docker != nil {
		out = *d.Docker
	}
	if out.Folder == "" {
		out.Folder = DefaultFolder
	}
	return out
}

var (
	composeProject = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	imageName      = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._:/@-]*$`)
)

// InNoFile are flags that no configuration file of a container has: they are the .env's or
// the entrypoint's to give, or decide between joining and founding.
var InNoFile = []string{"data-dir", "cluster-init", "server", "config", "cluster-reset", "cluster-reset-restore-path"}

// ours are flags that this document gives in another place.
var ours = []string{"token", "token-file", "agent-token", "agent-token-file", "node-name", "node-label", "with-node-id"}

// CheckDocker names what makes no sense of a Docker host's part, by key; nothing where
// host.yaml cannot be read, or is of another platform.
func (d Desired) CheckDocker() []error {
	h, err := d.Settings()
	if err != nil || h.Platform != settings.PlatformDocker {
		return nil
	}
	return d.checkDocker(h)
}

// checkDocker names what makes no sense, by key.
func (d Desired) checkDocker(h settings.Host) []error {
	var out []error
	bad := func(key, format string, args ...any) {
		out = append(out, fmt.Errorf("docker.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	p := d.DockerPart()
	for key, path := range map[string]string{"folder": p.Folder, "archive": p.Archive, "token-file": p.TokenFile, "agent-token-file": p.AgentTokenFile, "socket": p.Socket, "program": p.Program} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
			bad(key, "%q is no clean absolute path", path)
		}
	}
	if p.Project != "" && !composeProject.MatchString(p.Project) {
		bad("project", "%q is no name of a Compose project", p.Project)
	}
	for key, name := range map[string]string{"images.k3s": p.Images.K3s, "images.regrade": p.Images.Regrade, "images.both": p.Images.Both, "usual.k3s": p.Usual.K3s, "usual.regrade": p.Usual.Regrade, "usual.both": p.Usual.Both} {
		if name != "" && !imageName.MatchString(name) {
			bad(key, "%q is no name of an image", name)
		}
	}
	if p.LogDriver != "" && !imageName.MatchString(p.LogDriver) {
		bad("log-driver", "%q is no name of a log driver", p.LogDriver)
	}
	for key, url := range map[string]string{"join-server": p.JoinServer, "agent-server": p.AgentServer} {
		if url == "" {
			continue
		}
		if err := k3s.CheckJoinURL(url); err != nil {
			bad(key, "%v", err)
		} else if url == d.Join[h.Node] {
			bad(key, "%s is this host's own", url)
		}
	}
	switch {
	case p.Founder && d.Role != fleet.RoleServer:
		bad("founder", "only a server founds a cluster")
	case p.Founder && p.JoinServer != "":
		bad("founder", "a host that founds a cluster joins none: join-server is set")
	case p.ClusterInit && !p.Founder:
		bad("cluster-init", "only of a founder")
	}
	for _, key := range slices.Sorted(maps.Keys(p.Flags)) {
		switch {
		case slices.Contains(InNoFile, key), slices.Contains(ours, key):
			bad("flags", "%s is given in another way", key)
		case !k3s.OfServer(key) && !k3s.OfAgent(key) && !k3s.OfBoth(key):
			bad("flags", "%s is no flag of k3s's that regrade knows", key)
		}
	}
	for _, name := range p.Files {
		if name == "" || filepath.Clean(name) != name || filepath.IsAbs(name) || strings.HasPrefix(name, "..") || strings.ContainsAny(name, ": ") {
			bad("files", "%q is no path in the folder", name)
		}
	}
	if len(p.Files) > 0 && p.Files[0] != "compose.yaml" {
		bad("files", "compose.yaml comes first")
	}
	if n, ok := strings.CutPrefix(p.Network, "container:"); p.Network != "" && p.Network != "host" && (!ok || n == "" || strings.ContainsAny(n, " '\"")) {
		bad("network", "%q is neither host nor container:NAME", p.Network)
	}
	out = append(out, inContainer(h, p)...)
	slices.SortFunc(out, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return out
}

// inContainer checks what host.yaml says of the daemon's own container, whose mounts are
// the shipped project's.
func inContainer(h settings.Host, p Docker) []error {
	var out []error
	def := settings.Defaults()
	if filepath.Dir(h.Kubeconfig) != filepath.Dir(fleet.FileKubeconfig) {
		out = append(out, fmt.Errorf("host.kubeconfig: %s is not in %s, where the daemon's container has it", h.Kubeconfig, filepath.Dir(fleet.FileKubeconfig)))
	}
	if h.Lock != def.Lock {
		out = append(out, fmt.Errorf("host.lock: on docker it is always %s", def.Lock))
	}
	if h.Docker.ServerService != docker.DefaultServerService || h.Docker.AgentService != docker.DefaultAgentService {
		out = append(out, errors.New("host.docker: the shipped project has other services"))
	}
	if h.Docker.Socket != def.Docker.Socket {
		out = append(out, errors.New("host.docker.socket: is where the daemon's container has it; docker.socket is the host's"))
	}
	if h.Docker.Project != "" && h.Docker.Project != p.Project {
		out = append(out, errors.New("host.docker.project: is not docker.project; leave it out, the daemon knows its own"))
	}
	return out
}
