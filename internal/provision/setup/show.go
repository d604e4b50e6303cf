package setup

import (
	"fmt"
	"io"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/exadev/regrade/internal/k3s"
)

// NothingToDo is all that is said of a host that is as it shall be.
const NothingToDo = "nothing to do"

// Show prints what a plan would change: each file as a difference, secrets left out,
// then units.
func (p Plan) Show(w io.Writer) {
	if p.Empty() {
		_, _ = fmt.Fprintln(w, NothingToDo)
		return
	}
	for _, f := range p.Files {
		f.Show(w)
	}
	if p.Reload {
		_, _ = fmt.Fprintln(w, "systemd reads its units again; k3s goes on running")
	}
	for _, name := range p.Enable {
		_, _ = fmt.Fprintf(w, "enable %s\n", name)
	}
	if p.Restart {
		_, _ = fmt.Fprintf(w, "start %s anew\n", daemonUnit)
	}
}

// Show prints a file as a difference, what is secret left out.
func (f File) Show(w io.Writer) {
	if f.Hidden {
		_, _ = fmt.Fprintf(w, "%s: %s, %d bytes, not shown\n", f.Path, verb(f), len(f.Content))
		return
	}
	old, content := f.Old, f.Content
	if f.Secret {
		old, content = k3s.Mask(old), k3s.Mask(content)
	}
	from := f.Path
	if f.Old == nil {
		from = "/dev/null"
	}
	d := diff.Diff(from, old, f.Path, content)
	if len(d) == 0 {
		d = fmt.Appendf(nil, "%s: changed where it is not shown\n", f.Path)
	}
	_, _ = w.Write(d)
}

func verb(f File) string {
	if f.Old == nil {
		return "new"
	}
	return "changed"
}

// Show prints what a removal would do.
func (r Removal) Show(w io.Writer) {
	_, _ = fmt.Fprintf(w, "stop %s\n", daemonUnit)
	for _, name := range r.Disable {
		_, _ = fmt.Fprintf(w, "disable %s\n", name)
	}
	for _, path := range r.Delete {
		if slices.Contains(r.Aside, path) {
			_, _ = fmt.Fprintf(w, "%s was changed since: kept as %s%s\n", path, path, keptAs)
			continue
		}
		_, _ = fmt.Fprintf(w, "delete %s\n", path)
	}
	_, _ = fmt.Fprintf(w, "%s starts again as before; k3s goes on running\n", r.Unit)
}
