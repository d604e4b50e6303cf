// Package nodepassword keeps two hosts from using one node name (k3s facts §9).
package nodepassword

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/scrypt"
)

// SecretType and Namespace are of the Secret that holds a node's hash under key Key.
const (
	SecretType = "k3s.cattle.io/node-password"
	Namespace  = "kube-system"
	Key        = "hash"
)

// Headers of a kubelet's certificate request.
const (
	NameHeader     = "k3s-Node-Name"
	PasswordHeader = "k3s-Node-Password"
	IPHeader       = "k3s-Node-IP"
)

// SecretName is the Secret's name for a node.
func SecretName(node string) string { return strings.ToLower(node) + ".node-password.k3s" }

// scrypt's cost, as k3s has it.
const (
	costN, costR, costP = 15, 8, 1
	saltLen, keyLen     = 8, 64
)

// Hash makes a salted hash of a password: $1:<salt>:<N>:<r>:<p>:<key>.
func Hash(password string) (string, error) {
	salt := make([]byte, saltLen)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	key, err := scrypt.Key([]byte(password), salt, 1<<costN, costR, costP, keyLen)
	if err != nil {
		return "", fmt.Errorf("hash node password: %w", err)
	}
	return fmt.Sprintf("$1:%x:%d:%d:%d:%s", salt, costN, costR, costP, base64.RawStdEncoding.EncodeToString(key)), nil
}

// ErrMismatch says that the password is not the one that was hashed.
var ErrMismatch = errors.New("password does not match")

// Verify compares a password with its hash.
func Verify(hash, password string) error {
	f := strings.Split(hash, ":")
	if len(f) != 6 || f[0] != "$1" {
		return errors.New("node password hash has an unknown format")
	}
	salt, err := hex.DecodeString(f[1])
	if err != nil {
		return fmt.Errorf("node password salt: %w", err)
	}
	var n, r, p int
	if _, err := fmt.Sscanf(f[2]+" "+f[3]+" "+f[4], "%d %d %d", &n, &r, &p); err != nil || n < 1 || n > 20 {
		return errors.New("node password hash has an unknown cost")
	}
	want, err := base64.RawStdEncoding.DecodeString(f[5])
	if err != nil {
		return fmt.Errorf("node password key: %w", err)
	}
	got, err := scrypt.Key([]byte(password), salt, 1<<n, r, p, len(want))
	if err != nil {
		return fmt.Errorf("hash node password: %w", err)
	}
	if subtle.ConstantTimeCompare(got, want) != 1 {
		return ErrMismatch
	}
	return nil
}

// Ensure reads the host's password file and makes one of 32 hex characters and a newline where there is none.
func Ensure(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node password: %w", err)
	}
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	password := hex.EncodeToString(raw)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("node password folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write node password: %w", err)
	}
	return password, nil
}
