package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exadev/regrade/internal/fleet"
)

// R-185-28, R-185-42, R-E2-11, R-E2-12, R-228-08, R-228-09, R-D1-09: what the manifests grant, asked of the real API server
// with each ServiceAccount's own token. Each line is "verb resource[/sub][.group] [namespace/][name]". What is not in
// the first list of an account is in its second one, or in the one that every account is refused.
var grants = map[string]struct{ may, not []string }{
	fleet.ServiceAccountController: {
		may: []string{
			"get nodes", "list nodes", "watch nodes", "patch nodes", "get pods", "list pods", "create pods/eviction", "get daemonsets.apps",
			"get etcdsnapshotfiles.k3s.cattle.io", "list etcdsnapshotfiles.k3s.cattle.io", "create events default/",
			"create leases.coordination.k8s.io kube-system/", "get leases.coordination.k8s.io kube-system/fleet-regrade", "update leases.coordination.k8s.io kube-system/fleet-regrade",
			"get leases.coordination.k8s.io kube-node-lease/n1", "create configmaps OWN/", "get configmaps OWN/fleet-role-actuators", "watch configmaps OWN/fleet-role-actuators",
			"get configmaps OWN/fleet-role-status", "patch configmaps OWN/fleet-role-status", "watch configmaps OWN/fleet-role-status", "get configmaps OWN/fleet-role-probe", "list leases.coordination.k8s.io OWN/",
		},
		not: []string{
			"patch configmaps OWN/fleet-role-actuators", "patch configmaps OWN/fleet-role-probe", "update leases.coordination.k8s.io kube-system/k3s", "delete leases.coordination.k8s.io kube-system/fleet-regrade",
			"delete pods", "patch pods", "update nodes", "create nodes", "delete nodes", "update nodes/status", "update leases.coordination.k8s.io kube-node-lease/n1", "create events kube-system/", "delete etcdsnapshotfiles.k3s.cattle.io",
		},
	},
	fleet.ServiceAccountHost: {
		may: []string{
			"get nodes", "list nodes", "watch nodes", "get leases.coordination.k8s.io kube-system/fleet-regrade", "get configmaps OWN/fleet-role-actuators", "patch configmaps OWN/fleet-role-actuators",
			"create leases.coordination.k8s.io OWN/", "get leases.coordination.k8s.io OWN/x", "patch leases.coordination.k8s.io OWN/x",
		},
		not: []string{
			"patch nodes", "update nodes", "delete nodes", "update leases.coordination.k8s.io kube-system/fleet-regrade", "patch leases.coordination.k8s.io kube-system/fleet-regrade", "create leases.coordination.k8s.io kube-system/",
			"patch configmaps OWN/fleet-role-status", "get configmaps OWN/fleet-role-status", "patch configmaps OWN/fleet-role-probe", "list pods", "create pods/eviction", "create events default/",
		},
	},
	fleet.ServiceAccountProbe: {
		may: []string{"get nodes", "list nodes", "get configmaps OWN/fleet-role-probe", "patch configmaps OWN/fleet-role-probe", "create leases.coordination.k8s.io OWN/", "patch leases.coordination.k8s.io OWN/x"},
		not: []string{
			"patch nodes", "update nodes", "watch nodes", "delete nodes", "get configmaps OWN/fleet-role-status", "patch configmaps OWN/fleet-role-status", "patch configmaps OWN/fleet-role-actuators", "create configmaps OWN/",
			"get leases.coordination.k8s.io kube-system/fleet-regrade", "list pods", "create pods/eviction", "create events default/",
		},
	},
	fleet.ServiceAccountHeartbeat: { // R-185-14
		may: []string{"list nodes", "get configmaps OWN/fleet-role-status", "get configmaps OWN/fleet-health", "patch configmaps OWN/fleet-health", "list leases.coordination.k8s.io OWN/"},
		not: []string{
			"get nodes", "watch nodes", "patch nodes", "update nodes", "delete nodes", "update nodes/status", "patch configmaps OWN/fleet-role-status", "update configmaps OWN/fleet-health", "create configmaps OWN/", "delete configmaps OWN/fleet-health",
			"get configmaps OWN/fleet-alert", "patch configmaps OWN/fleet-alert", "get configmaps OWN/fleet-role-probe", "get configmaps OWN/fleet-role-actuators", "create leases.coordination.k8s.io OWN/",
			"get leases.coordination.k8s.io kube-system/fleet-regrade", "list pods", "list deployments.apps", "get secrets OWN/heartbeat-gh-token", "create pods/eviction", "create events default/",
		},
	},
	fleet.ServiceAccountAlert: {
		may: []string{"get configmaps OWN/fleet-health", "get configmaps OWN/fleet-alert", "patch configmaps OWN/fleet-alert"},
		not: []string{
			"get nodes", "list nodes", "watch nodes", "patch nodes", "patch configmaps OWN/fleet-health", "update configmaps OWN/fleet-alert", "create configmaps OWN/", "delete configmaps OWN/fleet-alert", "get configmaps OWN/fleet-role-status",
			"patch configmaps OWN/fleet-role-status", "get configmaps OWN/fleet-role-probe", "get configmaps OWN/fleet-role-actuators", "list leases.coordination.k8s.io OWN/", "create leases.coordination.k8s.io OWN/", "get leases.coordination.k8s.io kube-system/fleet-regrade",
			"list pods", "get secrets OWN/fleet-alert", "create pods/eviction", "create events default/",
		},
	},
	fleet.ServiceAccountLevel: { // R-112-06, design §1
		may: []string{
			"get nodes", "list nodes", "patch nodes", "get pods", "list pods", "create pods/eviction", "create leases.coordination.k8s.io kube-system/", "get leases.coordination.k8s.io kube-system/fleet-regrade",
			"update leases.coordination.k8s.io kube-system/fleet-regrade", "get configmaps OWN/fleet-role-status",
		},
		not: []string{
			"watch nodes", "update nodes", "create nodes", "delete nodes", "update nodes/status", "delete pods", "patch pods", "update leases.coordination.k8s.io kube-system/k3s", "delete leases.coordination.k8s.io kube-system/fleet-regrade",
			"patch configmaps OWN/fleet-role-status", "get configmaps OWN/fleet-role-actuators", "patch configmaps OWN/fleet-role-actuators", "create configmaps OWN/", "create leases.coordination.k8s.io OWN/", "create events default/",
		},
	},
	fleet.ServiceAccountRecovery: { // R-B-01, R-B-10
		may: []string{
			"list nodes", "patch nodes", "get leases.coordination.k8s.io kube-system/fleet-regrade", "create events default/", "get configmaps OWN/fleet-role-probe", "list leases.coordination.k8s.io OWN/",
		},
		not: []string{
			"get nodes", "watch nodes", "update nodes", "delete nodes", "create nodes", "update nodes/status", "list leases.coordination.k8s.io kube-system/", "get leases.coordination.k8s.io kube-system/k3s", "patch leases.coordination.k8s.io kube-system/fleet-regrade",
			"get configmaps OWN/fleet-role-status", "patch configmaps OWN/fleet-role-probe", "list pods", "delete pods", "create pods/eviction", "create events kube-system/",
		},
	},
}

