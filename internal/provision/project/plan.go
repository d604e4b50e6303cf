package project

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/deploy"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/rolefile"
	"github.com/exadev/regrade/internal/provision/adopt"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/status"
)

// Plan is what has to be done on a host, in this order: images, which need no lock; the
// record; files, the role file and the .env last; kernel modules; containers, k3s before the
// daemon.
type Plan struct {
	Folder string
	// Images are commands that bring or build them.
	Images []Command
	// Folders are made with a mode, where they are not there.
	Folders []Folder
	Files   []setup.File
	// Closed are files that others may read and that keep their content.
	Closed []setup.File
	// Modprobe are kernel modules to load.
	Modprobe []string
	// Containers are commands of Compose and of the engine.
	Containers []Command
	// Keep are the containers, by service, that are the same ones afterwards.
	Keep map[string]string
	// Note: the record differs from what is written down.
	Note   bool
	Record Record

	// secrets are in the files, and taken out of whatever a command prints.
	secrets []string
}

// Folder is one that shall be.
type Folder struct {
	Path string
	Mode fs.FileMode
}

// Empty says that there is nothing to do.
func (p Plan) Empty() bool {
	return len(p.Images)+len(p.Files)+len(p.Closed)+len(p.Modprobe)+len(p.Containers) == 0 && !p.Note
}

// maker is one making of a plan.
type maker struct {
	s    Seen
	d    setup.Desired
	h    settings.Host
	part setup.Docker
	want map[string]string

	problems []status.Problem
	plan     Plan
	// changed are the variables that are to be others, with k3s's containers to be made
	// anew for those in anew.
	changed, anew []string
	role          fleet.Role
	write         fleet.Role // what goes into the role file
}

// Make decides what a host needs, or says everything that speaks against it.
func Make(s Seen, d setup.Desired) (Plan, []status.Problem) {
	h, err := d.Settings()
	if err != nil {
		return Plan{}, problem(setup.CodeSettings, "%v", err)
	}
	m := maker{s: s, d: d, h: h, part: d.DockerPart(), want: s.wanted(d, h)}
	m.plan.Folder = m.part.Folder
	m.place()
	m.roles()
	m.variables()
	m.compare()
	if len(m.problems) == 0 {
		m.files()
		m.containers()
		m.record()
	}
	if len(m.problems) > 0 {
		return Plan{}, slices.Compact(m.problems)
	}
	return m.plan, nil
}

func (m *maker) refuse(code, format string, args ...any) {
	m.add(problem(code, format, args...))
}

// add keeps a problem once.
func (m *maker) add(problems []status.Problem) {
	for _, p := range problems {
		if !slices.Contains(m.problems, p) {
			m.problems = append(m.problems, p)
		}
	}
}

// place is everything about the host that is not as it has to be.
func (m *maker) place() {
	for _, what := range m.s.Lacks {
		m.refuse(CodeTools, "the host lacks %s", what)
	}
	if m.s.Compose != nil {
		major, minor, ok := version(m.s.Version)
		switch {
		case docker.Remakes(m.s.Version):
			m.refuse(docker.CodeComposeVersion, "Compose %s: 2.37.1 to 2.38 make every container anew at each `up`, which stops a running server: use another version", m.s.Version)
		case !ok || major < 1 || major == 1 && minor < 29:
			m.refuse(docker.CodeComposeVersion, "Compose %q: want v2, or 1.29", m.s.Version)
		}
	}
	for _, sentence := range m.s.Elsewhere {
		m.refuse(CodeProject, "%s", sentence)
	}
	for _, sentence := range m.s.Outside {
		m.refuse(CodeOutside, "%s: two k3s on one host, or on one data volume, cost a member. It is not moved by a guess: take the host out of the cluster, stop that k3s for good, and set the host up as a new one (docs/operations.md, \"Docker hosts\")", sentence)
	}
	if m.s.DataProblem != "" {
		m.refuse(CodeVolume, "%s", m.s.DataProblem)
	}
	m.add(setup.Whose(m.s.Node, m.s.CA, m.d, m.h))
	if r := m.s.Record; r != nil {
		switch {
		case r.Platform != platformDocker:
			m.refuse(setup.CodePlatform, "this host was set up with k3s under systemd (%s): take that off first", fleet.FileInstalled)
		case r.Folder != m.part.Folder || r.Project != m.want[varProject]:
			m.refuse(CodeProject, "this host was set up as the project %s in %s: it cannot become %s in %s, which would be another, empty node", r.Project, r.Folder, m.want[varProject], m.part.Folder)
		}
	}
	if m.d.Role == fleet.RoleAgent && !m.d.Eligible {
		m.refuse(setup.CodeNotNeeded, "an agent that is not eligible needs nothing of regrade")
	}
}

