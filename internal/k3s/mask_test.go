package k3s_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
)

// Safety rule 31: of what k3s does not know nothing is shown, not even its name.
func TestAConfigurationIsShownByWhatIsKnownOfIt(t *testing.T) {
	c, err := k3s.ParseConfig([]byte(`
token: s3cr3t
agent-token: s3cr3t
token+: [s3cr3t]
etcd-s3-secret-key: s3cr3t
datastore-endpoint: mysql://u:s3cr3t@h/db
s3cr3t: x
my-own: s3cr3t
disable: [traefik, servicelb]
flannel-backend: none
tls-san: 10.0.0.1
node-label: "a\nb"
`))
	if err != nil {
		t.Fatal(err)
	}
	shown := string(c.Shown())
	want := "agent-token: ***\ndatastore-endpoint: ***\ndisable:\n  - traefik\n  - servicelb\netcd-s3-secret-key: ***\nflannel-backend: none\n" +
		"# a key that k3s does not know: ***\nnode-label: \"a\\nb\"\n# a key that k3s does not know: ***\ntls-san: 10.0.0.1\ntoken: ***\ntoken+: ***\n"
	if shown != want {
		t.Errorf("%s\nwant\n%s", shown, want)
	}
}

func TestACommandLineIsShownWithoutItsSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"k3s server --token s3cr3t --disable traefik":                 "k3s server --token *** --disable traefik",
		"k3s server --token=s3cr3t -t s3cr3t -t=s3cr3t":               "k3s server --token=*** -t *** -t=***",
		"k3s agent -s https://10.0.0.1:6443":                          "k3s agent -s https://10.0.0.1:6443",
		"k3s server --vpn-auth name=tailscale,joinKey=s3cr3t --token": "k3s server --vpn-auth *** --token",
	} {
		if got := strings.Join(k3s.ShownArgs(strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestTheSecretsOfAHostAreFoundWhereK3sHasThem(t *testing.T) {
	root := t.TempDir()
	d := k3s.Disk{Root: root}
	for path, text := range map[string]string{
		"/etc/rancher/node/password":                 "node-password\n",
		fleet.DefaultDataDir + "/server/token":       "K10" + strings.Repeat("a", 64) + "::server:of-server\n",
		fleet.DefaultDataDir + "/server/agent-token": "of-agents\n",
		fleet.DefaultDataDir + "/server/cred/passwd": "of-passwd,server,server,k3s:server\nof-node,node,node,k3s:agent\n",
		fleet.FileServerConf:                         "token: in-config\netcd-s3-secret-key: s3-key\ndisable: traefik\n",
		fleet.FileServerConf + ".d/1.yaml":           "token-file: /etc/tok\n",
		"/etc/tok":                                   "in-file\n",
	} {
		plant(t, root, path, text)
	}
	got := d.Secrets(fleet.FileServerConf, fleet.FileAgentConf)
	var all []string
	for _, s := range got {
		all = append(all, s.Reveal())
	}
	for _, want := range []string{"node-password", "of-agents", "of-passwd", "of-node", "in-config", "s3-key", "in-file"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not among them: %v", want, all)
		}
	}
	if slices.Contains(all, "traefik") || !slices.ContainsFunc(all, func(s string) bool { return strings.HasSuffix(s, "of-server") }) {
		t.Errorf("%v", all)
	}
}
