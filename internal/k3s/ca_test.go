package k3s_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"testing"

	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/k3s/catest"
)

func sum(raw []byte) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}

// k3s, pkg/clientaccess/token.go, hashCA.
func TestTheHashOfACAIsK3ss(t *testing.T) {
	root, other := catest.New(t, "root", nil), catest.New(t, "other", nil)
	middle := catest.New(t, "middle", root)
	server := catest.New(t, "server", middle)
	for _, c := range []struct {
		name   string
		bundle []byte
		want   string
	}{
		{"one certificate: the file's bytes", catest.Bundle(root), sum(catest.Bundle(root))},
		{"one with a comment: its bytes, too", append([]byte("# mine\n"), catest.Bundle(root)...), sum(append([]byte("# mine\n"), catest.Bundle(root)...))},
		{"a chain: the DER of its root", catest.Bundle(server, middle, root), sum(root.Cert.Raw)},
		{"a chain in another order", catest.Bundle(server, root, middle), sum(root.Cert.Raw)},
		{"a chain beside another root", catest.Bundle(server, other, middle, root), sum(root.Cert.Raw)},
		{"a chain without its root: the file's bytes", catest.Bundle(server, middle), sum(catest.Bundle(server, middle))},
		{"nothing", []byte("nothing"), ""},
		{"a certificate that is none", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := k3s.HashCA(c.bundle)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("hash %s, %v; want %s", got, err, c.want)
			}
		})
	}
	t.Run("one CA is one to k3s, whatever its intermediates", func(t *testing.T) {
		again := catest.New(t, "middle", root)
		if !k3s.SameCA(catest.Bundle(server, middle, root), catest.Bundle(catest.New(t, "server", again), again, root)) {
			t.Error("renewed intermediates make another CA")
		}
		if k3s.SameCA(catest.Bundle(server, middle, root), catest.Bundle(catest.New(t, "server", other), other)) || k3s.SameCA(catest.Bundle(root), catest.Bundle(other)) {
			t.Error("another root is the same CA")
		}
		if !k3s.SameCA([]byte("x \n"), []byte("x")) || k3s.SameCA([]byte("x"), []byte("y")) || k3s.SameCA(catest.Bundle(root), []byte("y")) {
			t.Error("what is no bundle is not told by its bytes")
		}
	})
	t.Run("only what the hash stands for is trusted", func(t *testing.T) {
		pool, err := k3s.TrustedCAs(catest.Bundle(server, middle, other, root))
		if err != nil {
			t.Fatal(err)
		}
		trusts := func(a *catest.Authority) bool {
			_, err := a.Cert.Verify(x509.VerifyOptions{Roots: pool})
			return err == nil
		}
		got := []bool{trusts(root), trusts(middle), trusts(server), trusts(catest.New(t, "leaf", server)), trusts(other), trusts(catest.New(t, "leaf", other))}
		if !slices.Equal(got, []bool{true, true, true, true, false, false}) {
			t.Errorf("root, middle, server, of the server, other, of the other: %v", got)
		}
		if pool, err := k3s.TrustedCAs(catest.Bundle(other)); err != nil || !pool.Equal(func() *x509.CertPool { p := x509.NewCertPool(); p.AddCert(other.Cert); return p }()) {
			t.Errorf("a single one is not trusted: %v", err)
		}
	})
}
