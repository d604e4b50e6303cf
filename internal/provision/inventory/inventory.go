package inventory

import "github.com/exadev/regrade/internal/fleet"

// Platforms of a host.
const (
	Native = "native"
	Docker = "docker"
)

// Local is the SSH target of a host that is this machine.
const Local = "local"

// Fleet is fleet.yaml, checked, with its defaults filled in.
type Fleet struct {
	Hosts []Host `json:"hosts"`
	// MaxServers is how many servers the cluster may ever have at once: the target and
	// one have to fit (R-185-31).
	MaxServers int `json:"max-servers"`
	// Settings are flags of `regrade manifests` by name, in the order of the file.
	Settings []Setting `json:"settings"`
}

// Setting is one flag of `regrade manifests` as the file has it. Line is where it stands.
type Setting struct {
	Name, Value string
	Line        int
}

// Host is one host of the fleet.
type Host struct {
	// Name is its Node's.
	Name string `json:"name"`
	// Address is where the other hosts reach it.
	Address string `json:"address"`
	// SSH is [user@]host[:port], a Host of ~/.ssh/config, or Local; by default Address.
	SSH      string     `json:"ssh"`
	Platform string     `json:"platform"`
	Role     fleet.Role `json:"role"`
	// Eligible: it may vote. A server is where nothing else is said. Pinned: its vote is
	// never taken away.
	Eligible bool `json:"eligible"`
	Pinned   bool `json:"pinned"`
	// NodeIP is checked against what k3s has; empty for not at all.
	NodeIP string `json:"node-ip,omitempty"`
	// JoinURL is where others join it; by default https://ADDRESS:6443.
	JoinURL string            `json:"join-url"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Project is the folder of a Docker host's Compose project.
	Project string `json:"project,omitempty"`
	// Docker is what is to be said of that project, nil for nothing.
	Docker *Project `json:"docker,omitempty"`
	// Settings are further keys of its host.yaml.
	Settings map[string]any `json:"settings,omitempty"`
	Line     int            `json:"-"`
}

// Takes says whether the host is part of the fleet: a server, or one that may become one.
// On others nothing is installed (R-185-35).
func (h Host) Takes() bool { return h.Role == fleet.RoleServer || h.Eligible }
