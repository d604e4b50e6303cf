// Package pki makes and keeps what k3s keeps under server/tls: its certificate authorities, the server's
// own certificates, and what it signs for agents. File names are k3s's (k3s-facts §2).
//
// An authority and service.key are made once and never replaced: they are the cluster's identity. A
// certificate is made again when its authority did not sign it, when it lacks a name or address it should
// have, or when it ends within 90 days.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// How long certificates last, and how long before their end they are made again; k3s's own values.
const (
	authorityYears = 10
	leafDays       = 365
	renewDays      = 90
)

// authority is a certificate authority by its file names, without .crt and .key, and its common name.
type authority struct{ file, name string }

var (
	clientCA        = authority{"client-ca", "k3s-client-ca"}
	serverCA        = authority{"server-ca", "k3s-server-ca"}
	requestHeaderCA = authority{"request-header-ca", "k3s-request-header-ca"}
	etcdServerCA    = authority{"etcd/server-ca", "etcd-server-ca"}
	etcdPeerCA      = authority{"etcd/peer-ca", "etcd-peer-ca"}
)

var authorities = []authority{clientCA, serverCA, requestHeaderCA, etcdServerCA, etcdPeerCA}

// Config says whose certificates are made.
type Config struct {
	// Dir is …/server/tls.
	Dir string
	// NodeName, Addresses (node IPs, external IPs, advertise address) and Names (tls-san: names or
	// addresses) are what serving certificates are for, besides localhost and the kubernetes Service.
	NodeName  string
	Addresses []string
	Names     []string
	// ServiceIP is the kubernetes Service's; empty means 10.43.0.1.
	ServiceIP string
}

// Ensure makes what is missing. What is there and still good stays as it is, byte for byte.
func Ensure(cfg Config) error {
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "etcd"), 0o700); err != nil {
		return fmt.Errorf("certificate folder: %w", err)
	}
	for _, a := range authorities {
		if err := ensureAuthority(cfg.Dir, a); err != nil {
			return err
		}
	}
	if err := ensureServiceKey(cfg.Dir); err != nil {
		return err
	}
	for _, l := range leaves(cfg) {
		if err := ensureLeaf(cfg.Dir, l); err != nil {
			return err
		}
	}
	return nil
}

// BootstrapFiles are the files a joining server fetches from the one it joins, as k3s names them in
// /v1-k3s/server-bootstrap, relative to server/tls. (k3s sends server/cred/passwd and ipsec.psk too.)
func BootstrapFiles() map[string]string {
	return map[string]string{
		"ServerCA":           "server-ca.crt",
		"ServerCAKey":        "server-ca.key",
		"ClientCA":           "client-ca.crt",
		"ClientCAKey":        "client-ca.key",
		"RequestHeaderCA":    "request-header-ca.crt",
		"RequestHeaderCAKey": "request-header-ca.key",
		"ETCDServerCA":       "etcd/server-ca.crt",
		"ETCDServerCAKey":    "etcd/server-ca.key",
		"ETCDPeerCA":         "etcd/peer-ca.crt",
		"ETCDPeerCAKey":      "etcd/peer-ca.key",
		"ServiceKey":         "service.key",
	}
}

// leaf is a certificate to keep in a file pair.
type leaf struct {
	file   string
	ca     authority
	name   string
	groups []string
	usage  []x509.ExtKeyUsage
	sans   []string
}

var (
	asClient = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	asServer = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	asBoth   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

func leaves(cfg Config) []leaf {
	serviceIP := cfg.ServiceIP
	if serviceIP == "" {
		serviceIP = "10.43.0.1"
	}
	own := append([]string{"localhost", "127.0.0.1", "::1", cfg.NodeName}, cfg.Addresses...)
	own = append(own, cfg.Names...)
	api := append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", serviceIP,
	}, own...)
	masters := []string{"system:masters"}
	return []leaf{
		{"client-admin", clientCA, "system:admin", masters, asClient, nil},
		{"client-supervisor", clientCA, "system:k3s-supervisor", masters, asClient, nil},
		{"client-controller", clientCA, "system:kube-controller-manager", nil, asClient, nil},
		{"client-scheduler", clientCA, "system:kube-scheduler", nil, asClient, nil},
		{"client-kube-apiserver", clientCA, "system:apiserver", masters, asClient, nil},
		{"client-kube-proxy", clientCA, "system:kube-proxy", nil, asClient, nil},
		{"client-k3s-controller", clientCA, "system:k3s-controller", nil, asClient, nil},
		{"client-k3s-cloud-controller", clientCA, "k3s-cloud-controller-manager", nil, asClient, nil},
		{"client-auth-proxy", requestHeaderCA, "system:auth-proxy", nil, asClient, nil},
		{"serving-kube-apiserver", serverCA, "kube-apiserver", nil, asServer, api},
		{"etcd/server-client", etcdServerCA, "etcd-server", nil, asBoth, own},
		{"etcd/peer-server-client", etcdPeerCA, "etcd-peer", nil, asBoth, own},
		{"etcd/client", etcdServerCA, "etcd-client", nil, asClient, nil},
	}
}

