package k3s_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/k3s"
)

func TestAnEnvironmentFileIsReadAsSystemdReadsIt(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want map[string]string
	}{
		"plain":                         {"A=b\nC = d e \n", map[string]string{"A": "b", "C": "d e"}},
		"quotes":                        {`A='it'"'"'s'` + "\nB=\"x \\\" \\\\ \\n\"\n", map[string]string{"A": "it's", "B": `x " \ \n`}},
		"quotes within a plain value":   {`A=b"c"` + "\n", map[string]string{"A": `b"c"`}},
		"a backslash":                   {`A=b\'c\ ` + "\n", map[string]string{"A": `b'c `}},
		"a backslash in single quotes":  {`A='b\c'` + "\n", map[string]string{"A": `b\c`}},
		"a line that goes on":           {"A=b\\\nc\n", map[string]string{"A": "bc"}},
		"a value over lines":            {"A='b\nc'\nD=e", map[string]string{"A": "b\nc", "D": "e"}},
		"comments":                      {"# A=b\n ; C=d\nE=f # g\n", map[string]string{"E": "f # g"}},
		"an equals sign in the value":   {"A=b=c\n", map[string]string{"A": "b=c"}},
		"empty":                         {"A=\nB=''\n", map[string]string{"A": "", "B": ""}},
		"no name and no value":          {"export A=b\n9=x\nB\nC=d\n", map[string]string{"C": "d"}},
		"of another system's line ends": {"A='b'\r\nC=d\r\n", map[string]string{"A": "b", "C": "d"}},
	} {
		if got := k3s.ParseEnv([]byte(test.file)); !maps.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestAnEnvironmentFileRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := rapid.MapOf(rapid.StringMatching(`[A-Z_][A-Z0-9_]{0,5}`), rapid.StringMatching("[ -~\n\t]{0,12}")).Draw(t, "env")
		if got := k3s.ParseEnv(k3s.EnvFile(env)); !maps.Equal(got, env) {
			t.Errorf("got %q, want %q", got, env)
		}
	})
}
