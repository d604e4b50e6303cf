package remote

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Target is a host as a person names it. User and Port are empty where they are for the
// configuration to say.
type Target struct {
	Local bool // this machine
	User  string
	Host  string // a name, an address, or a Host of ~/.ssh/config
	Port  int
}

// LocalName is the target that is this machine.
const LocalName = "local"

// ParseTarget reads [user@]host[:port], with an IPv6 address in brackets where a port
// follows, or "local".
func ParseTarget(s string) (Target, error) {
	if s == LocalName {
		return Target{Local: true}, nil
	}
	bad := func(why string) (Target, error) {
		return Target{}, &Problem{Code: BadTarget, Host: s, Sentence: fmt.Sprintf("%q names no host: %s", s, why)}
	}
	var t Target
	rest := s
	// The last @: a user's name may hold one.
	if i := strings.LastIndex(s, "@"); i >= 0 {
		if t.User, rest = s[:i], s[i+1:]; t.User == "" {
			return bad("there is no user before the @")
		}
	}
	t.Host = rest
	if strings.HasPrefix(rest, "[") || strings.Count(rest, ":") == 1 {
		host, port, err := net.SplitHostPort(rest)
		if err != nil && strings.HasSuffix(rest, "]") {
			host = rest[1 : len(rest)-1]
		} else if err != nil {
			return bad("it should be [user@]host[:port]")
		} else if t.Port, err = parsePort(port); err != nil {
			return bad(err.Error())
		}
		t.Host = host
	}
	// What a name may not hold is what a shell, a file name or ssh itself would take for
	// something else.
	for _, part := range []string{t.User, t.Host} {
		if strings.HasPrefix(part, "-") || strings.ContainsFunc(part, func(r rune) bool {
			return r <= ' ' || r == 0x7f || strings.ContainsRune("'\"`$\\;&<>|(){}/,*?!#[]", r)
		}) {
			return bad(fmt.Sprintf("%q has a sign that no name has", part))
		}
	}
	if t.Host == "" {
		return bad("there is no host")
	}
	return t, nil
}

// String is the target as it is parsed.
func (t Target) String() string {
	if t.Local {
		return LocalName
	}
	s := t.Host
	if t.Port != 0 {
		s = net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	}
	if t.User != "" {
		s = t.User + "@" + s
	}
	return s
}

func parsePort(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("%q is no port", s)
	}
	return n, nil
}
