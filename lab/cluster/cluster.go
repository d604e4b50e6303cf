package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exadev/regrade/lab/host"
	"github.com/exadev/regrade/lab/preflight"
)

// Environment of a lab test.
const (
	// EnvLab set to "off" skips lab tests.
	EnvLab = "LAB"
	// EnvKeep set to 1 leaves the hosts running when the test has ended.
	EnvKeep = "LAB_KEEP"
	// EnvTrace set to 1 prints every command of the lab.
	EnvTrace = "LAB_TRACE"
	// EnvLogs is the folder for the logs of failed tests; default: failed, in the lab's cache.
	EnvLogs = "LAB_LOGS"
)

// How long the set-up may take. A machine that compiles something else beside it is slow.
const (
	firstLimit = 3 * time.Minute
	joinLimit  = 4 * time.Minute
)

// Cluster is k3s on the lab's hosts.
type Cluster struct {
	Spec     Spec
	Lab      *host.Lab
	Binaries Binaries
	// Logf says what happens.
	Logf func(format string, args ...any)

	mu          sync.Mutex
	controllers int // made, and started, in all
	runs        int

	admin []byte
	api   *API
	etcd  *tls.Config
}

// Start makes the cluster for one test: every node Ready, every server a voter, regrade's daemons running unless the spec leaves
// them away. At the end of a failed test the logs of all hosts are collected, then the hosts go (or stay, with LAB_KEEP=1).
func Start(t testing.TB, spec Spec) *Cluster {
	t.Helper()
	Need(t)
	c, err := New(t.Context(), spec, TestLog(t))
	if c != nil {
		t.Cleanup(func() {
			if err := c.End(t.Failed(), t.Name()); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Need skips a test where the lab is switched off, and fails it with a sentence where the lab cannot run.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(EnvLab) == "off" {
		t.Skip("LAB=off")
	}
	if ok, reason := preflight.CanRun(); !ok {
		t.Fatal(reason)
	}
}

// TestLog logs to the test, with the seconds since now in front.
func TestLog(t testing.TB) func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		t.Helper()
		t.Logf("%6.1fs "+format, append([]any{time.Since(began).Seconds()}, args...)...)
	}
}

// New is Start without a test. With an error the cluster, where there is one, has begun and has to be ended.
func New(ctx context.Context, spec Spec, logf func(format string, args ...any)) (*Cluster, error) {
	c := &Cluster{Spec: spec, Logf: logf}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return c, err
	}
	c.Logf("cluster is up: %s", strings.Join(c.names(nil), " "))
	return c, nil
}

// prepare makes the hosts with all that is on their disks.
func (c *Cluster) prepare(ctx context.Context) error {
	if err := c.Spec.check(); err != nil {
		return err
	}
	var err error
	if c.Spec.Units == "" && !c.Spec.WithoutRegrade {
		if c.Spec.Units, err = findUnits(ctx); err != nil {
			return err
		}
	}
	if c.Binaries, err = Build(ctx, !c.Spec.WithoutRegrade, c.Logf); err != nil {
		return err
	}
	options := host.Options{
		Packages: c.Spec.Packages, Logf: c.log,
		Binds: map[string]string{"/usr/local/bin/k3s": c.Binaries.K3s},
	}
	if !c.Spec.WithoutRegrade && !c.Spec.Untouched {
		options.Binds["/usr/local/bin/regrade"] = c.Binaries.Regrade
	}
	if slices.ContainsFunc(c.Spec.Hosts, func(h HostSpec) bool { return h.Docker }) {
		options.Packages = slices.Concat(options.Packages, host.EnginePackages)
	}
	if c.Binaries.Real {
		options.Packages = slices.Concat(options.Packages, realPackages)
		maps.Copy(options.Binds, c.Binaries.realBinds())
	}
	if os.Getenv(EnvTrace) != "" {
		options.Trace = c.log
	}
	if c.Lab, err = host.New(ctx, options); err != nil {
		return err
	}
	for _, spec := range c.Spec.Hosts {
		if _, err := c.Lab.AddHost(ctx, spec.Name); err != nil {
			return errors.Join(err, c.Lab.Close())
		}
	}
	for _, h := range c.Lab.Hosts() {
		if err := c.provision(ctx, h); err != nil {
			return errors.Join(err, c.Lab.Close())
		}
	}
	if c.Spec.SSH {
		if err := c.letIn(); err != nil {
			return errors.Join(err, c.Lab.Close())
		}
	}
	return nil
}

// log is Logf as it is when something is said: a cluster may be handed from one test to the next.
func (c *Cluster) log(format string, args ...any) { c.Logf(format, args...) }

// start boots the first host, then the others side by side.
func (c *Cluster) start(ctx context.Context) error {
	hosts := c.Lab.Hosts()
	if err := c.boot(ctx, hosts[0]); err != nil {
		return err
	}
	if err := c.AwaitAPI(ctx, firstLimit, hosts[0]); err != nil {
		return err
	}
	c.Logf("%s serves the API", hosts[0].Name())
	if len(hosts) > 1 {
		if err := c.boot(ctx, hosts[1:]...); err != nil {
			return err
		}
	}
	if err := c.AwaitNodesReady(ctx, joinLimit, c.names(nil)...); err != nil {
		return err
	}
	isServer := func(h HostSpec) bool { return h.Role == Server }
	if err := c.AwaitVoters(ctx, joinLimit, c.names(isServer)...); err != nil {
		return err
	}
	for _, h := range hosts {
		if c.Spec.host(h.Name()).Role != Server {
			continue
		}
		if err := c.AwaitAPI(ctx, joinLimit, h); err != nil {
			return err
		}
		if c.IsDocker(h) {
			continue
		}
		if err := c.AwaitUnit(ctx, joinLimit, h, ServerUnit, "active"); err != nil {
			return err
		}
	}
	if c.Spec.WithoutRegrade || c.Spec.Untouched {
		return nil
	}
	return c.installRegrade(ctx)
}

func (c *Cluster) names(keep func(HostSpec) bool) []string {
	var names []string
	for _, h := range c.Spec.Hosts {
		if !h.Bare && (keep == nil || keep(h)) {
			names = append(names, h.Name)
		}
	}
	return names
}

// Host gives the host of that name; an unknown name is a fault of the test and panics.
func (c *Cluster) Host(name string) *host.Host {
	h := c.Lab.Host(name)
	if h == nil {
		panic("no host " + name + " in this cluster")
	}
	return h
}

// End collects the logs of a failed test and takes the lab down or keeps it.
func (c *Cluster) End(failed bool, name string) error {
	var errs []error
	if failed {
		folder, err := c.CollectInto(context.Background(), name)
		errs = append(errs, err)
		c.Logf("logs of all hosts: %s", folder)
	}
	if os.Getenv(EnvKeep) == "1" {
		how, err := c.Lab.Keep()
		if err == nil {
			c.Logf("%s", how)
			return errors.Join(errs...)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.Lab.Close())...)
}

// Invariant is a check at the end of a scenario.
type Invariant struct {
	Name string
	Err  error
}

func (i Invariant) String() string {
	if i.Err != nil {
		return fmt.Sprintf("BROKEN %s: %v", i.Name, i.Err)
	}
	return "holds  " + i.Name
}
