package inventory

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
)

// checkAddress wants an address that other hosts reach: an IP address or a DNS name.
func checkAddress(v string) error {
	if ip, err := netip.ParseAddr(v); err == nil {
		if ip.Zone() != "" || ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() {
			return fmt.Errorf("%s is no address at which other hosts reach this one", shown(v))
		}
		return nil
	}
	last := v[strings.LastIndexByte(v, '.')+1:]
	if _, err := strconv.ParseUint(last, 10, 64); err == nil || fleet.CheckName(v) != nil {
		return fmt.Errorf("%s is neither an IP address nor a DNS name", shown(v))
	}
	return nil
}

// checkNodeIP wants k3s's node-ip: one IP address, or one of each family.
func checkNodeIP(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		if _, err := netip.ParseAddr(strings.TrimSpace(one)); err != nil {
			return fmt.Errorf("%s: want an IP address, or two with a comma between them", shown(v))
		}
	}
	return nil
}

// checkSSH wants what ssh takes for a host, without a way to slip it an option.
func checkSSH(v string) error {
	bad := fmt.Errorf("%s: want [user@]host[:port], a Host of ~/.ssh/config, or %s", shown(v), Local)
	if strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"'\/`, c) }) {
		return bad
	}
	user, host, split := strings.Cut(v, "@")
	if !split {
		user, host = "u", v
	}
	if user == "" || user[0] == '-' || host == "" || host[0] == '-' || strings.Contains(host, "@") {
		return bad
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if rest, bracket := strings.CutPrefix(host, "["); bracket {
		ip, port, closed := strings.Cut(rest, "]")
		if _, err := netip.ParseAddr(ip); err != nil || !closed || port != "" && !isPort(strings.TrimPrefix(port, ":")) {
			return bad
		}
		return nil
	}
	if name, port, ok := strings.Cut(host, ":"); ok && (name == "" || !isPort(port)) {
		return bad
	}
	return nil
}

func isPort(v string) bool {
	n, err := strconv.ParseUint(v, 10, 16)
	return err == nil && n > 0
}

func checkPlatform(v string) error {
	if v != Native && v != Docker {
		return fmt.Errorf("%s, want %s or %s", shown(v), Native, Docker)
	}
	return nil
}

func checkRole(v string) error {
	if v != string(fleet.RoleServer) && v != string(fleet.RoleAgent) {
		return fmt.Errorf("%s, want %s or %s", shown(v), fleet.RoleServer, fleet.RoleAgent)
	}
	return nil
}

func checkJoin(v string) error {
	if err := k3s.CheckJoinURL(v); err != nil {
		return fmt.Errorf("%s, want https://HOST:6443", shown(v))
	}
	return nil
}

func checkProject(v string) error {
	if !path.IsAbs(v) || path.Clean(v) != v || v == "/" || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%s is no clean absolute path of a folder", shown(v))
	}
	return nil
}

// labelValue is what Kubernetes takes for one (validation.IsValidLabelValue).
var labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)

// labelName is a key without a DNS name.
var labelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// ofKubelet are the labels of Kubernetes' own namespaces that a kubelet takes; with any
// other it does not start (kubelet options, validation of --node-labels).
var ofKubelet = map[string]bool{
	"kubernetes.io/hostname": true, "kubernetes.io/os": true, "kubernetes.io/arch": true,
	"beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true, "beta.kubernetes.io/instance-type": true,
	"topology.kubernetes.io/zone": true, "topology.kubernetes.io/region": true,
	"failure-domain.beta.kubernetes.io/zone": true, "failure-domain.beta.kubernetes.io/region": true,
}

// checkLabel wants a label that a kubelet takes and that is not regrade's own.
func checkLabel(key, value, prefix string) error {
	host, _, qualified := strings.Cut(key, "/")
	switch {
	case qualified && fleet.CheckKey(key) != nil, !qualified && !labelName.MatchString(key):
		return fmt.Errorf("%s is no key of a label", shown(key))
	case !labelValue.MatchString(value):
		return fmt.Errorf("%s is no value of a label", shown(value))
	case qualified && host+"/" == prefix:
		return fmt.Errorf("labels under %s are regrade's own; eligible and pinned are keys of the host", prefix)
	case qualified && reserved(host) && !ofKubelet[key]:
		return fmt.Errorf("a kubelet does not start with a label under %s", host)
	}
	return nil
}

// reserved says whether a kubelet refuses most labels under this DNS name.
func reserved(host string) bool {
	within := func(name string) bool { return host == name || strings.HasSuffix(host, "."+name) }
	return (within("kubernetes.io") || within("k8s.io")) && !within("node.kubernetes.io") && !within("kubelet.kubernetes.io")
}
