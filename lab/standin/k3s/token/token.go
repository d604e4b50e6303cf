// Package token reads and writes k3s's join tokens (k3s facts §2, §10.1).
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	prefix    = "K10"
	separator = "::"
	hashChars = 64
)

// Users of the supervisor's basic authentication.
const (
	ServerUser = "server"
	NodeUser   = "node"
)

// ErrEmpty is returned for an empty token: k3s refuses it even where a client certificate would do.
var ErrEmpty = errors.New("token must not be empty")

// Token is a parsed join token. CAHash is empty for a bare secret, whose server cannot be verified.
type Token struct {
	CAHash string
	User   string
	secret string
}

// Secret is the password itself. The Token type prints without it.
func (t Token) Secret() string { return t.secret }

// String hides the secret.
func (t Token) String() string {
	if t.CAHash == "" {
		return "***"
	}
	return prefix + t.CAHash + separator + t.User + ":***"
}

// GoString hides the secret in %#v too.
func (t Token) GoString() string { return t.String() }

// Parse reads K10<64 hex>::<user>:<secret>, or K10<64 hex>::<secret>, or a bare secret. fallbackUser names the user
// where the token has none.
func Parse(s, fallbackUser string) (Token, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Token{}, ErrEmpty
	}
	if !strings.HasPrefix(s, prefix) || !strings.Contains(s, separator) {
		return Token{User: fallbackUser, secret: s}, nil
	}
	head, rest, _ := strings.Cut(strings.TrimPrefix(s, prefix), separator)
	if len(head) != hashChars {
		return Token{}, fmt.Errorf("invalid token CA hash length %d, expected %d", len(head), hashChars)
	}
	if _, err := hex.DecodeString(head); err != nil {
		return Token{}, errors.New("invalid token CA hash: not hexadecimal")
	}
	user, secret, found := strings.Cut(rest, ":")
	if !found {
		user, secret = fallbackUser, rest
	}
	if secret == "" {
		return Token{}, ErrEmpty
	}
	return Token{CAHash: head, User: user, secret: secret}, nil
}

// HashCA is the hash of a CA bundle as tokens carry it: lower-case hex of its SHA-256.
func HashCA(bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return hex.EncodeToString(sum[:])
}

// Format writes a full token without a newline.
func Format(bundle []byte, user, secret string) string {
	return prefix + HashCA(bundle) + separator + user + ":" + secret
}

// Check compares a served CA bundle with the token's hash. A bare secret accepts every CA, as k3s does.
func (t Token) Check(bundle []byte) error {
	if t.CAHash == "" || t.CAHash == HashCA(bundle) {
		return nil
	}
	return fmt.Errorf("token CA hash does not match the Cluster CA certificate hash: %s != %s", t.CAHash, HashCA(bundle))
}

// Hash identifies a token in a snapshot's annotation: the first 12 hex characters of its SHA-256.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])[:12]
}

// NewSecret makes a random secret of n bytes as lower-case hex.
func NewSecret(n int) (string, error) {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	return hex.EncodeToString(b), nil
}
