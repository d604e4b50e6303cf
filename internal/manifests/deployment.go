package manifests

import "github.com/exadev/regrade/internal/fleet"

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
