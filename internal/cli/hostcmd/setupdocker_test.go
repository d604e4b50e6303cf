package hostcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gofrs/flock"
	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/project/projecttest"
)

const dockerDocument = `
role: server
eligible: true
host: {node: a, platform: docker, servers: ["https://10.0.0.2:6443"], log-level: error}
join: {a: "https://10.0.0.1:6443", b: "https://10.0.0.2:6443"}
kubeconfig: hush-kube
voter: {disable: [traefik]}
token: hush-server
docker:
  agent-token: hush-agent
  images: {k3s: "rancher/k3s:v1.36.3-k3s1", regrade: "regrade:v1"}
  flags: {node-ip: [10.0.0.1]}
`

func dockerRig(t *testing.T) (*rig, string) {
	r := newRig(t, "a")
	r.docker = projecttest.New(t)
	r.root = r.docker.Root
	doc := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(doc, []byte(dockerDocument), 0o600); err != nil {
		t.Fatal(err)
	}
	return r, doc
}

// R-C-11: --check shows what would be done, and does nothing.
func TestADockerHostIsShownSetUpAndTakenBack(t *testing.T) {
	r, doc := dockerRig(t)
	before := r.docker.State()
	r.want(fleet.ExitDone, "+K3S_TOKEN=***", "setup", "--check", "-f", doc)
	for _, want := range []string{"run: docker build", "up --no-start --no-recreate", "up -d --no-recreate k3s\n", "/srv/k3s/k3s/fleet-role-actuator.kubeconfig: new, 9 bytes, not shown", "+K3S_AGENT_TOKEN=***"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("--check does not show %q:\n%s", want, &r.out)
		}
	}
	if strings.Contains(r.out.String()+r.errs.String(), "hush") {
		t.Errorf("a secret is shown:\n%s", &r.out)
	}
	if d := cmp.Diff(before, r.docker.State()); d != "" {
		t.Errorf("--check changed something:\n%s", d)
	}
	r.want(fleet.ExitDone, "up -d --no-deps regrade-host", "setup", "-f", doc)
	if !r.docker.Box("k3s").K3s() {
		t.Fatal("k3s does not run")
	}
	done := r.docker.State()
	r.want(fleet.ExitDone, "nothing to do\n", "setup", "-f", doc)
	if d := cmp.Diff(done, r.docker.State()); d != "" {
		t.Errorf("the second run changed something:\n%s", d)
	}
	r.want(fleet.ExitDone, `"token":"hush-server"`, "lend")
	r.want(fleet.ExitDone, `"token":"hush-server"`, "lend", "--project", "/srv/k3s")
	r.want(fleet.ExitDone, "docker rm regrade-regrade-host", "remove", "--check")
	if r.docker.Box("regrade-host") == nil {
		t.Error("--check took the daemon off")
	}
	r.want(fleet.ExitDone, "k3s's containers go on as they are", "remove")
	if r.docker.Box("regrade-host") != nil || !r.docker.Box("k3s").K3s() {
		t.Error("the daemon is there, or k3s is not")
	}
	r.units = nil // there is no systemd to be asked
	r.want(fleet.ExitRefused, "(NotSetUp)", "remove")
}

// R-C-07, R-C-11.
func TestADockerHostIsLeftAloneInASwap(t *testing.T) {
	r, doc := dockerRig(t)
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	r.order("promote")
	before, calls := r.docker.State(), len(r.docker.Calls)
	for _, args := range [][]string{{"setup", "-f", doc}, {"remove"}} {
		r.want(fleet.ExitRefused, "LeaseHeld: swap "+string(id)+" is under way", args...)
		r.want(fleet.ExitRefused, "LeaseHeld", append(args, "--check")...)
		r.noAPI = true
		r.want(fleet.ExitFailed, "--local", args...)
		r.noAPI = false
	}
	if d := cmp.Diff(before, r.docker.State()); d != "" || len(r.docker.Calls) > calls {
		t.Errorf("%s %v", d, r.docker.Calls[calls:])
	}
	r.noAPI = true
	r.want(fleet.ExitDone, "nothing to do", "setup", "-f", doc, "--local")
}

