package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/bundle"
	"github.com/exadev/regrade/internal/bundle/bundletest"
	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/remote"
)

// asked is a host that is reached over SSH, in memory.
type asked struct {
	answer func(argv []string) remote.Result
	argvs  *[]string
}

func (a asked) Run(_ context.Context, c remote.Command) (remote.Result, error) {
	*a.argvs = append(*a.argvs, strings.Join(c.Argv, " "))
	return a.answer(c.Argv), nil
}
func (asked) Put(context.Context, string, io.Reader, fs.FileMode) error {
	return errors.New("a look writes nothing")
}
func (asked) Close() error { return nil }

const fleetYAML = `
hosts:
- {name: n1, address: 10.0.0.1, role: server}
- {name: n2, address: 10.0.0.2, role: server}
- {name: n3, address: 10.0.0.3, role: server}
- {name: n4, address: 10.0.0.4, role: agent, eligible: true, platform: docker, project: /srv/k3s}
- {name: w1, address: 10.0.0.9, role: agent}
`

// bench runs one command line on a cluster in memory and hosts beside it.
type bench struct {
	t     *testing.T
	state clustertest.State
	hosts map[string]func(argv []string) remote.Result // by address; others are down
	api   error
	argvs []string
	out   bytes.Buffer
	errs  bytes.Buffer
	file  string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, state: well(), hosts: map[string]func([]string) remote.Result{}, file: filepath.Join(t.TempDir(), "fleet.yaml")}
	if err := os.WriteFile(b.file, []byte(fleetYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		b.hosts["10.0.0."+string(rune('1'+n))] = func(argv []string) remote.Result {
			doc := doctor.New("v-there", fmt.Sprintf("n%d", n+1), []doctor.Finding{{Check: "clock", Grade: doctor.OK, Sentence: "right"}})
			raw, err := json.Marshal(doc)
			if err != nil {
				t.Error(err)
			}
			return remote.Result{Out: raw}
		}
	}
	return b
}

func (b *bench) run(args ...string) int {
	b.t.Helper()
	b.out.Reset()
	b.errs.Reset()
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	e := env.Env{Out: &b.out, Err: &b.errs, Getenv: func(string) string { return "" }, Now: func() time.Time { return at }}
	return cli.Run(b.t.Context(), append(args, "--period", "1"), e, cli.Deps{
		Look: time.Millisecond,
		Connect: func(kube.Access, kube.Options) (cli.Cluster, error) {
			if b.api != nil {
				return nil, b.api
			}
			c := clustertest.New(b.state)
			c.Beating = true
			return c, nil
		},
		Dial: func(_ context.Context, to remote.Target, _ remote.Options) (remote.Runner, error) {
			answer, up := b.hosts[to.Host]
			if !up {
				return nil, errors.New(to.Host + " does not answer")
			}
			return asked{answer, &b.argvs}, nil
		},
	})
}

