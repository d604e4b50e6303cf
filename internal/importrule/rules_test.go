package importrule_test

import "strings"

const module = "github.com/exadev/regrade"

// A ring imports from rings further in, and from its own only where sameRing says so.
type ring int

const (
	pure     ring = iota // decisions and nouns
	port                 // what decisions are fed with and carried out through: types, interfaces, host files
	adapter              // one foreign client each
	loop                 // processes; the simulated cluster
	command              // the command line
	mainRing             // package main
)

func (r ring) String() string {
	return [...]string{"pure", "port", "adapter", "loop", "command", "main"}[r]
}

// rings gives each package its ring. A package below one of these has the ring
// of the longest that matches.
var rings = map[string]ring{
	"internal/fleet":   pure,
	"internal/quorum":  pure,
	"internal/lease":   pure,
	"internal/fitness": pure,
	"internal/decide":  pure,
	"internal/swap":    pure,
	"internal/level":   pure,
	"internal/recover": pure,
	"internal/health":  pure,
	"internal/status":  pure,
	"internal/doctor":  pure,

	"internal/heartbeat": pure,
	"internal/alert":     pure,

	"internal/platform":  port,
	"internal/observe":   port,
	"internal/execute":   port,
	"internal/k3s":       port,
	"internal/memory":    port,
	"internal/lean":      port,
	"internal/sleep":     port,
	"internal/bounded":   port,
	"internal/hostapi":   port,
	"internal/obs":       port,
	"internal/bundle":    port,
	"internal/manifests": port,

	"internal/kube":             adapter,
	"internal/etcd":             adapter,
	"internal/remote":           adapter,
	"internal/platform/systemd": adapter,
	"internal/platform/docker":  adapter,
	"internal/platform/command": adapter,
	"internal/deliver":          adapter,

	"internal/controller":     loop,
	"internal/hostd":          loop,
	"internal/probe":          loop,
	"internal/entrypoint":     loop,
	"internal/recovery":       loop,
	"internal/heartbeat/beat": loop,
	"internal/alert/watch":    loop,
	"internal/web":            loop,
	"internal/sim":            loop,

	"internal/cli":       command,
	"internal/provision": command, // installs what the processes are, and so knows their settings

	"deploy": port,

	"cmd": mainRing,

	// Tests of the tree itself.
	"internal/importrule": mainRing,
	"docs":                mainRing,
}

// sameRing says whether packages of a ring may import each other, and why not.
var sameRing = map[ring]string{
	pure:     "",
	port:     "",
	command:  "",
	adapter:  "adapters never import each other: a client's particulars stay in one package",
	loop:     "a process never imports another: they meet in the cluster and on the host",
	mainRing: "a main is a door, not a room: put what two of them share into a package further in",
}

// outward is the reason for the main rule, by the ring that broke it.
var outward = map[ring]string{
	pure:    "decisions are functions of what was observed; whoever calls them observes and acts",
	port:    "a port is declared by who uses it; the adapter imports the port, never the other way round",
	adapter: "an adapter serves a port; it knows no loop, so that a loop can be tested without it",
	loop:    "a loop is started by a command and knows nothing of it",
	command: "commands are run by main",
}

// valuePackages are what a pure package may take from the standard library:
// packages of values and functions, without clock, randomness, files,
// goroutines or the network.
var valuePackages = set(
	"bytes", "cmp", "encoding", "encoding/base64", "encoding/hex", "encoding/json", "errors", "fmt",
	"hash", "hash/fnv", "crypto/sha256", "iter", "maps", "math", "math/bits", "net/netip", "net/url", "reflect", "regexp",
	"slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
	"embed", // schemas, read by the compiler
)

// clockNames are the names of package time that read the clock, wait, or read
// the machine's zone; now is an argument.
var clockNames = set("Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation", "Timer", "Ticker")

// printNames are the names of package fmt that read or write the terminal.
var printNames = set("Print", "Printf", "Println", "Scan", "Scanf", "Scanln")

// client is a foreign client and the packages it may be imported in.
type client struct {
	prefix string   // of import paths
	only   []string // these packages and below
	reason string
}

// foreign gives each foreign client its package; of two rows the longer prefix
// counts. Tests are free: they may check what a client wrote with the client's
// own types.
var foreign = []client{
	{"k8s.io/", []string{"internal/kube"}, "Kubernetes only in internal/kube: decisions and loops work on our own types"},
	{"sigs.k8s.io/controller-runtime", []string{"internal/kube"}, "Kubernetes only in internal/kube: decisions and loops work on our own types"},
	{"go.etcd.io/", []string{"internal/etcd"}, "etcd's client only in internal/etcd: member ids and errors are converted at that edge"},
	{"go.etcd.io/etcd/server", []string{"internal/etcd/embedded"}, "etcd's server is for tests and the demo; the product talks to k3s's"},
	{"github.com/coreos/go-systemd", []string{"internal/platform/systemd"}, "D-Bus only in internal/platform/systemd: a host is changed through the platform port"},
	{"github.com/godbus", []string{"internal/platform/systemd"}, "D-Bus only in internal/platform/systemd: a host is changed through the platform port"},
	{"github.com/moby", []string{"internal/platform/docker"}, "Docker only in internal/platform/docker: a host is changed through the platform port"},
	{"github.com/docker", []string{"internal/platform/docker"}, "Docker only in internal/platform/docker: a host is changed through the platform port"},
	{"github.com/prometheus/client_golang", []string{"internal/web"}, "metrics only in internal/web: a loop says what it did, in its own types"},
	{"github.com/prometheus/common", []string{"internal/probe"}, "metrics pages are read only in internal/probe: what is fit is judged on our own types"},
	{"github.com/prometheus/procfs", []string{"internal/memory"}, "memory has one reader, the probe's and the levels': internal/memory"},
	{"golang.org/x/crypto/ssh", []string{"internal/remote"}, "SSH only in internal/remote"},
	{"github.com/spf13/cobra", []string{"internal/cli", "cmd"}, "the command line only in internal/cli: a loop takes settings, not flags"},
	{module + "/lab", nil, "the lab is a test tool; no shipped package imports it"},
	{module + "/tools", nil, "tools are not part of the product"},
}

func foreignOf(imported string) (best client, ok bool) {
	for _, f := range foreign {
		if strings.HasPrefix(imported, f.prefix) && len(f.prefix) > len(best.prefix) {
			best, ok = f, true
		}
	}
	return best, ok
}

// demoOnly are packages that tests and the demo use and no shipped package.
var demoOnly = map[string]string{
	"internal/sim":           "the simulated cluster is for tests and the demo",
	"internal/etcd/embedded": "etcd's server is for tests and the demo; the product talks to k3s's",
}

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// below says whether pkg is dir or in a folder below it.
func below(pkg, dir string) bool {
	return pkg == dir || strings.HasPrefix(pkg, dir+"/")
}

// ringOf is the ring of a package of ours, by the longest folder in rings.
func ringOf(pkg string) (r ring, ok bool) {
	best := -1
	for dir, candidate := range rings {
		if below(pkg, dir) && len(dir) > best {
			best, r, ok = len(dir), candidate, true
		}
	}
	return r, ok
}
