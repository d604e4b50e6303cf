package manifests

import (
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
)

// daemonSet is the probe: it measures every server and every eligible host
// (R-185-01, R-X-10). It goes by both labels: a host that was swapped out keeps
// its pod while it is eligible.
func daemonSet(s Settings) Object {
	name := fleet.ServiceAccountProbe
	keys := s.keys()
	env := []Object{{
		"name":      "FLEET_ROLE_NODE",
		"valueFrom": Object{"fieldRef": Object{"fieldPath": "spec.nodeName"}},
	}}
	if s.ProbeMetricsPort != 0 {
		env = append(env, Object{"name": "FLEET_ROLE_METRICS_ADDRESS", "value": fmt.Sprintf(":%d", s.ProbeMetricsPort)})
	}
	for _, v := range s.ProbeEnv {
		env = append(env, Object{"name": v.Name, "value": v.Value})
	}
	marks := labels("probe")
	marks["app.kubernetes.io/name"] = name // R-185-49
	linux := Object{"key": "kubernetes.io/os", "operator": "In", "values": list("linux")}
	return Object{
		"apiVersion": "apps/v1", "kind": "DaemonSet",
		"metadata": Object{"name": name, "namespace": s.Namespace, "labels": marks},
		"spec": Object{
			"selector": Object{"matchLabels": Object{"app.kubernetes.io/name": name}},
			"template": Object{
				"metadata": Object{"labels": marks},
				"spec": Object{
					"serviceAccountName":           name,
					"automountServiceAccountToken": true,
					// The host's own routes, its way to the peers, and etcd's metrics on loopback.
					"hostNetwork": true,
					"dnsPolicy":   "Default",
					// A host under pressure is what it is there to see.
					"priorityClassName": "system-node-critical",
					// On its way out it takes its key away where the host records no more.
					"terminationGracePeriodSeconds": 15,
					"affinity": Object{"nodeAffinity": Object{"requiredDuringSchedulingIgnoredDuringExecution": Object{
						"nodeSelectorTerms": []Object{
							{"matchExpressions": []Object{linux, {"key": fleet.LabelEtcd, "operator": "In", "values": list(fleet.True)}}},
							{"matchExpressions": []Object{linux, {"key": keys.Eligible(), "operator": "In", "values": list(fleet.True)}}},
						},
					}}},
					// Whatever keeps other pods away: a cordon, a taint, a swap's own.
					"tolerations": []Object{{"operator": "Exists"}},
					"securityContext": Object{
						"seccompProfile": Object{"type": "RuntimeDefault"},
					},
					"volumes": []Object{{
						"name": "disk",
						"hostPath": Object{
							"path": s.FsyncDir, "type": "DirectoryOrCreate",
						},
					}},
					"containers": []Object{probeContainer(s, env)},
				},
			},
		},
	}
}

func probeContainer(s Settings, env []Object) Object {
	c := Object{
		"name":         "probe",
		"image":        s.Image,
		"args":         list("probe"),
		"env":          env,
		"volumeMounts": []Object{{"name": "disk", "mountPath": s.FsyncDir}},
		"securityContext": Object{
			// The folder on the host is root's, and nothing else needs root.
			"runAsUser": 0, "runAsGroup": 0,
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": Object{"drop": list("ALL")},
		},
		"resources": Object{
			"requests": Object{"cpu": "5m", "memory": "24Mi"},
			"limits":   Object{"memory": "64Mi"},
		},
	}
	if s.ProbeMetricsPort == 0 {
		return c
	}
	// The pod has the host's network, so that this port is the host's own: with
	// another pod's in its way it is not scheduled there, which its events say.
	c["ports"] = []Object{{"name": "metrics", "containerPort": s.ProbeMetricsPort, "protocol": "TCP"}}
	// A host under pressure answers late, and is what the probe is there to see: it
	// has five minutes.
	c["livenessProbe"] = probe("/healthz", 60, 5)
	c["readinessProbe"] = probe("/readyz", 15, 2)
	return c
}
