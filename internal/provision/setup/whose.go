package setup

import (
	"bytes"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/status"
)

// Whose refuses a document that is meant for another host, or comes from another cluster: a
// wrong address in fleet.yaml, or two that are swapped, would give one host's role to another.
// Node and ca are what k3s says of itself on the host, as k3s.Disk has them.
func Whose(node string, ca []byte, d Desired, h settings.Host) (problems []status.Problem) {
	if node != "" && node != h.Node {
		problems = append(problems, problem(CodeOtherNode, "this host is the Node %s by its kubelet's certificate, and the document is for %s", node, h.Node)...)
	}
	if given := authority(d.Kubeconfig); len(ca) > 0 && len(given) > 0 && !k3s.SameCA(ca, given) {
		problems = append(problems, problem(CodeOtherCA, "the k3s of this host is of a cluster with another CA than the kubeconfig that it is to be given")...)
	}
	return problems
}

// authority is the CA in a kubeconfig, nil where there is none in it. What is no PEM is a look's,
// before there is a credential.
func authority(kubeconfig k3s.Secret) []byte {
	var k struct {
		Clusters []struct {
			Cluster struct {
				CA []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal([]byte(kubeconfig.Reveal()), &k); err != nil || len(k.Clusters) != 1 {
		return nil
	}
	if ca := k.Clusters[0].Cluster.CA; bytes.Contains(ca, []byte("-----BEGIN CERTIFICATE-----")) {
		return ca
	}
	return nil
}
