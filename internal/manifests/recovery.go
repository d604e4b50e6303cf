package manifests

import (
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
)

// RecoveryMetricsPort is where `regrade recovery` shows itself, in its pod.
const RecoveryMetricsPort = 9466

// recoveryRights are what `regrade recovery` needs. It may not delete a Node unless it
// prunes: whoever deletes a server's Node has its member removed by k3s.
func recoveryRights(s Settings) (out []Object) {
	name := fleet.ServiceAccountRecovery
	verbs := the("list", "patch")
	if s.RecoveryPrunes {
		verbs = the("list", "patch", "delete")
	}
	out = append(out, cluster(s, name, "recovery", rule(core, the("nodes"), verbs))...)
	// R-B-01, R-B-10: the Lease that exempts nodes, by name.
	out = append(out, namespaced(s, fleet.LeaseNamespace, name, "recovery", rule(coordination, the("leases"), the("get"), fleet.LeaseName))...)
	// Issue 6: what it does with a node, and why not, is told on its Node.
	out = append(out, namespaced(s, "default", name, "recovery", rule(core, the("events"), the("create")))...)
	// What still goes on, on a host whose kubelet is silent: the heartbeats of its probe
	// and its host daemon (safety rule 29), and its kubelet's own Lease.
	own := []Object{rule(coordination, the("leases"), the("list"))}
	if s.RecoveryEvidence {
		// The evidence rule: what other hosts' probes measured.
		own = append(own, rule(core, the("configmaps"), the("get"), fleet.ConfigMapProbe))
	}
	out = append(out, namespaced(s, s.Namespace, name, "recovery", own...)...)
	return append(out, namespaced(s, fleet.KubeletLeaseNamespace, name, "recovery", rule(coordination, the("leases"), the("list")))...)
}

// recoveryDeployment is one replica, on any node. It leaves a node that is not
// reachable after ten seconds, long before the threshold: what would recover that node
// may run on it.
func recoveryDeployment(s Settings) Object {
	name := fleet.ServiceAccountRecovery
	env := []Object{
		{
			// The node that it must not taint.
			"name":      "NODE_RECOVERY_SELF_NODE",
			"valueFrom": Object{"fieldRef": Object{"fieldPath": "spec.nodeName"}},
		},
		{"name": "FLEET_ROLE_METRICS_ADDRESS", "value": fmt.Sprintf(":%d", RecoveryMetricsPort)},
	}
	for _, v := range s.RecoveryEnv {
		env = append(env, Object{"name": v.Name, "value": v.Value})
	}
	away := func(key string) Object {
		return Object{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
	}
	return Object{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": Object{"name": name, "namespace": s.Namespace, "labels": labels("recovery")},
		"spec": Object{
			"replicas": 1,
			// Two at once would only refuse each other's writes.
			"strategy": Object{"type": "RollingUpdate"},
			"selector": Object{"matchLabels": Object{"app.kubernetes.io/name": "regrade", "app.kubernetes.io/component": "recovery"}},
			"template": Object{
				"metadata": Object{"labels": labels("recovery")},
				"spec": Object{
					"serviceAccountName":            name,
					"automountServiceAccountToken":  true,
					"terminationGracePeriodSeconds": 5,
					// A node under pressure shall not evict what recovers others.
					"priorityClassName": "system-cluster-critical",
					"tolerations": []Object{
						{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
						away("node.kubernetes.io/not-ready"), away("node.kubernetes.io/unreachable"),
						// Where every node that is Ready again still carries the taint, only who may
						// run there takes it off. A node that is not reachable is left by the above.
						{"key": fleet.TaintOutOfService, "operator": "Exists", "effect": "NoExecute"},
					},
					"securityContext": Object{
						"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
						"seccompProfile": Object{"type": "RuntimeDefault"},
					},
					"containers": []Object{{
						"name":           "recovery",
						"image":          s.Image,
						"args":           list("recovery"),
						"env":            env,
						"ports":          []Object{{"name": "metrics", "containerPort": RecoveryMetricsPort, "protocol": "TCP"}},
						"livenessProbe":  probe("/healthz", 60, 3),
						"readinessProbe": probe("/readyz", 15, 2),
						"securityContext": Object{
							"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
							"capabilities": Object{"drop": list("ALL")},
						},
						"resources": Object{
							"requests": Object{"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
							"limits":   Object{"memory": "64Mi"},
						},
					}},
				},
			},
		},
	}
}
