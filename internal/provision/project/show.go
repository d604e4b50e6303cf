package project

import (
	"fmt"
	"io"
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
		f.Show(w)
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
		f.Show(w)
	}
	for _, path := range r.Delete {
		_, _ = fmt.Fprintf(w, "delete %s\n", path)
	}
	if r.Back {
		_, _ = fmt.Fprintln(w, "take the service regrade-host out of compose.yaml: the next `up` would bring it back")
	}
	_, _ = fmt.Fprintln(w, "k3s's containers go on as they are, behind regrade's entrypoint, which reads the role files and nothing else")
}
