package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// EnsureKey reads the key in file, or makes it (0600). The result is PEM.
func EnsureKey(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		return text, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("key %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("key %s: %w", file, err)
	}
	_, text, err = newKey()
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", file, err)
	}
	return text, write(file, text, 0o600)
}

// Request makes the certificate request (PEM) an agent posts, from its key (PEM). The server decides the
// subject; the request carries only the key.
func Request(key []byte) ([]byte, error) {
	private, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent"}}, private)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// SignClientKubelet signs a request for the kubelet of a Node: O=system:nodes, CN=system:node:NAME. The
// result is the certificate and its authority, PEM. dir is …/server/tls, as in all the Sign functions.
func SignClientKubelet(dir, node string, request []byte) ([]byte, error) {
	return signRequest(dir, request, leaf{
		file: "client-kubelet", ca: clientCA, name: "system:node:" + node, groups: []string{"system:nodes"}, usage: asClient,
	})
}

// SignServingKubelet signs a request for the kubelet's own port. addresses are the Node's.
func SignServingKubelet(dir, node string, addresses []string, request []byte) ([]byte, error) {
	return signRequest(dir, request, leaf{
		file: "serving-kubelet", ca: serverCA, name: node, usage: asServer,
		sans: append([]string{node, "localhost", "127.0.0.1", "::1"}, addresses...),
	})
}

// SignClientKubeProxy signs a request for a Node's kube-proxy: CN=system:kube-proxy.
func SignClientKubeProxy(dir string, request []byte) ([]byte, error) {
	return signRequest(dir, request, leaf{file: "client-kube-proxy", ca: clientCA, name: "system:kube-proxy", usage: asClient})
}

// SignClientController signs a request for an agent's own k3s controllers: CN=system:k3s-controller.
func SignClientController(dir string, request []byte) ([]byte, error) {
	return signRequest(dir, request, leaf{file: "client-k3s-controller", ca: clientCA, name: "system:k3s-controller", usage: asClient})
}

func signRequest(dir string, request []byte, l leaf) ([]byte, error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("sign %s: no certificate request in PEM form", l.file)
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", l.file, err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("sign %s: %w", l.file, err)
	}
	ca, caPEM, err := load(dir, l.ca)
	if err != nil {
		return nil, err
	}
	der, err := ca.sign(parsed.PublicKey, l)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", l.file, err)
	}
	return append(certificatePEM(der), caPEM...), nil
}

// WriteKubeconfig writes a kubeconfig (0600) for server (https://127.0.0.1:6444) that refers to files.
func WriteKubeconfig(path, server, ca, cert, key string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificate: cert, ClientKey: key}
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "user", Namespace: "default"}
	config.CurrentContext = "default"
	return writeConfig(path, config)
}

// WriteAdminKubeconfig writes a kubeconfig (0600) that holds the administrator's certificate itself, as
// /etc/rancher/k3s/k3s.yaml does. dir is …/server/tls.
func WriteAdminKubeconfig(path, server, dir string) error {
	var texts [3][]byte
	for i, name := range []string{"server-ca.crt", "client-admin.crt", "client-admin.key"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("administrator's kubeconfig: %w", err)
		}
		texts[i] = text
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["default"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: texts[0]}
	config.AuthInfos["default"] = &clientcmdapi.AuthInfo{ClientCertificateData: texts[1], ClientKeyData: texts[2]}
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: "default"}
	config.CurrentContext = "default"
	return writeConfig(path, config)
}

func writeConfig(path string, config *clientcmdapi.Config) error {
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return write(path, text, 0o600)
}