// A swap that begins while images are brought is seen before a container is touched.
func TestASwapThatBeginsMeanwhileIsSeen(t *testing.T) {
	r, doc := dockerRig(t)
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	r.docker.Boxes = r.docker.Boxes[:0] // a `down`, and the images went as well
	delete(r.docker.Images, "k3s-regrade:v1.36.3-k3s1-v1")
	r.docker.OnRun = func(c project.Command) {
		if c.Argv[1] == "build" {
			r.order("promote")
		}
	}
	r.want(fleet.ExitRefused, "LeaseHeld", "setup", "-f", doc)
	if len(r.docker.Boxes) > 0 {
		t.Errorf("containers were made: %v", r.docker.Calls)
	}
}

// R-216-13: the daemon's lock is a file of the data volume. The break check: lock the host's
// own path.
func TestADockerHostIsChangedUnderTheDaemonsLock(t *testing.T) {
	synctest.Test(t, dockerLocked)
}

func dockerLocked(t *testing.T) {
	r, doc := dockerRig(t)
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	lock := flock.New(filepath.Join(r.docker.At(r.docker.Box("k3s").Data), "fleet-role.lock"))
	if ok, err := lock.TryLock(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer func() { _ = lock.Unlock() }()
	if err := os.WriteFile(doc, []byte(strings.Replace(dockerDocument, "log-level: error", "log-level: warn", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := len(r.docker.Calls)
	for _, args := range [][]string{{"setup", "-f", doc}, {"remove"}} {
		r.want(fleet.ExitFailed, "fleet-role.lock: another process has held it for 5m", args...)
	}
	if len(r.docker.Calls) > calls {
		t.Errorf("did %v", r.docker.Calls[calls:])
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	r.want(fleet.ExitDone, "docker restart regrade-regrade-host", "setup", "-f", doc)
}

func TestADockerDocumentThatIsWrongChangesNothing(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"an unknown key":              {"agent-token:", "agents-token:", `unknown field "agents-token"`},
		"an unknown flag":             {"node-ip:", "node-pi:", "docker.flags: node-pi"},
		"a flag of the .env's":        {"node-ip:", "token:", "docker.flags: token is given in another way"},
		"founding by a flag":          {"node-ip:", "cluster-init:", "docker.flags: cluster-init"},
		"a folder that is no path":    {"agent-token:", "folder: srv\n  agent-token:", "docker.folder"},
		"a bad name":                  {"agent-token:", "project: A B\n  agent-token:", "docker.project"},
		"an image with a space":       {"regrade:v1", "regrade v1", "docker.images.regrade"},
		"a founder that joins":        {"agent-token:", "founder: true\n  join-server: https://10.0.0.2:6443\n  agent-token:", "docker.founder"},
		"an agent that founds":        {"role: server", "role: agent", "docker.founder"},
		"a word for no founder":       {"agent-token:", "cluster-init: true\n  agent-token:", "docker.cluster-init"},
		"itself to join":              {"agent-token:", "agent-server: https://10.0.0.1:6443\n  agent-token:", "docker.agent-server"},
		"a file outside":              {"agent-token:", "files: [compose.yaml, ../x.yaml]\n  agent-token:", "docker.files"},
		"another file first":          {"agent-token:", "files: [rights.yaml]\n  agent-token:", "docker.files"},
		"a network of nowhere":        {"agent-token:", "network: bridge\n  agent-token:", "docker.network"},
		"a kubeconfig elsewhere":      {"log-level: error", "kubeconfig: /root/kube", "host.kubeconfig"},
		"a lock elsewhere":            {"log-level: error", "lock: /root/lock", "host.lock"},
		"other services":              {"log-level: error", "docker: {server-service: x}", "host.docker"},
		"another socket":              {"log-level: error", "docker: {socket: /x}", "host.docker.socket"},
		"another project":             {"log-level: error", "docker: {project: x}", "host.docker.project"},
		"containers and units at one": {"platform: docker", "platform: systemd", "docker: the platform is systemd"},
	} {
		t.Run(name, func(t *testing.T) {
			r, doc := dockerRig(t)
			text := strings.Replace(dockerDocument, c.old, c.new, 1)
			if name == "an agent that founds" {
				text = strings.Replace(text, "agent-token:", "founder: true\n  agent-token:", 1)
			}
			if err := os.WriteFile(doc, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			before := r.docker.State()
			r.want(fleet.ExitRefused, c.want, "setup", "-f", doc)
			if d := cmp.Diff(before, r.docker.State()); d != "" {
				t.Error(d)
			}
			if strings.Contains(r.errs.String(), "hush") {
				t.Errorf("a secret is shown: %s", &r.errs)
			}
		})
	}
}

// A native host's document does not make a Docker host a native one.
func TestAHostKeepsItsPlatform(t *testing.T) {
	r, doc := dockerRig(t)
	r.want(fleet.ExitDone, "", "setup", "-f", doc)
	raw, err := os.ReadFile(r.docker.At(fleet.FileInstalled))
	var record project.Record
	if err != nil || json.Unmarshal(raw, &record) != nil || record.Platform != "docker" {
		t.Fatalf("%s %v", raw, err)
	}
	r.units = &units{root: r.root}
	if err := os.WriteFile(doc, []byte(hostDocument), 0o600); err != nil {
		t.Fatal(err)
	}
	r.want(fleet.ExitRefused, "PlatformChanged", "setup", "-f", doc)
}

// A look takes the images of an archive that is yet to come for there; a setup does not.
func TestALookMayTakeAnArchiveForThere(t *testing.T) {
	r, doc := dockerRig(t)
	text := strings.Replace(dockerDocument, "docker:\n", "docker:\n  archive: /srv/k3s/.images.tar\n", 1)
	if err := os.WriteFile(doc, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	delete(r.docker.Images, "regrade:v1")
	holds := []string{"--archive-holds", "regrade:v1", "--archive-holds", "other:v2"}
	r.want(fleet.ExitRefused, "(ImageMissing)", "setup", "--check", "-f", doc)
	r.want(fleet.ExitDone, "run: docker load -q -i /srv/k3s/.images.tar", append([]string{"setup", "--check", "-f", doc}, holds...)...)
	r.want(fleet.ExitRefused, "(ImageMissing)", append([]string{"setup", "-f", doc}, holds...)...)
	if len(r.docker.Calls) > 0 {
		t.Errorf("did %v", r.docker.Calls)
	}
}

// A host without an .env takes the usual images, one with an .env its own.
func TestTheUsualImagesAreThoseOfANewHost(t *testing.T) {
	r, doc := dockerRig(t)
	given := "  images: {k3s: \"rancher/k3s:v1.36.3-k3s1\", regrade: \"regrade:v1\"}\n"
	usual := func(regrade string) string {
		return strings.Replace(dockerDocument, given, "  usual: {k3s: \"rancher/k3s:v1.36.3-k3s1\", regrade: \""+regrade+"\"}\n", 1)
	}
	for _, regrade := range []string{"regrade:v1", "regrade:v2"} {
		if err := os.WriteFile(doc, []byte(usual(regrade)), 0o600); err != nil {
			t.Fatal(err)
		}
		r.want(fleet.ExitDone, "", "setup", "-f", doc)
		if env := r.docker.Read("/srv/k3s/.env"); !strings.Contains(env, "\nREGRADE_IMAGE=regrade:v1\n") || !strings.Contains(env, "\nK3S_REGRADE_IMAGE=k3s-regrade:v1.36.3-k3s1-v1\n") {
			t.Errorf("with usual %s:\n%s", regrade, env)
		}
	}
	r.want(fleet.ExitDone, "nothing to do", "setup", "-f", doc)
}
