package apply_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/swap"
)

var (
	start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	keys  = fleet.DefaultKeys()
)

// cluster is an API in memory.
type cluster struct {
	mu      sync.Mutex
	lease   lease.Lease
	nodes   map[string]observe.Node
	objects map[string]manifests.Object
	beats   map[string]observe.Heartbeat
	writes  []string
	ca      []byte
	// deleted is told of each deletion.
	deleted func(key string)
	// breathless is its answer to the first asks writes of an object.
	breathless error
	asks       int
	// down is the API's answer to everything.
	down error
}

func newCluster() *cluster {
	c := &cluster{nodes: map[string]observe.Node{}, objects: map[string]manifests.Object{}, beats: map[string]observe.Heartbeat{}}
	for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
		n := observe.Node{Name: name, Version: "1", Node: swap.Node{Labels: map[string]string{"k": "v"}, Annotations: map[string]string{}}}
		if name < "n4" {
			n.Labels[fleet.LabelEtcd] = fleet.True
			n.KubeletVersion = "v1.34.2+k3s1"
		}
		c.nodes[name] = n
	}
	return c
}

func (c *cluster) Date() time.Time { return start }

func (c *cluster) Lease(context.Context) (observe.Lease, error) {
	return observe.Lease{Lease: c.lease}, c.down
}

func (c *cluster) Nodes(context.Context) ([]observe.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.nodes)), c.down
}

func (c *cluster) PatchNode(_ context.Context, name, version string, p execute.NodePatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[name]
	if n.Version != version {
		return execute.ErrConflict
	}
	n.Labels, n.Annotations = put(n.Labels, p.Labels), put(n.Annotations, p.Annotations)
	n.Version += "1"
	c.nodes[name] = n
	c.writes = append(c.writes, "node "+name)
	return nil
}

func put(have map[string]string, want map[string]*string) map[string]string {
	have = maps.Clone(have)
	for k, v := range want {
		if v == nil {
			delete(have, k)
		} else {
			have[k] = *v
		}
	}
	return have
}

func (c *cluster) Heartbeats(context.Context) (out []observe.Heartbeat, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.beats)), c.down
}

func key(o kube.Object) string {
	m := manifests.Of(o)
	return m.Kind() + "/" + m.Namespace() + "/" + m.Name()
}

func (c *cluster) write(what string, o kube.Object, check bool) kube.Installed {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, k := manifests.Of(o), key(o)
	out := kube.Installed{Kind: m.Kind(), Namespace: m.Namespace(), Name: m.Name()}
	before, there := c.objects[k]
	if there {
		out.Before = kube.Object(before)
	}
	switch {
	case what == "delete":
		out.Changed = there
	case what == "create" && there:
		out.After = out.Before
	default:
		out.After, out.Changed = o, !there || fmt.Sprint(before) != fmt.Sprint(m)
	}
	if check || !out.Changed {
		return out
	}
	c.writes = append(c.writes, what+" "+k)
	if what == "delete" {
		delete(c.objects, k)
		if c.deleted != nil {
			c.deleted(k)
		}
	} else {
		c.objects[k] = m
	}
	return out
}

func (c *cluster) Apply(_ context.Context, o kube.Object, check bool) (kube.Installed, error) {
	if c.asks > 0 && c.breathless != nil {
		c.asks--
		return kube.Installed{}, c.breathless
	}
	return c.write("apply", o, check), c.down
}

func (c *cluster) Create(_ context.Context, o kube.Object, check bool) (kube.Installed, error) {
	return c.write("create", o, check), c.down
}

func (c *cluster) Delete(_ context.Context, o kube.Object, check bool) (kube.Installed, error) {
	return c.write("delete", o, check), c.down
}

func (c *cluster) Labelled(_ context.Context, labels map[string]string, _ ...string) (out []kube.Object, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(c.objects)) {
		meta, _ := c.objects[k]["metadata"].(manifests.Object)
		have, _ := meta["labels"].(manifests.Object)
		all := true
		for l, v := range labels {
			all = all && have[l] == v
		}
		if all {
			out = append(out, kube.Object(c.objects[k]))
		}
	}
	return out, c.down
}

func (c *cluster) Token(_ context.Context, namespace, name string) (k3s.Secret, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.objects["Secret/"+namespace+"/"+name]; !there {
		return "", nil, c.down
	}
	return "hush-token", []byte("CA"), c.down
}

func (c *cluster) RootCA(context.Context) ([]byte, error) { return c.ca, c.down }

