package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// Names of the Compose project of a Docker host, and of its containers.
const (
	Project         = "regrade"
	ServerContainer = Project + "-k3s"
	AgentContainer  = Project + "-k3s-agent"
	HostContainer   = Project + "-regrade-host"
)

// projectDir is where the Compose project stands on a Docker host.
const projectDir = "/srv/k3s"

// Volume is where a Docker host keeps a volume of the project.
func Volume(name string) string { return "/var/lib/docker/volumes/" + Project + "_" + name + "/_data" }

// provisionDocker puts on the disk of a Docker host what its operator would (docs/operations.md, "Docker hosts"): the shipped
// Compose project, an .env, and the configuration. The folders that the project binds are those of a native host.
func (c *Cluster) provisionDocker(ctx context.Context, h *host.Host, spec HostSpec) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if err := copyFolder(h, filepath.Join(filepath.Dir(root), "deploy", "compose"), projectDir); err != nil {
		return err
	}
	return errors.Join(c.engine(h, root), h.WriteFile(projectDir+"/.env", []byte(c.env(h, spec)), 0o600))
}

// engine is a host with an engine and what the lab's containers need.
func (c *Cluster) engine(h *host.Host, root string) error {
	h.Elsewhere(fleet.DefaultDataDir, Volume("k3s-data"))
	h.Elsewhere("/etc/rancher/node", Volume("k3s-node"))
	h.Elsewhere("/var/lib/regrade", Volume("regrade-state"))
	// The lab's one difference: its machine's root lacks a capability.
	return errors.Join(h.ReadyForEngine(), copyFolder(h, filepath.Join(root, "compose"), projectDir+"/lab"))
}

// bareDocker is a host with an engine and no project. Regrade's own places for one lie in the project's folder.
func (c *Cluster) bareDocker(ctx context.Context, h *host.Host) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	h.Elsewhere(fleet.RoleDir, projectDir+"/fleet-role.d")
	h.Elsewhere(filepath.Dir(fleet.FileServerConf), projectDir+"/k3s")
	return c.engine(h, root)
}

// ProjectOf says of a new Docker host in a fleet.yaml what its project is made of, each line set in by so many spaces.
func (c *Cluster) ProjectOf(indent int) string {
	in := strings.Repeat(" ", indent)
	return fmt.Sprintf("%sdocker:\n%s  images: {k3s: %q, regrade: %q, both: %q}\n%s  files: [compose.yaml, lab/rights.yaml]\n", in, in, k3sImage, RegradeImage, bothImage, in)
}

// env is env.example filled in.
func (c *Cluster) env(h *host.Host, spec HostSpec) string {
	hosts := c.Lab.Hosts()
	first, join := hosts[0], URL(hosts[0])
	agent, founds := join, ""
	if h == first {
		// The others are not booted when it founds the cluster: silence is no answer.
		join, agent, founds = "", URL(hosts[1]), "true"
	}
	files := "compose.yaml:lab/rights.yaml"
	if spec.SeparateIdentity {
		files += ":identity.yaml"
	}
	var out strings.Builder
	for _, kv := range [][2]string{
		{"COMPOSE_PROJECT_NAME", Project},
		{"COMPOSE_FILE", files},
		{"K3S_NODE_NAME", h.Name()},
		{"FLEET_ROLE_INVENTORY_ROLE", string(spec.Role)},
		{"FLEET_ROLE_ELIGIBLE", fmt.Sprint(spec.eligible())},
		{"FLEET_ROLE_PINNED", "false"},
		{"K3S_TOKEN", ServerToken},
		{"K3S_AGENT_TOKEN", AgentToken},
		{"K3S_JOIN_SERVER_URL", join},
		{"K3S_AGENT_SERVER_URL", agent},
		{"K3S_CLUSTER_INIT", founds},
		{"K3S_IMAGE", k3sImage},
		{"REGRADE_IMAGE", RegradeImage},
		{"K3S_REGRADE_IMAGE", bothImage},
		{"REGRADE_ROLE_DIR", fleet.RoleDir},
		{"REGRADE_K3S_DIR", filepath.Dir(fleet.FileServerConf)},
		{"REGRADE_SETTINGS_DIR", filepath.Dir(fleet.FileHostConfig)},
	} {
		fmt.Fprintf(&out, "%s=%s\n", kv[0], kv[1])
	}
	return out.String()
}

// forCompose takes out of a role's configuration what a Docker host has in its .env (docs/operations.md).
func forCompose(config map[string]any, spec HostSpec) {
	for _, key := range []string{"token", "agent-token", "cluster-init", "server", "node-label"} {
		delete(config, key)
	}
	if len(spec.Labels) > 0 {
		config["node-label"] = labels(HostSpec{Role: Agent, Labels: spec.Labels})
	}
}

func copyFolder(h *host.Host, from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return h.WriteFile(filepath.Join(to, rest), content, 0o644)
	})
}