// version are the first two numbers.
func version(v string) (major, minor int, ok bool) {
	n, _ := fmt.Sscanf(v, "%d.%d", &major, &minor)
	return major, minor, n == 2
}

// roles decides the role by the same rule as `host record-role` (R-C-03, R-C-06, R-K-02).
func (m *maker) roles() {
	f := m.s.Roles
	running, both := m.s.running()
	if both {
		m.refuse(setup.CodeTwoK3s, "k3s runs in both of the project's containers: stop the one that the role file does not name")
		return
	}
	if f.Leaving != "" || f.Joining.Swap != "" {
		m.refuse(setup.CodeUnderway, "this host is in the middle of a swap")
	}
	r := rolefile.Recording(f, m.d.Role, m.d.Eligible, running, "")
	switch {
	case r.Refused != "":
		m.refuse(setup.CodeRole, "%s", r.Refused)
	case f.Role != "" && running != "" && f.Role != running:
		m.refuse(setup.CodeRole, "the recorded role is %s and k3s runs as %s: a swap may be under way, or it was changed by hand", f.Role, running)
	}
	// Nothing swaps a host that is not eligible: its role file, where the daemon has written
	// one, says what runs and not what a swap has made of it (R-C-06).
	if !m.d.Eligible && running != "" && running != m.d.Role && r.Refused == "" {
		m.refuse(setup.CodeRole, "the host is not eligible, the %s's k3s runs here and the document says %s: correct it, or make the host that by hand", running, m.d.Role)
	}
	m.write, m.role = r.Write, m.d.Role
	if f.Role != "" {
		m.role = f.Role
	}
}

// variables says what speaks against the .env, and what is another in it.
func (m *maker) variables() {
	for _, sentence := range m.s.Env.Odd() {
		m.refuse(CodeEnv, "%s: %s: write it out", in(m.part.Folder, fileEnv), sentence)
	}
	if _, err := m.s.Env.With(m.want); err != nil {
		m.refuse(CodeEnv, "%s: %v: no form of it is the same in every Compose", in(m.part.Folder, fileEnv), err)
	}
	// Its volumes go by the name, also where neither a container nor a record is left to tell.
	if n := m.s.Env.Get(varProject); n != "" && n != m.want[varProject] {
		m.refuse(CodeProject, "the project in %s is called %s by its .env: write docker.project: %s, or leave it out, for another name is another, empty node", m.part.Folder, n, n)
	}
	if n := m.s.Env.Get(varNode); n != "" && n != m.want[varNode] {
		m.refuse(CodeProject, "the project in %s is of the Node %s, and the document of %s: a Node keeps its name", m.part.Folder, n, m.want[varNode])
	}
	if m.want[container.EnvToken] == "" && m.want[container.EnvTokenFile] == "" {
		m.refuse(adopt.CodeNoToken, "token is missing: that of the servers, on a new cluster one that you make up (openssl rand -hex 32)")
	}
	if m.want[varDatastore] == "sqlite" {
		m.refuse(setup.CodeNotEtcd, "%s is sqlite, a single server without etcd: it is in no fleet", varDatastore)
	}
	if m.want[container.EnvAgentURL] == "" {
		m.refuse(adopt.CodeNoJoin, "no other server is known that this host could join as an agent: name one in host.servers or docker.agent-server (R-228-14)")
	}
	if m.want[container.EnvServerURL] == "" && !m.part.Founder && !m.s.Have {
		m.refuse(adopt.CodeNoJoin, "no server is known that this host could join: name one in host.servers or docker.join-server, or say docker.founder: true on the first server of a new cluster")
	}
	if m.want[varK3sImage] == "" || m.want[varImage] == "" {
		m.refuse(CodeImage, "docker.images names no image of k3s, or none of regrade")
	}
	for _, name := range m.s.Absent {
		m.refuse(setup.CodeInTheWay, "%s is missing in %s: COMPOSE_FILE names it, and regrade does not ship it", name, m.part.Folder)
	}
	for _, key := range slices.Sorted(maps.Keys(m.want)) {
		if meant(key, m.s.Env.Get(key)) != meant(key, m.want[key]) {
			m.changed = append(m.changed, key)
		}
	}
	// The .env of a host that is new is not one that has changed.
	if !m.exists() {
		return
	}
	for _, key := range m.changed {
		if !slices.Contains(daemonOnly(m.s.Version), key) {
			m.anew = append(m.anew, key+" in .env")
		}
	}
	for _, service := range services {
		b := m.s.Boxes[service]
		if b == nil || b.Env == nil {
			continue
		}
		for _, key := range given {
			if have := meant(key, b.Env(key)); have != meant(key, m.want[key]) && !slices.Contains(m.changed, key) {
				m.anew = append(m.anew, fmt.Sprintf("%s, which the container %s has otherwise than the .env", key, b.Name))
			}
		}
	}
}

