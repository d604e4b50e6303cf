package entrycmd_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/cli/entrycmd"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/container"
)

// This binary is regrade when it is asked to be, and k3s when it is executed by
// that name.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "k3s":
		os.Exit(k3s())
	case os.Getenv("BE_REGRADE") != "":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
		cmd := entrycmd.New(e)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(os.Args[1:])
		code, message := env.Status(cmd.ExecuteContext(ctx))
		stop()
		if message != "" {
			fmt.Fprintln(os.Stderr, "regrade:", message)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// k3s writes down how it was started and lives until SIGTERM, which it answers
// with a status of its own.
func k3s() int {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGTERM)
	dir := filepath.Dir(filepath.Dir(os.Args[0]))
	text := fmt.Sprintf("pid %d\n%s\n%s\n", os.Getpid(), strings.Join(os.Args[1:], "\n"), strings.Join(os.Environ(), "\n"))
	if err := os.WriteFile(dir+"/started.new", []byte(text), 0o600); err != nil {
		return 1
	}
	if err := os.Rename(dir+"/started.new", dir+"/started"); err != nil {
		return 1
	}
	if os.Getenv("SPAWN") != "" {
		// A container shim: it is given every file that is not closed on exec, and lives on.
		child := exec.Command("/bin/sleep", "60")
		if err := child.Start(); err != nil {
			return 1
		}
		if err := os.WriteFile(dir+"/child", []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
			return 1
		}
	}
	select {
	case <-got:
		return 7
	case <-time.After(time.Minute):
		return 9
	}
}

// box is a container: a root, its variables, and what is started in it.
type box struct {
	t    *testing.T
	root string
	env  []string
	attr *syscall.SysProcAttr
}

func newBox(t *testing.T) *box {
	b := &box{t: t, root: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(b.root, "bin/k3s")); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *box) plant(path, content string) {
	b.t.Helper()
	full := filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) read(path string) string {
	raw, err := os.ReadFile(filepath.Join(b.root, path))
	if err != nil {
		return ""
	}
	return string(raw)
}

func (b *box) member() { b.plant(fleet.DefaultDataDir+"/server/db/etcd/member/wal/0.wal", "") }

// running is one start of the container.
type running struct {
	b    *box
	cmd  *exec.Cmd
	log  *lines
	done chan struct{}
}

func (b *box) start(args ...string) *running {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	r := &running{b: b, cmd: exec.Command(self, append(args, "--root", b.root)...), log: &lines{}, done: make(chan struct{})}
	r.cmd.Env = append([]string{"BE_REGRADE=1", "PATH=/bin"}, b.env...)
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.SysProcAttr = r.log, r.log, b.attr
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.done) }()
	b.t.Cleanup(func() { _ = r.cmd.Process.Kill(); <-r.done })
	return r
}

// ends waits for the end and gives the exit status.
func (r *running) ends() int {
	r.b.t.Helper()
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		r.b.t.Fatalf("it goes on:\n%s", r.log)
	}
	return r.cmd.ProcessState.ExitCode()
}

// lives says that it has not ended by itself.
func (r *running) lives() {
	r.b.t.Helper()
	select {
	case <-r.done:
		r.b.t.Fatalf("it ended with %d:\n%s", r.cmd.ProcessState.ExitCode(), r.log)
	case <-time.After(300 * time.Millisecond):
	}
}

func (r *running) stop() { _ = r.cmd.Process.Signal(syscall.SIGTERM) }

// until waits for what a start brings about.
func (r *running) until(what string, is func() bool) {
	r.b.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.b.t.Fatalf("not yet: %s\n%s", what, r.log)
		}
	}
}

func (r *running) k3s() []string {
	r.b.t.Helper()
	r.until("k3s is started", func() bool { return r.b.read("started") != "" })
	return strings.Split(strings.TrimSpace(r.b.read("started")), "\n")
}

