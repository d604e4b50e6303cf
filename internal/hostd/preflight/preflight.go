// Package preflight judges whether a standby could become a server now (safety
// rule 17): everything that would make k3s fail, hang or found another cluster
// after the agent has been stopped is looked for before. It changes nothing, on
// this host or elsewhere, and it ends within seconds.
package preflight

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/status"
)

// Codes of what can be missing.
const (
	CodeNotStaged       = "NotStaged"
	CodeBadConfig       = "BadServerConfig"
	CodeNoToken         = "NoToken"
	CodeWrongToken      = "WrongToken"
	CodeNoJoinHost      = "NoJoinHost"
	CodeJoinUnreachable = "JoinHostUnreachable"
	CodeJoinFalters     = status.CodeJoinHostFalters
	CodeOtherCA         = "OtherCA"
	CodeStaleCred       = "StaleCredentials"
	CodeVersion         = "VersionMismatch"
	CodeFlags           = "FlagsDiffer"
	CodePassword        = "NoNodePassword"
	CodeMemberExists    = "MemberExists"
	CodeHostName        = "DuplicateHostName"
	CodeNodeName        = "OtherNodeName"
	CodeNodeID          = "WithNodeID"
	CodeDatastore       = "StrayDatastore"
	CodeDatastoreMount  = "DatastoreMount"
	CodeDisk            = "LowDisk"
	CodeUnreachable     = "VoterUnreachable"
	CodeIdentity        = "IdentityOutOfReach"
)

// Bounds.
const (
	Timeout     = 5 * time.Second
	dialTimeout = 2 * time.Second
	// DefaultMinFree is the least free disk: etcd's default quota is 2 GiB, and a
	// joining member gets a whole copy.
	DefaultMinFree = 2 << 30
)

// Checker implements hostd.Ways.
type Checker struct {
	Disk k3s.Disk
	// Server looks at the server that would be started.
	Server func(context.Context) Staged
	// Version is what the host's k3s says of itself.
	Version func() string
	// Allowed are server flags that may differ from the other servers'.
	Allowed []string
	// MinFree is in bytes; zero is DefaultMinFree.
	MinFree uint64
	// Free gives the free bytes at a path; statfs when nil.
	Free func(path string) (uint64, error)
	// Ports are the ports tried at each voter; nil is 2379, 2380, 6443.
	Ports []string
}

// list collects problems, sorted for a stable report.
type list struct {
	mu sync.Mutex
	ps []status.Problem
}

func (l *list) add(code, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ps = append(l.ps, status.Problem{Code: code, Sentence: fmt.Sprintf(format, args...)})
}

// Preflight implements hostd.Ways.
func (c *Checker) Preflight(ctx context.Context, in hostapi.PreflightInput) status.Preflight {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var l list
	c.store(&l)
	c.beside(ctx, &l, in)
	ps := l.sorted()
	return status.Preflight{OK: len(ps) == 0, Problems: ps}
}

// beside looks at what a server is started with, and at the others.
func (c *Checker) beside(ctx context.Context, l *list, in hostapi.PreflightInput) {
	c.room(l)
	server := c.Server(ctx)
	l.ps = append(l.ps, server.Problems...)
	var wait sync.WaitGroup
	if server.ready(l, in) {
		c.flags(l, in, server.Config)
		wait.Go(func() { c.join(ctx, l, in, server) })
	}
	c.nodes(l, in, server)
	wait.Go(func() { c.reach(ctx, l, in) })
	wait.Wait()
}

// sorted are the problems in an order that does not depend on who answered first.
func (l *list) sorted() []status.Problem {
	slices.SortFunc(l.ps, func(a, b status.Problem) int {
		return strings.Compare(a.Code+"\x00"+a.Sentence, b.Code+"\x00"+b.Sentence)
	})
	return l.ps
}

// store looks for a datastore, which no standby has.
func (c *Checker) store(l *list) {
	store, err := c.Disk.ReadDatastore()
	switch {
	case err != nil:
		l.add(CodeDatastore, "the datastore cannot be looked at: %v", err)
	case store.Exists:
		l.add(CodeDatastore, "there is a datastore in %s: k3s would start on it", c.Disk.Path("server", "db"))
	}
	if raw, err := os.Stat(c.Disk.Path("server", "db", "state.db")); err == nil && !raw.IsDir() {
		l.add(CodeDatastore, "there is an sqlite datastore %s", c.Disk.Path("server", "db", "state.db"))
	}
	if p := c.Disk.DatastoreProblem(); p != "" {
		l.add(CodeDatastoreMount, "%s", p)
	}
}

// room is the free disk where k3s's data is.
func (c *Checker) room(l *list) {
	free, want := c.Free, c.MinFree
	if free == nil {
		free = statfs
	}
	if want == 0 {
		want = DefaultMinFree
	}
	dir := existing(c.Disk.Path())
	switch n, err := free(dir); {
	case err != nil:
		l.add(CodeDisk, "free disk at %s is unknown: %v", dir, err)
	case n < want:
		l.add(CodeDisk, "%d MiB are free at %s, %d MiB are wanted", n>>20, dir, want>>20)
	}
}

