package remote

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// read resolves a host by a configuration.
func read(t *testing.T, config, target string) (settings, error) {
	t.Helper()
	to, err := ParseTarget(target)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return resolve(to, Options{Home: "/home/me", User: "me", AgentSocket: "/agent", ConfigFiles: []string{filepath.Join(dir, "none"), write(t, filepath.Join(dir, "config"), config, 0o600)}})
}

func TestWhatOfTheConfigurationIsFollowed(t *testing.T) {
	t.Setenv("REGRADE_TEST_DIR", "/from/env")
	for name, test := range map[string]struct {
		config, target string
		got            func(s settings) any
		want           any
	}{
		"nothing": {"", "web1", func(s settings) any {
			return []any{s.hostName, s.user, s.port, s.network, s.agent, s.timeout, s.keyName}
		}, []any{"web1", "me", 22, "tcp", "/agent", DefaultTimeout, "web1:22"}},
		"the target before the files":      {"User a\nPort 1\n", "b@web1:2", func(s settings) any { return []any{s.user, s.port} }, []any{"b", 2}},
		"the name that a Host stands for":  {"Host web1\n HostName 10.0.0.1\n Port 2222\n", "web1", func(s settings) any { return []any{s.hostName, s.port, s.keyName} }, []any{"10.0.0.1", 2222, "10.0.0.1:2222"}},
		"tokens in a name":                 {"HostName %h.example.com\n", "web1", func(s settings) any { return s.hostName }, "web1.example.com"},
		"tokens in a name, read twice":     {"HostName %h.example.com\nMatch final\n Port 3\n", "web1", func(s settings) any { return []any{s.hostName, s.port} }, []any{"web1.example.com", 3}},
		"tokens in a file":                 {"User u\nIdentityFile ~/%h-%r-%u-%p-%n-%d-%%\n", "web1", func(s settings) any { return s.identities[0].path }, "/home/me/web1-u-me-22-web1-/home/me-%"},
		"a variable in a file":             {"IdentityFile ${REGRADE_TEST_DIR}/id\n", "web1", func(s settings) any { return s.identities[0].path }, "/from/env/id"},
		"the usual keys":                   {"", "web1", func(s settings) any { return len(s.identities) }, 5},
		"no keys":                          {"IdentityFile none\n", "web1", func(s settings) any { return len(s.identities) }, 0},
		"an agent's variable":              {"IdentityAgent $REGRADE_TEST_DIR\n", "web1", func(s settings) any { return s.agent }, "/from/env"},
		"an agent's socket":                {"IdentityAgent ~/s\n", "web1", func(s settings) any { return s.agent }, "/home/me/s"},
		"ssh's agent":                      {"IdentityAgent SSH_AUTH_SOCK\n", "web1", func(s settings) any { return s.agent }, "/agent"},
		"where known hosts are":            {"", "web1", func(s settings) any { return s.knownHosts }, []string{"/home/me/.ssh/known_hosts", "/home/me/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}},
		"files of known hosts":             {"UserKnownHostsFile ~/a /b\nGlobalKnownHostsFile none\n", "web1", func(s settings) any { return s.knownHosts }, []string{"/home/me/a", "/b"}},
		"no time":                          {"ConnectTimeout none\n", "web1", func(s settings) any { return s.timeout }, DefaultTimeout},
		"a time":                           {"ConnectTimeout 3\n", "web1", func(s settings) any { return s.timeout }, 3 * time.Second},
		"names are known in small letters": {"HostKeyAlias DB\n", "web1", func(s settings) any { return s.keyName }, "db:22"},
		"what others read is passed over":  {"ForwardAgent yes\nSendEnv LANG\nCiphers aes128-ctr\nControlPath ~/%C\n", "web1", func(s settings) any { return s.port }, 22},
		"what is not known of other hosts": {"Host other\n Frobnicate yes\n ProxyCommand nc\n", "web1", func(s settings) any { return s.port }, 22},
		"what is said to be ignored":       {"IgnoreUnknown Frob*,x\nFrobnicate yes\nX y\nPort 3\n", "web1", func(s settings) any { return s.port }, 3},
		"ProxyJump before ProxyCommand":    {"ProxyJump a\nProxyCommand nc\n", "web1", func(s settings) any { return s.jumps }, []string{"a"}},
		"windows line ends":                {"Host web1\r\n  Port 3\r\n", "web1", func(s settings) any { return s.port }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := read(t, test.config, test.target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.got(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatOfTheConfigurationIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ config, says string }{
		"a command as the way":        {"Host *\n  ProxyCommand ssh -W %h:%p x\n", ":2: ProxyCommand"},
		"a command for keys":          {"KnownHostsCommand /bin/x %H\n", "KnownHostsCommand"},
		"a list of revoked keys":      {"RevokedHostKeys /etc/x\n", "RevokedHostKeys"},
		"canonical names":             {"CanonicalizeHostname yes\n", "CanonicalizeHostname"},
		"a smart card":                {"PKCS11Provider /lib/x.so\n", "PKCS11Provider"},
		"no keys":                     {"PubkeyAuthentication no\n", "PubkeyAuthentication"},
		"passwords alone":             {"PreferredAuthentications password\n", "no publickey"},
		"an address of our own":       {"BindAddress 10.0.0.1\n", "BindAddress"},
		"a keyword nobody knows":      {"\n\nFrobnicate yes\n", `:3: "frobnicate" is not known`},
		"a program that decides":      {"Match exec \"true\"\n Port 3\n", "Match exec"},
		"a tag":                       {"Match tagged x\n", "Match tagged"},
		"a Match of nothing":          {"Match\n", "says nothing"},
		"a Match without a value":     {"Match host\n", "says of what"},
		"an open quote":               {"User \"me\n", "quote"},
		"a port that is none":         {"Port ssh\n", `"ssh" is no port`},
		"a time that is none":         {"ConnectTimeout 1m\n", "ConnectTimeout"},
		"a family that is none":       {"AddressFamily ipx\n", "AddressFamily"},
		"neither yes nor no":          {"IdentitiesOnly maybe\n", "IdentitiesOnly"},
		"a keyword without a value":   {"Port\n", "no value"},
		"two values":                  {"Port 1 2\n", "more than one"},
		"a token that is not known":   {"IdentityFile ~/%C\n", "%C"},
		"another user's home":         {"IdentityFile ~root/id\n", "~root"},
		"a variable that is not set":  {"IdentityFile ${REGRADE_NO_SUCH}/id\n", "REGRADE_NO_SUCH"},
		"a file that includes itself": {"Include SELF\n", "too many Include"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			write(t, file, strings.ReplaceAll(test.config, "SELF", file), 0o600)
			_, err := resolve(Target{Host: "web1"}, Options{Home: "/home/me", User: "me", ConfigFiles: []string{file}})
			says := test.says
			if p := strings.Split(says, " "); len(p) == 1 || !strings.HasPrefix(says, ":") {
				says = strings.ToLower(says)
			}
			if CodeOf(err) != ConfigUnsupported || !strings.Contains(strings.ToLower(fmt.Sprint(err)), strings.ToLower(says)) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %q: %v, want %s that says %q and names the file", CodeOf(err), err, ConfigUnsupported, test.says)
			}
		})
	}
	t.Run("a file that others may write", func(t *testing.T) {
		file := write(t, filepath.Join(t.TempDir(), "config"), "Port 3\n", 0o666)
		if _, err := resolve(Target{Host: "web1"}, Options{ConfigFiles: []string{file}}); CodeOf(err) != ConfigUnsupported {
			t.Errorf("got %v", err)
		}
	})
}

// made is a configuration at random, of what OpenSSH and we both know, with a file that it
// may include.
func made(r *rand.Rand, included string) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	names := func() string {
		var out []string
		for range 1 + r.IntN(3) {
			out = append(out, pick("", "", "!")+pick("web1", "web?", "web*", "*", "db", "*.example.com", "10.0.0.?", "w*1"))
		}
		return strings.Join(out, pick(" ", "  ", "\t"))
	}
	var b strings.Builder
	for range 2 + r.IntN(14) {
		indent, eq := pick("", "  ", "\t"), pick(" ", " ", "=", " = ", "\t")
		switch r.IntN(16) {
		case 0, 1:
			fmt.Fprintf(&b, "%s%s\n", pick("Host ", "host ", "HOST="), names())
		case 2:
			crit := pick("all", "host web1", "host web*,!web2", "host *.example.com", "originalhost web1,db", "user root", "user !root", "user a", "localuser *",
				"final", "final host web1", "host web* user a", "!host db", "originalhost=web1", "!user a host *")
			fmt.Fprintf(&b, "Match %s\n", crit)
		case 3:
			fmt.Fprintf(&b, "%sHostName%s%s\n", indent, eq, pick("10.0.0.1", "%h.example.com", "web1", "web2", "WEB9", `"quoted.example.com"`))
		case 4:
			fmt.Fprintf(&b, "%sUser%s%s\n", indent, eq, pick("a", "b", `"c"`, "root", `'d'`))
		case 5:
			fmt.Fprintf(&b, "%sPort%s%s\n", indent, eq, pick("22", "2222", `"2022"`))
		case 6, 7:
			fmt.Fprintf(&b, "%sIdentityFile%s%s\n", indent, eq, pick("/k/a", "/k/b", `"/k/a b"`, "/k/c # said", `/k/d\ e`))
		case 8:
			fmt.Fprintf(&b, "%sIdentitiesOnly%s%s\n", indent, eq, pick("yes", "no", "Yes"))
		case 9:
			fmt.Fprintf(&b, "%sProxyJump%s%s\n", indent, eq, pick("none", "j1", "j1,a@j2:22"))
		case 10:
			fmt.Fprintf(&b, "%sUserKnownHostsFile%s%s\n", indent, eq, pick("/k/h", `/k/h "/k/h 2"`, "/dev/null"))
		case 11:
			fmt.Fprintf(&b, "%sConnectTimeout%s%s\n", indent, eq, pick("5", "7"))
		case 12:
			fmt.Fprintf(&b, "%sHostKeyAlias%s%s\n", indent, eq, pick("alias", "other"))
		case 13:
			fmt.Fprintf(&b, "%s%s\n", indent, pick("# said", "", "Compression yes", "ForwardAgent no", "ServerAliveInterval=30"))
		case 14:
			if included != "" {
				fmt.Fprintf(&b, "%sInclude %s\n", indent, included)
			}
		case 15:
			fmt.Fprintf(&b, "%sAddressFamily%s%s\n", indent, eq, pick("any", "inet", "inet6"))
		}
	}
	return b.String()
}

// What we make of a configuration is what OpenSSH's own client says of it.
func TestTheConfigurationIsReadAsOpenSSHReadsIt(t *testing.T) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("ssh is not installed (apt-get install openssh-client)")
	}
	dir := t.TempDir()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		included := write(t, filepath.Join(dir, "more.conf"), made(r, ""), 0o600)
		config := made(r, filepath.Join(dir, "m*.conf"))
		file := write(t, filepath.Join(dir, "config"), config, 0o600)
		for _, target := range []string{"web1", "b@web2:2022", "db", "x.example.com"} {
			to, _ := ParseTarget(target)
			args := []string{"-G", "-F", file}
			if to.User != "" {
				args = append(args, "-l", to.User)
			}
			if to.Port != 0 {
				args = append(args, "-p", fmt.Sprint(to.Port))
			}
			out, err := exec.Command(ssh, append(args, to.Host)...).CombinedOutput()
			if err != nil {
				t.Fatalf("seed %d: ssh -G %s: %v: %s\n%s", seed, target, err, out, config)
			}
			s, err := resolve(to, Options{Home: "/root", User: me(t), ConfigFiles: []string{file}})
			if err != nil {
				t.Fatalf("seed %d, %s: %v\n%s", seed, target, err, config)
			}
			if diff := cmp.Diff(saysOpenSSH(string(out)), says(s)); diff != "" {
				t.Fatalf("seed %d, %s (- OpenSSH, + ours):\n%s\n%s\nincluded %s:\n%s", seed, target, diff, config, included, contentOf(t, included))
			}
		}
	}
}