func ensureAuthority(dir string, a authority) error {
	crt, key := filepath.Join(dir, a.file+".crt"), filepath.Join(dir, a.file+".key")
	if exists(crt) && exists(key) {
		return copyNoChain(dir, a)
	}
	private, keyPEM, err := newKey()
	if err != nil {
		return fmt.Errorf("authority %s: %w", a.file, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(0),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s@%d", a.name, now.Unix())},
		NotBefore:             now.Add(-time.Minute),
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return fmt.Errorf("authority %s: %w", a.file, err)
	}
	if err := write(key, keyPEM, 0o600); err != nil {
		return err
	}
	if err := write(crt, certificatePEM(der), 0o644); err != nil {
		return err
	}
	return copyNoChain(dir, a)
}

// copyNoChain keeps the two authorities that sign for the controller manager once more, without parents.
func copyNoChain(dir string, a authority) error {
	if a != clientCA && a != serverCA {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, a.file+".crt"))
	if err != nil {
		return fmt.Errorf("authority %s: %w", a.file, err)
	}
	path := filepath.Join(dir, a.file+".nochain.crt")
	if current, err := os.ReadFile(path); err == nil && bytes.Equal(current, text) {
		return nil
	}
	return write(path, text, 0o644)
}

// ensureServiceKey keeps the key that signs ServiceAccount tokens. service.key is what verifies (it may hold
// several after a rotation), service.current.key is what signs.
func ensureServiceKey(dir string) error {
	all, current := filepath.Join(dir, "service.key"), filepath.Join(dir, "service.current.key")
	if !exists(all) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return fmt.Errorf("service key: %w", err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
		if err := write(all, text, 0o600); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(all)
	if err != nil {
		return fmt.Errorf("service key: %w", err)
	}
	first, _ := pem.Decode(text)
	if first == nil {
		return fmt.Errorf("service key: %s holds no PEM block", all)
	}
	want := pem.EncodeToMemory(first)
	if have, err := os.ReadFile(current); err == nil && bytes.Equal(have, want) {
		return nil
	}
	return write(current, want, 0o600)
}

func ensureLeaf(dir string, l leaf) error {
	crt, key := filepath.Join(dir, l.file+".crt"), filepath.Join(dir, l.file+".key")
	signer, caPEM, err := load(dir, l.ca)
	if err != nil {
		return err
	}
	if exists(key) && good(crt, signer.certificate, l) {
		return nil
	}
	private, keyPEM, err := newKey()
	if err != nil {
		return fmt.Errorf("certificate %s: %w", l.file, err)
	}
	der, err := signer.sign(private.Public(), l)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", l.file, err)
	}
	if err := write(key, keyPEM, 0o600); err != nil {
		return err
	}
	return write(crt, append(certificatePEM(der), caPEM...), 0o644)
}

// good tells whether the certificate in file is still what l asks for.
func good(file string, ca *x509.Certificate, l leaf) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	certificate, err := parse(text)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: l.usage[:1], CurrentTime: time.Now().AddDate(0, 0, renewDays)})
	if err != nil || certificate.Subject.CommonName != l.name {
		return false
	}
	return !slices.ContainsFunc(l.sans, func(san string) bool {
		return san != "" && certificate.VerifyHostname(san) != nil
	})
}

// signer is a loaded authority.
type signer struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func load(dir string, a authority) (signer, []byte, error) {
	crt, err := os.ReadFile(filepath.Join(dir, a.file+".crt"))
	if err != nil {
		return signer{}, nil, fmt.Errorf("authority %s: %w", a.file, err)
	}
	certificate, err := parse(crt)
	if err != nil {
		return signer{}, nil, fmt.Errorf("authority %s: %w", a.file, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, a.file+".key"))
	if err != nil {
		return signer{}, nil, fmt.Errorf("authority %s: %w", a.file, err)
	}
	key, err := parseKey(text)
	if err != nil {
		return signer{}, nil, fmt.Errorf("authority %s: %w", a.file, err)
	}
	return signer{certificate, key}, crt, nil
}

func (s signer) sign(public crypto.PublicKey, l leaf) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: l.name, Organization: l.groups},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.AddDate(0, 0, leafDays),
		KeyUsage:     x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  l.usage,
	}
	for _, san := range l.sans {
		if ip := net.ParseIP(san); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if san != "" {
			template.DNSNames = append(template.DNSNames, san)
		}
	}
	return x509.CreateCertificate(rand.Reader, template, s.certificate, public, s.key)
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func parse(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM form")
	}
	return x509.ParseCertificate(block.Bytes)
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no key in PEM form")
	}
	switch block.Type {
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signing, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("key cannot sign")
	}
	return signing, nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// write replaces path in one step: a crash leaves the old file or the new one.
func write(path string, text []byte, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, text, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