// exists says that one of k3s's containers is there.
func (m *maker) exists() bool {
	return m.s.Boxes[serviceServer] != nil || m.s.Boxes[serviceAgent] != nil
}

// compare looks at the project's files. One that is not ours is never written over: a folder
// with a project of somebody else's is not this one.
func (m *maker) compare() {
	for _, name := range m.shipped() {
		content, err := deploy.Compose(name)
		if err != nil {
			m.refuse(setup.CodeSettings, "%v", err)
			continue
		}
		path := in(m.part.Folder, name)
		old, there := m.s.Files[path]
		switch {
		case !there && m.exists() && name != fileImage:
			m.anew = append(m.anew, name+", which is missing")
		case !there, same(name, old, content):
		case m.s.Record == nil || !slices.Contains(m.s.Record.Created, path):
			m.refuse(setup.CodeInTheWay, "%s is there and is not the one that this version ships: move it away where it is another project's; where it is an older one, or has changes of yours, take the shipped one, put your changes into a file of their own (docker.files), and make the containers anew (docs/operations.md)", path)
		case name == fileImage:
			// It counts when the image is next built.
		default:
			m.anew = append(m.anew, name)
		}
	}
	if len(m.anew) > 0 && (m.s.Boxes[serviceServer].runs() || m.s.Boxes[serviceAgent].runs()) {
		m.refuse(CodeRecreate, "k3s's containers would have to be made anew, which stops k3s: %s. That is done by hand, one host after another (docs/operations.md, \"Make the containers anew\"); then run this again", strings.Join(m.anew, "; "))
	}
}

// same compares a file with the shipped one.
func same(name string, old, content []byte) bool {
	if strings.HasSuffix(name, ".yaml") {
		return alike(old, content)
	}
	return string(old) == string(content)
}

// shipped are the files of the project that are ours.
func (m *maker) shipped() []string {
	out := []string{fileImage}
	for _, name := range composeFiles(m.want[varFiles]) {
		if slices.Contains([]string{fileCompose, fileRights, fileIdentity}, name) {
			out = append(out, name)
		}
	}
	return out
}

