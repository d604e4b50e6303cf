package bootstrap

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/exadev/regrade/lab/standin/k3s/config"
)

// Critical are the values every server must share (k3s facts §3.3), by flag name. /v1-k3s/config carries them.
type Critical map[string]string

// CriticalOf takes them from a server's flags.
func CriticalOf(v config.Values) Critical {
	c := Critical{}
	for _, name := range []string{"cluster-dns", "cluster-cidr", "service-cidr"} {
		c[name] = strings.Join(v.Split(name), ",")
	}
	for _, name := range []string{"cluster-domain", "flannel-backend", "egress-selector-mode"} {
		c[name] = v.Text(name)
	}
	for _, name := range []string{
		"disable-cloud-controller", "disable-helm-controller", "disable-network-policy", "secrets-encryption",
		"embedded-registry", "flannel-ipv6-masq", "flannel-external-ip", "supervisor-metrics",
	} {
		c[name] = fmt.Sprint(v.Bool(name))
	}
	if v.Bool("secrets-encryption") {
		c["secrets-encryption-provider"] = v.Text("secrets-encryption-provider")
	}
	c["disable-servicelb"] = fmt.Sprint(slices.Contains(v.Split("disable"), "servicelb"))
	return c
}

// Diff lists what differs between our values and those of the server we join, sorted; empty means equal.
func (c Critical) Diff(other Critical) []string {
	var out []string
	for name, ours := range c {
		if theirs := other[name]; theirs != ours {
			out = append(out, fmt.Sprintf("%s: %q here, %q there", name, ours, theirs))
		}
	}
	for name, theirs := range other {
		if _, have := c[name]; !have {
			out = append(out, fmt.Sprintf("%s: unset here, %q there", name, theirs))
		}
	}
	sort.Strings(out)
	return out
}