// machine is a host behind a runner: what regrade on it would say and do.
type machine struct {
	mu      sync.Mutex
	name    string
	c       *cluster
	arch    string
	files   map[string]string
	ran     []string
	given   setup.Desired
	setUp   bool
	role    fleet.Role
	refuses string
	// cert and ca are what k3s has there, asking the units that need the program.
	cert, ca, asking string
	// packaged: a package has the program.
	packaged bool
	down     error
	full     bool
	// dies is the command during which the connection breaks, counted from 1.
	dies   int
	broken bool
	// runs is the program that its daemon was started from.
	runs string
	// engine: k3s runs in containers, or will. images are those that its engine has.
	engine bool
	images map[string]bool
	// readOnly is its /usr/local.
	readOnly bool
	// hangs is its engine.
	hangs bool
	// disk, where it is set, is a folder for the scripts that look for a Node's identity: they
	// run for real, with an engine's program beside them.
	disk *disk
}

var errGone = errors.New("the connection broke")

func (m *machine) Close() error { return nil }

func (m *machine) Put(_ context.Context, path string, content io.Reader, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readOnly && strings.HasPrefix(path, "/usr/local/") {
		return fmt.Errorf("write %s: %w", path, &remote.Problem{Code: remote.ReadOnly, Sentence: m.name + ": " + path + " is not written: Read-only file system"})
	}
	if m.full {
		return fmt.Errorf("write %s: %w", path, &remote.Problem{Code: remote.DiskFull, Sentence: m.name + ": " + path + " is not written: No space left on device"})
	}
	if err := m.count("put " + path); err != nil {
		return err
	}
	raw, err := io.ReadAll(content)
	m.files[path] = string(raw)
	return err
}

func (m *machine) count(what string) error {
	m.ran = append(m.ran, what)
	m.broken = m.broken || m.dies == len(m.ran)
	if m.broken {
		return errGone
	}
	return nil
}

func (m *machine) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	line := strings.Join(c.Argv, " ")
	if err := m.count(line); err != nil {
		return remote.Result{}, err
	}
	ok := func(text string) (remote.Result, error) { return remote.Result{Out: []byte(text)}, nil }
	refused := func(text string) (remote.Result, error) {
		return remote.Result{Code: fleet.ExitRefused, Err: []byte("regrade: refused, nothing is changed:\n  - " + text + "\n")}, nil
	}
	real := func(script string) bool { return strings.HasPrefix(line, "sh -c "+script) }
	if m.disk != nil && slices.ContainsFunc([]string{"cat", "grep -E", "command -v docker", "for f in"}, real) {
		return m.disk.run(c)
	}
	switch program := m.files[c.Argv[0]]; {
	case strings.HasPrefix(line, "sh -c grep -E"):
		return ok("")
	case strings.HasPrefix(line, "sh -c command -v docker") && m.hangs:
		<-ctx.Done()
		return remote.Result{}, ctx.Err()
	case strings.HasPrefix(line, "sh -c command -v docker"):
		return ok("== volume\n")
	case strings.HasPrefix(line, "sh -c for f in"):
		for _, f := range []string{"/usr/local/bin/k3s", "/etc/systemd/system/k3s-agent.service"} {
			if _, there := m.files[f]; there {
				return ok(f + "\n")
			}
		}
		return ok("")
	case strings.HasPrefix(line, "sh -c grep -qsF"):
		_, setUp := m.files["/etc/regrade/installed.json"]
		if !setUp && strings.Contains(m.files["/etc/systemd/system/k3s-agent.service"], "Written by regrade, as k3s's install script would.") {
			return ok("")
		}
		return remote.Result{Code: 1}, nil
	case strings.HasPrefix(line, "sh -c cat"):
		return ok(m.cert + "\n== CA\n" + m.ca)
	case strings.HasPrefix(line, "sh -c for d in"):
		return ok(m.asking)
	case c.Argv[0] == "sha256sum":
		if _, there := m.files[c.Argv[1]]; !there {
			return remote.Result{Code: 1, Err: []byte("No such file")}, nil
		}
		return ok(sum(m.files[c.Argv[1]]) + "  " + c.Argv[1] + "\n")
	case c.Argv[0] == "dd":
		return ok(m.files["/usr/local/bin/k3s"])
	case strings.HasSuffix(line, "k3s --version"):
		return ok("k3s version v1.34.2+k3s1 (x)\ngo version\n")
	case c.Argv[0] == "systemctl":
		if strings.Contains(line, "start") {
			m.c.mu.Lock()
			defer m.c.mu.Unlock()
			m.c.nodes[m.name] = observe.Node{Name: m.name, Version: "1", Node: swap.Node{Ready: true, Labels: map[string]string{}}}
		}
		return ok("")
	case strings.HasPrefix(line, "sh -c uname"):
		out := m.arch + "\n"
		for _, at := range c.Argv[4:] {
			if p, there := m.files[at]; there {
				out += sum(p) + "  " + at + "\n"
			}
		}
		return ok(out)
	case strings.HasPrefix(line, "sh -c test -e"):
		if _, there := m.files[c.Argv[4]]; there {
			return ok("there\n")
		}
		return ok("")
	case strings.HasPrefix(line, "sh -c rm -f"):
		delete(m.files, c.Argv[4])
		return ok("")
	case c.Argv[0] == "test":
		if _, there := m.files[c.Argv[2]]; !there {
			return remote.Result{Code: 1}, nil
		}
		return ok("")
	case strings.HasPrefix(line, "sh -c dpkg"):
		if m.packaged {
			return ok("")
		}
		return remote.Result{Code: 1}, nil
	case c.Argv[0] == "mkdir":
		return ok("")
	case c.Argv[0] == "mv":
		m.files[c.Argv[3]] = m.files[c.Argv[2]]
		delete(m.files, c.Argv[2])
		return ok("")
	case c.Argv[0] == "rm":
		delete(m.files, c.Argv[2])
		return ok("")
	case program == "":
		return remote.Result{Code: 127, Err: []byte("not found")}, nil
	case strings.HasSuffix(line, " version"):
		return ok("v9\n")
	case strings.Contains(line, " host lend"):
		if wants := strings.HasSuffix(line, " host lend --project /srv/k3s"); wants != m.engine {
			return remote.Result{Code: 1, Err: []byte("another platform")}, nil
		}
		raw, err := setup.Lent{Voter: k3s.Config{"disable": {"traefik"}}, Token: "hush-server"}.Encode()
		return remote.Result{Out: raw}, err
	case strings.Contains(line, " host setup "):
		return m.setup(c, strings.Contains(line, "--check"), ok, refused)
	case strings.Contains(line, " host remove"):
		if m.refuses != "" {
			return refused(m.refuses)
		}
		if !m.setUp {
			return refused("not here (" + setup.CodeNotSetUp + ")")
		}
		if !strings.Contains(line, "--check") {
			m.setUp = false
		}
		return ok("stop regrade-host.service\n")
	}
	return remote.Result{Code: 127, Err: []byte("unknown: " + line)}, nil
}

