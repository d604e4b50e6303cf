package hostcmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/bundle/bundletest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform"
)

// seeds are secrets of a host, each in every place where one of its kind can stand.
var seeds = map[string]string{
	"the server token": "seed-of-servers", "the agent token": "seed-of-agents", "the node password": "0123456789abcdef-seed",
	"a kubeconfig's token": "seed-of-kubeconfig", "the levels' token": "seed-of-levels", "an S3 key": "seed-of-s3",
	"an unknown key": "seed-of-nobody", "a password of the datastore": "seed-of-sql",
	"an environment's token": "seed-of-env", "a systemd environment's": "hush-of-systemd", "a bearer in a log": "seed.of.bearer",
	"a comment": "seed-of-comment", "a private key": "seed-of-a-private-key", "a token nobody else has": "seed-in-a-log",
	"a passwd": "seed-of-passwd", "a command": "seed-of-command",
}

func seeded(t *testing.T) *rig {
	r := wellRig(t, "d")
	hash := strings.Repeat("ab", 32)
	full := "K10" + hash + "::server:" + seeds["the server token"]
	r.plant(fleet.FileServerConf, "# "+seeds["a comment"]+"\ntoken: "+full+"\nagent-token: "+seeds["the agent token"]+"\netcd-s3-secret-key: "+seeds["an S3 key"]+
		"\nmystery: "+seeds["an unknown key"]+"\ndatastore-endpoint: mysql://u:"+seeds["a password of the datastore"]+"@h/db\ndisable: [traefik]\n")
	r.plant(fleet.FileServerConf+".d/20.yaml", "token: "+seeds["the server token"]+"\ntls-san: 10.0.0.4\n")
	r.plant(fleet.FileServerConf+".d/broken.yaml", "token: ["+seeds["the server token"]+"\n")
	r.plant(fleet.FileAgentConf, "token: "+seeds["the agent token"]+"\nserver: https://10.0.0.2:6443\n")
	r.plant("/etc/rancher/node/password", seeds["the node password"]+"\n")
	r.plant(fleet.FileKubeconfig, "users:\n- user:\n    token: "+seeds["a kubeconfig's token"]+"\n")
	r.plant(fleet.FileLevelKube, "token: \""+seeds["the levels' token"]+"\"\n")
	r.plant("/etc/systemd/system/k3s.service.env", "K3S_TOKEN="+seeds["an environment's token"]+"\n")
	r.plant(fleet.DefaultDataDir+"/server/token", full+"\n")
	r.plant(fleet.DefaultDataDir+"/server/cred/passwd", seeds["a passwd"]+",server,server,k3s:server\n")
	r.plant(fleet.FileRole, "agent\n")
	r.plant("/var/lib/regrade/step.json", `{"message":"joined with `+full+`, and as `+seeds["the server token"]+`"}`)
	r.plant(fleet.FileInstalled, `{"role":"agent","unit":"k3s-agent.service","command":["/usr/local/bin/k3s","agent","--token","`+seeds["a command"]+`","--debug"]}`)
	r.plant("/proc/meminfo", "MemTotal: 1\n")
	var all []string
	for _, s := range seeds {
		if s != seeds["a comment"] && s != seeds["an unknown key"] { // nowhere but where they are not read
			all = append(all, "token="+s)
		}
	}
	r.journal = strings.Join(all, "\n") + "\nAuthorization: Bearer " + seeds["a bearer in a log"] +
		"\n-----BEGIN RSA PRIVATE KEY-----\n" + seeds["a private key"] + "\n-----END RSA PRIVATE KEY-----\n" +
		`{"password":"` + seeds["a token nobody else has"] + "\"}\nknown by itself: " + seeds["the agent token"] + " and " + seeds["the node password"] + "\nits last line\n"
	r.host.Change(func(f *platform.Facts) {
		f.Warnings = []platform.Warning{{Code: "EngineVersion", Sentence: "said with " + seeds["the server token"]}}
	})
	return r
}

// Safety rule 31: whatever lies about on a host, no secret of it gets into a bundle.
func TestABundleOfAHostHasNoSecretInIt(t *testing.T) {
	r := seeded(t)
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	r.want(fleet.ExitDone, file, "support-bundle", "-o", file)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := bundletest.Read(t, packed)
	at := func(name string) string { return parts["regrade-support-d-20261129T120000Z/"+name] }
	for name, text := range parts {
		for what, s := range seeds {
			if strings.Contains(text, s) || strings.Contains(name, s) {
				t.Errorf("%s is in %s:\n%s", what, name, text)
			}
		}
	}
	// And it is of use.
	for name, want := range map[string]string{
		"version.txt": "v-test", "doctor.json": `"EngineVersion"`, "report.json": `"role": "agent"`, "listeners.json": `"regrade"`, "units.json": `"K3S_TOKEN"`,
		"files/etc/rancher/k3s/server.yaml": "disable: traefik", "files/etc/rancher/k3s/server.yaml.d/20.yaml": "tls-san: 10.0.0.4",
		"files/etc/rancher/k3s/agent.yaml": "server: https://10.0.0.2:6443", "files/etc/github-runner/role": "agent", "files/etc/regrade/host.yaml": "node: d",
		"files/etc/regrade/installed.json": `"--debug"`, "files/var/lib/regrade/step.json": "joined with", "journal/k3s.service.log": "its last line",
		"files/proc/meminfo": "MemTotal", "disk.txt": "MiB of",
	} {
		if !strings.Contains(at(name), want) {
			t.Errorf("%s lacks %q:\n%s", name, want, at(name))
		}
	}
	m := at("MANIFEST.txt")
	for _, want := range []string{"etc/rancher/k3s/fleet-role-actuator.kubeconfig: a credential", "server.yaml.d/broken.yaml: it is no configuration of k3s", "files/etc/github-runner/leaving: is not there"} {
		if !strings.Contains(m, want) {
			t.Errorf("the manifest lacks %q:\n%s", want, m)
		}
	}
	if len(r.host.Calls) != 0 || len(r.units.calls) != 0 {
		t.Errorf("it changed something: %v %v", r.host.Calls, r.units.calls)
	}
	r.want(fleet.ExitFailed, "file exists", "support-bundle", "-o", file)
	if again, err := os.ReadFile(file); err != nil || string(again) != string(packed) {
		t.Error("a file that was there is another")
	}
}

func TestABundleOfAHostThatIsBroken(t *testing.T) {
	r := seeded(t)
	r.plant(fleet.FileHostConfig, "node: [\n")
	r.journal, r.noJournal = "", errors.New("journalctl: no journal files were found")
	if code := r.run("support-bundle", "-o", "-"); code != fleet.ExitDone {
		t.Fatalf("exit status %d: %s", code, &r.errs)
	}
	parts := bundletest.Read(t, r.out.Bytes())
	folder := "regrade-support-host-20261129T120000Z/"
	if !strings.Contains(parts[folder+"doctor.json"], "BadSettings") || !strings.Contains(parts[folder+"MANIFEST.txt"], "no journal files were found") ||
		!strings.Contains(parts[folder+"files/etc/regrade/host.yaml"], "node: [") {
		t.Errorf("%v", parts[folder+"MANIFEST.txt"])
	}
	for name, text := range parts {
		for what, s := range seeds {
			if strings.Contains(text, s) {
				t.Errorf("%s is in %s", what, name)
			}
		}
	}
}
