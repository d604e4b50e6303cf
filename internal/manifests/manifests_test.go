package manifests_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/manifests"
)

var update = flag.Bool("update", false, "write the golden file")

func settings() manifests.Settings {
	return manifests.Settings{
		Namespace: fleet.DefaultNamespace, ActuatorConfigMap: fleet.ConfigMapActuators,
		Image: "registry.example/regrade:v0", Env: []manifests.Var{{"FLEET_ROLE_DRY_RUN", "true"}},
		ConfigMaps: true, Controller: true,
		Recovery: true, RecoveryEnv: []manifests.Var{{"NODE_RECOVERY_AFTER_SECONDS", "120"}}, RecoveryEvidence: true,
		Probe: true, ProbeEnv: []manifests.Var{{"FLEET_ROLE_WINDOW", "100"}}, FsyncDir: fleet.DirFsync, ProbeMetricsPort: manifests.ProbeMetricsPort,
	}
}

func render(t *testing.T, s manifests.Settings) []manifests.Object {
	t.Helper()
	objects, err := manifests.Objects(s)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestTheWholeOutput(t *testing.T) {
	got, err := manifests.YAML(render(t, settings()))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/all.yaml"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

// parsed is a role as a reader of the YAML finds it.
type parsed struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Rules    []struct{ APIGroups, Resources, Verbs, ResourceNames, NonResourceURLs []string }
	RoleRef  struct{ Kind, Name string }
	Subjects []struct{ Kind, Name, Namespace string }
	Data     map[string]string
}

func read(t *testing.T, s manifests.Settings) []parsed {
	t.Helper()
	raw, err := manifests.YAML(render(t, s))
	if err != nil {
		t.Fatal(err)
	}
	var out []parsed
	for doc := range strings.SplitSeq(string(raw), "---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var p parsed
		if err := yaml.Unmarshal([]byte(doc), &p); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// R-185-28, R-E2-40, R-E2-11, R-E2-12, R-228-08, R-228-09, R-D1-09, R-216-11: these rights
// and no others. A right more is a line more here, and has to be argued for.
func TestRightsAreTheseAndNoOthers(t *testing.T) {
	var got []string
	for _, p := range read(t, settings()) {
		if !strings.HasSuffix(p.Kind, "Role") {
			continue
		}
		for _, r := range p.Rules {
			got = append(got, fmt.Sprintf("%s %s/%s: %s %s %s %s", p.Kind, p.Metadata.Namespace, p.Metadata.Name,
				strings.Join(r.APIGroups, ","), strings.Join(r.Resources, ","), strings.Join(r.ResourceNames, ","), strings.Join(r.Verbs, ",")))
		}
	}
	want := []string{
		"ClusterRole /fleet-role:  nodes  get,list,patch,watch",
		"ClusterRole /fleet-role:  pods  get,list",
		"ClusterRole /fleet-role:  pods/eviction  create",
		"ClusterRole /fleet-role: apps daemonsets  get",
		"ClusterRole /fleet-role: k3s.cattle.io etcdsnapshotfiles  get,list",
		"Role default/fleet-role:  events  create",
		"Role kube-system/fleet-role: coordination.k8s.io leases  create",
		"Role kube-system/fleet-role: coordination.k8s.io leases fleet-regrade get,update",
		"Role kube-node-lease/fleet-role: coordination.k8s.io leases  get",
		"Role github-runner-platform/fleet-role:  configmaps  create",
		"Role github-runner-platform/fleet-role:  configmaps fleet-role-actuators get,watch",
		"Role github-runner-platform/fleet-role:  configmaps fleet-role-status get,patch,watch",
		"Role github-runner-platform/fleet-role:  configmaps fleet-role-probe get",
		"Role github-runner-platform/fleet-role: coordination.k8s.io leases  list",
		"ClusterRole /fleet-role-actuator:  nodes  get,list,watch",
		"Role kube-system/fleet-role-actuator: coordination.k8s.io leases fleet-regrade get",
		"Role github-runner-platform/fleet-role-actuator:  configmaps fleet-role-actuators get,patch",
		"Role github-runner-platform/fleet-role-actuator: coordination.k8s.io leases  create,get,patch",
		"ClusterRole /fleet-role-probe:  nodes  get,list",
		"Role github-runner-platform/fleet-role-probe:  configmaps fleet-role-probe get,patch",
		"Role github-runner-platform/fleet-role-probe: coordination.k8s.io leases  create,patch",
		"ClusterRole /fleet-node-recovery:  nodes  list,patch",
		"Role kube-system/fleet-node-recovery: coordination.k8s.io leases fleet-regrade get",
		"Role default/fleet-node-recovery:  events  create",
		"Role github-runner-platform/fleet-node-recovery: coordination.k8s.io leases  list",
		"Role github-runner-platform/fleet-node-recovery:  configmaps fleet-role-probe get",
		"Role kube-node-lease/fleet-node-recovery: coordination.k8s.io leases  list",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoRightIsAWildcardOrReachesASecret(t *testing.T) {
	for _, p := range read(t, settings()) {
		for _, r := range p.Rules {
			for _, s := range slices.Concat(r.APIGroups, r.Resources, r.Verbs, r.ResourceNames) {
				if strings.Contains(s, "*") || strings.HasPrefix(s, "secret") || s == "escalate" || s == "bind" || s == "impersonate" {
					t.Errorf("%s %s has %q", p.Kind, p.Metadata.Name, s)
				}
			}
			if len(r.NonResourceURLs) > 0 {
				t.Errorf("%s %s reaches %v", p.Kind, p.Metadata.Name, r.NonResourceURLs)
			}
		}
	}
}

// Each role is bound to its own account, in its own namespace, and to nobody else.
func TestEachRoleIsBoundToItsAccount(t *testing.T) {
	docs := read(t, settings())
	bound := map[string]bool{}
	for _, p := range docs {
		if p.RoleRef.Name == "" {
			continue
		}
		bound[p.RoleRef.Kind+p.Metadata.Namespace+p.RoleRef.Name] = true
		if len(p.Subjects) != 1 || p.Subjects[0].Kind != "ServiceAccount" || p.Subjects[0].Name != p.RoleRef.Name || p.Subjects[0].Namespace != fleet.DefaultNamespace {
			t.Errorf("%s %s binds %+v", p.Kind, p.Metadata.Name, p.Subjects)
		}
	}
	for _, p := range docs {
		if strings.HasSuffix(p.Kind, "Role") && !bound[p.Kind+p.Metadata.Namespace+p.Metadata.Name] {
			t.Errorf("%s %s/%s is bound to nobody", p.Kind, p.Metadata.Namespace, p.Metadata.Name)
		}
	}
}

// Safety rule 25: manifests never carry data for a live ConfigMap, and bring
// one only when asked to.
func TestConfigMapsCarryNoDataAndComeOnlyWhenAskedFor(t *testing.T) {
	count := func(s manifests.Settings) (n int) {
		for _, o := range render(t, s) {
			if o.Kind() == "ConfigMap" {
				n++
				if _, has := o["data"]; has {
					t.Errorf("%s carries data", o.Name())
				}
			}
		}
		return n
	}
	s := settings()
	if n := count(s); n != 3 {
		t.Errorf("%d ConfigMaps, want 3", n)
	}
	s.ConfigMaps = false
	if n := count(s); n != 0 {
		t.Errorf("%d ConfigMaps without being asked", n)
	}
}

func TestNamesFollowTheSettings(t *testing.T) {
	s := settings()
	s.Namespace, s.ActuatorConfigMap = "elsewhere", "reports"
	raw, err := manifests.YAML(render(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{fleet.DefaultNamespace, fleet.ConfigMapActuators} {
		if strings.Contains(string(raw), word) {
			t.Errorf("%s is still there", word)
		}
	}
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	for name, change := range map[string]func(*manifests.Settings){
		"no namespace":                func(s *manifests.Settings) { s.Namespace = "" },
		"kube-system":                 func(s *manifests.Settings) { s.Namespace = "kube-system" },
		"no name for the reports":     func(s *manifests.Settings) { s.ActuatorConfigMap = "" },
		"reports in the status's map": func(s *manifests.Settings) { s.ActuatorConfigMap = fleet.ConfigMapStatus },
		"a Deployment without image":  func(s *manifests.Settings) { s.Image, s.Probe = "", false },
		"a DaemonSet without image":   func(s *manifests.Settings) { s.Image, s.Controller = "", false },
		"reports in the probes' map":  func(s *manifests.Settings) { s.ActuatorConfigMap = fleet.ConfigMapProbe },
		"no folder for the disk":      func(s *manifests.Settings) { s.FsyncDir = "" },
		"a recovery without image":    func(s *manifests.Settings) { s.Image, s.Controller, s.Probe = "", false, false },
		"a port that is none":         func(s *manifests.Settings) { s.ProbeMetricsPort = 70000 },
		"a label prefix of nothing":   func(s *manifests.Settings) { s.LabelPrefix = "/" },
	} {
		s := settings()
		change(&s)
		if _, err := manifests.Objects(s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// pod is what is held of the DaemonSet.
type pod struct {
	Kind string
	Spec struct {
		Selector struct{ MatchLabels map[string]string }
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				HostNetwork bool
				Affinity    struct {
					NodeAffinity struct {
						Required struct {
							NodeSelectorTerms []struct {
								MatchExpressions []struct {
									Key, Operator string
									Values        []string
								}
							}
						} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
					}
				}
				Tolerations []map[string]string
				Volumes     []struct{ HostPath struct{ Path, Type string } }
				Containers  []struct {
					Args            []string
					Env             []struct{ Name, Value string }
					VolumeMounts    []struct{ MountPath string }
					Ports           []struct{ ContainerPort int }
					LivenessProbe   *struct{ HTTPGet struct{ Path string } }
					ReadinessProbe  *struct{ HTTPGet struct{ Path string } }
					SecurityContext struct {
						ReadOnlyRootFilesystem, AllowPrivilegeEscalation bool
						Capabilities                                     struct{ Drop, Add []string }
					}
				}
			}
		}
	}
}

func daemonSet(t *testing.T, s manifests.Settings) pod {
	t.Helper()
	for _, o := range render(t, s) {
		if o.Kind() != "DaemonSet" {
			continue
		}
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var p pod
		if err := yaml.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("no DaemonSet")
	return pod{}
}

// R-185-01, R-X-10: on Linux, and on a host with either label, so that one that
// was swapped out keeps its pod while it is eligible; past every taint and cordon.
func TestTheProbeFollowsBothLabels(t *testing.T) {
	s := settings()
	s.LabelPrefix = "example.com/"
	spec := daemonSet(t, s).Spec.Template.Spec
	var terms []string
	for _, term := range spec.Affinity.NodeAffinity.Required.NodeSelectorTerms {
		terms = append(terms, fmt.Sprint(term.MatchExpressions))
	}
	want := []string{
		"[{kubernetes.io/os In [linux]} {node-role.kubernetes.io/etcd In [true]}]",
		"[{kubernetes.io/os In [linux]} {example.com/voter-eligible In [true]}]",
	}
	if diff := cmp.Diff(want, terms); diff != "" {
		t.Error(diff)
	}
	if !spec.HostNetwork || len(spec.Tolerations) != 1 || len(spec.Tolerations[0]) != 1 || spec.Tolerations[0]["operator"] != "Exists" {
		t.Errorf("host network %v, tolerations %v", spec.HostNetwork, spec.Tolerations)
	}
}

// R-185-49; it writes to one folder of the host and has no power besides.
func TestTheProbesPodWritesToOneFolder(t *testing.T) {
	s := settings()
	s.FsyncDir = "/data/k3s/probe"
	d := daemonSet(t, s)
	if d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "fleet-role-probe" || d.Spec.Template.Metadata.Labels["app.kubernetes.io/name"] != "fleet-role-probe" {
		t.Errorf("%v selects %v", d.Spec.Selector.MatchLabels, d.Spec.Template.Metadata.Labels)
	}
	spec := d.Spec.Template.Spec
	if len(spec.Volumes) != 1 || spec.Volumes[0].HostPath.Path != s.FsyncDir || spec.Volumes[0].HostPath.Type != "DirectoryOrCreate" {
		t.Errorf("volumes %+v", spec.Volumes)
	}
	c := spec.Containers[0]
	if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].MountPath != s.FsyncDir {
		t.Errorf("mounts %+v", c.VolumeMounts)
	}
	sc := c.SecurityContext
	if !sc.ReadOnlyRootFilesystem || sc.AllowPrivilegeEscalation || fmt.Sprint(sc.Capabilities.Drop) != "[ALL]" || len(sc.Capabilities.Add) != 0 {
		t.Errorf("%+v", sc)
	}
	if fmt.Sprint(c.Args) != "[probe]" || len(c.Env) != 3 || c.Env[0].Name != "FLEET_ROLE_NODE" || c.Env[1].Value != ":9465" || c.Env[2].Value != "100" {
		t.Errorf("%v %v", c.Args, c.Env)
	}
}

// Its port is the host's own, so it is a setting, and none when nobody wants it.
func TestTheProbeShowsItselfAtAPortOfItsHost(t *testing.T) {
	s := settings()
	s.ProbeMetricsPort = 19465
	c := daemonSet(t, s).Spec.Template.Spec.Containers[0]
	if len(c.Ports) != 1 || c.Ports[0].ContainerPort != 19465 || c.Env[1].Name != "FLEET_ROLE_METRICS_ADDRESS" || c.Env[1].Value != ":19465" {
		t.Errorf("%v, %v", c.Ports, c.Env)
	}
	if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("lives by %+v, is ready by %+v", c.LivenessProbe, c.ReadinessProbe)
	}
	s.ProbeMetricsPort = 0
	c = daemonSet(t, s).Spec.Template.Spec.Containers[0]
	if len(c.Ports) != 0 || len(c.Env) != 2 || c.LivenessProbe != nil || c.ReadinessProbe != nil {
		t.Errorf("without a port: %v, %v, %v, %v", c.Ports, c.Env, c.LivenessProbe, c.ReadinessProbe)
	}
}

// R-B-10, issue 6: recovery's rights go with what it does: none to delete unless it
// prunes, none to the probes' windows unless it asks them, and nothing at all where it is
// not wanted.
func TestRecoverysRightsFollowItsSettings(t *testing.T) {
	nodes := func(s manifests.Settings) (verbs, reads []string) {
		for _, p := range read(t, s) {
			if p.Metadata.Name != fleet.ServiceAccountRecovery {
				continue
			}
			for _, r := range p.Rules {
				if slices.Contains(r.Resources, "nodes") {
					verbs = append(verbs, r.Verbs...)
				}
				if p.Metadata.Namespace == fleet.DefaultNamespace {
					reads = append(reads, r.Resources...)
				}
			}
		}
		return verbs, reads
	}
	s := settings()
	if verbs, reads := nodes(s); !slices.Equal(verbs, []string{"list", "patch"}) || !slices.Equal(reads, []string{"leases", "configmaps"}) {
		t.Errorf("%v, %v", verbs, reads)
	}
	s.RecoveryPrunes, s.RecoveryEvidence = true, false
	if verbs, reads := nodes(s); !slices.Equal(verbs, []string{"list", "patch", "delete"}) || !slices.Equal(reads, []string{"leases"}) {
		t.Errorf("%v, %v", verbs, reads)
	}
	s.Recovery = false
	for _, o := range render(t, s) {
		if o.Name() == fleet.ServiceAccountRecovery {
			t.Errorf("%s %s is there all the same", o.Kind(), o.Name())
		}
	}
}

// The watcher leaves a dead node before the threshold, may run on one whose taint it has
// to take off, knows its own node, and has no power on the host.
func TestRecoverysPodLeavesADeadNode(t *testing.T) {
	for _, o := range render(t, settings()) {
		if o.Kind() != "Deployment" || o.Name() != fleet.ServiceAccountRecovery {
			continue
		}
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Spec struct {
				Replicas int
				Template struct {
					Spec struct {
						PriorityClassName string
						SecurityContext   struct {
							RunAsNonRoot bool
							RunAsUser    int
						}
						Tolerations []struct {
							Key, Effect       string
							TolerationSeconds *int
						}
						Containers []struct {
							Args []string
							Env  []struct {
								Name, Value string
								ValueFrom   struct{ FieldRef struct{ FieldPath string } }
							}
							SecurityContext struct{ ReadOnlyRootFilesystem bool }
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		spec := d.Spec.Template.Spec
		soon, anyTime := 0, 0
		for _, tol := range spec.Tolerations {
			if tol.Effect == "NoExecute" && tol.TolerationSeconds != nil && *tol.TolerationSeconds == 10 {
				soon++
			}
			if tol.Key == fleet.TaintOutOfService && tol.Effect == "NoExecute" && tol.TolerationSeconds == nil {
				anyTime++
			}
		}
		if d.Spec.Replicas != 1 || soon != 2 || anyTime != 1 || spec.PriorityClassName == "" || !spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.RunAsUser != 65532 {
			t.Errorf("%+v", d)
		}
		c := spec.Containers[0]
		if fmt.Sprint(c.Args) != "[recovery]" || c.Env[0].Name != "NODE_RECOVERY_SELF_NODE" || c.Env[0].ValueFrom.FieldRef.FieldPath != "spec.nodeName" || !c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Fatal("no Deployment")
}

// Design §1, R-D1-09: the rights to change Nodes are an account of its own, made where
// levels are asked for. The break check: render it always.
func TestTheRightsOfLevelsAreMadeOnlyWhenAskedFor(t *testing.T) {
	rights := func(s manifests.Settings) (got []string) {
		for _, p := range read(t, s) {
			if !strings.Contains(p.Metadata.Name, fleet.ServiceAccountLevel) {
				continue
			}
			for _, r := range p.Rules {
				got = append(got, fmt.Sprintf("%s %s: %s %s %s", p.Kind, p.Metadata.Namespace, strings.Join(r.Resources, ","), strings.Join(r.ResourceNames, ","), strings.Join(r.Verbs, ",")))
			}
			if len(p.Rules) == 0 {
				got = append(got, p.Kind)
			}
		}
		slices.Sort(got)
		return got
	}
	s := settings()
	if got := rights(s); len(got) > 0 {
		t.Errorf("%v", got)
	}
	s.Levels = true
	want := []string{
		"ClusterRole : nodes  get,list,patch", "ClusterRole : pods  get,list", "ClusterRole : pods/eviction  create", "ClusterRoleBinding",
		"Role github-runner-platform: configmaps fleet-role-status get", "Role kube-system: leases  create", "Role kube-system: leases fleet-regrade get,update",
		"RoleBinding", "RoleBinding", "Secret", "ServiceAccount",
	}
	if diff := cmp.Diff(want, rights(s)); diff != "" {
		t.Error(diff)
	}
}
