package setup

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
)

// Desired is what the fleet says of one host. Its file holds secrets.
type Desired struct {
	// Role is what the host was set up as, server or agent: it is written down only
	// where no role is recorded (R-K-02, R-C-08).
	Role fleet.Role `json:"role"`
	// Eligible: the host may vote. Pinned: its vote is never taken away.
	Eligible bool `json:"eligible"`
	Pinned   bool `json:"pinned"`
	// Labels are further labels of its Node.
	Labels map[string]string `json:"labels,omitempty"`
	// Host is host.yaml: node and servers at least.
	Host map[string]any `json:"host"`
	// Join is join.yaml: the join URL of each server and eligible host by its node name.
	Join map[string]string `json:"join"`
	// Kubeconfig is the host daemon's. A host that has one keeps it where this is empty.
	Kubeconfig k3s.Secret `json:"kubeconfig,omitempty"`
	// LevelKubeconfig is that of the daemon's level half, where levels are on.
	LevelKubeconfig k3s.Secret `json:"level-kubeconfig,omitempty"`
	// Voter is a voter's k3s configuration, from which a standby's server is made; not
	// needed on a server.
	Voter k3s.Config `json:"voter,omitempty"`
	// Token is the cluster's server token, where the voter's configuration has none.
	Token k3s.Secret `json:"token,omitempty"`
	// Docker is of a host of platform docker alone; nil there is all of its defaults.
	Docker *Docker `json:"docker,omitempty"`
}

// maxDesired bounds the document.
const maxDesired = 1 << 20

// Parse reads it strictly. Everything that is wrong with it is said at once.
func Parse(raw []byte) (Desired, error) {
	if len(raw) > maxDesired {
		return Desired{}, fmt.Errorf("host document: %d bytes are more than %d", len(raw), maxDesired)
	}
	var d Desired
	if err := yaml.UnmarshalStrict(raw, &d); err != nil {
		return Desired{}, fmt.Errorf("host document: %w", err)
	}
	if err := d.check(); err != nil {
		return Desired{}, fmt.Errorf("host document: %w", err)
	}
	return d, nil
}

func (d Desired) check() error {
	var problems []error
	if d.Role != fleet.RoleServer && d.Role != fleet.RoleAgent {
		problems = append(problems, fmt.Errorf("role: %q, want server or agent", d.Role))
	}
	if d.Role == fleet.RoleAgent && d.Pinned {
		problems = append(problems, errors.New("pinned: only a server's vote can be"))
	}
	h, err := d.Settings()
	if err != nil {
		problems = append(problems, fmt.Errorf("host: %w", err))
	}
	for key, v := range d.Labels {
		if strings.ContainsAny(key+v, "=, \n") {
			problems = append(problems, fmt.Errorf("labels: %q", key))
		}
	}
	switch {
	case err != nil:
	case h.Platform == settings.PlatformDocker:
		problems = append(problems, d.checkDocker(h)...)
	case d.Docker != nil:
		problems = append(problems, fmt.Errorf("docker: the platform is %s", h.Platform))
	}
	for _, node := range slices.Sorted(maps.Keys(d.Join)) {
		if err := k3s.CheckJoinURL(d.Join[node]); err != nil {
			problems = append(problems, fmt.Errorf("join: %s: %w", node, err))
		}
	}
	if err == nil && d.Join[h.Node] == "" && (d.Eligible || d.Role == fleet.RoleServer) {
		problems = append(problems, fmt.Errorf("join: %s itself is missing", h.Node))
	}
	return errors.Join(problems...)
}

// Settings are host.yaml as the daemon will read it.
func (d Desired) Settings() (settings.Host, error) {
	raw, err := yaml.Marshal(d.Host)
	if err != nil {
		return settings.Host{}, err
	}
	return settings.Parse(raw)
}

// DataDir is k3s's data folder, as the daemon will take it.
func (d Desired) DataDir() string {
	h, err := d.Settings()
	if err != nil {
		return "" // Parse has said it
	}
	return h.DataDir
}

// labels are what the Node's configuration says of votes, and the further ones. Both
// of ours are always written: a kubelet never takes a label away (R-185-35).
func (d Desired) labels(keys fleet.Keys) map[string]string {
	out := maps.Clone(d.Labels)
	if out == nil {
		out = map[string]string{}
	}
	out[keys.Eligible()], out[keys.Pinned()] = fmt.Sprint(d.Eligible), fmt.Sprint(d.Pinned)
	return out
}

// Other is the first other server by the order of host.yaml, else of join.yaml, that
// an agent here can join.
func (d Desired) Other(h settings.Host) string {
	for _, s := range h.Servers {
		if s != d.Join[h.Node] {
			return s
		}
	}
	for _, node := range slices.Sorted(maps.Keys(d.Join)) {
		if node != h.Node {
			return d.Join[node]
		}
	}
	return ""
}
