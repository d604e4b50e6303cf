package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func config(t *testing.T) Config {
	t.Helper()
	return Config{Dir: filepath.Join(t.TempDir(), "tls"), NodeName: "one", Addresses: []string{"10.9.0.1"}, Names: []string{"api.example"}}
}

func ensure(t *testing.T, cfg Config) {
	t.Helper()
	if err := Ensure(cfg); err != nil {
		t.Fatal(err)
	}
}

// contents are the files below dir by their relative name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestASecondEnsureChangesNothing(t *testing.T) {
	cfg := config(t)
	ensure(t, cfg)
	before := contents(t, cfg.Dir)
	ensure(t, cfg)
	if diff := cmp.Diff(before, contents(t, cfg.Dir)); diff != "" {
		t.Errorf("files changed (-before +after):\n%s", diff)
	}
	for name := range before {
		info, err := os.Stat(filepath.Join(cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", name, info.Mode())
		}
	}
}

func TestANewAddressRenewsOnlyTheServingCertificates(t *testing.T) {
	cfg := config(t)
	ensure(t, cfg)
	before := contents(t, cfg.Dir)
	cfg.Addresses = append(cfg.Addresses, "10.9.0.2")
	ensure(t, cfg)
	var changed []string
	for name, text := range contents(t, cfg.Dir) {
		if before[name] != text && strings.HasSuffix(name, ".crt") {
			changed = append(changed, name)
		}
	}
	want := []string{"etcd/peer-server-client.crt", "etcd/server-client.crt", "serving-kube-apiserver.crt"}
	if diff := cmp.Diff(want, changed, cmp.Transformer("set", func(names []string) map[string]bool {
		set := map[string]bool{}
		for _, name := range names {
			set[name] = true
		}
		return set
	})); diff != "" {
		t.Errorf("renewed (-want +got):\n%s", diff)
	}
}

func TestAJoiningServerWithTheBootstrapFilesTrustsTheFirst(t *testing.T) {
	first, joining := config(t), config(t)
	ensure(t, first)
	joining.NodeName = "two"
	ensure(t, joining) // as a host that had a cluster of its own
	for _, name := range BootstrapFiles() {
		text, err := os.ReadFile(filepath.Join(first.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(joining.Dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ensure(t, joining)
	pairs := map[string]string{
		"client-admin.crt": "client-ca.crt", "serving-kube-apiserver.crt": "server-ca.crt", "client-auth-proxy.crt": "request-header-ca.crt",
		"etcd/client.crt": "etcd/server-ca.crt", "etcd/server-client.crt": "etcd/server-ca.crt", "etcd/peer-server-client.crt": "etcd/peer-ca.crt",
	}
	for leaf, ca := range pairs {
		verify(t, read(t, joining.Dir, leaf), read(t, first.Dir, ca))
	}
	if read(t, joining.Dir, "service.current.key") != read(t, first.Dir, "service.current.key") {
		t.Error("the joining server signs tokens with another key")
	}
	if read(t, joining.Dir, "client-ca.nochain.crt") != read(t, first.Dir, "client-ca.crt") {
		t.Error("the joining server's controller manager signs with another authority")
	}
}

func TestAKubeletRequestIsSignedForItsNode(t *testing.T) {
	cfg := config(t)
	ensure(t, cfg)
	key, err := EnsureKey(filepath.Join(t.TempDir(), "agent", "client-kubelet.key"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := Request(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := SignClientKubelet(cfg.Dir, "nine", request)
	if err != nil {
		t.Fatal(err)
	}
	certificate := verify(t, string(client), read(t, cfg.Dir, "client-ca.crt"))
	if got := certificate.Subject.String(); got != "CN=system:node:nine,O=system:nodes" {
		t.Errorf("subject is %s", got)
	}
	serving, err := SignServingKubelet(cfg.Dir, "nine", []string{"10.9.0.9"}, request)
	if err != nil {
		t.Fatal(err)
	}
	certificate = verify(t, string(serving), read(t, cfg.Dir, "server-ca.crt"))
	for _, name := range []string{"nine", "10.9.0.9", "127.0.0.1"} {
		if err := certificate.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

func TestABadRequestIsRefused(t *testing.T) {
	cfg := config(t)
	ensure(t, cfg)
	for _, request := range []string{"", "no PEM", read(t, cfg.Dir, "client-admin.crt")} {
		if text, err := SignClientKubelet(cfg.Dir, "nine", []byte(request)); err == nil {
			t.Errorf("request %.20q was signed: %s", request, text)
		}
	}
}

func TestTheAdminKubeconfigIsComplete(t *testing.T) {
	cfg := config(t)
	ensure(t, cfg)
	path := filepath.Join(t.TempDir(), "k3s.yaml")
	if err := WriteAdminKubeconfig(path, "https://127.0.0.1:6443", cfg.Dir); err != nil {
		t.Fatal(err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if rest.Host != "https://127.0.0.1:6443" || string(rest.CertData) != read(t, cfg.Dir, "client-admin.crt") {
		t.Errorf("host %s, certificate %.40s", rest.Host, rest.CertData)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func verify(t *testing.T, leaf, ca string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(leaf))
	if block == nil {
		t.Fatalf("no certificate in %.40q", leaf)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	if _, err := certificate.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		t.Fatalf("%s: %v", certificate.Subject, err)
	}
	return certificate
}
