package k3s

import (
	"fmt"
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