func (m *machine) setup(c remote.Command, check bool, ok, refused func(string) (remote.Result, error)) (remote.Result, error) {
	raw, err := io.ReadAll(c.In)
	if err != nil {
		return remote.Result{}, err
	}
	d, err := setup.Parse(raw)
	if err != nil {
		return remote.Result{Code: 2, Err: []byte("regrade: " + err.Error())}, nil
	}
	if m.refuses != "" {
		return refused(m.refuses)
	}
	if m.engine {
		return m.setupDocker(c, d, check, ok, refused)
	}
	same := m.setUp && m.given.Kubeconfig == d.Kubeconfig && m.runs == m.files["/usr/local/bin/regrade"]
	if check || same {
		if same {
			return ok(setup.NothingToDo + "\n")
		}
		return ok("+++ /etc/regrade/host.yaml\n")
	}
	m.given, m.setUp, m.runs = d, true, m.files["/usr/local/bin/regrade"]
	if m.role == "" {
		m.role = d.Role
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.beats[m.name] = observe.Heartbeat{Node: m.name, Counter: fmt.Sprint(len(m.ran)), Renewed: start}
	return ok("+++ /etc/regrade/host.yaml\n")
}

// setupDocker is a setup as package project makes it: a project where there is none, with k3s
// that joins, and the daemon.
func (m *machine) setupDocker(c remote.Command, d setup.Desired, check bool, ok, refused func(string) (remote.Result, error)) (remote.Result, error) {
	env := "/srv/k3s/.env"
	if d.Docker == nil || len(d.Docker.Flags["node-ip"]) == 0 {
		return refused("no node-ip (NodeIPMissing)")
	}
	image := d.Docker.Images.Regrade
	if have := m.files[env]; have != "" && image == "" {
		image = have
	} else if have == "" && image == "" {
		image = d.Docker.Usual.Regrade
	}
	if !m.images[image] && m.files[d.Docker.Archive] != image && !slices.Contains(c.Argv, image) {
		return refused("the image " + image + " is missing here (ImageMissing)")
	}
	if m.setUp && m.given.Kubeconfig == d.Kubeconfig && m.files[env] == image {
		return ok(setup.NothingToDo + "\n")
	}
	if check {
		return ok("+++ /srv/k3s/.env\n")
	}
	m.images[image] = true
	m.files[env] = image
	m.given, m.setUp, m.role = d, true, d.Role
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.beats[m.name] = observe.Heartbeat{Node: m.name, Counter: fmt.Sprint(len(m.ran)), Renewed: start}
	if _, there := m.c.nodes[m.name]; !there {
		m.c.nodes[m.name] = observe.Node{Name: m.name, Version: "1", Node: swap.Node{Ready: true, Labels: map[string]string{}}}
	}
	return ok("+++ /srv/k3s/.env\n")
}

// site is a cluster with its machines, and a way to run turns.
type site struct {
	t        *testing.T
	c        *cluster
	machines map[string]*machine
	fleet    inventory.Fleet
	program  apply.Program
	out      bytes.Buffer
}