// files puts those into the plan that differ.
func (m *maker) files() {
	folder := m.part.Folder
	k, conf := in(folder, m.want[varK3sDir]), in(folder, m.want[varSettings])
	m.plan.Folders = []Folder{{folder, 0o755}, {k, 0o700}, {conf, 0o755}, {in(folder, m.want[varRoleDir]), 0o755}, {in(folder, m.want[varRunDir]), 0o755}}
	m.put(setup.File{Path: fileModules, Mode: readableMode, Content: []byte("# Written by regrade: k3s's containers may not load them themselves.\nbr_netfilter\noverlay\n")})
	for _, name := range m.shipped() {
		content, err := deploy.Compose(name)
		path := in(folder, name)
		if old, there := m.s.Files[path]; err == nil && (!there || !same(name, old, content)) {
			m.put(setup.File{Path: path, Mode: readableMode, Content: content})
		}
	}
	for _, role := range roles {
		path := filepath.Join(k, configs[role])
		content, problems := config(role, m.s.Files[path], m.d, m.h)
		m.add(problems)
		m.put(setup.File{Path: path, Mode: secretMode, Content: content, Secret: true})
	}
	kube := filepath.Join(k, filepath.Base(fleet.FileKubeconfig))
	switch given := m.d.Kubeconfig.Reveal(); {
	case given != "":
		m.put(setup.File{Path: kube, Mode: secretMode, Content: []byte(given), Secret: true, Hidden: true})
	case m.s.Files[kube] == nil && !m.part.Founder:
		// On the very first host there is no cluster yet to take it from.
		m.refuse(setup.CodeNoKube, "no kubeconfig for the host daemon was given, and the host has none")
	}
	host := filepath.Join(conf, filepath.Base(fleet.FileHostConfig))
	content, problems := hostFile(m.s.Files[host], m.d, m.h)
	m.add(problems)
	m.put(setup.File{Path: host, Mode: readableMode, Content: content})
	join := filepath.Join(conf, filepath.Base(fleet.FileJoinConfig))
	content, problems = joinFile(m.s.Files[join], m.d)
	m.add(problems)
	m.put(setup.File{Path: join, Mode: readableMode, Content: content})
	// Before containers that would ask it, and never over one that is there.
	if m.write != "" {
		m.put(setup.File{Path: filepath.Join(in(folder, m.want[varRoleDir]), filepath.Base(fleet.FileRole)), Mode: readableMode, Content: []byte(string(m.write) + "\n")})
	}
	content, err := m.env()
	if err != nil {
		m.refuse(CodeEnv, "%v", err)
		return
	}
	m.put(setup.File{Path: in(folder, fileEnv), Mode: secretMode, Content: content, Secret: true})
}

// env is the .env: the shipped one filled in, or the one that is there with what is another.
func (m *maker) env() ([]byte, error) {
	if !m.s.Have {
		shipped, err := deploy.Compose("env.example")
		if err != nil {
			return nil, err
		}
		return ParseEnv(shipped).With(m.want)
	}
	set := map[string]string{}
	for _, key := range m.changed {
		set[key] = m.want[key]
	}
	if strings.Contains(m.s.Env.Get(varFiles), fileWithout) {
		set[varFiles] = m.want[varFiles]
	}
	if len(set) == 0 {
		return m.s.Files[in(m.part.Folder, fileEnv)], nil
	}
	return m.s.Env.With(set)
}

// put puts a file into the plan when what is there differs.
func (m *maker) put(f setup.File) {
	old, there := m.s.Files[f.Path]
	if !there {
		old = nil
	}
	f.Old = old
	if old == nil || string(old) != string(f.Content) {
		m.plan.Files = append(m.plan.Files, f)
		return
	}
	if _, open := m.s.Open[f.Path]; open && f.Mode == secretMode {
		m.plan.Closed = append(m.plan.Closed, f)
	}
}

// compose is a command of Compose in the project's folder.
func (m *maker) compose(words ...string) Command {
	return Command{Dir: m.part.Folder, Argv: append(slices.Clone(m.s.Compose), words...)}
}

// containers decides which are made and which are started.
func (m *maker) containers() {
	server, agent, daemon := m.s.Boxes[serviceServer], m.s.Boxes[serviceAgent], m.s.Boxes[serviceDaemon]
	own := m.s.Boxes[serviceOf(m.role)]
	rests := !server.runs() && !agent.runs()
	remake := len(m.anew) > 0 // and both rest: anything else was refused
	create := server == nil || agent == nil || remake
	image := m.s.Images[m.want[varImage]]
	takes := daemon != nil && (len(m.changed) > 0 || image != "" && daemon.Image != image)
	m.images(create, daemon == nil || takes)
	m.plan.Modprobe = m.s.Modules
	m.plan.Keep = map[string]string{}
	up := []string{"--profile", "server", "--profile", "agent", "up", "--no-start"}
	switch {
	case create && rests && remake:
		m.plan.Containers = append(m.plan.Containers, m.compose(up...))
	case create:
		// Without the last word Compose makes anew what differs, and starts nothing in its
		// place: a voter would be down.
		m.plan.Containers = append(m.plan.Containers, m.compose(append(up, "--no-recreate")...))
	}
	for _, service := range services {
		if b := m.s.Boxes[service]; b != nil && !remake {
			m.plan.Keep[service] = b.ID
		}
	}
	// What a person has stopped stays stopped: k3s is started where it has never been, or
	// where an earlier run owes it.
	owed := m.s.Record != nil && m.s.Record.Pending && m.s.Record.Start
	m.plan.Record.Start = !own.runs() && (own == nil || remake || own.State == "created" || owed)
	if m.plan.Record.Start {
		m.plan.Containers = append(m.plan.Containers, m.compose("--profile", string(m.role), "up", "-d", "--no-recreate", serviceOf(m.role)))
	}
	settled := m.s.Record == nil || !m.s.Record.Pending
	switch {
	case daemon == nil || takes || !daemon.runs():
		m.plan.Containers = append(m.plan.Containers, m.compose("up", "-d", "--no-deps", serviceDaemon))
	case m.settingsChange() || !settled:
		m.plan.Containers = append(m.plan.Containers, Command{Argv: []string{"docker", "restart", daemon.Name}})
	}
}

