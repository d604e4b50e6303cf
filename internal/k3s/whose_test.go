package k3s_test

import (
	"bytes"
	"testing"

	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/k3s/catest"
)

func TestAHostSaysWhichNodeOfWhichClusterItIs(t *testing.T) {
	ca := catest.New(t, "server-ca", nil)
	for name, test := range map[string]struct {
		files map[string][]byte
		node  string
		ca    []byte
		fails bool
	}{
		"nothing yet":              {},
		"an agent":                 {map[string][]byte{k3s.FileKubeletCert: ca.Kubelet(t, "n4"), k3s.FileAgentCA: catest.Bundle(ca)}, "n4", catest.Bundle(ca), false},
		"a server before an agent": {map[string][]byte{k3s.FileServerCA: catest.Bundle(ca)}, "", catest.Bundle(ca), false},
		"a file just being made":   {map[string][]byte{k3s.FileKubeletCert: {}}, "", nil, false},
		"another's certificate":    {map[string][]byte{k3s.FileKubeletCert: catest.Bundle(ca)}, "", nil, true},
		"garbage":                  {map[string][]byte{k3s.FileKubeletCert: []byte("x")}, "", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := k3s.Disk{Root: t.TempDir()}
			for path, content := range test.files {
				plant(t, d.Root, "var/lib/rancher/k3s/"+path, string(content))
			}
			node, got, err := d.Whose()
			if node != test.node || !bytes.Equal(got, test.ca) || (err != nil) != test.fails {
				t.Errorf("got %q, %q, %v", node, got, err)
			}
		})
	}
}

// A token of digits alone is a number to YAML; k3s takes it as it is written.
func TestANumberIsTakenAsItIsWritten(t *testing.T) {
	c, err := k3s.ParseConfig([]byte("token: 12345678\netcd-snapshot-retention: 5\nnode-label: [20261201]\nprefer-bundled-bin: true\n"))
	if err != nil || c.Get("token") != "12345678" || c.Get("etcd-snapshot-retention") != "5" || c.Get("node-label") != "20261201" || c.Get("prefer-bundled-bin") != "true" {
		t.Errorf("got %v, %v", c, err)
	}
}
