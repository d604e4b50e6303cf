package apply_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/remote"
)

// disk is a folder in which the scripts of a look run for real, with a docker of its own.
type disk struct {
	t      *testing.T
	root   string
	Engine engine
}

// engine is what the docker beside them knows: containers as inspect has them, and where volumes
// lie. Down: it does not answer.
type engine struct {
	Containers []container
	Volumes    map[string]string
	Down       bool
}

type container struct {
	ID     string
	Config struct{ Labels map[string]string }
	State  struct{ Status string }
	Mounts []mount
}

type mount struct{ Source, Destination string }

// docker answers what the scripts ask, and nothing else; containers are in the form that they ask
// for (lines).
const docker = `#!/bin/sh
cd "${0%/*}/.." || exit 2
test ! -e down && test "$DOCKER_HOST" = unix:///var/run/docker.sock || { echo "Cannot connect to the Docker daemon at $DOCKER_HOST. Is the docker daemon running?" >&2; exit 1; }
case "$*" in
"ps -aq --no-trunc") cat ids ;;
"container inspect -f "*) cat lines ;;
"volume inspect -f {{.Mountpoint}} "*) cat "volumes/$5" ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
`

var asked = regexp.MustCompile(`container inspect -f '([^']*)'`)

// serve makes the engine answer a script.
func (d *disk) serve(script string) {
	d.t.Helper()
	var ids, lines strings.Builder
	if m := asked.FindStringSubmatch(script); m != nil {
		format := template.Must(template.New("").Parse(m[1]))
		for _, c := range d.Engine.Containers {
			ids.WriteString(c.ID + "\n")
			if err := format.Execute(&lines, c); err != nil {
				d.t.Fatal(err)
			}
			lines.WriteString("\n")
		}
	}
	d.plant("ids", ids.String())
	d.plant("lines", lines.String())
	for name, at := range d.Engine.Volumes {
		d.plant("volumes/"+name, at+"\n")
	}
	if d.Engine.Down {
		d.plant("down", "")
	}
	d.plant("bin/docker", docker)
	if err := os.Chmod(filepath.Join(d.root, "bin/docker"), 0o700); err != nil {
		d.t.Fatal(err)
	}
}

func newDisk(t *testing.T) *disk { return &disk{t: t, root: t.TempDir()} }

// plant writes a file.
func (d *disk) plant(path, content string) {
	d.t.Helper()
	path = filepath.Join(d.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// project is a Compose project with both of k3s's containers, of which one runs, as k3s ran as a
// Node of a cluster.
func (d *disk) project(name, folder, cert, ca string) {
	data := "/var/lib/docker/volumes/" + name + "_k3s-data/_data"
	for service, state := range map[string]string{"k3s": "running", "k3s-agent": "created", "regrade-host": "running"} {
		c := container{ID: name + service, Mounts: []mount{{"/run/regrade", "/run/regrade"}, {data, fleet.DefaultDataDir}}}
		c.Config.Labels = map[string]string{
			"com.docker.compose.project": name, "com.docker.compose.service": service, "com.docker.compose.project.working_dir": folder,
		}
		c.State.Status = state
		d.Engine.Containers = append(d.Engine.Containers, c)
	}
	d.Engine.Volumes = map[string]string{name + "_k3s-data": data}
	d.ran(data, cert, ca)
}

// ran is what k3s leaves behind in its data.
func (d *disk) ran(data, cert, ca string) {
	d.plant(filepath.Join(data, "agent/client-kubelet.crt"), cert)
	d.plant(filepath.Join(data, "agent/server-ca.crt"), ca)
}

// run runs a script. Its folder is one of the disk's.
func (d *disk) run(c remote.Command) (remote.Result, error) {
	d.serve(c.Argv[2])
	argv := slices.Clone(c.Argv)
	if len(argv) > 4 && !strings.HasPrefix(argv[2], "command -v docker") {
		argv[4] = filepath.Join(d.root, argv[4])
	}
	cmd := exec.CommandContext(d.t.Context(), argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + filepath.Join(d.root, "bin") + ":" + os.Getenv("PATH")}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		return remote.Result{}, err
	}
	return remote.Result{Out: out, Err: []byte(errs.String()), Code: cmd.ProcessState.ExitCode()}, nil
}