// says puts settings as `ssh -G` does.
func says(s settings) map[string][]string {
	alias := strings.TrimSuffix(s.keyName, ":22")
	m := map[string][]string{
		"hostname": {s.hostName}, "user": {s.user}, "port": {fmt.Sprint(s.port)},
		"identitiesonly": {map[bool]string{true: "yes", false: "no"}[s.identitiesOnly]},
		"addressfamily":  {map[string]string{"tcp": "any", "tcp4": "inet", "tcp6": "inet6"}[s.network]},
	}
	if alias == "alias" || alias == "other" {
		m["hostkeyalias"] = []string{alias}
	}
	if s.timeout != DefaultTimeout {
		m["connecttimeout"] = []string{fmt.Sprint(int(s.timeout.Seconds()))}
	}
	if len(s.jumps) > 0 {
		m["proxyjump"] = []string{strings.Join(s.jumps, ",")}
	}
	for _, i := range s.identities {
		if !i.usual {
			m["identityfile"] = append(m["identityfile"], i.path)
		}
	}
	for _, k := range s.knownHosts {
		if strings.HasPrefix(k, "/k/") || k == "/dev/null" {
			m["userknownhostsfile"] = append(m["userknownhostsfile"], k)
		}
	}
	return m
}

func saysOpenSSH(out string) map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !slices.Contains([]string{"hostname", "user", "port", "identitiesonly", "addressfamily", "hostkeyalias", "connecttimeout", "proxyjump", "identityfile", "userknownhostsfile"}, key),
			value == "none", strings.Contains(value, "~"):
		case key == "userknownhostsfile":
			// Printed without quotes: of all that the test uses only one has a blank.
			for f := range strings.FieldsSeq(strings.ReplaceAll(value, "/k/h 2", "/k/h_2")) {
				if f = strings.ReplaceAll(f, "/k/h_2", "/k/h 2"); strings.HasPrefix(f, "/k/") || f == "/dev/null" {
					m[key] = append(m[key], f)
				}
			}
		default:
			m[key] = append(m[key], value)
		}
	}
	return m
}
