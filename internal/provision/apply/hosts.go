package apply

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
)

// installed is where regrade is on a host. A Docker host whose /usr/local is read-only, as
// many a NAS's is, has it in its project's folder: no unit asks it there.
const installed = "/usr/local/bin/regrade"

// places are where regrade may be on a host, the usual one first.
func (h *host) places() []string {
	if h.Platform == inventory.Docker {
		return []string{installed, path.Join(h.Project, "bin", "regrade")}
	}
	return []string{installed}
}

// coming is beside the program: one rename makes it that (k3s's units ask it before every
// start, so that it may never be missing or half). temporary is for a look.
func coming(program string) string { return path.Join(path.Dir(program), ".regrade.new") }

func temporary(program string) string { return path.Join(path.Dir(program), ".regrade.check") }

// clean takes a file of regrade's away; with it the folders that a place in a project needed,
// where nothing else is in them.
func (h *host) clean(file string) []string {
	if dir := path.Dir(file); dir != path.Dir(installed) {
		return takeAway(file, dir, path.Dir(dir))
	}
	return []string{"rm", "-f", file}
}

// reach connects to every host.
func (t *Turn) reach(ctx context.Context) error {
	t.each(ctx, atOnce, t.hosts, func(ctx context.Context, h *host) (err error) {
		h.runner, err = t.dial(ctx, h.Host)
		return err
	})
	if slices.ContainsFunc(t.hosts, func(h *host) bool { return h.problem == nil }) {
		return nil
	}
	return fmt.Errorf("no host was reached")
}

// architectures are the kernel's names and Go's.
var architectures = map[string]string{
	"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm", "armv8l": "arm",
}

// look at a host: its architecture, and the sums of the program in its places.
const facts = `uname -m; sha256sum "$@" 2>/dev/null || :`

// look sees what a host's machine is, and which program it has in each of its places.
func (h *host) look(ctx context.Context) (sums map[string]string, _ error) {
	r, err := h.run(ctx, nil, append([]string{"sh", "-c", facts, "sh"}, h.places()...)...)
	if err != nil {
		return nil, err
	}
	machine, rest, _ := strings.Cut(string(r.Out), "\n")
	h.arch = architectures[strings.TrimSpace(machine)]
	if h.arch == "" {
		return nil, failed(CodeNoProgram, "its machine is %q, which regrade is not built for", strings.TrimSpace(machine))
	}
	sums = map[string]string{}
	for line := range strings.Lines(rest) {
		sum, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		sums[strings.TrimSpace(at)] = sum
	}
	return sums, nil
}

// programs brings regrade to every host that has another, checked by its SHA-256 and tried
// before it takes the old one's place.
func (t *Turn) programs(ctx context.Context) error {
	t.each(ctx, atOnce, t.hosts, t.program)
	return nil
}

func (t *Turn) program(ctx context.Context, h *host) error {
	sums, err := h.look(ctx)
	if err != nil {
		return err
	}
	p, err := t.Program(h.arch)
	if err != nil {
		return failed(CodeNoProgram, "%v", err)
	}
	for _, at := range h.places() {
		if sums[at] == p.Sum {
			h.program = at
			return nil
		}
	}
	for _, at := range h.places() {
		if err = t.bring(ctx, h, p, at); !readOnly(err) {
			break
		}
	}
	return err
}

// readOnly says that a file could not be written because nothing can be there.
func readOnly(err error) bool {
	return err != nil && (remote.CodeOf(err) == remote.ReadOnly || strings.Contains(err.Error(), "Read-only file system"))
}

// bring puts the program in its place, or for a look beside it.
func (t *Turn) bring(ctx context.Context, h *host, p Program, at string) error {
	f, err := os.Open(p.Path)
	if err != nil {
		return fmt.Errorf("the program: %w", err)
	}
	defer func() { _ = f.Close() }()
	target := coming(at)
	if t.Check {
		target = temporary(at)
	}
	if _, err := h.run(ctx, nil, "mkdir", "-p", path.Dir(at)); err != nil {
		return err
	}
	h.passing = target // so that a half one is taken away
	if err := h.runner.Put(ctx, target, f, 0o755); err != nil {
		return err
	}
	r, err := h.runner.Run(ctx, remote.Command{Argv: []string{target, "version"}})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return failed(CodeProgramFails, "regrade does not run there: %s", said(r))
	}
	h.changed = true
	t.screen.line(h.Name, "regrade %s, %d MiB", strings.TrimSpace(string(r.Out)), p.Size>>20)
	if t.Check {
		h.program = target
		return nil
	}
	// Of a NAS's mv less is known than of Debian's.
	flags := "-fT"
	if h.Platform == inventory.Docker {
		flags = "-f"
	}
	if _, err := h.run(ctx, nil, "mv", flags, target, at); err != nil {
		return err
	}
	h.program, h.passing = at, ""
	return nil
}

