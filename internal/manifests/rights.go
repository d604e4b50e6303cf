package manifests

import "github.com/exadev/regrade/internal/fleet"

// rule is one RBAC rule.
func rule(group string, resources, verbs []string, names ...string) Object {
	r := Object{"apiGroups": list(group), "resources": anys(resources), "verbs": anys(verbs)}
	if len(names) > 0 {
		r["resourceNames"] = anys(names)
	}
	return r
}

func list(s ...string) []any { return anys(s) }

func anys(s []string) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}

const (
	core         = ""
	coordination = "coordination.k8s.io"
)

// rights are the roles of controller, host daemon and probe, each with its binding.
// No rule has a wildcard, and none reaches a Secret.
//
// A right by name does not cover create, nor a list or watch that does not
// select by that name: create of Leases and ConfigMaps and list of Leases are
// therefore for all of a namespace, and only in that namespace.
func rights(s Settings) []Object {
	controller, host, probes := fleet.ServiceAccountController, fleet.ServiceAccountHost, fleet.ServiceAccountProbe
	var out []Object
	add := func(o ...Object) { out = append(out, o...) }

	// R-E2-11, R-228-08: what a swap changes on Nodes and pods. Patching Nodes
	// is the power to remove any member: only the controller has it. watch is
	// for waking up (design §3).
	add(cluster(s, controller, "controller",
		rule(core, the("nodes"), the("get", "list", "patch", "watch")),
		rule(core, the("pods"), the("get", "list")),
		rule(core, the("pods/eviction"), the("create")),
		rule("apps", the("daemonsets"), the("get")),
		// R-E2-12, R-N-04: the etcd snapshot is accepted when k3s says ready.
		rule("k3s.cattle.io", the("etcdsnapshotfiles"), the("get", "list")),
	)...)
	// Issue 4: an event on the Node for a verdict or a step. Events on Nodes are
	// in the namespace default.
	add(namespaced(s, "default", controller, "controller", rule(core, the("events"), the("create")))...)
	// R-E2-12: the regrade Lease, made again when somebody deleted it.
	add(namespaced(s, fleet.LeaseNamespace, controller, "controller",
		rule(coordination, the("leases"), the("create")),
		rule(coordination, the("leases"), the("get", "update"), fleet.LeaseName),
	)...)
	// R-228-09: a restarted Node is judged Ready by its kubelet's heartbeat.
	add(namespaced(s, fleet.KubeletLeaseNamespace, controller, "controller",
		rule(coordination, the("leases"), the("get")),
	)...)
	add(namespaced(s, s.Namespace, controller, "controller",
		// R-E2-12, R-228-10: reports are read, the status is written by key, both
		// are watched by name; a deleted one is made again (safety rule 25).
		rule(core, the("configmaps"), the("create")),
		rule(core, the("configmaps"), the("get", "watch"), s.ActuatorConfigMap),
		rule(core, the("configmaps"), the("get", "patch", "watch"), fleet.ConfigMapStatus),
		// R-185-11: it reads the probes' windows. It writes neither these nor the reports
		// (R-E2-12, R-185-28), so the keys of Nodes that were deleted stay until a person
		// takes them away (docs/operations.md, "Out for good").
		rule(core, the("configmaps"), the("get"), fleet.ConfigMapProbe),
		// Safety rule 29: one list reads every host's heartbeat.
		rule(coordination, the("leases"), the("list")),
	)...)

	// R-D1-09: the host daemon reads Nodes and changes none.
	add(cluster(s, host, "host", rule(core, the("nodes"), the("get", "list", "watch")))...)
	// R-216-11: it checks the Lease's holder and swap id itself.
	add(namespaced(s, fleet.LeaseNamespace, host, "host",
		rule(coordination, the("leases"), the("get"), fleet.LeaseName),
	)...)
	add(namespaced(s, s.Namespace, host, "host",
		// R-D1-09: its report, one key of one ConfigMap.
		rule(core, the("configmaps"), the("get", "patch"), s.ActuatorConfigMap),
		// Safety rule 29: its heartbeat Lease.
		rule(coordination, the("leases"), the("create", "get", "patch")),
	)...)

	// R-185-28: the probe reads Nodes and changes none; one ConfigMap by name.
	add(cluster(s, probes, "probe", rule(core, the("nodes"), the("get", "list")))...)
	add(namespaced(s, s.Namespace, probes, "probe",
		rule(core, the("configmaps"), the("get", "patch"), fleet.ConfigMapProbe),
		// Safety rule 29: its heartbeat Lease, one a Node, so not by name.
		rule(coordination, the("leases"), the("create", "patch")),
	)...)
	if s.Levels {
		add(levelRights(s)...)
	}
	if s.Recovery {
		add(recoveryRights(s)...)
	}
	return out
}

func the(s ...string) []string { return s }

func cluster(s Settings, name, component string, rules ...Object) []Object {
	return []Object{
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"metadata": Object{"name": name, "labels": labels(component)}, "rules": rules,
		},
		binding(s, "ClusterRoleBinding", "ClusterRole", "", name, component),
	}
}

func namespaced(s Settings, namespace, name, component string, rules ...Object) []Object {
	return []Object{
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
			"metadata": Object{"name": name, "namespace": namespace, "labels": labels(component)}, "rules": rules,
		},
		binding(s, "RoleBinding", "Role", namespace, name, component),
	}
}

func binding(s Settings, kind, role, namespace, name, component string) Object {
	meta := Object{"name": name, "labels": labels(component)}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	return Object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta,
		"roleRef":  Object{"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
		"subjects": []Object{{"kind": "ServiceAccount", "name": name, "namespace": s.Namespace}},
	}
}
