package project_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/project/projecttest"
)

func TestAnEnvIsReadAsComposeReadsIt(t *testing.T) {
	for name, c := range map[string]struct {
		text, key, want string
		odd             string
	}{
		"plain":                         {"A=b\n", "A", "b", ""},
		"nothing":                       {"A=\n", "A", "", ""},
		"spaces around":                 {"  A = b  \n", "A", "b", ""},
		"export":                        {"export A=b\n", "A", "b", ""},
		"single quotes":                 {"A='b $c # d'\n", "A", "b $c # d", ""},
		"double quotes":                 {"A=\"b # c\" # d\n", "A", "b # c", ""},
		"a comment behind":              {"A=b # c\n", "A", "b", ""},
		"a comment for a value":         {"A= # c\n", "A", "", ""},
		"a # inside":                    {"A=b#c\n", "A", "b#c", ""},
		"a comment":                     {"# A=b\n", "A", "", ""},
		"the last one counts":           {"A=b\nA=c\n", "A", "c", ""},
		"lines of Windows":              {"A=b\r\nB=c\r\n", "A", "b", ""},
		"a mark at the beginning":       {"\xef\xbb\xbfA=b\n", "A", "b", ""},
		"another variable":              {"A=$B\n", "A", "$B", "A has"},
		"another one in double quotes":  {"A=\"${B}\"\n", "A", "", "A has"},
		"an escape":                     {"A=\"b\\n\"\n", "A", "", "A has"},
		"quotes that are not closed":    {"A='b\nc'\n", "A", "", "A has quotes"},
		"a line that is none":           {"A b\n", "A", "", "line 1"},
		"put right by a later one":      {"A=$B\nA=c\n", "A", "c", ""},
		"a value that no one asked for": {"A=b\nZ=$Q\n", "A", "b", "Z has"},
	} {
		t.Run(name, func(t *testing.T) {
			e := project.ParseEnv([]byte(c.text))
			odd := strings.Join(e.Odd(), ";")
			if c.odd == "" && (e.Get(c.key) != c.want || odd != "") || c.odd != "" && !strings.Contains(odd, c.odd) {
				t.Errorf("%q, odd %q; want %q, odd %q", e.Get(c.key), odd, c.want, c.odd)
			}
			if strings.Contains(odd, "$") {
				t.Errorf("a value is shown: %q", odd)
			}
		})
	}
}

// What is set reads back as it was set, and other lines stay as they are.
func TestAnEnvKeepsTheLinesThatAreNotSet(t *testing.T) {
	before := "# mine\nA=b\n\nexport C='d'\nLAST=1\n"
	for _, value := range []string{"", "x", "a b", "$HOME", "a#b", "a # b", "K10abc::server:x-y_z", "\"quoted\"", "ünïcode"} {
		raw, err := project.ParseEnv([]byte(before)).With(map[string]string{"C": value, "NEW": value})
		if err != nil {
			t.Fatal(err)
		}
		e := project.ParseEnv(raw)
		if e.Get("C") != value || e.Get("NEW") != value || len(e.Odd()) > 0 {
			t.Errorf("%q reads back as %q and %q, odd %q", value, e.Get("C"), e.Get("NEW"), e.Odd())
		}
		if !strings.HasPrefix(string(raw), "# mine\nA=b\n\nC=") || !strings.Contains(string(raw), "\nLAST=1\n") {
			t.Errorf("lines are others:\n%s", raw)
		}
	}
	if raw, err := project.ParseEnv([]byte(before)).With(map[string]string{"A": "b", "C": "d"}); err != nil || string(raw) != before {
		t.Errorf("%q, %v", raw, err)
	}
	for _, value := range []string{"it's", "a\nb", `a\b`} {
		if _, err := project.ParseEnv(nil).With(map[string]string{"A": value}); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func FuzzParseEnv(f *testing.F) {
	for _, seed := range []string{"A=b", "A='b", "export A=\"$b\" # c", "\xef\xbb\xbf=", "A=b\r\n#"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := project.ParseEnv([]byte(text))
		if raw, err := e.With(map[string]string{"A": "b"}); err != nil || project.ParseEnv(raw).Get("A") != "b" {
			t.Errorf("%q, %v", raw, err)
		}
	})
}

func TestAPackedArchiveIsReadAsWell(t *testing.T) {
	m := newMachine(t)
	m.Images = map[string]string{"rancher/k3s:v1.36.3-k3s1": "sha256:k3s"}
	d := desired(t, fleet.RoleServer, "n1")
	d.Docker.Archive = "/images.tar.gz"
	packed(t, m)
	plan := m.setUp(d)
	if len(plan.Images) != 2 || !slices.Contains(m.Calls, "docker load -q -i /images.tar.gz") {
		t.Errorf("%v", m.Calls)
	}
}

func packed(t *testing.T, m *machine) {
	t.Helper()
	saveTo := m.At("/images.tar")
	m.Archive = []string{"regrade:v1"}
	projecttest.Saved(t, saveTo, m.Archive...)
	raw, err := os.ReadFile(saveTo)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	m.Plant("/images.tar.gz", b.String(), 0o600)
}