// run is a command that has to end well.
func (h *host) run(ctx context.Context, in []byte, argv ...string) (remote.Result, error) {
	c := remote.Command{Argv: argv}
	if in != nil {
		c.In = bytes.NewReader(in)
	}
	r, err := h.runner.Run(ctx, c)
	if err == nil && (r.Code != 0 || r.Signal != "") {
		err = failed(CodeHostFailed, "%s: %s", argv[0], said(r))
	}
	return r, err
}

// maxSaid is how much of what a host says is shown.
const maxSaid = 16 << 10

// said is what a command that failed said of it.
func said(r remote.Result) string {
	text := strings.TrimSpace(string(r.Err))
	if len(text) > maxSaid {
		text = "..." + strings.ToValidUTF8(text[len(text)-maxSaid:], "")
	}
	if text == "" {
		return fmt.Sprintf("exit status %d", r.Code)
	}
	return strings.TrimPrefix(text, "regrade: ")
}

// borrow reads from a server what a standby's server runs with. Standbys alone need it,
// and hosts that are agents now.
func (t *Turn) borrow(ctx context.Context) error {
	if !slices.ContainsFunc(t.hosts, func(h *host) bool { return h.problem == nil && !t.votes(h) }) {
		return nil
	}
	if len(t.lenders()) == 0 {
		t.seekHelp(ctx)
	}
	var last error
	for _, h := range t.lenders() {
		argv := []string{h.program, "host", "lend"}
		if h.Platform == inventory.Docker {
			argv = append(argv, "--project", h.Project) // also of one that was not set up yet
		}
		r, err := h.run(ctx, nil, argv...)
		if err == nil {
			t.lent, err = setup.ParseLent(r.Out)
		}
		if err == nil {
			return nil
		}
		last = fmt.Errorf("%s: %w", h.Name, err)
		t.screen.line(h.Name, "lends nothing: %v", err)
	}
	for _, h := range t.hosts {
		if h.problem == nil && !t.votes(h) {
			t.fail(h, failed(CodeNobodyLends, "no server was found that tells what a standby runs with: %v", last))
		}
	}
	return nil
}

// lenders are the hosts that run a server, those that the cluster calls voters first.
func (t *Turn) lenders() (out []*host) {
	for _, h := range t.hosts {
		if h.problem == nil && t.votes(h) {
			out = append(out, h)
		}
	}
	return append(out, t.helpers...)
}

// seekHelp reaches the servers outside of a limit, of which one has to lend. Nothing is
// changed there: they have regrade, or are no help.
func (t *Turn) seekHelp(ctx context.Context) {
	ca, err := t.authority(ctx)
	if err != nil {
		return // said when it was asked before
	}
	for _, named := range t.Fleet.Hosts {
		h := &host{Host: named}
		if !t.votes(h) || slices.ContainsFunc(t.hosts, func(o *host) bool { return o.Name == h.Name }) {
			continue
		}
		if h.runner, err = t.dial(ctx, named); err != nil {
			t.screen.line(h.Name, "lends nothing: %v", err)
			continue
		}
		t.helpers = append(t.helpers, h)
		if err := t.helps(ctx, h, ca); err != nil {
			t.screen.line(h.Name, "lends nothing: %v", err)
			t.helpers = t.helpers[:len(t.helpers)-1]
			_ = h.runner.Close()
		}
	}
}

