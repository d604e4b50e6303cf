package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// tokenLife is how long a token of the lab is good; longer than any scenario.
const tokenLife = 12 * time.Hour

// Kubeconfig makes a kubeconfig for the ServiceAccount with a token of its own and nothing else: what runs with it has exactly
// the rights that the manifests grant. It names one server; programs get the list of all by their settings.
func (c *Cluster) Kubeconfig(ctx context.Context, namespace, account string, server *host.Host) ([]byte, error) {
	api, err := c.API()
	if err != nil {
		return nil, err
	}
	seconds := int64(tokenLife.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := api.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of %s/%s: %w", namespace, account, err)
	}
	content, err := c.adminFile()
	if err != nil {
		return nil, err
	}
	admin, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	config := clientcmdapi.NewConfig()
	for _, known := range admin.Clusters {
		config.Clusters["lab"] = &clientcmdapi.Cluster{Server: URL(server), CertificateAuthorityData: known.CertificateAuthorityData}
	}
	config.AuthInfos["lab"] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab"}
	config.CurrentContext = "lab"
	written, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s/%s: %w", namespace, account, err)
	}
	return written, nil
}

// ServerURLs are the URLs of all hosts that may be servers, as programs outside take them: separated by commas.
func (c *Cluster) ServerURLs() string {
	var urls []string
	for _, h := range c.Lab.Hosts() {
		if c.Spec.host(h.Name()).eligible() {
			urls = append(urls, URL(h))
		}
	}
	return strings.Join(urls, ",")
}

// installRegrade applies the manifests that the product renders, gives every eligible host its credential and starts the
// daemons.
func (c *Cluster) installRegrade(ctx context.Context) error {
	// With the empty ConfigMaps: scenarios without a controller have nobody else to make them.
	rendered, err := c.Regrade(ctx, "manifests", "--configmaps")
	if err != nil {
		return err
	}
	// The controller's Deployment needs an image and a real kubelet; the lab runs the same binary with the same account.
	if err := c.Apply(ctx, []byte(rendered), "Deployment", "DaemonSet"); err != nil {
		return err
	}
	if c.Spec.AsInstalled {
		return nil
	}
	for _, h := range c.Lab.Hosts() {
		if !c.Spec.host(h.Name()).eligible() {
			continue
		}
		content, err := c.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountHost, h)
		if err != nil {
			return err
		}
		if err := h.WriteFile(fleet.FileKubeconfig, content, 0o600); err != nil {
			return err
		}
		if err := c.RestartDaemon(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// EnsureReports makes the ConfigMap of the hosts' reports, which is the controller's to make: a scenario without a controller
// calls it.
func (c *Cluster) EnsureReports(ctx context.Context) error {
	api, err := c.API()
	if err != nil {
		return err
	}
	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fleet.ConfigMapActuators}}
	_, err = api.CoreV1().ConfigMaps(fleet.DefaultNamespace).Create(ctx, empty, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make ConfigMap %s: %w", fleet.ConfigMapActuators, err)
	}
	return nil
}
