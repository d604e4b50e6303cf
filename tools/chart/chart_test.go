package chart_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/cli/chart"
)

const (
	folder    = "../../deploy/chart/regrade"
	namespace = "github-runner-platform"
)

// render is what Helm makes of the chart, the notes apart.
func render(t *testing.T, namespace string, sets ...string) (objects []chart.Object, notes string, err error) {
	t.Helper()
	c, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]any{}
	for _, s := range sets {
		put(t, given, s)
	}
	values, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "regrade", Namespace: namespace}, common.DefaultCapabilities)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Engine{Strict: true}.Render(c, values)
	if err != nil {
		return nil, "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = files[name]
			continue
		}
		more, err := chart.Parse(files[name])
		if err != nil {
			t.Fatalf("%s: %v", path.Base(name), err)
		}
		objects = append(objects, more...)
	}
	return objects, notes, nil
}

// put sets one value as a values file does: YAML decides what it is.
func put(t *testing.T, given map[string]any, set string) {
	t.Helper()
	path, text, _ := strings.Cut(set, "=")
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	if group, name, ok := strings.Cut(path, "."); ok {
		if given[group] == nil {
			given[group] = map[string]any{}
		}
		given, path = given[group].(map[string]any), name
	}
	given[path] = v
}

func byID(t *testing.T, objects []chart.Object) map[string]chart.Object {
	t.Helper()
	out := map[string]chart.Object{}
	for _, o := range objects {
		if out[o.ID()] != nil {
			t.Errorf("%s is there twice", o.ID())
		}
		out[o.ID()] = o
	}
	return out
}

