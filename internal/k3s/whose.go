package k3s

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Files below the data folder that say whose host this is: k3s fetches the first two anew at
// each start as an agent, and a server has an agent too; the last is a server's own.
const (
	FileKubeletCert = "agent/client-kubelet.crt"
	FileAgentCA     = "agent/server-ca.crt"
	FileServerCA    = "server/tls/server-ca.crt"
)

const nodeUser = "system:node:"

// NodeOfCert is the Node that a kubelet's client certificate is for. The file may have its
// CAs behind it.
func NodeOfCert(raw []byte) (string, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return "", errors.New("kubelet's certificate: no PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("kubelet's certificate: %w", err)
	}
	name, ok := strings.CutPrefix(c.Subject.CommonName, nodeUser)
	if !ok || name == "" {
		return "", fmt.Errorf("kubelet's certificate: it is %q's, no node's", c.Subject.CommonName)
	}
	return name, nil
}

// Whose says which Node k3s last ran as on this host, and the CA of its cluster. What k3s
// has not written yet is empty.
func (d Disk) Whose() (node string, ca []byte, err error) {
	cert, err := readThere(d.Path(strings.Split(FileKubeletCert, "/")...))
	if err != nil {
		return "", nil, err
	}
	if cert != nil {
		if node, err = NodeOfCert(cert); err != nil {
			return "", nil, err
		}
	}
	for _, path := range []string{FileAgentCA, FileServerCA} {
		if ca, err = readThere(d.Path(strings.Split(path, "/")...)); ca != nil || err != nil {
			break
		}
	}
	return node, ca, err
}

// readThere gives nil for a file that is not there, or has nothing in it yet.
func readThere(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(raw) == 0 {
		return nil, nil
	}
	return raw, err
}
