package inventory_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
)

func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(inventory.Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("fleet.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t rapid.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// What Parse takes the schema takes: whatever is printed, and what init writes.
func TestWhatIsReadIsValidByTheSchema(t *testing.T) {
	s := schema(t)
	for _, text := range []string{least, written(t, inventory.DraftOf(cluster(), fleet.DefaultKeys()))} {
		if err := valid(t, s, text); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if text := printed(t, drawn(t)); valid(t, s, text) != nil {
			t.Fatalf("%v\n%s", valid(t, s, text), text)
		}
	})
}

// A mistake that an editor can show by the schema is one for Parse, too.
func TestWhatTheSchemaRefusesIsNotRead(t *testing.T) {
	s := schema(t)
	more := func(keys string) string {
		return least + "  - {name: n6, address: 10.0.0.6, role: agent, " + keys + "}\n"
	}
	for _, text := range []string{
		more("elligible: true"), more("platform: podman"), more("eligible: perhaps"), more("join-url: http://a"), more("project: /srv/k3s"), more("labels: [a]"),
		more("settings: {node: x}"), more("settings: {namespace: x}"), more("settings: {levels: {step-up: yes}}"), more("settings: {docker: {sockett: /x}}"), more("settings: {platform: docker}"),
		more("docker: {project: k3s}"), more("platform: docker, docker: {folder: /srv}"), more("platform: docker, docker: {agent-token: x}"), more("platform: docker, docker: {archive: /a}"),
		more("platform: docker, docker: {project: K3s}"), more("platform: docker, docker: {images: {k3s: A b}}"), more("platform: docker, docker: {images: {k3d: a}}"),
		more("platform: docker, docker: {flags: {node-ip: 10.0.0.6}}"), more("platform: docker, docker: {flags: [a]}"), more("platform: docker, docker: {network: bridge}"),
		more("platform: docker, docker: {identity: perhaps}"), more("platform: docker, docker: {join-server: http://a}"), more("platform: docker, docker: {files: compose.yaml}"),
		"hosts: []", "max-servers: 5", "hosts: [{name: n1, address: a}]", least + "max-servers: 0\n", least + "settings: {max-servers: 5}\n", least + "settings: {target: [3]}\n",
		"hosts: [{name: N1, address: a, role: server}]", least + "target: 5\n",
	} {
		if valid(t, s, text) == nil {
			t.Errorf("the schema takes %s", text)
		}
		if _, err := inventory.Parse([]byte(text), flags); err == nil {
			t.Errorf("Parse takes %s", text)
		}
	}
}

// The keys of the schema are those that Parse knows.
func TestTheSchemaHasTheKeysThatAreRead(t *testing.T) {
	var doc struct {
		Properties map[string]any `json:"properties"`
		Defs       map[string]struct {
			Properties map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(inventory.Schema, &doc); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		have []string
		want []string
	}{
		"the fleet": {slices.Sorted(maps.Keys(doc.Properties)), keys(reflect.TypeFor[inventory.Fleet]())},
		"a host":    {slices.Sorted(maps.Keys(doc.Defs["host"].Properties)), keys(reflect.TypeFor[inventory.Host]())},
		"a host's settings": {slices.Sorted(maps.Keys(doc.Defs["hostSettings"].Properties)), keys(reflect.TypeFor[settings.Host](),
			"node", "namespace", "label-prefix", "actuator-configmap")},
		"a project": {slices.Sorted(maps.Keys(doc.Defs["project"].Properties)), keys(reflect.TypeFor[inventory.Project]())},
		"images":    {slices.Sorted(maps.Keys(doc.Defs["project"].Properties["images"].Properties)), keys(reflect.TypeFor[setup.Images]())},
		"docker":    {slices.Sorted(maps.Keys(doc.Defs["hostSettings"].Properties["docker"].Properties)), keys(reflect.TypeFor[settings.Docker]())},
		"levels":    {slices.Sorted(maps.Keys(doc.Defs["hostSettings"].Properties["levels"].Properties)), keys(reflect.TypeFor[settings.Levels]())},
		"command":   {slices.Sorted(maps.Keys(doc.Defs["hostSettings"].Properties["command"].Properties)), keys(reflect.TypeFor[settings.Command]())},
	} {
		if d := cmp.Diff(c.want, c.have); d != "" {
			t.Errorf("%s (-read +schema): %s", what, d)
		}
	}
	// Every key of a host is known to Parse: a value of the wrong shape is refused by its
	// path, not as unknown.
	for at, names := range map[string][]string{
		"{%s: {}, hosts: [{}]}": slices.Collect(maps.Keys(doc.Properties)), "{hosts: [{%s: {}}]}": slices.Collect(maps.Keys(doc.Defs["host"].Properties)),
		"{hosts: [{docker: {%s: }}]}":   slices.Collect(maps.Keys(doc.Defs["project"].Properties)),
		"{hosts: [{settings: {%s: }}]}": slices.Collect(maps.Keys(doc.Defs["hostSettings"].Properties)),
	} {
		for _, name := range names {
			if name == "hosts" {
				continue // it is there
			}
			if _, err := inventory.Parse(fmt.Appendf(nil, at, name), flags); err == nil || strings.Contains(err.Error(), name+" is unknown") {
				t.Errorf("%s: %v", fmt.Sprintf(at, name), err)
			}
		}
	}
}

func keys(t reflect.Type, but ...string) (out []string) {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && !slices.Contains(but, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
