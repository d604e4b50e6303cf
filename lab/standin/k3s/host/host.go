// Package host works out a host's names and addresses from its flags (k3s facts §1.1).
package host

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/netx"
)

// Host is who this process is.
type Host struct {
	// Hostname is the operating system's name: the identity of Leases.
	Hostname string
	// NodeName is the Node's name, with the node id where --with-node-id is set.
	NodeName string
	// MemberBase is the node name without the node id: the base of the etcd member name.
	MemberBase  string
	IPs         []string
	ExternalIPs []string
}

// IP is the first node address: etcd's address and the default for everything else.
func (h Host) IP() string { return h.IPs[0] }

// Advertise is the apiserver's address in the kubernetes endpoints.
func (h Host) Advertise(v config.Values) string {
	if a := v.Text("advertise-address"); a != "" {
		return a
	}
	if len(h.ExternalIPs) > 0 {
		return h.ExternalIPs[0]
	}
	return h.IP()
}

// From reads the flags and, where they are silent, the machine.
func From(v config.Values) (Host, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return Host{}, fmt.Errorf("read host name: %w", err)
	}
	h := Host{Hostname: hostname, IPs: v.Split("node-ip"), ExternalIPs: v.Split("node-external-ip")}
	name := v.Text("node-name")
	if name == "" {
		name = hostname
	}
	h.MemberBase = strings.ToLower(name)
	h.NodeName = h.MemberBase
	if v.Bool("with-node-id") {
		id, err := nodeID(layout.NodeID)
		if err != nil {
			return Host{}, err
		}
		h.NodeName += "-" + id
	}
	if len(h.IPs) == 0 {
		var ip string
		if iface := v.Text("flannel-iface"); iface != "" {
			ip, err = netx.InterfaceIP(iface)
		} else {
			ip, err = netx.DefaultIP()
		}
		if err != nil {
			return Host{}, err
		}
		h.IPs = []string{ip}
	}
	return h, nil
}

func nodeID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	id := RandomHex(4)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("node id folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write node id: %w", err)
	}
	return id, nil
}

// RandomHex makes 2n random hex characters.
func RandomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand does not fail; it ends the program instead
	return hex.EncodeToString(b)
}
