package remote

import (
	"regexp"
	"strings"
	"testing"
)

// The interface page says of each code what a person does about it.
func TestTheInterfacePageHasEachCode(t *testing.T) {
	page := contentOf(t, "../../docs/interface.md")
	codes := regexp.MustCompile(`Code = "(\w+)"`).FindAllStringSubmatch(contentOf(t, "problem.go"), -1)
	if len(codes) < 10 {
		t.Fatalf("found %d codes: the check would hold of nothing", len(codes))
	}
	_, section, _ := strings.Cut(page, "\n## Hosts over SSH\n")
	for _, c := range codes {
		if !strings.Contains(section, "| `"+c[1]+"` |") {
			t.Errorf("interface.md lacks %q", c[1])
		}
	}
}
