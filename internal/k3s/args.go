package k3s

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AnnotationArgs is where k3s publishes how it was last started: a JSON array,
// first "server" or "agent", then flag and value as separate items (k3s-facts §6.1).
const AnnotationArgs = "k3s.io/node-args"

// ParseArgs reads that annotation into the command and its configuration.
// Secrets stand there as asterisks.
func ParseArgs(raw string) (command string, c Config, err error) {
	var items []string
	if len(raw) > maxConfig {
		return "", nil, fmt.Errorf("%s: %d bytes are more than %d", AnnotationArgs, len(raw), maxConfig)
	}
	if err := json.Unmarshal([]byte(raw), &items); err != nil {
		return "", nil, fmt.Errorf("%s: %w", AnnotationArgs, err)
	}
	if len(items) == 0 || items[0] != "server" && items[0] != "agent" {
		return "", nil, fmt.Errorf("%s: does not begin with server or agent", AnnotationArgs)
	}
	c = Config{}
	for i := 1; i < len(items); i++ {
		name, ok := strings.CutPrefix(items[i], "-")
		if !ok {
			continue
		}
		name = strings.TrimPrefix(name, "-")
		key, value, inline := strings.Cut(name, "=")
		switch {
		case inline:
		case i+1 < len(items) && !strings.HasPrefix(items[i+1], "-"):
			i++
			value = items[i]
		default:
			value = "true" // a flag without a value
		}
		if key = LongFlag(key); key != "" {
			c[key] = append(c[key], value)
		}
	}
	return items[0], c, nil
}

// ownFlags may differ from server to server: they name the host, the way in, or
// this host's machine. Everything else must be the same (safety rule 17); what
// k3s itself compares is among it (k3s-facts §3.3).
var ownFlags = []string{
	"cluster-init", "server", "token", "token-file", "agent-token", "agent-token-file", "config", "data-dir",
	"node-name", "node-ip", "node-external-ip", "node-label", "node-taint", "node-internal-dns", "node-external-dns",
	"advertise-address", "advertise-port", "bind-address", "tls-san", "flannel-iface", "with-node-id",
	"kubelet-arg", "kube-proxy-arg", "resolv-conf", "lb-server-port", "private-registry", "log", "v", "vmodule", "debug", "alsologtostderr",
	"write-kubeconfig", "write-kubeconfig-mode", "write-kubeconfig-group", "selinux", "snapshotter", "pause-image",
	"container-runtime-endpoint", "protect-kernel-defaults", "image-credential-provider-bin-dir", "image-credential-provider-config",
	"disable-apiserver", "disable-controller-manager", "disable-scheduler", "disable-agent", "cluster-reset", "cluster-reset-restore-path",
	"etcd-snapshot-dir", "etcd-snapshot-name", "vpn-auth", "vpn-auth-file",
	"etcd-s3-access-key", "etcd-s3-secret-key", "etcd-s3-session-token", "datastore-endpoint", "datastore-keyfile",
}

// Differences are the flags that would not be the same on two servers, in
// sentences, sorted. allowed are further flags that an operator lets differ.
// Lists are compared as sets, values split at commas as k3s splits them.
func Differences(mine, theirs Config, allowed []string) []string {
	keys := slices.Sorted(maps.Keys(mine))
	for key := range theirs {
		if _, ok := mine[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var out []string
	for _, key := range keys {
		if slices.Contains(ownFlags, key) || slices.Contains(allowed, key) {
			continue
		}
		a, b := values(key, mine[key]), values(key, theirs[key])
		if !slices.Equal(a, b) {
			out = append(out, fmt.Sprintf("%s is %s here and %s there", key, shown(a), shown(b)))
		}
	}
	return out
}

// defaults make a flag that is set to its default equal to one that is not set.
var defaults = map[string]string{
	"cluster-cidr": "10.42.0.0/16", "service-cidr": "10.43.0.0/16", "cluster-dns": "10.43.0.10", "cluster-domain": "cluster.local",
	"flannel-backend": "vxlan", "egress-selector-mode": "agent", "https-listen-port": "6443", "service-node-port-range": "30000-32767",
}

func values(key string, list []string) []string {
	var out []string
	if len(list) == 0 && defaults[key] != "" {
		return []string{defaults[key]}
	}
	for _, v := range list {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" && part != "false" {
				out = append(out, part)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func shown(v []string) string {
	if len(v) == 0 {
		return "not set"
	}
	return strings.Join(v, ",")
}

// NodePassword is the host's, empty when there is none.
func (d Disk) NodePassword() []byte {
	raw, err := d.ReadFile(nodePassword)
	if err != nil {
		return nil
	}
	return raw
}

// nodePassword is k3s's, outside its data folder.
const nodePassword = "/etc/rancher/node/password"

// AgentProblem says why an agent could not start by its own configuration and
// its unit's environment files, empty when nothing speaks against it (safety
// rule 15). A voter that steps down without this would be neither. A server
// runs on without its node password, an agent is locked out (k3s-facts §9).
func (d Disk) AgentProblem(configPath string, envPaths ...string) string {
	c, err := d.ReadConfig(configPath)
	if err != nil {
		return err.Error()
	}
	if raw, err := d.ReadFile(nodePassword); err != nil || strings.TrimSpace(string(raw)) == "" {
		return nodePassword + " is missing or empty"
	}
	if p := agentKeyProblem(configPath, c); p != "" {
		return p
	}
	for _, env := range envPaths {
		j, err := d.ReadJoin(configPath, env)
		if err != nil {
			return err.Error()
		}
		if j.Token.Reveal() != "" {
			return d.AgentTokenProblem(j.Token)
		}
	}
	return fmt.Sprintf("neither %s nor the agent unit's environment file has a token", configPath)
}

// AgentConfigProblem says why an agent would die on its configuration file alone,
// where its token comes from elsewhere (a container's variables).
func (d Disk) AgentConfigProblem(configPath string) string {
	c, err := d.ReadConfig(configPath)
	if err != nil {
		return err.Error()
	}
	return agentKeyProblem(configPath, c)
}

func agentKeyProblem(configPath string, c Config) string {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if OfServer(key) || strings.HasPrefix(key, "etcd-") {
			return fmt.Sprintf("%s sets %s, on which `k3s agent` dies", configPath, key)
		}
	}
	return ""
}
