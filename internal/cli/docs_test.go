package cli_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/swap"
)

// Every field that is printed is on the page.
func TestThePageOfJSONOutputIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[cli.Answer](), reflect.TypeFor[cli.Plan](), reflect.TypeFor[cli.Explanation](), reflect.TypeFor[cli.Series](), reflect.TypeFor[swap.Decision]()} {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/cli-json.md lacks %s of %s", name, typ)
			}
		}
	}
}
