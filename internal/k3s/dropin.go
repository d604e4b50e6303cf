package k3s

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// JoinDropIn is the k3s drop-in that names the server to join (R-D1-22).
func JoinDropIn(server string) ([]byte, error) {
	if err := CheckJoinURL(server); err != nil {
		return nil, err
	}
	return []byte("# Written by regrade: the server to join.\nserver: \"" + server + "\"\n"), nil
}

// ParseJoinDropIn reads the URL of such a drop-in, empty when it names none.
func ParseJoinDropIn(raw []byte) (string, error) {
	c, err := ParseConfig(raw)
	if err != nil {
		return "", err
	}
	return c.Get("server"), nil
}

// urlCharacters are all that a join URL needs; it stands in YAML and in a unit
// file, where others would mean something.
const urlCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/.-[]"

// CheckJoinURL says what is wrong with a join URL: k3s wants https and a host.
func CheckJoinURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" ||
		strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(urlCharacters, r) }) {
		return fmt.Errorf("join URL %q: want https://<host>:6443", s)
	}
	return nil
}

// UnitDropIn is the unit drop-in that names the same host to whatever wraps k3s
// (R-D1-23, R-N-14: a mesh wrapper waits for it without a bound).
func UnitDropIn(server string) ([]byte, error) {
	if err := CheckJoinURL(server); err != nil {
		return nil, err
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("join URL %q: %w", server, err)
	}
	return []byte("# Written by regrade: the server to join.\n[Service]\nEnvironment=" + fleet.EnvJoinHost + "=" + u.Hostname() + "\n"), nil
}

// ParseUnitDropIn reads the host of such a drop-in, empty when it names none.
func ParseUnitDropIn(raw []byte) string {
	for line := range strings.SplitSeq(string(raw), "\n") {
		if host, ok := strings.CutPrefix(strings.TrimSpace(line), "Environment="+fleet.EnvJoinHost+"="); ok {
			return host
		}
	}
	return ""
}

const levelHead = "# regrade-level: "

// etcdOnly are the flags of an etcd-only server, all four (R-112-08).
var etcdOnly = []string{"disable-apiserver", "disable-controller-manager", "disable-scheduler", "disable-agent"}

// LevelFlags are the arguments of `k3s server` that stand for a level, where no
// drop-in can (R-112-08). As in a drop-in, control-plane needs none.
func LevelFlags(level fleet.Level) []string {
	if level != fleet.LevelEtcdOnly {
		return nil
	}
	flags := make([]string, 0, len(etcdOnly))
	for _, f := range etcdOnly {
		flags = append(flags, "--"+f)
	}
	return flags
}

// LevelDropIn is the k3s drop-in of a level; a full server has none. A level is
// named in its first line, because control-plane needs no flag of k3s.
func LevelDropIn(level fleet.Level) ([]byte, error) {
	switch level {
	case fleet.LevelControlPlane:
		return []byte(levelHead + string(level) + "\n{}\n"), nil
	case fleet.LevelEtcdOnly:
		return []byte(levelHead + string(level) + "\n" + strings.Join(etcdOnly, ": true\n") + ": true\n"), nil
	}
	return nil, fmt.Errorf("level %q has no drop-in", level)
}

// ParseLevelDropIn reads the level. The flags decide: a first line that says
// otherwise is refused.
func ParseLevelDropIn(raw []byte) (fleet.Level, error) {
	c, err := ParseConfig(raw)
	if err != nil {
		return "", err
	}
	flags := fleet.LevelControlPlane
	switch n := strings.Count(c.Get("disable-apiserver")+c.Get("disable-controller-manager")+c.Get("disable-scheduler")+c.Get("disable-agent"), "true"); n {
	case 0:
	case 4:
		flags = fleet.LevelEtcdOnly
	default:
		return "", fmt.Errorf("level drop-in: %d of the four disable flags", n)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	name, ok := strings.CutPrefix(strings.TrimSpace(first), strings.TrimSpace(levelHead))
	if !ok {
		return flags, nil
	}
	level, err := fleet.ParseLevel(strings.TrimSpace(name))
	if err != nil {
		return "", fmt.Errorf("level drop-in: %w", err)
	}
	if level != flags {
		return "", fmt.Errorf("level drop-in: its first line says %s, its flags say %s", level, flags)
	}
	return level, nil
}
