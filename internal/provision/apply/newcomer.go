package apply

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/sleep"
)

// Places of k3s's install script, which a new host is given the same way.
const (
	k3sProgram = "/usr/local/bin/k3s"
	k3sComing  = "/usr/local/bin/.k3s.new"
	k3sConfig  = "/etc/rancher/k3s/config.yaml"
	agentUnit  = "/etc/systemd/system/k3s-agent.service"
	agentEnv   = agentUnit + ".env"
)

// bare says whether a host has nothing of k3s: no program, no unit, no data, no process, which
// may be a container's.
const bare = `for f in ` + k3sProgram + ` /usr/bin/k3s /opt/bin/k3s /etc/rancher/k3s /var/lib/rancher/k3s /var/lib/rancher/k3s/server /etc/systemd/system/k3s.service ` + agentUnit + `; do
	case $f in
	/etc/rancher/k3s|/var/lib/rancher/k3s) test -d $f && test -n "$(ls -A $f)" && echo $f ;;
	*) test -e $f && echo $f ;;
	esac
done; grep -lsxE 'k3s-(server|agent)' /proc/[0-9]*/comm; :`

// newcomers makes agents of hosts of the fleet that have no k3s at all, as the install
// script would: with the program of a server, so that versions are equal. From then on
// such a host is like any other; a removal of regrade leaves its k3s.
func (t *Turn) newcomers(ctx context.Context) error {
	for _, h := range t.hosts {
		do := t.newcomer
		if h.Platform == inventory.Docker {
			do = t.newDocker
		}
		// A server is no new host; but a Docker host's program would make one out of nothing.
		if h.problem != nil || h.Role != fleet.RoleAgent && (h.Platform != inventory.Docker || !t.joined(h)) {
			continue
		}
		// One after another: each reads k3s from a server.
		t.each(ctx, 1, []*host{h}, do)
	}
	return nil
}

func (t *Turn) newcomer(ctx context.Context, h *host) error {
	r, err := h.run(ctx, nil, "sh", "-c", bare)
	if err != nil {
		return err
	}
	empty := len(strings.TrimSpace(string(r.Out))) == 0
	if !empty && (t.joined(h) || !h.hasBegun(ctx)) {
		return nil // what somebody installed, and of what kind it is, setup says
	}
	if t.joined(h) {
		return failed(CodeNodeTaken, "it has no k3s, and the cluster has a Node %s: delete that Node, where this is a new host of the name", h.Name)
	}
	from, err := t.lender(h)
	if err != nil {
		return err
	}
	h.newcomer = true
	version, err := from.run(ctx, nil, k3sProgram, "--version")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(version.Out), "\n")
	t.screen.line(h.Name, "new: %s from %s, as an agent", first, from.Name)
	h.changed = true
	if t.Check {
		return nil
	}
	// By the unit, which nothing starts yet, a later turn knows that what is there is its own.
	unit, err := setup.UnitFile(fleet.RoleAgent, k3sProgram)
	if err != nil {
		return err
	}
	if err := h.runner.Put(ctx, agentUnit, bytes.NewReader(unit), 0o644); err != nil {
		return err
	}
	if err := t.carryK3s(ctx, from, h); err != nil {
		return err
	}
	return t.join(ctx, h)
}

// hasBegun says that an earlier turn was broken off here: what there is is ours.
func (h *host) hasBegun(ctx context.Context) bool {
	r, err := h.runner.Run(ctx, remote.Command{Argv: []string{"sh", "-c", begun}})
	return err == nil && r.Code == 0
}

// begun is true of a host that has such a unit and was never more than a new agent: on one that was
// set up the same unit may be the other role's, beside somebody's k3s and its configuration.
const begun = `grep -qsF "` + newMark + `" ` + agentUnit + ` || exit 1
for f in ` + fleet.FileRole + ` ` + fleet.FileInstalled + ` ` + agentUnit + `.d /etc/systemd/system/k3s.service /var/lib/rancher/k3s/server; do
	test ! -e "$f" || exit 1
done`

func (t *Turn) joined(h *host) bool {
	_, there := t.nodes[h.Name]
	return there
}

// lender is a server whose k3s runs on a host's machine too.
func (t *Turn) lender(h *host) (*host, error) {
	for _, from := range t.lenders() {
		if from.arch == h.arch && from.Platform == inventory.Native {
			return from, nil
		}
	}
	return nil, failed(CodeNobodyLends, "it has no k3s, and no native server of its architecture (%s) was reached to take it from; install k3s there as an agent", h.arch)
}

