package cluster

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/exadev/regrade/lab/host"
)

// letIn gives each host a key of its own and the operator's, before it boots. What the operator has is in the lab's folder.
func (c *Cluster) letIn() error {
	secret, public, err := newKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.operatorFile("id"), secret, 0o600); err != nil {
		return fmt.Errorf("the operator's key: %w", err)
	}
	for _, h := range c.Lab.Hosts() {
		if err := c.letInto(h, public); err != nil {
			return err
		}
	}
	return c.KnowHosts()
}

func (c *Cluster) letInto(h *host.Host, public ssh.PublicKey) error {
	if err := h.WriteFile("/root/.ssh/authorized_keys", ssh.MarshalAuthorizedKey(public), 0o600); err != nil {
		return err
	}
	if err := c.NewHostKey(h); err != nil {
		return err
	}
	// It is masked on the hosts of other labs.
	for _, path := range []string{"/etc/systemd/system/ssh.service", "/etc/systemd/system/multi-user.target.wants/ssh.service"} {
		if err := h.Link("/lib/systemd/system/ssh.service", path); err != nil {
			return err
		}
	}
	return nil
}

// Anew puts an empty Debian in the place of a host that is down: another disk, without k3s, with an sshd of another key,
// which the operator knows.
func (c *Cluster) Anew(h *host.Host) error {
	if err := h.NewDisk(); err != nil {
		return err
	}
	h.Without("/usr/local/bin/k3s")
	secret, err := os.ReadFile(c.operatorFile("id"))
	if err != nil {
		return fmt.Errorf("the operator's key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(secret)
	if err != nil {
		return fmt.Errorf("the operator's key: %w", err)
	}
	if err := c.letInto(h, signer.PublicKey()); err != nil {
		return err
	}
	return c.KnowHosts()
}

// NewHostKey gives the host's sshd another key. The operator does not know of it, see [Cluster.KnowHosts].
func (c *Cluster) NewHostKey(h *host.Host) error {
	secret, public, err := newKey()
	if err != nil {
		return err
	}
	if err := h.WriteFile("/etc/ssh/ssh_host_ed25519_key", secret, 0o600); err != nil {
		return err
	}
	return h.WriteFile("/etc/ssh/ssh_host_ed25519_key.pub", ssh.MarshalAuthorizedKey(public), 0o644)
}

// KnowHosts writes the operator's known_hosts of the keys that the hosts have now.
func (c *Cluster) KnowHosts() error {
	var lines strings.Builder
	for _, h := range c.Lab.Hosts() {
		raw, err := h.ReadFile("/etc/ssh/ssh_host_ed25519_key.pub")
		if err != nil {
			return err
		}
		public, _, _, _, err := ssh.ParseAuthorizedKey(raw)
		if err != nil {
			return fmt.Errorf("key of %s: %w", h.Name(), err)
		}
		lines.WriteString(knownhosts.Line([]string{h.IP().String()}, public) + "\n")
	}
	if err := os.WriteFile(c.operatorFile("known_hosts"), []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("the operator's known hosts: %w", err)
	}
	return nil
}

func (c *Cluster) operatorFile(name string) string {
	return filepath.Join(c.Lab.Dir(), "operator-"+name)
}

// Operator runs a command of the fleet, such as apply, as its owner would on a machine of their own: with the given
// fleet.yaml, a key, known hosts and the cluster's kubeconfig.
func (c *Cluster) Operator(ctx context.Context, fleet string, args ...string) (Outcome, error) {
	args, err := c.operatorArgs(fleet, args)
	if err != nil {
		return Outcome{}, err
	}
	return c.CLI(ctx, args...)
}

func (c *Cluster) operatorArgs(fleet string, args []string) ([]string, error) {
	for name, content := range map[string]string{"fleet.yaml": fleet, "ssh_config": ""} {
		if err := os.WriteFile(c.operatorFile(name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("the operator's %s: %w", name, err)
		}
	}
	return append(slices.Clone(args), "--file", c.operatorFile("fleet.yaml"), "--ssh-config", c.operatorFile("ssh_config"),
		"--identity", c.operatorFile("id"), "--known-hosts", c.operatorFile("known_hosts")), nil
}

// OperatorKilled is Operator whose command is killed so long after it printed a line. False: it had ended before.
func (c *Cluster) OperatorKilled(ctx context.Context, line string, after time.Duration, fleet string, args ...string) (bool, error) {
	args, err := c.operatorArgs(fleet, args)
	if err != nil {
		return false, err
	}
	file, err := c.adminKubeconfig()
	if err != nil {
		return false, err
	}
	cmd, err := c.Lab.Command(ctx, append([]string{c.Binaries.Regrade}, args...)...)
	if err != nil {
		return false, err
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	seen := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if seen = seen || lines.Text() == line; seen {
			time.Sleep(after)
			break
		}
	}
	err = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // it was killed
	return seen && err == nil, nil
}

func newKey() (secret []byte, public ssh.PublicKey, err error) {
	open, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if public, err = ssh.NewPublicKey(open); err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	return pem.EncodeToMemory(block), public, nil
}