func (r *running) says(text string) {
	r.b.t.Helper()
	r.until("it says "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

func (b *box) health() (int, string) {
	b.t.Helper()
	r := b.start("health")
	return r.ends(), r.log.String()
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestTheContainerBecomesK3sWithItsSignalsAndItsExitStatus(t *testing.T) {
	b := newBox(t)
	b.member()
	b.plant(fleet.FileRole, "server\n")
	b.plant(fleet.DefaultDataDir+"/"+fleet.FileLevel, "etcd-only\n")
	b.env = []string{
		"K3S_TOKEN=s3cret", "K3S_URL=https://old:6443", "K3S_CLUSTER_INIT=true", "K3S_CONFIG_FILE=/x", "K3S_NODE_NAME=n1",
		"K3S_JOIN_SERVER_URL=https://127.0.0.1:1", "FLEET_ROLE_ELIGIBLE=true", "FLEET_ROLE_PINNED=false",
	}
	r := b.start("server")
	got := r.k3s()
	if want := fmt.Sprintf("pid %d", r.cmd.Process.Pid); got[0] != want {
		t.Errorf("k3s is %s, want %s: it is a child, whose signals and status would be another's", got[0], want)
	}
	// A member waits for nobody, though its join host does not answer.
	for _, want := range []string{
		"server", "--config=/etc/rancher/k3s/server.yaml", "--data-dir=/var/lib/rancher/k3s", "--server=https://127.0.0.1:1",
		"--node-label=github-runner.exadev.com/voter-eligible=true", "--node-label=github-runner.exadev.com/voter-pinned=false",
		"--disable-apiserver", "--disable-controller-manager", "--disable-scheduler", "--disable-agent", "K3S_TOKEN=s3cret", "K3S_NODE_NAME=n1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("k3s lacks %q in %q", want, got)
		}
	}
	for _, l := range got {
		if strings.HasPrefix(l, "K3S_URL=") || strings.HasPrefix(l, "K3S_CLUSTER_INIT=") || strings.HasPrefix(l, "K3S_CONFIG_FILE=") || l == "--cluster-init" {
			t.Errorf("k3s is given %q, which decides over our heads", l)
		}
	}
	if code, text := b.health(); code != 0 || !strings.Contains(text, "k3s server started") {
		t.Errorf("health: %d %s", code, text)
	}
	if got := b.read(fleet.DefaultDataDir + "/" + fleet.FileStarted); got != "etcd-only\n" {
		t.Errorf("the level is noted as %q", got)
	}
	r.stop()
	if code := r.ends(); code != 7 {
		t.Errorf("exit status %d, want k3s's own 7", code)
	}
	if strings.Contains(r.log.String(), "s3cret") {
		t.Errorf("the token is printed (safety rule 31):\n%s", r.log)
	}

	// R-112-15: the next start of the same container reads the level anew.
	if err := os.Remove(filepath.Join(b.root, "started")); err != nil {
		t.Fatal(err)
	}
	b.plant(fleet.DefaultDataDir+"/"+fleet.FileLevel, "full\n")
	if got := b.start("server").k3s(); slices.Contains(got, "--disable-apiserver") {
		t.Errorf("still etcd-only: %q", got)
	}
}

func TestAnAgentIsGivenItsOwnTokenAndURL(t *testing.T) { // R-228-14, R-A-08
	b := newBox(t)
	b.plant(fleet.FileRole, "agent\n")
	b.plant(fleet.FileAgentURL, "https://n2:6443\n")
	b.env = []string{"K3S_TOKEN=servers", "K3S_TOKEN_FILE=/none", "K3S_AGENT_TOKEN=agents", "K3S_AGENT_SERVER_URL=https://n1:6443"}
	r := b.start("agent")
	got := r.k3s()
	if !slices.Contains(got, "--server=https://n2:6443") || !slices.Contains(got, "K3S_TOKEN=agents") || slices.Contains(got, "K3S_TOKEN=servers") || slices.Contains(got, "K3S_TOKEN_FILE=/none") {
		t.Errorf("%q", got)
	}
}

func TestAnIdleContainerSaysWhyOnceNeverEndsAndAnswersSIGTERMAtOnce(t *testing.T) { // R-A-05..07, R-A-22
	for name, c := range map[string]struct {
		role  string
		plant func(b *box)
		why   string
	}{
		"the other role": {"server", func(b *box) { b.plant(fleet.FileRole, "agent\n") }, "the role file says agent"},
		"a tombstone": {"server", func(b *box) {
			b.member()
			b.plant(fleet.FileRole, "server\n")
			b.plant(fleet.DefaultDataDir+"/server/db/etcd/tombstone", "")
		}, "tombstone"},
		"an agent beside a leaving server": {"agent", func(b *box) {
			b.member()
			b.plant(fleet.FileRole, "agent\n")
			b.plant(fleet.FileLeaving, "20261129T120000Z-a-d\n")
		}, "it is leaving"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.env = []string{"K3S_AGENT_SERVER_URL=https://n2.invalid:6443", "K3S_CLUSTER_INIT=true"}
			c.plant(b)
			r := b.start(c.role)
			r.says(c.why)
			if code, text := b.health(); code != 1 || !strings.HasPrefix(text, "idle: ") || !strings.Contains(text, c.why) {
				t.Errorf("health: %d %s", code, text)
			}
			// The reason goes away: the container is started again by whoever
			// changed the role, at the moment that is right for it.
			for _, f := range []string{fleet.FileLeaving, fleet.DefaultDataDir + "/server/db/etcd/tombstone"} {
				_ = os.Remove(filepath.Join(b.root, f))
			}
			b.plant(fleet.FileRole, c.role+"\n")
			r.lives()
			if b.read("started") != "" {
				t.Error("it woke up by itself")
			}
			if n := strings.Count(r.log.String(), "\n"); n != 1 {
				t.Errorf("%d lines:\n%s", n, r.log)
			}
			begun := time.Now()
			r.stop()
			if code := r.ends(); code != 0 || time.Since(begun) > 2*time.Second {
				t.Errorf("exit status %d after %s", code, time.Since(begun))
			}
			if again := b.start(c.role); !strings.HasPrefix(again.k3s()[1], c.role) {
				t.Error("the next start is not k3s's")
			}
		})
	}
}

// The kernel keeps signals from a first process that handles none.
func TestAsTheFirstProcessOfItsContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := (&exec.Cmd{Path: "/bin/true", SysProcAttr: attr}).Run(); err != nil {
		t.Skipf("no PID namespace here: %v", err)
	}
	b := newBox(t)
	b.attr = attr
	b.plant(fleet.FileRole, "agent\n")
	r := b.start("server")
	r.says("the role file says agent")
	r.stop()
	if code := r.ends(); code != 0 {
		t.Errorf("idle: exit status %d", code)
	}
	b.plant(fleet.FileRole, "server\n")
	r = b.start("server")
	if got := r.k3s(); got[0] != "pid 1" {
		t.Errorf("k3s is %s", got[0])
	}
	r.stop()
	if code := r.ends(); code != 7 {
		t.Errorf("k3s: exit status %d", code)
	}
}