// settingsChange says that the daemon has to read its files again.
func (m *maker) settingsChange() bool {
	conf := in(m.part.Folder, m.want[varSettings])
	return slices.ContainsFunc(m.plan.Files, func(f setup.File) bool {
		return filepath.Dir(f.Path) == conf || filepath.Base(f.Path) == filepath.Base(fleet.FileKubeconfig)
	})
}

// images brings those that are missing: of the daemon regrade's, of k3s the one of both,
// which is built where it is not there.
func (m *maker) images(k3s, daemon bool) {
	both := m.want[varBoth]
	var missing []string
	build := k3s && m.s.Images[both] == "" && !holds(m.s.Archived, both)
	for _, n := range []struct {
		name   string
		needed bool
	}{{m.want[varK3sImage], build}, {m.want[varImage], build || daemon}, {both, k3s && !build}} {
		if n.needed && m.s.Images[n.name] == "" {
			missing = append(missing, n.name)
		}
	}
	load := false
	for _, name := range missing {
		switch {
		case holds(m.s.Archived, name):
			load = true
		case m.s.Pullable[name]:
			m.plan.Images = append(m.plan.Images, Command{Argv: []string{"docker", "pull", "-q", name}})
		case m.s.ArchiveProblem != "":
			m.refuse(CodeImage, "the image %s is missing here, and %s", name, m.s.ArchiveProblem)
		default:
			m.refuse(CodeImage, "the image %s is missing here, and no registry that this host asks has it: bring it with `docker save %s | ssh HOST docker load`, or name a file of `docker save`: --image-archive of regrade apply, docker.archive in a document", name, name)
		}
	}
	if load {
		m.plan.Images = append([]Command{{Argv: []string{"docker", "load", "-q", "-i", m.part.Archive}}}, m.plan.Images...)
	}
	if build {
		content, err := deploy.Compose(fileImage)
		if err != nil {
			m.refuse(setup.CodeSettings, "%v", err)
		}
		// From the file alone: nothing of the project, tokens least of all, goes to the builder.
		m.plan.Images = append(m.plan.Images, Command{In: content, Argv: []string{
			"docker", "build", "-q", "--build-arg", varK3sImage + "=" + m.want[varK3sImage], "--build-arg", varImage + "=" + m.want[varImage], "-t", both, "-",
		}})
	}
}

// record is what is written down, before anything else is.
func (m *maker) record() {
	r := Record{Platform: platformDocker, Folder: m.part.Folder, Project: m.want[varProject], Socket: m.want[varSocket], Role: m.role, Adopted: m.exists(), Start: m.plan.Record.Start}
	if old := m.s.Record; old != nil {
		start := r.Start
		r = *old
		r.Socket, r.Created, r.Start, r.Pending = m.want[varSocket], slices.Clone(old.Created), start, false
	}
	for _, f := range m.plan.Files {
		if f.Old == nil && !slices.Contains(r.Created, f.Path) {
			r.Created = append(r.Created, f.Path)
		}
	}
	m.plan.Record = r
	old := m.s.Record
	m.plan.Note = old == nil || old.Pending || old.Socket != r.Socket || !slices.Equal(old.Created, r.Created)
	m.plan.secrets = m.s.Env.secrets()
	for _, key := range []string{container.EnvToken, container.EnvAgentToken} {
		if v := m.want[key]; v != "" {
			m.plan.secrets = append(m.plan.secrets, v)
		}
	}
}
