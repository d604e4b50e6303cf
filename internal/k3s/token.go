package k3s

import (
	"encoding/csv"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Token is a token as an operator configures it: the bare secret, or
// K10<hex SHA-256 of the CA>::<user>:<secret> (k3s-facts §10.1).
type Token struct {
	CAHash string // 64 hex digits, empty for a bare secret
	User   string // empty for a bare secret
	Secret Secret
}

// ParseToken reads a token. The error never quotes it.
func ParseToken(s string) (Token, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Token{}, fmt.Errorf("token: empty")
	}
	rest, ok := strings.CutPrefix(s, "K10")
	if !ok || !strings.Contains(rest, "::") {
		return Token{Secret: Secret(s)}, nil
	}
	hash, cred, _ := strings.Cut(rest, "::")
	user, secret, ok := strings.Cut(cred, ":")
	if len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" || !ok || user == "" || secret == "" {
		return Token{}, fmt.Errorf("token: begins with K10 and is not K10<64 hex digits>::<user>:<secret>")
	}
	return Token{CAHash: hash, User: user, Secret: Secret(secret)}, nil
}

// bootstrapToken is the form of a Kubernetes bootstrap token, which k3s takes
// from agents too and which only the cluster knows (k3s-facts §14.1).
var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// AgentTokenProblem says why the servers would turn an agent with this token
// away, as far as the files of this host's own server show it; what they do not
// show is not objected to. An agent presents its secret as the user "node"
// whatever the token says: its secret is the server's only while the cluster
// has no agent token of its own (k3s-facts §1.1, §10.1).
func (d Disk) AgentTokenProblem(s Secret) string {
	token, err := ParseToken(s.Reveal())
	if err != nil {
		return "the agent's token: " + err.Error()
	}
	if raw, err := os.ReadFile(d.Path("server", "token")); err == nil {
		if own, err := ParseToken(string(raw)); err == nil && token.CAHash != "" && own.CAHash != "" && token.CAHash != own.CAHash {
			return "the agent's token is of another CA than this host's server: the agent would wait for ever"
		}
	}
	secret := token.Secret.Reveal()
	if bootstrapToken.MatchString(secret) {
		return ""
	}
	users := d.users()
	switch node, ok := users["node"]; {
	case !ok || node == secret:
		return ""
	case users["server"] == secret:
		return "the agent's token is the server's, and the cluster has an agent token of its own: the servers would turn the agent away"
	}
	return fmt.Sprintf("the agent's token is not the one that this host's server takes from agents (%s)", d.Path("server", "cred", "passwd"))
}

// users are the secrets that this host's own server takes, by user: secret,
// user, uid, group (k3s-facts §2). None where the file is missing or is not of
// that form.
func (d Disk) users() map[string]string {
	raw, err := os.ReadFile(d.Path("server", "cred", "passwd"))
	if err != nil {
		return nil
	}
	r := csv.NewReader(strings.NewReader(string(raw)))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil
	}
	users := map[string]string{}
	for _, f := range rows {
		if len(f) >= 2 {
			users[strings.TrimSpace(f[1])] = strings.TrimSpace(f[0])
		}
	}
	return users
}
