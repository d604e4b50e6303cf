package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func noEnv(string) string { return "" }

// write puts files into a folder and returns the main config's path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.yaml")
}

// k3s facts §14.3, row "Agent config rejects server-only keys; exit 1".
func TestAgentConfigRejectsServerOnlyKeys(t *testing.T) {
	for _, key := range []string{
		"cluster-init", "tls-san", "disable-apiserver", "etcd-expose-metrics", "cluster-cidr", "flannel-backend",
		"agent-token", "write-kubeconfig", "write-kubeconfig-mode", "advertise-address", "disable-etcd", "disable",
	} {
		main := write(t, map[string]string{"config.yaml": "server: https://10.0.0.1:6443\n" + key + ": \"true\"\n"})
		_, err := Parse(Agent, []string{"--config", main}, noEnv)
		want := "flag provided but not defined: -" + key
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %q", key, err, want)
		}
	}
}

func TestKeysValidForBothRolesAreTakenByBoth(t *testing.T) {
	for _, key := range []string{
		"server", "token", "token-file", "data-dir", "node-name", "node-label", "node-taint", "node-ip",
		"node-external-ip", "bind-address", "flannel-iface", "flannel-conf", "kubelet-arg", "kube-proxy-arg",
		"lb-server-port", "private-registry", "snapshotter", "resolv-conf",
	} {
		main := write(t, map[string]string{"config.yaml": key + ": \"6444\"\n"})
		for _, cmd := range []Command{Server, Agent} {
			if _, err := Parse(cmd, []string{"--config", main}, noEnv); err != nil {
				t.Errorf("%s %s: %v", cmd, key, err)
			}
		}
	}
}

func TestServerDropsUnknownKeysWithAWarning(t *testing.T) {
	main := write(t, map[string]string{"config.yaml": "no-such-key: 1\ncluster-init: true\n"})
	v, err := Parse(Server, []string{"--config=" + main}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "no-such-key") || !v.Bool("cluster-init") {
		t.Errorf("warnings %v, cluster-init %v", v.Warnings, v.Bool("cluster-init"))
	}
	if !strings.Contains(strings.Join(v.NodeArgs, " "), "--no-such-key 1") {
		t.Errorf("node-args %v lack the unknown key", v.NodeArgs)
	}
}

func TestDropInsReplaceAndPlusKeysAppend(t *testing.T) {
	main := write(t, map[string]string{
		"config.yaml":               "node-label: [a=1, b=2]\ntls-san: one\nnode-name: first\n",
		"config.yaml.d/20-b.yml":    "node-label: [c=3]\n",
		"config.yaml.d/10-a.yaml":   "tls-san+: [two]\nnode-label+: [z=9]\nnode-name: second\n",
		"config.yaml.d/30-off.conf": "node-name: third\n",
	})
	v, err := Parse(Server, []string{"-c", main}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"c=3"}, v.List("node-label")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"one", "two"}, v.List("tls-san")); d != "" {
		t.Error(d)
	}
	if v.Text("node-name") != "second" {
		t.Errorf("node-name %q", v.Text("node-name"))
	}
}

func TestArgumentsBeatFilesAndFilesBeatTheEnvironment(t *testing.T) {
	main := write(t, map[string]string{"config.yaml": "node-name: file\ntoken: file\nkubelet-arg: [a=1]\n"})
	env := map[string]string{"K3S_TOKEN": "env", "K3S_URL": "https://env:6443", "K3S_CONFIG_FILE": main}
	v, err := Parse(Server, []string{"--node-name", "cli", "--kubelet-arg=b=2"}, func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	if v.Text("node-name") != "cli" || v.Text("token") != "file" || v.Text("server") != "https://env:6443" {
		t.Errorf("got %q %q %q", v.Text("node-name"), v.Text("token"), v.Text("server"))
	}
	if d := cmp.Diff([]string{"a=1", "b=2"}, v.List("kubelet-arg")); d != "" {
		t.Error("list flags of file and command line accumulate: ", d)
	}
}

func TestMissingConfigFilesAreFine(t *testing.T) {
	v, err := Parse(Server, []string{"--config", filepath.Join(t.TempDir(), "none.yaml")}, noEnv)
	if err != nil || v.Text("data-dir") != "/var/lib/rancher/k3s" || v.Text("lb-server-port") != "6444" {
		t.Errorf("%v %v", v, err)
	}
}

func TestNodeArgsHideSecretsAndSplitValues(t *testing.T) {
	main := write(t, map[string]string{"config.yaml": "token: hush\ntls-san: [a, b]\n"})
	v, err := Parse(Server, []string{"--config", main, "--agent-token=quiet", "-t", "again", "--debug"}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"server", "--token", "********", "--tls-san", "a", "--tls-san", "b", "--config", main,
		"--agent-token", "********", "-t", "********", "--debug",
	}
	if d := cmp.Diff(want, v.NodeArgs); d != "" {
		t.Error(d)
	}
}

func TestAFaultyFileIsAnErrorThatNamesIt(t *testing.T) {
	for _, body := range []string{"- a\n", "a: {b: c}\n", "a: [\n"} {
		main := write(t, map[string]string{"config.yaml": body})
		if _, err := Parse(Server, []string{"--config", main}, noEnv); err == nil || !strings.Contains(err.Error(), main) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestSnapshotCommandTakesTheServersConfigFile(t *testing.T) {
	main := write(t, map[string]string{"config.yaml": "cluster-init: true\netcd-snapshot-dir: /snap\nnode-name: n1\n"})
	v, err := Parse(Snapshot, []string{"--config", main, "--name", "before"}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if v.Text("name") != "before" || v.Text("etcd-snapshot-dir") != "/snap" || v.Text("node-name") != "n1" {
		t.Errorf("got %+v", v)
	}
}
