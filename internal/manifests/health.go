package manifests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// health are the heartbeat and the alert process: account, rights, the one ConfigMap
// that each may write, and the Deployment. The ConfigMap comes with them, because a
// right to create one could not be given by its name; it has no data, so that applying
// it again leaves what is in it.
func health(s Settings) (out []Object) {
	if s.Heartbeat {
		name := fleet.ServiceAccountHeartbeat
		out = append(out, account(s.Namespace, name, "heartbeat"))
		out = append(out, heartbeatRights(s)...)
		secret := func(variable, key string) Object { return fromSecret(variable, fleet.SecretHeartbeat, key) }
		out = append(out, ownMap(s, fleet.ConfigMapHealth, "heartbeat"), process(s, name, "heartbeat", s.HeartbeatEnv,
			secret("HEARTBEAT_GH_TOKEN", fleet.SecretToken), secret("HEARTBEAT_PUT_URL", "put-url"), secret("HEARTBEAT_PUT_TOKEN", "put-token")))
	}
	if s.Alert {
		name := fleet.ServiceAccountAlert
		out = append(out, account(s.Namespace, name, "alert"))
		out = append(out, namespaced(s, s.Namespace, name, "alert",
			rule(core, the("configmaps"), the("get"), fleet.ConfigMapHealth),
			rule(core, the("configmaps"), the("get", "patch"), fleet.ConfigMapAlert),
		)...)
		secret := func(variable, key string) Object { return fromSecret(variable, fleet.SecretAlert, key) }
		out = append(out, ownMap(s, fleet.ConfigMapAlert, "alert"), process(s, name, "alert", s.AlertEnv,
			secret("FLEET_ALERT_WEBHOOK_URL", "webhook-url"), secret("FLEET_ALERT_WEBHOOK_TOKEN", "webhook-token"),
			secret("FLEET_ALERT_NTFY_URL", "ntfy-url"), secret("FLEET_ALERT_NTFY_TOKEN", "ntfy-token"), secret("FLEET_ALERT_SLACK_URL", "slack-url")))
	}
	return out
}

// heartbeatRights: the heartbeat reads, and writes one ConfigMap. What it asks about
// GitHub's runners it may ask only where that is a check.
func heartbeatRights(s Settings) (out []Object) {
	name, w := fleet.ServiceAccountHeartbeat, s.Runners
	everywhere := []Object{rule(core, the("nodes"), the("list"))}
	if w.Pods {
		everywhere = append(everywhere, rule(core, the("pods"), the("list")))
	}
	out = append(out, cluster(s, name, "heartbeat", everywhere...)...)
	out = append(out, namespaced(s, s.Namespace, name, "heartbeat",
		// R-185-14: the controller's status by name.
		rule(core, the("configmaps"), the("get"), fleet.ConfigMapStatus),
		rule(core, the("configmaps"), the("get", "patch"), fleet.ConfigMapHealth),
		// Whether the host daemon of a server at a level lives, where no controller says.
		rule(coordination, the("leases"), the("list")),
	)...)
	var there []Object
	if w.Controller {
		there = append(there, rule("apps", the("deployments"), the("list")))
	}
	if len(w.ScaleSets) > 0 {
		there = append(there, rule(core, the("pods"), the("list"))) // the listeners
	}
	if len(there) > 0 {
		rights := namespaced(s, w.Namespace, name, "heartbeat", there...)
		if w.Namespace == s.Namespace {
			rename(rights, name+"-runners") // beside the role for our own ConfigMaps
		}
		out = append(out, rights...)
	}
	sets := map[string][]string{} // by namespace
	var namespaces []string
	for _, set := range w.ScaleSets {
		namespace, release, _ := strings.Cut(set, "/")
		if sets[namespace] == nil {
			namespaces = append(namespaces, namespace)
		}
		sets[namespace] = append(sets[namespace], release)
	}
	slices.Sort(namespaces)
	for _, namespace := range namespaces {
		suffixed := namespaced(s, namespace, name, "heartbeat", rule("actions.github.com", the("autoscalingrunnersets"), the("get"), sets[namespace]...))
		if namespace == w.Namespace || namespace == s.Namespace {
			rename(suffixed, name+"-scale-sets") // beside the other role of that namespace
		}
		out = append(out, suffixed...)
	}
	return out
}

// rename gives a role and its binding another name.
func rename(objects []Object, name string) {
	for _, o := range objects {
		o["metadata"].(Object)["name"] = name
		if ref, ok := o["roleRef"].(Object); ok {
			ref["name"] = name
		}
	}
}

func ownMap(s Settings, name, component string) Object {
	return Object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": Object{"name": name, "namespace": s.Namespace, "labels": labels(component), "annotations": Object{CreateOnly: fleet.True}},
	}
}

// fromSecret is a variable whose value stands in a Secret that a person makes, when
// there is one.
func fromSecret(variable, secret, key string) Object {
	return Object{"name": variable, "valueFrom": Object{"secretKeyRef": Object{"name": secret, "key": key, "optional": true}}}
}

// process is the Deployment of one process that is there once, holds nothing on its
// host, and has to be elsewhere soon when that host is gone: its absence is what
// people are told of.
func process(s Settings, name, component string, vars []Var, secrets ...Object) Object {
	match := Object{"app.kubernetes.io/name": "regrade", "app.kubernetes.io/component": component}
	env := []Object{{"name": "FLEET_ROLE_METRICS_ADDRESS", "value": fmt.Sprintf(":%d", MetricsPort)}}
	for _, v := range vars {
		env = append(env, Object{"name": v.Name, "value": v.Value})
	}
	env = append(env, secrets...)
	return Object{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": Object{"name": name, "namespace": s.Namespace, "labels": labels(component)},
		"spec": Object{
			"replicas": 1,
			// Two at once would tell everything twice.
			"strategy": Object{"type": "Recreate"},
			"selector": Object{"matchLabels": match},
			"template": Object{
				"metadata": Object{"labels": labels(component)},
				"spec": Object{
					"serviceAccountName":            name,
					"automountServiceAccountToken":  true,
					"terminationGracePeriodSeconds": 15,
					// A host under pressure evicts others first.
					"priorityClassName": "system-cluster-critical",
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
						"name":  component,
						"image": s.Image,
						"args":  list(component),
						"env":   env,
						"ports": []Object{{"name": "metrics", "containerPort": MetricsPort, "protocol": "TCP"}},
						// An API or a receiver that does not answer is no reason to start it
						// again: only one that does nothing is.
						"livenessProbe":  probe("/healthz", 60, 3),
						"readinessProbe": probe("/readyz", 30, 2),
						"securityContext": Object{
							"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
							"capabilities": Object{"drop": list("ALL")},
						},
						"resources": Object{
							"requests": Object{"cpu": "5m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
							"limits":   Object{"memory": "64Mi"},
						},
					}},
				},
			},
		},
	}
}
