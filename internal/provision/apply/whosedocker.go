package apply

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/status"
)

// told prints the lines of a project's .env that say whose it is, and none with a secret.
const told = `grep -E "^[[:space:]]*(export[[:space:]]+)?($2)[[:space:]]*=" "$1/.env" 2>/dev/null; :`

// boxes prints of each container of an engine, running or not, its project and folder by
// Compose's labels, and where k3s's data lies if it has any; then where a volume lies. A container
// that goes between the two questions makes it ask again.
const boxes = `command -v docker >/dev/null 2>&1 || { echo "` + boxesEnd + `"; exit 0; }
export DOCKER_HOST="unix://$1"
n=0
until ids=$(docker ps -aq --no-trunc) && { test -z "$ids" || all=$(docker container inspect -f '` + boxLine + `' $ids 2>&1); }; do
	n=$((n+1))
	test $n -lt 3 || { echo "$all" >&2; exit 1; }
done
test -z "$ids" || echo "$all"
echo "` + boxesEnd + `"
docker volume inspect -f '{{.Mountpoint}}' "$2" 2>/dev/null; :`

const (
	boxLine = `{{index .Config.Labels "com.docker.compose.project"}}{{"\t"}}{{index .Config.Labels "com.docker.compose.project.working_dir"}}{{"\t"}}` +
		`{{range .Mounts}}{{if eq .Destination "` + fleet.DefaultDataDir + `"}}{{.Source}}{{end}}{{end}}`
	boxesEnd = "== volume"
)

// engineWait bounds the questions to an engine: one that hangs answers nobody.
const engineWait = 30 * time.Second

// box is a folder of k3s's data in an engine, with the Compose project whose container has it
// mounted.
type box struct{ project, folder, data string }

// boxes are those of the engine, the data volume of a project whose containers are gone among
// them. None where there is no docker.
func (h *host) boxes(ctx context.Context, name project.Name) (out []box, _ error) {
	bounded, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	r, err := h.runner.Run(bounded, remote.Command{Argv: []string{"sh", "-c", boxes, "sh", name.Socket, name.Volume()}})
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, failed(CodeHostFailed, "it does not say which Node it is: its engine has not answered in %s", engineWait)
	}
	if err != nil {
		return nil, err
	}
	lines, volume, ok := strings.Cut(string(r.Out), boxesEnd+"\n")
	if !ok {
		return nil, failed(CodeHostFailed, "it does not say which Node it is, for its engine does not answer: %s", said(r))
	}
	for line := range strings.Lines(lines) {
		if parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(parts) == 3 && parts[2] != "" {
			out = append(out, box{parts[0], parts[1], parts[2]})
		}
	}
	if volume = strings.TrimSpace(volume); volume != "" {
		out = append(out, box{project: name.Project, data: volume})
	}
	slices.SortFunc(out, func(a, b box) int { return strings.Compare(a.data, b.data) })
	return slices.CompactFunc(out, func(a, b box) bool { return a.data == b.data && a.project == b.project }), nil
}

// inProject says how a Docker host is another one than it is taken for: by the data of its
// project, whether or not a container runs or there is one, else by its .env, else by whatever
// k3s is on that machine. Where none of these says anything it is a new host.
func (t *Turn) inProject(ctx context.Context, h *host, ca []byte) ([]status.Problem, error) {
	r, err := h.run(ctx, nil, "sh", "-c", told, "sh", h.Project, strings.Join(project.Telling(), "|"))
	if err != nil {
		return nil, err
	}
	name := project.Named(t.Fleet.Document(h.Host).DockerPart(), project.ParseEnv(r.Out))
	all, err := h.boxes(ctx, name)
	if err != nil {
		return nil, err
	}
	ran, others := false, []box{{data: fleet.DefaultDataDir}}
	for _, b := range all {
		if b.folder != h.Project && b.project != name.Project {
			others = append(others, b)
			continue
		}
		who, err := h.ranAs(ctx, b.data)
		if err != nil {
			return nil, err
		}
		if found := h.differs(who, ca); len(found) > 0 {
			return found, nil
		}
		ran = ran || who.node != ""
	}
	switch {
	case ran:
		return nil, nil
	case name.Node != "" && name.Node != h.Name:
		return []status.Problem{h.is(setup.CodeOtherNode, "the host at %s is the Node %q by the .env in %s", h.SSH, name.Node, h.Project)}, nil
	}
	return t.another(ctx, h, ca, others)
}

// another says that k3s has run on a host's machine in another place than the host's own, and as
// another Node of this cluster: then that host is meant. Any other k3s there is nothing of this
// fleet's, and setup's to refuse.
func (t *Turn) another(ctx context.Context, h *host, ca []byte, places []box) ([]status.Problem, error) {
	for _, b := range places {
		who, err := h.ranAs(ctx, b.data)
		if err != nil {
			return nil, err
		}
		_, there := t.nodes[who.node]
		if there && who.node != h.Name && (len(ca) == 0 || len(who.ca) == 0 || k3s.SameCA(who.ca, ca)) {
			return []status.Problem{h.is(setup.CodeOtherNode, "the host at %s is the Node %q by the certificate of the kubelet that has its files in %s", h.SSH, who.node, b.data)}, nil
		}
	}
	return nil, nil
}
