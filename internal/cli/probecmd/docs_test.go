package probecmd_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/cli/probecmd"
)

// Every field that is printed is on the page.
func TestThePageOfJSONOutputIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[probecmd.Reading](), reflect.TypeFor[probecmd.Fault](), reflect.TypeFor[probecmd.Link](), reflect.TypeFor[probecmd.Connect](),
		reflect.TypeFor[probecmd.Memory](), reflect.TypeFor[probecmd.Pressure](), reflect.TypeFor[probecmd.Etcd](), reflect.TypeFor[probecmd.RoundTrip](),
		reflect.TypeFor[probecmd.Histogram](), reflect.TypeFor[probecmd.Fsync](),
	} {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/cli-json.md lacks %s of %s", name, typ)
			}
		}
	}
}