// chunk is how much of k3s is read at a time: less than an answer may hold.
const chunk = 4 << 20

// maxChunks bounds it: k3s is less than a tenth of that.
const maxChunks = 256

// carryK3s brings k3s from one host to another by way of this machine, compared by its SHA-256.
func (t *Turn) carryK3s(ctx context.Context, from, to *host) error {
	want, err := sumOn(ctx, from, k3sProgram)
	if err != nil {
		return err
	}
	if have, err := sumOn(ctx, to, k3sProgram); err == nil && have == want {
		return nil
	}
	file, err := os.CreateTemp("", "k3s-*")
	if err != nil {
		return fmt.Errorf("k3s on its way: %w", err)
	}
	defer func() { _ = file.Close(); _ = os.Remove(file.Name()) }()
	sum := sha256.New()
	for n := 0; ; n++ {
		r, err := from.run(ctx, nil, "dd", "if="+k3sProgram, fmt.Sprintf("bs=%d", chunk), fmt.Sprintf("skip=%d", n), "count=1", "status=none")
		if err != nil {
			return err
		}
		if _, err := io.MultiWriter(file, sum).Write(r.Out); err != nil {
			return fmt.Errorf("k3s on its way: %w", err)
		}
		if len(r.Out) < chunk {
			break
		}
		if n == maxChunks {
			return failed(CodeHostFailed, "k3s of %s does not end", from.Name)
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return failed(CodeHostFailed, "k3s was not read whole from %s", from.Name)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("k3s on its way: %w", err)
	}
	if _, err := to.run(ctx, nil, "mkdir", "-p", "/usr/local/bin"); err != nil {
		return err
	}
	if err := to.runner.Put(ctx, k3sComing, file, 0o755); err != nil {
		return err
	}
	_, err = to.run(ctx, nil, "mv", "-f", k3sComing, k3sProgram)
	return err
}

func sumOn(ctx context.Context, h *host, path string) (string, error) {
	r, err := h.run(ctx, nil, "sha256sum", path)
	if err != nil {
		return "", err
	}
	sum, _, _ := strings.Cut(string(r.Out), " ")
	return sum, nil
}

// newMark is in the unit of a host that apply made, until it has joined and after.
const newMark = "Written by regrade, as k3s's install script would."

// joinWait is how long a new host may take until the cluster has its Node.
const joinWait = 5 * time.Minute

// join makes the host an agent: configuration, environment and a start.
func (t *Turn) join(ctx context.Context, h *host) error {
	config := map[string]any{"node-name": h.Name}
	if ips := h.NodeIPs(); ips != nil {
		config["node-ip"] = ips
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("configuration of a new agent: %w", err)
	}
	if t.lent.Voter.Get("agent-token-file") != "" {
		return failed(adopt.CodeNoToken, "the servers read the agents' token from a file, agent-token-file; put it into agent-token on the servers")
	}
	secret := t.lent.Voter.Get("agent-token")
	if secret == "" {
		secret = t.lent.Token.Reveal()
	}
	if strings.ContainsAny(secret, "'\\\n") {
		return failed(adopt.CodeNoToken, "the agents' token has a sign that no environment file carries; install k3s there as an agent")
	}
	server := ""
	for _, other := range t.lenders() {
		if server = other.JoinURL; server != "" {
			break
		}
	}
	if _, err := h.run(ctx, nil, "mkdir", "-p", "/etc/rancher/k3s"); err != nil {
		return err
	}
	for _, f := range []struct {
		path, content string
		mode          os.FileMode
	}{
		{agentEnv, "K3S_URL='" + server + "'\nK3S_TOKEN='" + secret + "'\n", 0o600},
		{k3sConfig, string(raw), 0o600},
	} {
		if err := h.runner.Put(ctx, f.path, strings.NewReader(f.content), f.mode); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "enable", "k3s-agent.service"}, {"systemctl", "start", "--no-block", "k3s-agent.service"}} {
		if _, err := h.run(ctx, nil, argv...); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	for {
		nodes, err := t.cluster.Nodes(ctx)
		for _, n := range nodes {
			if err == nil && n.Name == h.Name && n.Ready {
				t.nodes[h.Name] = n
				return nil
			}
		}
		if !sleep.For(ctx, time.Second) {
			return failed(CodeNotJoined, "k3s was installed and its Node is not Ready after %s; on the host, journalctl -u k3s-agent says why", joinWait)
		}
	}
}
