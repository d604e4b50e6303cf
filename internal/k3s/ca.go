package k3s

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// HashCA is the hash that k3s puts into a token and compares with what a server
// gives at /cacerts (k3s, pkg/clientaccess/token.go, hashCA): of a single
// certificate the bytes of the file; of a bundle the DER of the root that its first
// certificate leads to, so that intermediates may be renewed under one root.
func HashCA(bundle []byte) (string, error) {
	certs, err := certificates(bundle)
	if err != nil {
		return "", err
	}
	hashed := bundle
	if len(certs) > 1 {
		if root := rootOf(certs); root != nil {
			hashed = root.Raw
		}
	}
	sum := sha256.Sum256(hashed)
	return hex.EncodeToString(sum[:]), nil
}

// rootOf is the root of the first certificate's chain, nil when there is none.
func rootOf(certs []*x509.Certificate) *x509.Certificate {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range certs[1:] {
		if len(c.AuthorityKeyId) == 0 || bytes.Equal(c.AuthorityKeyId, c.SubjectKeyId) {
			roots.AddCert(c)
		} else {
			between.AddCert(c)
		}
	}
	chains, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	if err != nil {
		return nil // k3s hashes the file then
	}
	return chains[0][len(chains[0])-1]
}

// TrustedCAs are the certificates of a bundle that HashCA stands for: all of them,
// or with a root those that lead to it. Another one in the same bundle is trusted by
// nothing, and must not vouch for a server that is given a secret.
func TrustedCAs(bundle []byte) (*x509.CertPool, error) {
	certs, err := certificates(bundle)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	root := rootOf(certs)
	if root == nil {
		for _, c := range certs {
			pool.AddCert(c)
		}
		return pool, nil
	}
	only, all := x509.NewCertPool(), x509.NewCertPool()
	only.AddCert(root)
	for _, c := range certs {
		all.AddCert(c)
	}
	for _, c := range certs {
		if _, err := c.Verify(x509.VerifyOptions{Roots: only, Intermediates: all}); err == nil {
			pool.AddCert(c)
		}
	}
	return pool, nil
}

// SameCA says whether two bundles are of one CA to k3s: the same bytes, or the
// same hash in a token.
func SameCA(a, b []byte) bool {
	if bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) {
		return true
	}
	x, err := HashCA(a)
	if err != nil {
		return false
	}
	y, err := HashCA(b)
	return err == nil && x == y
}

func certificates(bundle []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("CA bundle: %w", err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("CA bundle: no certificate")
	}
	return certs, nil
}
