package manifests

import (
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
)

// MetricsPort is the controller's, in its pod; ProbeMetricsPort the probes' if
// nothing else is said, on each host. That one must be free on a host that has k3s
// (2379 to 2382, 6443, 6444, 10248 to 10259), a node exporter (9100) and what else
// people run: none of these, nor of the range that NodePorts and outgoing
// connections are taken from.
const (
	MetricsPort      = 9464
	ProbeMetricsPort = 9465
)

func probe(path string, period, failures int) Object {
	return Object{
		"httpGet": Object{"path": path, "port": "metrics"}, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
	}
}

// deployment is the controller: one replica, and never a second one beside it
// during a roll-out.
func deployment(s Settings) Object {
	name := fleet.ServiceAccountController
	match := Object{"app.kubernetes.io/name": "regrade", "app.kubernetes.io/component": "controller"}
	env := []Object{{
		// The controller's own id (safety rule 21).
		"name":      "FLEET_ROLE_SELF",
		"valueFrom": Object{"fieldRef": Object{"fieldPath": "metadata.uid"}},
	}}
	env = append(env, Object{"name": "FLEET_ROLE_METRICS_ADDRESS", "value": fmt.Sprintf(":%d", MetricsPort)})
	for _, v := range s.Env {
		env = append(env, Object{"name": v.Name, "value": v.Value})
	}
	return Object{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": Object{"name": name, "namespace": s.Namespace, "labels": labels("controller")},
		"spec": Object{
			"replicas": 1,
			"strategy": Object{"type": "Recreate"},
			"selector": Object{"matchLabels": match},
			"template": Object{
				"metadata": Object{"labels": labels("controller")},
				"spec": Object{
					"serviceAccountName":           name,
					"automountServiceAccountToken": true,
					// It holds nothing that has to be put away.
					"terminationGracePeriodSeconds": 5,
					// A host that goes NotReady shall not keep the controller for the
					// usual five minutes: a swap may be under way.
					"tolerations": []Object{
						{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
						{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
						{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
					},
					"securityContext": Object{
						"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
						"seccompProfile": Object{"type": "RuntimeDefault"},
					},
					"containers": []Object{{
						"name":  "controller",
						"image": s.Image,
						"args":  list("controller"),
						"env":   env,
						"ports": []Object{{"name": "metrics", "containerPort": MetricsPort, "protocol": "TCP"}},
						// A pass without the API is no reason to start it again, so that
						// only a controller that makes no passes is.
						"livenessProbe":  probe("/healthz", 60, 3),
						"readinessProbe": probe("/readyz", 15, 2),
						"securityContext": Object{
							"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
							"capabilities": Object{"drop": list("ALL")},
						},
						"resources": Object{
							"requests": Object{"cpu": "10m", "memory": "32Mi"},
							"limits":   Object{"memory": "128Mi"},
						},
					}},
				},
			},
		},
	}
}