func (t *Turn) helps(ctx context.Context, h *host, ca []byte) error {
	problems, err := t.itself(ctx, h, ca)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", problems[0].Sentence)
	}
	sums, err := h.look(ctx)
	if err != nil {
		return err
	}
	for _, at := range h.places() {
		if sums[at] != "" {
			h.program = at
			return nil
		}
	}
	return failed(CodeNobodyLends, "regrade is not there; run it without --limit first")
}

// votes says whether a host is a server by its Node: the file tells what it once was.
func (t *Turn) votes(h *host) bool {
	_, etcd := t.nodes[h.Name].Labels[fleet.LabelEtcd]
	return etcd
}

// setUp gives each host its document. A server at a time: should one go wrong, it is one.
func (t *Turn) setUp(ctx context.Context, which func(*host) bool, atOnce int) error {
	var hosts []*host
	for _, h := range t.hosts {
		if which(h) {
			hosts = append(hosts, h)
		}
	}
	t.each(ctx, atOnce, hosts, t.one)
	return nil
}

func (t *Turn) one(ctx context.Context, h *host) error {
	if n, there := t.nodes[h.Name]; there && h.NodeIP != "" && n.InternalIP != "" && !slices.Contains(h.NodeIPs(), n.InternalIP) {
		return refusal(CodeNodeIP, "its Node has the address %s and fleet.yaml says node-ip: %s; an etcd member's address never changes", n.InternalIP, h.NodeIP)
	}
	if err := t.unfounded(h); err != nil {
		return err
	}
	if h.newcomer && t.Check && h.Platform == inventory.Native {
		t.screen.line(h.Name, "would be set up once k3s runs")
		return nil
	}
	d, err := t.document(h)
	if err != nil {
		return err
	}
	r, err := t.hostSetup(ctx, h, d)
	if err == nil && t.Archive.Path != "" && lacksImage(r) {
		r, err = t.withArchive(ctx, h, d)
	}
	if err != nil {
		return err
	}
	switch {
	case r.Code == fleet.ExitRefused && r.Signal == "":
		return refusal(CodeHostRefused, "%s", said(r))
	case r.Code != 0 || r.Signal != "":
		return failed(CodeHostFailed, "%s", said(r))
	case h.taken:
		return refusal(CodeNodeTaken, "it has no Compose project in %s, and the cluster has a Node %s: correct project where it is in another folder; delete that Node where this is a new host of the name", h.Project, h.Name)
	}
	out := strings.TrimSpace(string(r.Out))
	if out == setup.NothingToDo {
		return nil
	}
	h.changed, h.restarted = true, true
	heading := "set up"
	if t.Check {
		heading = "would be set up"
	}
	t.screen.block(h.Name, heading, out)
	return nil
}

// document is what the program on a host is told, secrets and all.
func (t *Turn) document(h *host) (setup.Desired, error) {
	d := t.Fleet.Document(h.Host)
	d.Kubeconfig, d.Voter, d.Token = t.kubeconfigs.host, t.lent.Voter, t.lent.Token
	if levels, ok := h.Settings["levels"].(map[string]any); ok && levels["enabled"] == true {
		if !t.Levels {
			return d, failed(CodeNoCredential, "its levels are on, and settings.levels is not: the hosts' level half has no account then")
		}
		d.LevelKubeconfig = t.kubeconfigs.level
	}
	if d.Docker != nil {
		t.ofProject(h, d.Docker)
	}
	return d, nil
}

// hostSetup has the program on a host do what is to be done. A look, and a host whose name
// is taken, changes nothing.
func (t *Turn) hostSetup(ctx context.Context, h *host, d setup.Desired) (remote.Result, error) {
	if t.Check || h.taken {
		return h.wouldDo(ctx, d)
	}
	return h.give(ctx, d)
}

// wouldDo has it say what is to be done.
func (h *host) wouldDo(ctx context.Context, d setup.Desired, more ...string) (remote.Result, error) {
	return h.give(ctx, d, append(more, "--check", "--program-comes")...)
}

// give gives the program on a host its document.
func (h *host) give(ctx context.Context, d setup.Desired, more ...string) (remote.Result, error) {
	raw, err := d.Encode()
	if err != nil {
		return remote.Result{}, err
	}
	return h.runner.Run(ctx, remote.Command{Argv: append([]string{h.program, "host", "setup", "--file", "-"}, more...), In: bytes.NewReader(raw)})
}
