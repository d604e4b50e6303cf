package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/config"
)

func TestANewerForeignFileStopsTheServerAnOlderOneIsReplaced(t *testing.T) {
	dir := t.TempDir()
	paths := map[string]string{"ServerCA": filepath.Join(dir, "tls", "server-ca.crt"), "ClientCA": filepath.Join(dir, "tls", "client-ca.crt")}
	now := time.Now()
	cluster := Bundle{"ServerCA": {Content: []byte("cluster"), Timestamp: now.Add(-time.Hour)}, "ClientCA": {Content: []byte("c"), Timestamp: now}}
	if err := os.MkdirAll(filepath.Join(dir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths["ServerCA"], []byte("foreign"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Apply(paths, cluster); err == nil || !strings.Contains(err.Error(), "newer than datastore") {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(paths["ClientCA"]); err == nil {
		t.Error("a refused bundle must change nothing")
	}
	old := now.Add(-2 * time.Hour)
	if err := os.Chtimes(paths["ServerCA"], old, old); err != nil {
		t.Fatal(err)
	}
	if err := Apply(paths, cluster); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(paths["ServerCA"]); err != nil || string(b) != "cluster" {
		t.Errorf("%q %v", b, err)
	}
}

func TestCriticalValuesThatDifferAreNamed(t *testing.T) {
	parse := func(args ...string) Critical {
		v, err := config.Parse(config.Server, append([]string{"--config", "/nonexistent/config.yaml"}, args...), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		return CriticalOf(v)
	}
	if d := parse().Diff(parse("--disable=traefik", "--node-label=a=b")); len(d) != 0 {
		t.Errorf("got %v", d)
	}
	for _, arg := range []string{
		"--flannel-backend=none", "--cluster-cidr=10.1.0.0/16", "--disable=traefik,servicelb", "--secrets-encryption",
		"--disable-network-policy", "--cluster-dns=10.43.0.11", "--egress-selector-mode=disabled", "--supervisor-metrics",
	} {
		if d := parse().Diff(parse(arg)); len(d) == 0 {
			t.Errorf("%s goes unnoticed", arg)
		}
	}
}
