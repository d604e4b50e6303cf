package rolefile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// Fingerprint tells one node password from another and gives neither away: k3s
// makes them of 16 random bytes. Empty for none.
func Fingerprint(password []byte) string {
	text := strings.TrimSpace(string(password))
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("node password\n" + text))
	return hex.EncodeToString(sum[:8])
}

// PasswordProblem says why a member with the node password of now could not come
// back as an agent, empty when nothing speaks against it. A k3s server whose password
// is lost makes itself another and runs on; the cluster keeps the hash of the first,
// and turns an agent with the other away for good (k3s-facts §9).
func (id Identity) PasswordProblem(now string) string {
	if id.Password == "" || now == "" || id.Password == now {
		return ""
	}
	return fmt.Sprintf("the node password is another than when this host became a member: the cluster would turn its agent away; put the old one back, "+
		"or have the cluster take the new one and delete %s", fleet.FilePassword)
}
