package k3s

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// secrets are the keys of a configuration whose values are shown nowhere.
var secrets = []string{"token", "agent-token", "vpn-auth", "etcd-s3-access-key", "etcd-s3-secret-key", "etcd-s3-session-token", "datastore-endpoint", "etcd-s3-proxy"}

// secretVariables are those of a Compose project's .env.
var secretVariables = []string{"K3S_TOKEN", "K3S_AGENT_TOKEN"}

const masked = "***"

// Mask takes secrets out of a configuration file of ours, or an .env, and leaves the rest
// as it stands, comments too. A value over several lines, or in another form than ours, is left
// out to the next key.
func Mask(raw []byte) []byte {
	var out []string
	hiding := false
	for line := range strings.SplitSeq(string(raw), "\n") {
		key, _, found := strings.Cut(line, ":")
		variable, value, set := strings.Cut(line, "=")
		switch {
		case found && hides(key):
			hiding = true
			out = append(out, key+": "+masked)
			continue
		case set && value != "" && slices.Contains(secretVariables, strings.TrimSpace(strings.TrimPrefix(variable, "export "))):
			out = append(out, variable+"="+masked)
			hiding = false
			continue
		case hiding && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "-") || strings.HasPrefix(line, "\t")):
			continue
		}
		hiding = false
		out = append(out, line)
	}
	return []byte(strings.Join(out, "\n"))
}

func hides(key string) bool { return slices.Contains(secrets, strings.Trim(key, "\"'+ ")) }

// Shown is a configuration for people who are not to see all of it: of flags that k3s
// knows and that hold no secret the values, of all others that they are there. Comments
// are not in it. It is sorted by key.
func (c Config) Shown() []byte {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c)) {
		name := strings.TrimSuffix(key, "+")
		_, server := FlagOf(fleet.RoleServer, name)
		_, agent := FlagOf(fleet.RoleAgent, name)
		switch {
		case !server && !agent:
			// What is no flag may be anything, its name as well.
			fmt.Fprintf(&b, "# a key that k3s does not know: %s\n", masked)
		case hides(name):
			fmt.Fprintf(&b, "%s: %s\n", key, masked)
		case len(c[key]) == 1:
			fmt.Fprintf(&b, "%s: %s\n", key, oneLine(c[key][0]))
		default:
			fmt.Fprintf(&b, "%s:\n", key)
			for _, v := range c[key] {
				fmt.Fprintf(&b, "  - %s\n", oneLine(v))
			}
		}
	}
	return []byte(b.String())
}

// oneLine is a value as people read it; one over several lines is quoted.
func oneLine(v string) string {
	if v == "" || strings.ContainsAny(v, "\n\r\t") {
		return fmt.Sprintf("%q", v)
	}
	return v
}

// ShownArgs is a command line with the values of secret flags masked, in all the forms in
// which k3s takes them.
func ShownArgs(argv []string) []string {
	out, hide := slices.Clone(argv), false
	for i, word := range argv {
		if hide {
			out[i], hide = masked, false
			continue
		}
		flag := strings.TrimLeft(word, "-")
		if flag == word {
			continue
		}
		name, _, inline := strings.Cut(flag, "=")
		if !hides(LongFlag(name)) {
			continue
		}
		if inline {
			out[i] = word[:strings.Index(word, "=")+1] + masked
		} else {
			hide = true
		}
	}
	return out
}

// Secrets are those of k3s on this host that can be read: what must not get into anything
// that leaves it. Of a host that is no server some of them are not there.
func (d Disk) Secrets(configs ...string) []Secret {
	var out []Secret
	add := func(texts ...string) {
		for _, t := range texts {
			if t = strings.TrimSpace(t); t != "" {
				out = append(out, Secret(t))
			}
		}
	}
	add(string(d.NodePassword()))
	for _, path := range [][]string{{"server", "token"}, {"server", "agent-token"}, {"server", "node-token"}} {
		if raw, err := os.ReadFile(d.Path(path...)); err == nil {
			add(string(raw))
		}
	}
	for _, secret := range d.users() {
		add(secret)
	}
	for _, path := range configs {
		all, err := d.ReadConfigs(path)
		if err != nil {
			continue
		}
		for _, c := range all {
			for key, values := range c {
				if hides(key) {
					add(values...)
				}
			}
			if f := c.Get("token-file"); f != "" {
				if raw, err := d.ReadFile(f); err == nil {
					add(string(raw))
				}
			}
		}
	}
	return out
}