// existing is the path or the nearest folder above it that is there.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

func statfs(path string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// servers are the Nodes that a server's settings are compared with: the voter
// that would be replaced, or all where that is not known.
func servers(in hostapi.PreflightInput) []hostapi.Node {
	var out []hostapi.Node
	for _, n := range in.Nodes {
		if n.Name != in.Node && n.Labels[fleet.LabelEtcd] != "" && (in.Out == "" || n.Name == in.Out) {
			out = append(out, n)
		}
	}
	return out
}

// flags compares what k3s would be started with (k3s-facts §3.3: some of it
// makes a joining server die).
func (c *Checker) flags(l *list, in hostapi.PreflightInput, mine k3s.Config) {
	for _, n := range servers(in) {
		raw := n.Annotations[k3s.AnnotationArgs]
		if raw == "" {
			l.add(CodeFlags, "the flags of %s are unknown: its Node lacks %s", n.Name, k3s.AnnotationArgs)
			continue
		}
		command, theirs, err := k3s.ParseArgs(raw)
		if err != nil || command != "server" {
			l.add(CodeFlags, "the flags of %s cannot be read: it was last started as %q (%v)", n.Name, command, err)
			continue
		}
		for _, d := range k3s.Differences(mine, theirs, c.Allowed) {
			l.add(CodeFlags, "%s (%s)", d, n.Name)
		}
	}
}

// nodes compares versions and names with the other Nodes.
func (c *Checker) nodes(l *list, in hostapi.PreflightInput, server Staged) {
	mine := c.Version()
	for _, n := range in.Nodes {
		if n.Name == in.Node || n.Labels[fleet.LabelEtcd] == "" {
			continue
		}
		if n.KubeletVersion != "" && n.KubeletVersion != mine {
			l.add(CodeVersion, "k3s is %q here and %q on %s", mine, n.KubeletVersion, n.Name)
		}
	}
	if server.Absent != "" {
		return
	}
	if server.HostNameError != nil {
		l.add(CodeHostName, "the host name is unknown: %v", server.HostNameError)
		return
	}
	host := server.HostName
	for _, n := range in.Nodes {
		// k3s holds its Leases under the host name (k3s-facts §5.1).
		if n.Name != in.Node && strings.EqualFold(n.Labels["kubernetes.io/hostname"], host) {
			l.add(CodeHostName, "%s has the host name %q too", n.Name, host)
		}
	}
}

// reach proves the way to every voter's ports.
func (c *Checker) reach(ctx context.Context, l *list, in hostapi.PreflightInput) {
	ports := c.Ports
	if ports == nil {
		ports = []string{"2379", "2380", "6443"}
	}
	var wait sync.WaitGroup
	for _, n := range in.Nodes {
		if n.Name == in.Node || n.Labels[fleet.LabelEtcd] == "" {
			continue
		}
		host := n.InternalIP
		if u, err := url.Parse(in.JoinURLs[n.Name]); host == "" && err == nil {
			host = u.Hostname()
		}
		if host == "" {
			l.add(CodeUnreachable, "the address of %s is unknown", n.Name)
			continue
		}
		for _, port := range ports {
			wait.Go(func() {
				if err := dial(ctx, net.JoinHostPort(host, port)); err != nil {
					l.add(CodeUnreachable, "port %s of %s is not reached: %v", port, n.Name, err)
				}
			})
		}
	}
	wait.Wait()
}

func dial(ctx context.Context, address string) error {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return plain(err)
	}
	return conn.Close()
}

// Dial implements hostd.Ways: one TCP connect to each standby's peer port.
func (c *Checker) Dial(ctx context.Context, standbys []hostapi.Standby) []status.Dial {
	out := make([]status.Dial, len(standbys))
	var wait sync.WaitGroup
	for i, s := range standbys {
		wait.Go(func() {
			out[i] = status.Dial{Node: s.Node, OK: true}
			if err := dial(ctx, s.Address); err != nil {
				out[i].OK, out[i].Error = false, err.Error()
			}
		})
	}
	wait.Wait()
	return out
}

// joinHosts are the URLs to try for the join, the ordered one alone when there
// is one.
func joinHosts(in hostapi.PreflightInput) []string {
	if in.Join != "" {
		if u := in.JoinURLs[in.Join]; u != "" && in.Join != in.Node {
			return []string{u}
		}
		return nil
	}
	etcd := map[string]bool{}
	for _, n := range in.Nodes {
		etcd[n.Name] = n.Labels[fleet.LabelEtcd] != ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(in.JoinURLs)) {
		if name != in.Node && name != in.Out && etcd[name] {
			out = append(out, in.JoinURLs[name])
		}
	}
	return out
}

// readKept reads a file of an earlier life; one that is not there is nil.
func readKept(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return raw, err
}

var ownPort = regexp.MustCompile(`(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]):\d+->`)

// plain is an error without this host's own port, which changes each time: a
// report is written only when something in it changed (safety rule 29).
func plain(err error) error { return told{err, ownPort.ReplaceAllString(err.Error(), "")} }

// told is an error in other words.
type told struct {
	error
	words string
}

func (t told) Error() string { return t.words }
func (t told) Unwrap() error { return t.error }