func TestAFormerMemberWithoutAServerToJoinIsRefused(t *testing.T) { // R-A-11, R-A-20, R-A-21
	b := newBox(t)
	b.plant(fleet.FileRole, "server\n")
	b.plant(fleet.DefaultDataDir+"/server/db.demoted/etcd/member/wal/0.wal", "")
	r := b.start("server")
	if code := r.ends(); code != 1 || !strings.Contains(r.log.String(), "its datastore was moved aside") {
		t.Errorf("%d %s", code, r.log)
	}
	if code, text := b.health(); code != 1 || !strings.HasPrefix(text, "refuse: ") {
		t.Errorf("health: %d %s", code, text)
	}
	l := listen(t, "127.0.0.1:0")
	b.plant(fleet.FileJoinURL, "https://"+l.Addr().String()+"\n")
	b.env = []string{"K3S_TOKEN=x", "K3S_JOIN_SERVER_URL=https://127.0.0.1:1"}
	got := b.start("server").k3s()
	if !slices.Contains(got, "--server=https://"+l.Addr().String()) || slices.Contains(got, "--cluster-init") { // R-A-08, R-A-14
		t.Errorf("%q", got)
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestAJoiningServerWaitsForItsHostAndDecidesAnewThen(t *testing.T) { // R-A-09
	l := listen(t, "127.0.0.1:0")
	address := l.Addr().String()
	_ = l.Close()
	b := newBox(t)
	b.env = []string{"K3S_TOKEN=x", "K3S_JOIN_SERVER_URL=https://" + address}
	r := b.start("server")
	r.says("waiting for the join host")
	if code, text := b.health(); code != 1 || !strings.HasPrefix(text, "wait: ") {
		t.Errorf("health: %d %s", code, text)
	}
	r.lives()
	l = listen(t, address)
	if got := r.k3s(); !slices.Contains(got, "--server=https://"+address) {
		t.Errorf("%q", got)
	}
	if n := strings.Count(r.log.String(), "waiting"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log)
	}
	r.stop()
	r.ends()
	_ = l.Close()

	// Stopped while it waits.
	w := b.start("server")
	w.says("waiting for the join host")
	w.stop()
	if code := w.ends(); code != 0 {
		t.Errorf("exit status %d", code)
	}

	// The swap was rolled back while it waits: what is read then counts.
	w = b.start("server")
	w.says("waiting for the join host")
	b.plant(fleet.FileRole, "agent\n")
	w.says("the role file says agent")
	w.lives()
}

// A second server has the founder's .env: nowhere to join, and a server for its agent.
// The break check: take notFirst out, and the first start is k3s's.
func TestASecondServerWithTheFoundersSettingsFoundsNothing(t *testing.T) { // safety rule 19, R-A-12
	l := listen(t, "127.0.0.1:0")
	b := newBox(t)
	b.plant(fleet.FileRole, "server\n")
	b.env = []string{"K3S_TOKEN=x", "K3S_AGENT_SERVER_URL=https://" + l.Addr().String()}
	r := b.start("server")
	if code := r.ends(); code != 1 || !strings.Contains(r.log.String(), "a server answers at https://"+l.Addr().String()) || !strings.Contains(r.log.String(), "K3S_JOIN_SERVER_URL") {
		t.Errorf("%d %s", code, r.log)
	}
	_ = l.Close()
	r = b.start("server")
	if code := r.ends(); code != 1 || !strings.Contains(r.log.String(), "is its own address") {
		t.Errorf("%d %s", code, r.log)
	}

	// Debian's hosts file gives a host's own name the address 127.0.1.1, which the kernel speaks
	// to from another one.
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, own := range []string{"127.0.1.1", "0.0.0.0", "[::1]", "[::ffff:127.0.1.1]"} {
		b.env = []string{"K3S_TOKEN=x", "K3S_AGENT_SERVER_URL=https://" + own + ":" + port}
		r = b.start("server")
		if code := r.ends(); code != 1 || !strings.Contains(r.log.String(), "is its own address") || b.read("started") != "" {
			t.Errorf("%s: %d %s", own, code, r.log)
		}
	}

	// In doubt it waits, and a person may say that there is none.
	b.env = []string{"K3S_TOKEN=x", "K3S_AGENT_SERVER_URL=https://n2.invalid:6443"}
	r = b.start("server")
	r.says("cannot be told")
	if code, text := b.health(); code != 1 || !strings.HasPrefix(text, "ask: ") || !strings.Contains(text, "K3S_CLUSTER_INIT=true") {
		t.Errorf("health: %d %s", code, text)
	}
	r.lives()
	if b.read("started") != "" {
		t.Error("founded in doubt")
	}
	// Told where to join, it goes on by itself.
	to := listen(t, "127.0.0.1:0").Addr().String()
	b.plant(fleet.FileJoinURL, "https://"+to+"\n")
	if got := r.k3s(); !slices.Contains(got, "--server=https://"+to) {
		t.Errorf("%q", got)
	}
	if n := strings.Count(r.log.String(), "no cluster is founded yet"); n != 2 {
		t.Errorf("said %d times:\n%s", n, r.log)
	}
	r.stop()
	r.ends()
	_ = os.Remove(filepath.Join(b.root, fleet.FileJoinURL))
	_ = os.Remove(filepath.Join(b.root, "started"))
	b.env = append(b.env, "K3S_CLUSTER_INIT=true")
	if got := b.start("server").k3s(); !slices.Contains(got, "--cluster-init") || slices.Contains(got, "K3S_CLUSTER_INIT=true") {
		t.Errorf("%q", got)
	}
}

// Somebody writes another role beside a running voter, and starts that container. The
// break checks: take the lock out; make it a flock, which the child would hold on to.
func TestTwoK3sNeverRunOnOneDataVolume(t *testing.T) { // safety rule 10
	b := newBox(t)
	b.member()
	b.plant(fleet.FileRole, "server\n")
	b.env = []string{"K3S_AGENT_SERVER_URL=https://n2.invalid:6443", "SPAWN=1"}
	voter := b.start("server")
	voter.k3s()
	voter.until("its child is there", func() bool { return b.read("child") != "" })
	child, err := strconv.Atoi(b.read("child"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	_ = os.Remove(filepath.Join(b.root, "started"))

	b.plant(fleet.FileRole, "agent\n")
	a := b.start("agent")
	a.says("k3s server runs on this data volume")
	if code, text := b.health(); code != 1 || !strings.HasPrefix(text, "idle: k3s server runs") {
		t.Errorf("health: %d %s", code, text)
	}
	voter.lives()
	a.lives()
	// A second container of the same role as well; and what stopped of the two leaves the lock alone.
	b.plant(fleet.FileRole, "server\n")
	b.start("server").says("k3s server runs on this data volume")
	a.stop()
	if code := a.ends(); code != 0 || b.read("started") != "" {
		t.Errorf("exit status %d, started: %q", code, b.read("started"))
	}
	b.start("server").says("k3s server runs on this data volume")

	// k3s is killed, and a child of it lives on.
	_ = voter.cmd.Process.Kill()
	voter.ends()
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child is gone, so this proves nothing: %v", err)
	}
	b.plant(fleet.FileRole, "agent\n")
	if got := b.start("agent").k3s(); got[1] != "agent" {
		t.Errorf("%q", got)
	}
}

// The break check: leave Part out of Read.
func TestAnAgentWithHalfAnIdentityIdles(t *testing.T) { // R-N-09
	for _, dir := range container.Identity() {
		b := newBox(t)
		b.plant(fleet.FileRole, "agent\n")
		b.plant(dir+"/"+fleet.FilePartCopy+"/password", "half")
		b.env = []string{"K3S_AGENT_SERVER_URL=https://n2.invalid:6443"}
		r := b.start("agent")
		r.says("has not been copied here from the other role's volumes (" + dir)
		r.lives()
		if b.read("started") != "" {
			t.Error("k3s was started")
		}
	}
}

func TestAVolumeThatCannotBeLockedKeepsNoVoterDown(t *testing.T) {
	b := newBox(t)
	b.member()
	b.plant(fleet.FileRole, "server\n")
	if err := os.Mkdir(filepath.Join(b.root, fleet.DefaultDataDir, fleet.FileLock), 0o755); err != nil {
		t.Fatal(err)
	}
	r := b.start("server")
	r.k3s()
	r.says("the data volume is not locked")
}

func TestWhatCannotBeReadIsNamedAndKeepsNoVoterDown(t *testing.T) {
	b := newBox(t)
	b.member()
	b.plant(fleet.FileRole, "server\n")
	b.plant(fleet.DefaultDataDir+"/"+fleet.FileLevel, "half\n")
	b.plant(fleet.FileJoinURL, "http://n2\n")
	r := b.start("server")
	r.k3s()
	r.says("level \\\"half\\\"")
	r.says("join URL \\\"http://n2\\\"")
	r.stop()
	r.ends()

	// The role files decide: one that cannot be read starts nothing.
	_ = os.Remove(filepath.Join(b.root, fleet.FileRole))
	if err := os.Mkdir(filepath.Join(b.root, fleet.FileRole), 0o755); err != nil {
		t.Fatal(err)
	}
	r = b.start("server")
	if code := r.ends(); code != 1 || !strings.Contains(r.log.String(), fleet.FileRole) {
		t.Errorf("%d %s", code, r.log)
	}
}

func TestAProgramThatIsNotThereIsNamed(t *testing.T) {
	b := newBox(t)
	b.env = []string{"FLEET_ROLE_K3S=/bin/k4s"}
	r := b.start("server")
	if code := r.ends(); code != 1 || !strings.Contains(r.log.String(), "bin/k4s: no such file") {
		t.Errorf("%d %s", code, r.log)
	}
}

func TestWrongUsageIsStatusTwo(t *testing.T) {
	for name, c := range map[string]struct {
		args, env []string
		text      string
	}{
		"no role":       {nil, nil, "want server or agent"},
		"another role":  {[]string{"king"}, nil, `role "king"`},
		"an inventory":  {[]string{"server"}, []string{"FLEET_ROLE_INVENTORY_ROLE=both"}, `inventory: role "both"`},
		"eligible":      {[]string{"server"}, []string{"FLEET_ROLE_ELIGIBLE=yes"}, "want true or false"},
		"a datastore":   {[]string{"server"}, []string{"K3S_DATASTORE=mysql"}, "want etcd or sqlite"},
		"a prefix":      {[]string{"server"}, []string{"FLEET_ROLE_LABEL_PREFIX=x"}, "label prefix"},
		"a log level":   {[]string{"server"}, []string{"FLEET_ROLE_LOG_LEVEL=loud"}, "log level"},
		"health of two": {[]string{"health", "server"}, nil, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.env = c.env
			r := b.start(c.args...)
			if code := r.ends(); code != 2 || !strings.Contains(r.log.String(), c.text) {
				t.Errorf("%d %s", code, r.log)
			}
		})
	}
	if code, text := newBox(t).health(); code != 1 || !strings.Contains(text, "no such file") {
		t.Errorf("health of a container that never decided: %d %s", code, text)
	}
}