func TestDoctorAsksEachHostOfTheFile(t *testing.T) {
	b := newBench(t)
	b.hosts["10.0.0.2"] = func([]string) remote.Result {
		return remote.Result{Code: 1, Out: []byte(`{"protocol":1,"version":"v-old","findings":[{"check":"ports","grade":"fail","code":"TwoOnOnePort","sentence":"two","cure":"stop one"},{"check":"api","grade":"ok","sentence":"fine"}]}`)}
	}
	b.hosts["10.0.0.4"] = func([]string) remote.Result {
		return remote.Result{Code: 125, Err: []byte("no container of the service regrade-host")}
	}
	delete(b.hosts, "10.0.0.3")
	if code := b.run("doctor", "-f", b.file, "-o", "json"); code != fleet.ExitFailed {
		t.Fatalf("exit status %d: %s", code, &b.errs)
	}
	var doc doctor.Document
	if err := json.Unmarshal(b.out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range doc.Findings {
		if f.Check == doctor.CheckHost || f.Code == "TwoOnOnePort" || f.Code == doctor.CodeRegradeVersions {
			got = append(got, f.Node+" "+f.Code+" "+string(f.Grade))
		}
	}
	slices.Sort(got)
	want := []string{" RegradeVersionsDiffer warn", "n1  ok", "n2 TwoOnOnePort fail", "n3 HostNotAsked fail", "n4 HostNotAsked fail"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q\n%s", got, want, &b.out)
	}
	slices.Sort(b.argvs)
	if len(b.argvs) != 3 || !strings.HasPrefix(b.argvs[0], "/usr/local/bin/regrade host doctor -o json") || !strings.HasSuffix(b.argvs[2], " sh /srv/k3s host doctor -o json") {
		t.Errorf("%q", b.argvs)
	}
	if !strings.Contains(b.out.String(), "no container of the service regrade-host") || !strings.Contains(b.out.String(), "10.0.0.3 does not answer") {
		t.Errorf("why a host was not asked is not said:\n%s", &b.out)
	}
	// The API is down: the hosts are asked all the same.
	b.api = errors.New("no API server answers")
	if code := b.run("doctor", "-f", b.file); code != fleet.ExitFailed || !strings.Contains(b.out.String(), "NoAPI") || !strings.Contains(b.out.String(), "TwoOnOnePort") {
		t.Errorf("exit status %d\n%s%s", code, &b.out, &b.errs)
	}
	if code := b.run("doctor", "-f", b.file+".none"); code != fleet.ExitRefused {
		t.Errorf("a file that is not there: %d", code)
	}
}

// Safety rule 31: what lies about in a cluster's objects and logs is no secret in a bundle.
func TestABundleOfAFleetHasNoSecretInIt(t *testing.T) {
	b := newBench(t)
	seeds := []string{"seed-of-args", "seed-of-annotation", "seed-of-a-log", "seed-before", "seed-of-event", "seed-of-key", "seed-of-status", "seed-of-alert", "seed-of-host"}
	hash := strings.Repeat("ab", 32)
	n := b.state.Nodes["n1"]
	n.Annotations[k3s.AnnotationArgs] = `["server","--token","seed-of-args","--disable","traefik"]`
	n.Annotations["somebody.example/config"] = "seed-of-annotation"
	n.Annotations[fleet.DefaultKeys().Step()] = "promote"
	b.state.Nodes["n1"] = n
	put(&b.state, fleet.ConfigMapStatus, "mine", "seed-of-key")
	put(&b.state, fleet.ConfigMapStatus, fleet.KeyStatus, `{"protocol":1,"note":"K10`+hash+`::server:seed-of-status"}`)
	put(&b.state, fleet.ConfigMapAlert, fleet.KeyAlertState, "seed-of-alert")
	put(&b.state, fleet.ConfigMapProbe, "n1", "window")
	b.state.Survey = clustertest.Survey{
		OwnPods: []observe.OwnPod{{Namespace: "ns", Name: "c", Component: "controller", Phase: "Running", Ready: true, Restarts: 1}},
		Logs:    map[string]string{"ns/c": "token=seed-of-a-log\nlast line\n", "ns/c/previous": "Bearer seed-before\n"},
		Events: map[string][]observe.Told{
			"default":              {{Object: "Node /n1", Reason: "SwapBegan", Message: "password: seed-of-event"}, {Object: "Pod default/x", Message: "seed-of-annotation"}},
			fleet.DefaultNamespace: {{Object: "Pod ns/c", Reason: "BackOff"}},
		},
	}
	var there bytes.Buffer
	h := bundle.New(&there, "of-n1", time.Now())
	h.Add("journal/k3s.service.log", "", []byte("--token seed-of-host\nhost line\n"))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for at := range b.hosts {
		b.hosts[at] = func([]string) remote.Result { return remote.Result{Out: []byte("no archive")} }
	}
	b.hosts["10.0.0.1"] = func([]string) remote.Result { return remote.Result{Out: there.Bytes()} }
	delete(b.hosts, "10.0.0.3")
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if code := b.run("support-bundle", "-f", b.file, "-o", file); code != fleet.ExitDone || b.out.String() != file+"\n" {
		t.Fatalf("exit status %d: %s%s", code, &b.out, &b.errs)
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := bundletest.Read(t, packed)
	for name, text := range parts {
		for _, s := range seeds {
			if strings.Contains(text, s) || strings.Contains(name, s) {
				t.Errorf("%s is in %s:\n%s", s, name, text)
			}
		}
	}
	at := func(name string) string { return parts["regrade-support-20261129T120000Z/"+name] }
	for name, want := range map[string]string{
		"doctor.json": `"findings"`, "status/status.json": `"protocol":1`, "reports/n2": `"boot_id"`, "probes/n1": "window", "lease.json": "{", "heartbeats.json": "n2",
		"nodes.json": `"server --token *** --disable traefik"`, "pods.json": `"restarts": 1`, "logs/ns_c.log": "last line", "logs/ns_c.previous.log": "Bearer ***",
		"events.json": "SwapBegan", "hosts/n1/journal/k3s.service.log": "host line",
	} {
		if !strings.Contains(at(name), want) {
			t.Errorf("%s lacks %q:\n%.500s", name, want, at(name))
		}
	}
	if !strings.Contains(at("nodes.json"), "somebody.example/config") || !strings.Contains(at("nodes.json"), "promote") || strings.Contains(at("events.json"), "default/x") {
		t.Errorf("%s", at("nodes.json"))
	}
	m := at("MANIFEST.txt")
	for _, want := range []string{"status/mine: a key of ConfigMap", "hosts/n2: the bundle of hosts/n2", "hosts/n3: 10.0.0.3 does not answer", "health: there is no such ConfigMap", "alerts: the state in ConfigMap fleet-alert", "secrets: tokens, passwords"} {
		if !strings.Contains(m, want) {
			t.Errorf("the manifest lacks %q:\n%s", want, m)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if code := b.run("support-bundle", "-o", file); code != fleet.ExitFailed || !strings.Contains(b.errs.String(), "file exists") {
		t.Errorf("a file that is there: %d %s", code, &b.errs)
	}
	// Without an API and without hosts there is nothing to send, and no file.
	b.api = errors.New("no API server answers")
	other := file + ".2"
	if code := b.run("support-bundle", "-o", other); code != fleet.ExitFailed {
		t.Errorf("exit status %d", code)
	}
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Error("a file without anything in it stays")
	}
	if code := b.run("support-bundle", "-f", b.file, "-o", other); code != fleet.ExitDone {
		t.Errorf("the hosts are asked all the same: %d %s", code, &b.errs)
	}
}
