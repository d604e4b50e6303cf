package setup

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Show prints what a plan would change: each file as a difference, secrets left out,
// then units.
func (p Plan) Show(w io.Writer) {
	if p.Empty() {
		_, _ = fmt.Fprintln(w, "nothing to do")
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
		old, content = mask(old), mask(content)
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

// secrets are the keys of a k3s configuration whose values are shown nowhere.
var secrets = []string{"token", "agent-token", "vpn-auth", "etcd-s3-access-key", "etcd-s3-secret-key", "etcd-s3-session-token", "datastore-endpoint", "etcd-s3-proxy"}

// secretVariables are those of a Compose project's .env.
var secretVariables = []string{"K3S_TOKEN", "K3S_AGENT_TOKEN"}

// mask takes secrets out of a configuration file, or an .env. A value over several lines, or in
// another form than ours, is left out to the next key.
func mask(raw []byte) []byte {
	var out []string
	hiding := false
	for line := range strings.SplitSeq(string(raw), "\n") {
		key, _, found := strings.Cut(line, ":")
		variable, value, set := strings.Cut(line, "=")
		switch {
		case found && hides(key):
			hiding = true
			out = append(out, key+": ***")
			continue
		case set && value != "" && slices.Contains(secretVariables, strings.TrimSpace(strings.TrimPrefix(variable, "export "))):
			out = append(out, variable+"=***")
			hiding = false
			continue
		case hiding && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "-") || strings.HasPrefix(line, "\t")):
			continue
		}
		hiding = false
		out = append(out, line)
	}
	return []byte(strings.Join(out, "\n"))
}

func hides(key string) bool {
	key = strings.Trim(key, "\"'+ ")
	for _, s := range secrets {
		if key == s {
			return true
		}
	}
	return false
}
