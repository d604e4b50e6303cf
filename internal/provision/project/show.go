package project

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/deploy"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Show prints what a plan would change: commands that bring images, each file as a
// difference with secrets left out, and the commands for the containers.
func (p Plan) Show(w io.Writer) {
	if p.Empty() {
		_, _ = fmt.Fprintln(w, "nothing to do")
		return
	}
	for _, c := range p.Images {
		_, _ = fmt.Fprintf(w, "run: %s\n", c)
	}
	for _, f := range p.Files {
		show(w, f)
	}
	for _, f := range p.Closed {
		_, _ = fmt.Fprintf(w, "%s: mode becomes %04o\n", f.Path, f.Mode)
	}
	for _, m := range p.Modprobe {
		_, _ = fmt.Fprintf(w, "run: modprobe %s\n", m)
	}
	for _, c := range p.Containers {
		_, _ = fmt.Fprintf(w, "run: %s\n", c)
	}
	for _, service := range services {
		if p.Keep[service] != "" {
			_, _ = fmt.Fprintf(w, "the container of %s stays as it is\n", service)
		}
	}
	if p.Note && len(p.Files)+len(p.Containers) == 0 {
		_, _ = fmt.Fprintln(w, "what was found is written down; nothing else is to be done")
	}
}

// Show prints what a removal would do.
func (r Removal) Show(w io.Writer) {
	for _, c := range r.Stop {
		_, _ = fmt.Fprintf(w, "run: %s\n", c)
	}
	for _, f := range r.Files {
		show(w, f)
	}
	for _, path := range r.Delete {
		_, _ = fmt.Fprintf(w, "delete %s\n", path)
	}
	if r.Back {
		_, _ = fmt.Fprintln(w, "take the service regrade-host out of compose.yaml: the next `up` would bring it back")
	}
	_, _ = fmt.Fprintln(w, "k3s's containers go on as they are, behind regrade's entrypoint, which reads the role files and nothing else")
}

// show prints one file. Of an .env only what is regrade's is shown: it may hold whatever else the
// project's owner has in it, such as the key of a mesh, and tokens of before as comments.
func show(w io.Writer, f setup.File) {
	if filepath.Base(f.Path) == fileEnv {
		f.Old, f.Content = shownEnv(f.Old), shownEnv(f.Content)
	}
	f.Show(w)
}

func shownEnv(raw []byte) []byte {
	if raw == nil {
		return nil
	}
	shipped, _ := deploy.Compose("env.example") // without it every comment is hidden
	example := strings.Split(string(shipped), "\n")
	lines := strings.Split(string(raw), "\n")
	for i, line := range lines {
		bare := strings.TrimSpace(line)
		key, _, set := strings.Cut(bare, "=")
		key = strings.TrimSpace(strings.TrimPrefix(key, "export "))
		switch {
		case bare == "", slices.Contains(example, line), set && slices.Contains(variables, key):
		case bare[0] == '#':
			lines[i] = "# ***"
		case set && envName.MatchString(key):
			lines[i] = key + "=***"
		default:
			lines[i] = "***"
		}
	}
	return []byte(strings.Join(lines, "\n"))
}
