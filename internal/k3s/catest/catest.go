// Package catest makes certificate authorities for tests: roots, intermediates and
// the bundles of them that k3s gives at /cacerts.
package catest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority is a CA: its certificate and its key.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a CA, self-signed without a parent. Two of one name have different keys.
func New(t testing.TB, name string, parent *Authority) *Authority {
	t.Helper()
	return issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, parent)
}

// Serving is a certificate of a server at 127.0.0.1.
func (a *Authority) Serving(t testing.TB) tls.Certificate {
	t.Helper()
	leaf := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, a)
	return tls.Certificate{Certificate: [][]byte{leaf.Cert.Raw}, PrivateKey: leaf.key}
}

// Kubelet is the certificate of a kubelet, as PEM with its CA behind it.
func (a *Authority) Kubelet(t testing.TB, node string) []byte {
	t.Helper()
	return Bundle(issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, a), a)
}

func issue(t testing.TB, tmpl *x509.Certificate, parent *Authority) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if tmpl.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = &Authority{key: key, Cert: tmpl}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent.Cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{Cert: cert, key: key}
}

// Bundle is the certificates as PEM, in this order.
func Bundle(cas ...*Authority) []byte {
	var b []byte
	for _, a := range cas {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})...)
	}
	return b
}
