package remote

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are what a connection to one host is made with.
type settings struct {
	name     string // the target as it was written
	hostName string
	user     string
	port     int
	command  string // how a person calls it
	network  string // tcp, tcp4 or tcp6

	identities     []identity
	certificates   []string
	identitiesOnly bool
	agent          string // a socket, empty for none

	jumps      []string // hosts on the way, the first reached first
	knownHosts []string
	keyName    string // the name that known_hosts has the key under, with the port
	lax        string // a StrictHostKeyChecking that is not followed, and where it stands
	timeout    time.Duration
}

// identity is a file with a private key. A usual one that is not there is passed over
// without a word.
type identity struct {
	path  string
	usual bool
}

// resolve reads the configuration for a target.
func resolve(t Target, o Options) (settings, error) {
	r := &reading{o: o, written: t.Host, host: t.Host, entries: map[string][]entry{}}
	// What stands in the target is asked for before every file.
	if t.User != "" {
		r.entries["user"] = []entry{{args: []string{t.User}}}
	}
	if t.Port != 0 {
		r.entries["port"] = []entry{{args: []string{strconv.Itoa(t.Port)}}}
	}
	read := func() error {
		for _, f := range o.ConfigFiles {
			base, own := filepath.Join(o.Home, ".ssh"), f != systemConfig
			if !own {
				base = filepath.Dir(f)
			}
			if err := r.file(f, place{base: base, own: own}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(); err != nil {
		return settings{}, err
	}
	if r.wantFinal {
		r.final, r.host = true, strings.ToLower(r.hostName())
		// The name stands from now on, %h put in once; ssh takes no other in its second pass.
		r.entries["hostname"] = []entry{{args: []string{strings.ReplaceAll(r.host, "%", "%%")}}}
		if err := read(); err != nil {
			return settings{}, err
		}
	}
	s, err := r.settings()
	s.name, s.command = t.String(), "ssh "+t.Host
	if t.User != "" {
		s.command = "ssh " + t.User + "@" + t.Host
	}
	if t.Port != 0 {
		s.command = fmt.Sprintf("ssh -p %d %s", t.Port, strings.TrimPrefix(s.command, "ssh "))
	}
	return s, err
}

// settings makes of the lines what they mean.
func (r *reading) settings() (settings, error) {
	if err := r.refused(); err != nil {
		return settings{}, err
	}
	s := settings{
		hostName: strings.ToLower(r.hostName()), user: r.user(), port: 22, network: "tcp",
		timeout: cmp.Or(r.o.Timeout, DefaultTimeout), agent: r.o.AgentSocket,
	}
	var err error
	if e, ok := r.first("port"); ok {
		if s.port, err = parsePort(e.args[0]); err != nil {
			return s, r.unsupported(e.at, "%v", err)
		}
	}
	if e, ok := r.first("connecttimeout"); ok && r.o.Timeout == 0 && !strings.EqualFold(e.args[0], "none") {
		n, err := strconv.Atoi(e.args[0])
		if err != nil || n < 1 || n > 3600 {
			return s, r.unsupported(e.at, "ConnectTimeout %q is no number of seconds", e.args[0])
		}
		s.timeout = time.Duration(n) * time.Second
	}
	if e, ok := r.first("addressfamily"); ok {
		network, known := map[string]string{"any": "tcp", "inet": "tcp4", "inet6": "tcp6"}[strings.ToLower(e.args[0])]
		if !known {
			return s, r.unsupported(e.at, "AddressFamily %q is not known", e.args[0])
		}
		s.network = network
	}
	if e, ok := r.first("stricthostkeychecking"); ok {
		switch v := strings.ToLower(e.args[0]); v {
		case "yes", "true", "ask":
		default:
			s.lax = fmt.Sprintf("StrictHostKeyChecking %s (%s) is not followed", v, e.at)
		}
	}
	if e, ok := r.first("proxyjump"); ok && !strings.EqualFold(e.args[0], "none") {
		s.jumps = strings.Split(e.args[0], ",")
	}
	s.keyName = net.JoinHostPort(s.hostName, strconv.Itoa(s.port))
	if e, ok := r.first("hostkeyalias"); ok {
		s.keyName = net.JoinHostPort(strings.ToLower(e.args[0]), "22")
	}
	return s, r.files(&s)
}

// files are the settings that are names of files.
func (r *reading) files(s *settings) error {
	expand := func(e entry, path string) (string, error) {
		path, err := expandHome(path, r.o.Home)
		if err == nil {
			path, err = r.tokens(path, s)
		}
		if err != nil {
			return "", r.unsupported(e.at, "%v", err)
		}
		return path, nil
	}
	for _, path := range r.o.IdentityFiles {
		s.identities = append(s.identities, identity{path: path})
	}
	none := false
	for _, e := range r.entries["identityfile"] {
		if none = strings.EqualFold(e.args[0], "none"); none {
			continue
		}
		path, err := expand(e, e.args[0])
		if err != nil {
			return err
		}
		s.identities = append(s.identities, identity{path: path})
	}
	if len(s.identities) == 0 && !none && r.o.Home != "" {
		for _, name := range []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"} {
			s.identities = append(s.identities, identity{path: filepath.Join(r.o.Home, ".ssh", name), usual: true})
		}
	}
	for _, e := range r.entries["certificatefile"] {
		path, err := expand(e, e.args[0])
		if err != nil {
			return err
		}
		s.certificates = append(s.certificates, path)
	}
	if e, ok := r.first("identitiesonly"); ok {
		only, err := yes(e.args[0])
		if err != nil {
			return r.unsupported(e.at, "IdentitiesOnly: %v", err)
		}
		s.identitiesOnly = only
	}
	if e, ok := r.first("identityagent"); ok {
		switch v := e.args[0]; {
		case strings.EqualFold(v, "none"):
			s.agent = ""
		case v == "SSH_AUTH_SOCK":
		case strings.HasPrefix(v, "$") && !strings.HasPrefix(v, "${"):
			s.agent = os.Getenv(v[1:])
		default:
			path, err := expand(e, v)
			if err != nil {
				return err
			}
			s.agent = path
		}
	}
	if s.knownHosts = r.o.KnownHosts; s.knownHosts != nil {
		return nil
	}
	for _, from := range []struct {
		keyword string
		usual   []string
	}{
		{"userknownhostsfile", []string{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}},
		{"globalknownhostsfile", []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}},
	} {
		e, ok := r.first(from.keyword)
		if !ok {
			if e.args = from.usual; r.o.Home == "" {
				continue // an empty Options reads nobody's files
			}
		}
		for _, path := range e.args {
			if strings.EqualFold(path, "none") {
				continue
			}
			path, err := expand(e, path)
			if err != nil {
				return err
			}
			s.knownHosts = append(s.knownHosts, path)
		}
	}
	return nil
}

// refused names a setting that ssh would go by and we do not, so that the connection would
// be another than the person's.
func (r *reading) refused() error {
	for keyword, harmless := range map[string]string{
		"proxycommand": "none", "knownhostscommand": "none", "revokedhostkeys": "none", "canonicalizehostname": "no",
		"pkcs11provider": "none", "pubkeyauthentication": "yes", "bindaddress": "", "bindinterface": "",
	} {
		if e, ok := r.first(keyword); ok && !strings.EqualFold(strings.Join(e.args, " "), harmless) {
			return r.unsupported(e.at, "%s %s is not followed", keyword, strings.Join(e.args, " "))
		}
	}
	if e, ok := r.first("preferredauthentications"); ok && !slices.Contains(strings.Split(e.args[0], ","), "publickey") {
		return r.unsupported(e.at, "PreferredAuthentications %s has no publickey, the one way to log in that asks nobody", e.args[0])
	}
	return nil
}

func (r *reading) first(keyword string) (entry, bool) {
	if e := r.entries[keyword]; len(e) > 0 {
		return e[0], true
	}
	return entry{}, false
}

// hostName is what the host is reached at, as far as was read.
func (r *reading) hostName() string {
	e, ok := r.first("hostname")
	if !ok {
		return r.host
	}
	return strings.NewReplacer("%%", "%", "%h", r.host).Replace(e.args[0])
}

func (r *reading) user() string {
	if e, ok := r.first("user"); ok {
		return e.args[0]
	}
	return r.o.User
}

// tokens puts in what % stands for in the name of a file.
func (r *reading) tokens(path string, s *settings) (string, error) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			b.WriteByte(path[i])
			continue
		}
		if i++; i == len(path) {
			return "", fmt.Errorf("%q ends in %%", path)
		}
		switch path[i] {
		case '%':
			b.WriteByte('%')
		case 'd':
			b.WriteString(r.o.Home)
		case 'h':
			b.WriteString(s.hostName)
		case 'n':
			b.WriteString(r.written)
		case 'p':
			b.WriteString(strconv.Itoa(s.port))
		case 'r':
			b.WriteString(s.user)
		case 'u':
			b.WriteString(r.o.User)
		case 'k':
			name, _, _ := net.SplitHostPort(s.keyName)
			b.WriteString(name)
		default:
			return "", fmt.Errorf("%q: %%%c is not followed", path, path[i])
		}
	}
	return b.String(), nil
}

func yes(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "yes", "true":
		return true, nil
	case "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither yes nor no", s)
}
