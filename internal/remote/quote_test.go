package remote

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever an argument holds, a real sh takes the line apart into just the arguments.
func TestAShellTakesALineApartAsItWasQuoted(t *testing.T) {
	if testing.Short() {
		t.Skip("each draw starts a shell")
	}
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("'\"\\$`!*?[]{}()<>|&;#~= \t\n-a")), rapid.Rune()))
		argv := rapid.SliceOfN(any.Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }), 1, 5).Draw(t, "argv")
		line, err := quote(argv)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("/bin/sh", "-c", "printf '%s\\0' "+line).CombinedOutput()
		if want := strings.Join(argv, "\x00") + "\x00"; err != nil || string(out) != want {
			t.Fatalf("%q: sh makes %q of it, %v", line, out, err)
		}
	})
}