// Issue 7: the chart and the command say the same, object by object.
func TestTheChartAndTheCommandSayTheSame(t *testing.T) {
	everything := map[string]string{
		"heartbeat.enabled": "true", "alert.enabled": "true", "recovery.enabled": "true", "levels.enabled": "true",
	}
	flags := func(more map[string]string) map[string]string {
		out := map[string]string{"heartbeat": "true", "alert": "true", "recovery": "true", "levels": "true"}
		maps.Copy(out, more)
		return out
	}
	set := func(more map[string]string) map[string]string {
		out := maps.Clone(everything)
		maps.Copy(out, more)
		return out
	}
	arc := "a/x github-runner-platform/y actions-runner-controller/z a/w"
	for name, test := range map[string]struct {
		namespace string
		flags     map[string]string // of regrade manifests
		values    map[string]string // of the chart
	}{
		"as it comes":                         {namespace, nil, nil},
		"everything on":                       {namespace, flags(nil), everything},
		"nothing in the cluster but accounts": {namespace, map[string]string{"deployment": "false", "probe": "false"}, map[string]string{"controller.enabled": "false", "probe.enabled": "false"}},
		"another namespace, prefix, ConfigMap and image": {
			"zoo", flags(map[string]string{"namespace": "zoo", "label-prefix": "zoo.example/", "actuator-configmap": "zoo-reports", "image": "zoo.example/regrade:v9"}),
			set(map[string]string{"labelPrefix": "zoo.example/", "actuatorConfigmap": "zoo-reports", "image": "zoo.example/regrade:v9"}),
		},
		"the dry run off, other times and limits": {
			namespace,
			map[string]string{"dry-run": "false", "target": "5", "max-servers": "7", "period": "40", "lease-duration": "1000000", "memory-some": "12.5", "failed-connects": "0.25", "wal-fsync-limit": "30ms", "wifi": "unfit", "window": "40", "servers": "https://10.0.0.1:6443,https://10.0.0.2:6443"},
			map[string]string{"dryRun": "false", "target": "5", "maxServers": "7", "period": "40", "leaseDuration": "1000000", "memorySome": "12.5", "failedConnects": "0.25", "walFsyncLimit": "30ms", "wifi": "unfit", "window": "40", "servers": `https://10.0.0.1:6443,https://10.0.0.2:6443`},
		},
		"another take-over and cooldown": {namespace, map[string]string{"take-over": "95", "cooldown": "86400"}, map[string]string{"takeOver": "95", "cooldown": "86400"}},
		"the probe without metrics":      {namespace, map[string]string{"probe-metrics-port": "0", "fsync-dir": "/data/x"}, map[string]string{"probe.metricsPort": "0", "fsyncDir": "/data/x"}},
		"the probe on another port":      {namespace, map[string]string{"probe-metrics-port": "19465"}, map[string]string{"probe.metricsPort": "19465"}},
		"recovery that deletes Nodes and asks no probe": {
			namespace, map[string]string{"recovery": "true", "recovery-prune-hours": "72", "recovery-evidence": "false", "recovery-dry-run": "true"},
			map[string]string{"recovery.enabled": "true", "recovery.pruneHours": "72", "recovery.evidence": "false", "recovery.dryRun": "true"},
		},
		"levels alone": {namespace, map[string]string{"levels": "true"}, map[string]string{"levels.enabled": "true"}},
		"GitHub's runners in several namespaces": {
			namespace, map[string]string{"heartbeat": "true", "heartbeat-checks": "api,nodes,runners,scale-sets,runner-pods", "heartbeat-scale-sets": arc, "heartbeat-gist-id": "0123456789abcdef0123"},
			map[string]string{"heartbeat.enabled": "true", "heartbeat.checks": `api,nodes,runners,scale-sets,runner-pods`, "heartbeat.scaleSets": arc, "heartbeat.gistId": "0123456789abcdef0123"},
		},
		"the runner controller alone, in our own namespace": {
			namespace, map[string]string{"heartbeat": "true", "heartbeat-checks": "api,runners", "heartbeat-controller-namespace": namespace},
			map[string]string{"heartbeat.enabled": "true", "heartbeat.checks": `api,runners`, "heartbeat.controllerNamespace": namespace},
		},
		"scale sets alone": {
			namespace, map[string]string{"heartbeat": "true", "heartbeat-checks": "api,scale-sets", "heartbeat-scale-sets": "b/x"},
			map[string]string{"heartbeat.enabled": "true", "heartbeat.checks": `api,scale-sets`, "heartbeat.scaleSets": "b/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			printed, err := chart.Manifests(test.flags)
			if err != nil {
				t.Fatal(err)
			}
			var sets []string
			for k, v := range test.values {
				sets = append(sets, k+"="+v)
			}
			rendered, _, err := render(t, test.namespace, sets...)
			if err != nil {
				t.Fatal(err)
			}
			want, got := byID(t, printed), byID(t, rendered)
			if len(want) < 10 {
				t.Fatalf("%d objects", len(want))
			}
			for id, o := range want {
				if diff := cmp.Diff(o, got[id]); diff != "" {
					t.Errorf("%s (-manifests +chart):\n%s", id, diff)
				}
			}
			for id := range got {
				if want[id] == nil {
					t.Errorf("%s is in the chart only", id)
				}
			}
		})
	}
}

// A value that is misspelt or of another form is refused, as the command refuses a flag.
func TestAValueThatIsNoneIsRefused(t *testing.T) {
	for _, s := range []string{"dryrun=false", "heartbeat.intervall=60", "dryRun=nope", "target=1", "period=5m", "labelPrefix=x.example", "probe.metricsPort=70000", "namespace=x"} {
		if _, _, err := render(t, namespace, s); err == nil {
			t.Errorf("%s was taken", s)
		}
	}
}

// What is live is made by a person, who is told so (safety rule 25).
func TestTheNotesNameWhatIsLive(t *testing.T) {
	for enabled, want := range map[string]int{"heartbeat": 1, "alert": 1} {
		_, notes, err := render(t, "zoo", fmt.Sprintf("%s.enabled=true", enabled))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(notes, "kubectl -n zoo create configmap"); n != want {
			t.Errorf("%s: %s", enabled, notes)
		}
	}
	if _, notes, err := render(t, namespace); err != nil || strings.Contains(notes, "create configmap") || !strings.Contains(notes, "in a dry run") {
		t.Errorf("%s %v", notes, err)
	}
}
