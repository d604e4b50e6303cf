package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/access"
	"github.com/exadev/regrade/lab/standin/k3s/nodepassword"
	"github.com/exadev/regrade/lab/standin/parts/pki"
)

// fetchFiles gets the CA files and the four certificates. Keys are kept across starts.
func (a *agent) fetchFiles(ctx context.Context, acc *access.Access, password string) error {
	d := a.cfg.Data
	for _, ca := range []string{"client-ca.crt", "server-ca.crt"} {
		b, err := acc.Get(ctx, "/v1-k3s/"+ca, 15*time.Second)
		if err != nil {
			return err
		}
		if err := writeFile(d.Agent(ca), b); err != nil {
			return err
		}
	}
	header := http.Header{
		http.CanonicalHeaderKey(nodepassword.NameHeader):     {a.cfg.Host.NodeName},
		http.CanonicalHeaderKey(nodepassword.PasswordHeader): {password},
		http.CanonicalHeaderKey(nodepassword.IPHeader):       {strings.Join(a.cfg.Host.IPs, ",")},
	}
	for _, name := range []string{"serving-kubelet", "client-kubelet", "client-kube-proxy", "client-k3s-controller"} {
		key, err := pki.EnsureKey(d.Agent(name + ".key"))
		if err != nil {
			return err
		}
		csr, err := pki.Request(key)
		if err != nil {
			return fmt.Errorf("request %s: %w", name, err)
		}
		crt, err := acc.Post(ctx, "/v1-k3s/"+name+".crt", csr, header, 15*time.Second)
		if err != nil {
			return err
		}
		if err := writeFile(d.Agent(name+".crt"), crt); err != nil {
			return err
		}
	}
	for file, cert := range map[string]string{
		"kubelet.kubeconfig": "client-kubelet", "kubeproxy.kubeconfig": "client-kube-proxy",
		"k3scontroller.kubeconfig": "client-k3s-controller",
	} {
		if err := pki.WriteKubeconfig(d.Agent(file), a.apiURL(), d.Agent("server-ca.crt"), d.Agent(cert+".crt"), d.Agent(cert+".key")); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("agent folder: %w", err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("write agent file: %w", err)
	}
	return nil
}