// Compose runs docker-compose in the project's folder of a Docker host.
func (c *Cluster) Compose(ctx context.Context, h *host.Host, args ...string) (string, error) {
	return h.Run(ctx, append([]string{"sh", "-c", "cd " + projectDir + ` && exec docker-compose "$@"`, "sh"}, args...)...)
}

// Docker runs docker on a Docker host.
func (c *Cluster) Docker(ctx context.Context, h *host.Host, args ...string) (string, error) {
	return h.Run(ctx, append([]string{"docker"}, args...)...)
}

// IsDocker says whether the host's k3s runs in containers.
func (c *Cluster) IsDocker(h *host.Host) bool { return c.Spec.host(h.Name()).Docker }

// boot boots hosts, and sets the Docker ones among them up, side by side.
func (c *Cluster) boot(ctx context.Context, hosts ...*host.Host) error {
	if err := c.Lab.Boot(ctx, hosts...); err != nil {
		return err
	}
	var wait sync.WaitGroup
	failed := make(chan error, len(hosts))
	for _, h := range hosts {
		if c.IsDocker(h) {
			wait.Go(func() { failed <- c.setUp(ctx, h) })
		}
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// engineLimit bounds the wait for an engine.
const engineLimit = time.Minute

// AwaitEngine waits until the host's engine answers.
func (c *Cluster) AwaitEngine(ctx context.Context, h *host.Host) error {
	return Eventually(ctx, engineLimit, "the engine of "+h.Name(), func(ctx context.Context) (bool, string) {
		result, err := h.Exec(ctx, "docker", "version", "--format", "{{.Server.Version}}")
		if err != nil {
			return false, err.Error()
		}
		return result.Code == 0, result.Stderr
	})
}

// setUp is the set-up of docs/operations.md, command by command.
func (c *Cluster) setUp(ctx context.Context, h *host.Host) error {
	spec := c.Spec.host(h.Name())
	if err := c.AwaitEngine(ctx, h); err != nil || spec.Bare {
		return err
	}
	if err := c.images(ctx, h); err != nil {
		return err
	}
	role := string(spec.Role)
	if _, err := c.Compose(ctx, h, "--profile", "server", "--profile", "agent", "up", "--no-start"); err != nil {
		return err
	}
	if spec.DataOnTmpfs {
		if _, err := h.Run(ctx, "mount", "-t", "tmpfs", "tmpfs", Volume("k3s-data")); err != nil {
			return err
		}
	}
	steps := [][]string{{"run", "--rm", "regrade-host", "host", "record-role"}, {"--profile", role, "up", "-d"}}
	if c.Spec.Untouched {
		// No daemon, and none of its settings: the role is written down by hand.
		if err := h.WriteFile(fleet.FileRole, []byte(role+"\n"), 0o644); err != nil {
			return err
		}
		steps = [][]string{{"--profile", role, "up", "-d", map[Role]string{Server: "k3s", Agent: "k3s-agent"}[spec.Role]}}
	}
	for _, args := range steps {
		if _, err := c.Compose(ctx, h, args...); err != nil {
			return err
		}
	}
	recorded, err := h.ReadFile(fleet.FileRole)
	if spec.eligible() && (err != nil || strings.TrimSpace(string(recorded)) != role) {
		return fmt.Errorf("the recorded role of %s is %q (%w), want %s", h.Name(), recorded, err, role)
	}
	return nil
}

// RestartDaemon starts the host's daemon anew.
func (c *Cluster) RestartDaemon(ctx context.Context, h *host.Host) error {
	if c.IsDocker(h) {
		_, err := c.Docker(ctx, h, "restart", HostContainer)
		return err
	}
	_, err := h.Systemctl(ctx, "restart", HostUnit)
	return err
}

// DaemonPID is the daemon's process, as the host numbers it.
func (c *Cluster) DaemonPID(ctx context.Context, h *host.Host) (string, error) {
	var out string
	var err error
	if c.IsDocker(h) {
		out, err = c.Docker(ctx, h, "inspect", "-f", "{{.State.Pid}}", HostContainer)
	} else {
		out, err = h.Systemctl(ctx, "show", "--value", "--property=MainPID", HostUnit)
	}
	return strings.TrimSpace(out), err
}

// NodePassword is the password that the host's k3s shows, of the service that the role file names.
func (c *Cluster) NodePassword(h *host.Host) (string, error) {
	path := "/etc/rancher/node/password"
	if c.Spec.host(h.Name()).SeparateIdentity {
		role, err := h.ReadFile(fleet.FileRole)
		if err != nil {
			return "", err
		}
		if Role(strings.TrimSpace(string(role))) == Agent {
			path = Volume("k3s-agent-node") + "/password"
		}
	}
	password, err := h.ReadFile(path)
	return string(password), err
}
