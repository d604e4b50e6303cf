package agent

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/host"
)

// Annotations and labels the agent part writes on its Node at every start (k3s facts §6.1).
const (
	argsAnnotation       = "k3s.io/node-args"
	envAnnotation        = "k3s.io/node-env"
	hashAnnotation       = "k3s.io/node-config-hash"
	internalIPAnnotation = "k3s.io/internal-ip"
	externalIPAnnotation = "k3s.io/external-ip"
	hostnameAnnotation   = "k3s.io/hostname"
	egressLabel          = "egress.k3s.io/cluster"
)

// metadata is what a merge patch of a Node's metadata holds; a nil value deletes.
type metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// nodeMetadata works out the patch. node-args, node-env and the hash are written together when the hash differs;
// addresses at every start; external-ip only while the flag is set and never cleared; labels of --node-label are set
// again and never removed.
func nodeMetadata(node *corev1.Node, h host.Host, v config.Values, env map[string]string, egress string, cloudController bool) (metadata, error) {
	m := metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}}
	args, err := json.Marshal(v.NodeArgs)
	if err != nil {
		return m, fmt.Errorf("node args: %w", err)
	}
	envJSON, err := json.Marshal(env)
	if err != nil {
		return m, fmt.Errorf("node env: %w", err)
	}
	sum := sha256.Sum256(append(append([]byte{}, args...), envJSON...))
	hash := base32.StdEncoding.EncodeToString(sum[:])
	if node.Annotations[hashAnnotation] != hash {
		a, e := string(args), string(envJSON)
		m.Annotations[argsAnnotation], m.Annotations[envAnnotation], m.Annotations[hashAnnotation] = &a, &e, &hash
	}
	if cloudController {
		ips := strings.Join(h.IPs, ",")
		m.Annotations[internalIPAnnotation], m.Annotations[hostnameAnnotation] = &ips, &h.NodeName
		if len(h.ExternalIPs) > 0 {
			ext := strings.Join(h.ExternalIPs, ",")
			m.Annotations[externalIPAnnotation] = &ext
		}
	} else {
		for _, k := range []string{internalIPAnnotation, hostnameAnnotation, externalIPAnnotation} {
			m.Annotations[k] = nil
		}
	}
	labels, _, err := registration(v)
	if err != nil {
		return m, err
	}
	for k, val := range labels {
		if node.Labels[k] != val {
			m.Labels[k] = &val
		}
	}
	if egress == "cluster" || egress == "pod" {
		m.Labels[egressLabel] = &egress
	} else if _, has := node.Labels[egressLabel]; has {
		m.Labels[egressLabel] = nil
	}
	return m, nil
}

// nodeEnv is what annotation k3s.io/node-env holds: K3S_* variables, secrets hidden.
func nodeEnv(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		k, val, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(k, "K3S_") {
			continue
		}
		switch k {
		case "K3S_TOKEN", "K3S_AGENT_TOKEN", "K3S_CLUSTER_SECRET", "K3S_DATASTORE_ENDPOINT", "K3S_VPN_AUTH":
			val = "********"
		}
		out[k] = val
	}
	return out
}

// registration reads --node-label and --node-taint.
func registration(v config.Values) (map[string]string, []corev1.Taint, error) {
	labels := map[string]string{}
	for _, l := range v.Split("node-label") {
		k, val, _ := strings.Cut(l, "=")
		labels[k] = val
	}
	var taints []corev1.Taint
	for _, t := range v.Split("node-taint") {
		i := strings.LastIndex(t, ":")
		if i < 0 {
			return nil, nil, fmt.Errorf("invalid taint %q: no effect", t)
		}
		key, val, _ := strings.Cut(t[:i], "=")
		effect := corev1.TaintEffect(t[i+1:])
		switch effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return nil, nil, fmt.Errorf("invalid taint %q: unknown effect", t)
		}
		taints = append(taints, corev1.Taint{Key: key, Value: val, Effect: effect})
	}
	return labels, taints, nil
}

// environ is os.Environ, once, for the annotation.
func environ() map[string]string { return nodeEnv(os.Environ()) }
