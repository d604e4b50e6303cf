package inventory

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
)

// Write writes the draft as a file with comments, which Parse reads.
func (d Draft) Write(w io.Writer) error {
	var b bytes.Buffer
	say := func(format string, args ...any) { comment(&b, "", fmt.Sprintf(format, args...)) }
	say("The fleet of this cluster, as its Nodes tell it. Read it through, then: regrade apply --check")
	say("Every key is in docs/interface.md; regrade apply --print-config shows each with its default.")
	if len(d.Against) > 0 {
		say("")
		say("What speaks against regrade as the cluster is now:")
		for _, p := range d.Against {
			say("- %s (%s)", p.Sentence, p.Code)
		}
	}
	fmt.Fprintln(&b, "\nhosts:")
	for i, h := range d.Hosts {
		if i == 0 || d.Hosts[i-1].Role != h.Role {
			section(&b, h.Role, i == 0)
		}
		h.write(&b)
	}
	if d.Left > 0 {
		comment(&b, "  ", fmt.Sprintf("%d more agents are left out: a file holds %d hosts, and on an agent that may not vote nothing is installed.", d.Left, maxHosts))
	}
	fmt.Fprintln(&b)
	say("How many servers the cluster may ever have at once; a swap adds one for a while. By default the target and two.")
	fmt.Fprintf(&b, "# %s: %d\n\n", KeyMaxServers, Fleet{Settings: d.Settings}.Target()+spare)
	say("Flags of regrade manifests. With the dry run on, regrade only reports what it would swap; a swap that a person asks for is made all the same.")
	fmt.Fprintln(&b, "settings:")
	for _, s := range d.Settings {
		fmt.Fprintf(&b, "  %s: %s\n", s.Name, oneLine(s.Value))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func section(b *bytes.Buffer, role fleet.Role, first bool) {
	if !first {
		fmt.Fprintln(b)
	}
	if role == fleet.RoleServer {
		comment(b, "  ", "Servers. Each may vote, unless it has eligible: false; with pinned: true its vote is never taken away.")
		comment(b, "  ", "ssh: [user@]host[:port] where the address is not what ssh takes; platform: docker where k3s runs in a container.")
		return
	}
	comment(b, "  ", "Agents. With eligible: true one becomes a standby, which a swap may make a server; on the others nothing is installed.")
}

// write is one host with what is not the default.
func (h DraftHost) write(b *bytes.Buffer) {
	for _, note := range h.Notes {
		comment(b, "  ", h.Name+": "+note)
	}
	fmt.Fprintf(b, "  - name: %s\n", oneLine(h.Name))
	put := func(key, v string) {
		if v != "" {
			fmt.Fprintf(b, "    %s: %s\n", key, oneLine(v))
		}
	}
	put("address", h.Address)
	if h.Platform != Native {
		put("platform", h.Platform)
		put("project", h.Project)
	}
	put("role", string(h.Role))
	if h.Role == fleet.RoleAgent || !h.Eligible {
		put("eligible", fmt.Sprint(h.Eligible))
	}
	if h.Pinned {
		put("pinned", "true")
	}
	put("node-ip", h.NodeIP)
	put("join-url", h.JoinURL)
}

// comment is text as a comment of one line, whatever a Node says in it.
func comment(b *bytes.Buffer, indent, text string) {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == 0x2028 || c == 0x2029 || c == 0xfeff {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	fmt.Fprintln(b, strings.TrimRight(indent+"# "+text, " "))
}
