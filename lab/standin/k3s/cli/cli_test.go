package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersionSaysItIsAStandIn(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Main([]string{"--version"}, &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "k3s version v1.") ||
		!strings.Contains(out.String(), "(stand-in") {
		t.Errorf("%d %q", code, out.String())
	}
}

func TestCommandLinesThatExitOneSayWhy(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(conf, []byte("tls-san: [a]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none.yaml")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"agent", "--config", conf, "--token", "x", "--server", "https://10.0.0.1:6443"}, "flag provided but not defined: -tls-san"},
		{[]string{"agent", "--config", none, "--server", "https://10.0.0.1:6443", "--data-dir", t.TempDir()}, "--token is required"},
		{[]string{"agent", "--config", none, "--token", "x"}, "--server is required"},
		{[]string{"server", "--config", none, "--no-such"}, "flag provided but not defined: -no-such"},
		{[]string{"etcd-snapshot", "prune"}, "not supported"},
	} {
		var out, errs bytes.Buffer
		if code := Main(tc.args, &out, &errs); code != 1 || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("%v: code %d, %q", tc.args, code, errs.String())
		}
	}
}