// No account of ours reaches these.
var refused = []string{
	"get secrets", "list secrets", "get secrets OWN/", "create serviceaccounts/token OWN/fleet-role", "create pods", "create pods OWN/", "create pods/exec", "get nodes/proxy", "create clusterrolebindings.rbac.authorization.k8s.io",
	"impersonate users", "delete configmaps OWN/fleet-role-status", "delete namespaces", "list configmaps", "update configmaps kube-system/x",
}

func Test_rights(t *testing.T) {
	s := measured(t)
	recovery, err := s.Regrade(t.Context(), "manifests", "--recovery", "--levels", "--heartbeat", "--alert")
	s.must(err)
	s.must(s.Apply(t.Context(), []byte(recovery), "Deployment", "DaemonSet"))
	for account, g := range grants {
		t.Run(account, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			raw, err := s.Kubeconfig(ctx, fleet.DefaultNamespace, account, s.Host("n2"))
			s.must(err)
			config, err := clientcmd.RESTConfigFromKubeConfig(raw)
			s.must(err)
			config.QPS, config.Burst = 100, 100
			// From the machine, through the lab's own way to the host.
			admin, err := s.AdminConfig(s.Host("n2"))
			s.must(err)
			config.Dial, config.Host, config.TLSClientConfig = admin.Dial, admin.Host, admin.TLSClientConfig
			config.CertData, config.CertFile, config.KeyData, config.KeyFile = nil, "", nil, ""
			api, err := kubernetes.NewForConfig(config)
			s.must(err)
			asked := 0
			ask := func(line string, want bool) {
				t.Helper()
				asked++
				attrs := attributes(line)
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attrs}}
				got, err := api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if got.Status.Allowed != want {
					t.Errorf("%s: allowed %v, want %v (%s)", line, got.Status.Allowed, want, got.Status.Reason)
				}
			}
			for _, line := range g.may {
				ask(line, true)
			}
			for _, line := range append(g.not, refused...) {
				ask(line, false)
			}
			s.Logf("%s: %d questions", account, asked)
			if account == fleet.ServiceAccountController || account == fleet.ServiceAccountRecovery || account == fleet.ServiceAccountLevel {
				return
			}
			// And one that is tried: this account changes no Node.
			_, err = api.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"lab":"was here"}}}`), metav1.PatchOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("it patched a Node: %v", err)
			}
		})
	}
	s.stood()
}

// attributes reads "verb resource[/sub][.group] [namespace/][name]".
func attributes(line string) *authorizationv1.ResourceAttributes {
	fields := strings.Fields(strings.ReplaceAll(line, "OWN", fleet.DefaultNamespace))
	a := &authorizationv1.ResourceAttributes{Verb: fields[0]}
	resource, sub, _ := strings.Cut(fields[1], "/")
	a.Resource, a.Group, _ = strings.Cut(resource, ".")
	a.Subresource = sub
	if len(fields) > 2 {
		a.Namespace, a.Name, _ = strings.Cut(fields[2], "/")
	}
	return a
}
