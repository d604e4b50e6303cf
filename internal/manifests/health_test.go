package manifests_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/manifests"
)

// healthSettings render the heartbeat and the alert process beside the rights of the
// others.
func healthSettings() manifests.Settings {
	s := settings()
	s.ConfigMaps, s.Controller, s.Probe = false, false, false
	s.Heartbeat, s.Alert = true, true
	s.HeartbeatEnv = []manifests.Var{{"HEARTBEAT_CONFIGMAP", "true"}}
	s.AlertEnv = []manifests.Var{{"FLEET_ALERT_CONFIGMAP", "true"}, {"FLEET_ALERT_STATE", "configmap"}}
	return s
}

// ofHealth are the objects that come with the two.
func ofHealth(t *testing.T, s manifests.Settings) []manifests.Object {
	t.Helper()
	without := s
	without.Heartbeat, without.Alert = false, false
	return render(t, s)[len(render(t, without)):]
}

func TestHeartbeatAndAlertAreRenderedWhole(t *testing.T) {
	got, err := manifests.YAML(ofHealth(t, healthSettings()))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/health.yaml"
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

// R-185-14 and the narrowest that works: a right more is a line more here.
func TestHeartbeatAndAlertMayReadAndWriteOneMapEach(t *testing.T) {
	rightsOf := func(s manifests.Settings) (got []string) {
		raw, err := manifests.YAML(ofHealth(t, s))
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(raw), "---\n") {
			var p parsed
			if err := yaml.Unmarshal([]byte(doc), &p); err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Rules {
				got = append(got, fmt.Sprintf("%s %s/%s: %s %s %s %s", p.Kind, p.Metadata.Namespace, p.Metadata.Name,
					strings.Join(r.APIGroups, ","), strings.Join(r.Resources, ","), strings.Join(r.ResourceNames, ","), strings.Join(r.Verbs, ",")))
			}
		}
		return got
	}
	want := []string{
		"ClusterRole /fleet-heartbeat:  nodes  list",
		"Role github-runner-platform/fleet-heartbeat:  configmaps fleet-role-status get",
		"Role github-runner-platform/fleet-heartbeat:  configmaps fleet-health get,patch",
		"Role github-runner-platform/fleet-heartbeat: coordination.k8s.io leases  list",
		"Role github-runner-platform/fleet-alert:  configmaps fleet-health get",
		"Role github-runner-platform/fleet-alert:  configmaps fleet-alert get,patch",
	}
	if diff := cmp.Diff(want, rightsOf(healthSettings())); diff != "" {
		t.Error(diff)
	}
	s := healthSettings()
	s.Alert = false
	s.Runners = heartbeat.Wanted{Namespace: "actions-runner-controller", Controller: true, Pods: true, ScaleSets: []string{"arc-runners-b/small", "arc-runners-a/small", "arc-runners-a/big", "actions-runner-controller/own"}}
	want = []string{
		"ClusterRole /fleet-heartbeat:  nodes  list",
		"ClusterRole /fleet-heartbeat:  pods  list",
		"Role github-runner-platform/fleet-heartbeat:  configmaps fleet-role-status get",
		"Role github-runner-platform/fleet-heartbeat:  configmaps fleet-health get,patch",
		"Role github-runner-platform/fleet-heartbeat: coordination.k8s.io leases  list",
		"Role actions-runner-controller/fleet-heartbeat: apps deployments  list",
		"Role actions-runner-controller/fleet-heartbeat:  pods  list",
		"Role actions-runner-controller/fleet-heartbeat-scale-sets: actions.github.com autoscalingrunnersets own get",
		"Role arc-runners-a/fleet-heartbeat: actions.github.com autoscalingrunnersets small,big get",
		"Role arc-runners-b/fleet-heartbeat: actions.github.com autoscalingrunnersets small get",
	}
	if diff := cmp.Diff(want, rightsOf(s)); diff != "" {
		t.Error(diff)
	}
}

// Safety rule 31: what is secret stands in Secrets that a person makes; no manifest
// has a value of one, nor the Secret itself.
func TestNoManifestOfThemHasASecret(t *testing.T) {
	secrets := 0
	for _, o := range ofHealth(t, healthSettings()) {
		if o.Kind() == "Secret" {
			t.Errorf("%s is rendered", o.Name())
		}
		if o.Kind() != "Deployment" {
			continue
		}
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Env []struct {
								Name, Value string
								ValueFrom   struct {
									SecretKeyRef struct {
										Name     string
										Optional bool
									}
								}
							}
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			if !strings.HasSuffix(e.Name, "_TOKEN") && !strings.HasSuffix(e.Name, "_URL") {
				continue
			}
			if ref := e.ValueFrom.SecretKeyRef; e.Value != "" || ref.Name == "" || !ref.Optional {
				t.Errorf("%+v", e)
			}
			secrets++
		}
	}
	if secrets != 8 {
		t.Errorf("%d variables from Secrets", secrets)
	}
}

// Safety rule 25, and R-X-10 of its kind: the maps are created empty, whoever applies
// them again changes nothing in them.
func TestTheirMapsHaveNoData(t *testing.T) {
	maps := 0
	for _, o := range ofHealth(t, healthSettings()) {
		if o.Kind() != "ConfigMap" {
			continue
		}
		maps++
		if _, has := o["data"]; has || o.Name() != fleet.ConfigMapHealth && o.Name() != fleet.ConfigMapAlert {
			t.Errorf("%v", o)
		}
	}
	if maps != 2 {
		t.Errorf("%d maps", maps)
	}
	s := healthSettings()
	s.Image = ""
	if _, err := manifests.Objects(s); err == nil {
		t.Error("Deployments without an image")
	}
}

// Two roles of one name in one namespace would be one, with the rights of the later: where
// the runner controller is in our own namespace its role has another name.
func TestTheHeartbeatsRolesHaveNamesOfTheirOwn(t *testing.T) {
	s := healthSettings()
	s.Runners = heartbeat.Wanted{Namespace: s.Namespace, Controller: true, ScaleSets: []string{s.Namespace + "/small"}}
	seen := map[string]bool{}
	for _, o := range render(t, s) {
		id := o.Kind() + " " + o.Namespace() + "/" + o.Name()
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
	}
	for _, name := range []string{"fleet-heartbeat", "fleet-heartbeat-runners", "fleet-heartbeat-scale-sets"} {
		for _, kind := range []string{"Role", "RoleBinding"} {
			if !seen[kind+" "+s.Namespace+"/"+name] {
				t.Errorf("no %s %s", kind, name)
			}
		}
	}
}
