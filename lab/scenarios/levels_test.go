package scenarios

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/cluster"
)

// graded is a cluster whose hosts change their level by themselves, quickly, with no controller.
func graded(t *testing.T, spec cluster.Spec, writeThrough ...string) *scenario {
	t.Helper()
	return gradedBy(t, spec, cluster.LevelSettings(), writeThrough...)
}

// gradedBy is the same with settings of the scenario's own.
func gradedBy(t *testing.T, spec cluster.Spec, settings map[string]any, writeThrough ...string) *scenario {
	t.Helper()
	beside(t)
	spec.HostSettings = settings
	c := shared.own(t, spec)
	for _, name := range []string{"n1", "n2", "n3"} {
		if err := c.Pressure(t.Context(), c.Host(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.InstallLevels(t.Context()); err != nil {
		t.Fatal(err)
	}
	return beginOn(t, c, nil, writeThrough...)
}

// level is the level that a Node says, full where it says none.
func (s *scenario) level(name string) fleet.Level {
	s.t.Helper()
	l, err := fleet.ParseLevel(s.node(name).Labels[keys.Level()])
	s.must(err)
	return l
}

// awaitLevel waits until a host is at a level, the Lease is free, and its report says that the step is done.
func (s *scenario) awaitLevel(name string, want fleet.Level) {
	s.t.Helper()
	s.awaitLevelWithin(4*time.Minute, name, want)
}

func (s *scenario) awaitLevelWithin(limit time.Duration, name string, want fleet.Level) {
	s.t.Helper()
	began := time.Now()
	s.eventually(limit, name+" to be "+string(want), func(ctx context.Context) (bool, string) {
		holder, err := s.leaseHolder(ctx)
		r := s.report(name).Regrade
		if err != nil || r == nil {
			return false, fmt.Sprintf("%v, %+v", err, r)
		}
		return s.level(name) == want && holder == "" && r.To == want && r.Phase == fleet.PhaseDone, fmt.Sprintf("level %s, Lease of %q, %+v", s.level(name), holder, r)
	})
	s.Logf("%s is %s after %.1f s", name, want, time.Since(began).Seconds())
}

func (s *scenario) memberIDs() []string {
	s.t.Helper()
	l, err := s.Members(s.t.Context())
	s.must(err)
	var out []string
	for _, m := range l.Members {
		out = append(out, m.String())
	}
	slices.Sort(out)
	return out
}

// R-112-02, R-112-04, R-112-06, R-112-11, R-112-19, R-112-20: a server under pressure steps down by one level after the other,
// keeps its vote, and steps up when the pressure has gone; meanwhile a second one under pressure does not move.
func Test_pressure_steps_down(t *testing.T) { pressureStepsDown(t, cluster.Standard()) }

// The same with a server in containers (R-112-14, R-112-15).
func Test_pressure_steps_down_docker(t *testing.T) {
	long(t)
	pressureStepsDown(t, cluster.Standard().Docker("n1"))
}

func pressureStepsDown(t *testing.T, spec cluster.Spec) {
	s := graded(t, spec, "n2", "n3")
	ctx := t.Context()
	before := s.memberIDs()
	s.must(s.RunPod(ctx, cluster.PodSpec{Name: "web", Node: "n1", Owner: true}))

	// Over the limit for less than a window: nothing.
	s.must(s.Pressure(ctx, s.Host("n1"), 60))
	time.Sleep(6 * time.Second)
	s.must(s.Pressure(ctx, s.Host("n1"), 0))
	time.Sleep(8 * time.Second)
	if l := s.level("n1"); l != fleet.LevelFull {
		t.Fatalf("six seconds of pressure made it %s", l)
	}

	s.must(s.Pressure(ctx, s.Host("n1"), 60))
	s.awaitLevel("n1", fleet.LevelControlPlane)
	if n := s.node("n1"); !n.Spec.Unschedulable || !cluster.NodeReady(n) {
		t.Errorf("cordoned %t, Ready %t: a cordoned server that is Ready is wanted", n.Spec.Unschedulable, cluster.NodeReady(n))
	}
	if there, err := s.PodIsThere(ctx, "web"); err != nil || there {
		t.Errorf("its pod is still there (%v)", err)
	}
	s.awaitLevel("n1", fleet.LevelEtcdOnly)
	if ids := s.memberIDs(); !slices.Equal(ids, before) {
		t.Errorf("the members were %v and are %v", before, ids)
	}
	if leader, err := s.Leader(ctx, s.Host("n2")); err != nil || leader == "n1" {
		t.Errorf("etcd is led by %s (%v)", leader, err)
	}
	s.eventually(2*time.Minute, "n1's Node to be NotReady", func(context.Context) (bool, string) {
		return !cluster.NodeReady(s.node("n1")), "it is Ready still"
	})
	if n := s.node("n1"); n.Labels[fleet.LabelEtcd] == "" || s.level("n1") != fleet.LevelEtcdOnly {
		t.Errorf("%v", n.Labels)
	}

	// A second one may not follow, and says why.
	s.must(s.Pressure(ctx, s.Host("n2"), 60))
	s.must(cluster.Never(ctx, time.Minute, "n2 to move", func(ctx context.Context) (bool, string) {
		holder, err := s.leaseHolder(ctx)
		return s.level("n2") != fleet.LevelFull || err == nil && holder != "", fmt.Sprintf("level %s, Lease of %q", s.level("n2"), holder)
	}))
	if r := s.report("n2").Regrade; r == nil || r.Wait != "NotReady" {
		t.Errorf("it waits for %+v, want NotReady", r)
	}
	s.must(s.Pressure(ctx, s.Host("n2"), 0))

	s.must(s.Pressure(ctx, s.Host("n1"), 0))
	s.awaitLevel("n1", fleet.LevelControlPlane)
	s.awaitLevel("n1", fleet.LevelFull)
	if ids := s.memberIDs(); !slices.Equal(ids, before) {
		t.Errorf("the members were %v and are %v", before, ids)
	}
	s.end("n1", "n2", "n3")
}

// The files and the Node by which a host goes on with a step between levels after a kill.
func (s *scenario) grading(name string) string {
	var all strings.Builder
	for _, path := range []string{"/var/lib/regrade/level.json", fleet.FileLevelDropIn, fleet.DefaultDataDir + "/" + fleet.FileLevel} {
		raw, err := s.Host(name).ReadFile(path)
		fmt.Fprintf(&all, "%s %v %s\n", path, err != nil, raw)
	}
	return all.String()
}

// The daemon is killed whenever its note of the step, or the level file, has changed, all the way down and up: each step is
// ended, the Lease is free, and the vote is there.
func Test_level_killed(t *testing.T) {
	long(t)
	s := graded(t, cluster.Standard(), "n2", "n3")
	ctx := t.Context()
	_, err := s.Host("n1").Run(ctx, "mkdir", "-p", "/run/systemd/system/"+cluster.HostUnit+".d")
	s.must(err)
	s.must(s.Host("n1").WriteFile("/run/systemd/system/"+cluster.HostUnit+".d/lab.conf", []byte("[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n"), 0o644))
	_, err = s.Host("n1").Systemctl(ctx, "daemon-reload")
	s.must(err)
	before := s.memberIDs()
	kills := 0
	drive := func(want fleet.Level) {
		t.Helper()
		seen := s.grading("n1")
		for end := time.Now().Add(5 * time.Minute); ; {
			if now := s.grading("n1"); now != seen {
				seen = now
				if err := s.Host("n1").KillMain(ctx, cluster.HostUnit, syscall.SIGKILL); err == nil {
					kills++
				}
				continue
			}
			holder, err := s.leaseHolder(ctx)
			if r := s.report("n1").Regrade; err == nil && holder == "" && s.level("n1") == want && r != nil && r.Phase != fleet.PhaseRunning {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("n1 is %s, not %s: %+v", s.level("n1"), want, s.report("n1").Regrade)
			}
		}
	}
	s.must(s.Pressure(ctx, s.Host("n1"), 60))
	drive(fleet.LevelEtcdOnly)
	s.must(s.Pressure(ctx, s.Host("n1"), 0))
	drive(fleet.LevelFull)
	s.Logf("the daemon was killed %d times", kills)
	if kills < 12 {
		t.Errorf("%d kills prove little", kills)
	}
	if ids := s.memberIDs(); !slices.Equal(ids, before) {
		t.Errorf("the members were %v and are %v", before, ids)
	}
	s.must(s.Host("n1").Remove("/run/systemd/system/" + cluster.HostUnit + ".d/lab.conf"))
	s.end("n1", "n2", "n3")
}

// R-112-10: an etcd-only server still votes. With one full server stopped writes succeed through the other; with the
// etcd-only one stopped as well they fail.
func Test_etcd_only_votes(t *testing.T) {
	long(t)
	s := graded(t, cluster.Standard(), "n3")
	s.outage = true
	ctx := t.Context()
	before := s.memberIDs()
	o, err := s.Level(ctx, s.Host("n1"), "set", "etcd-only")
	s.must(err)
	s.Logf("regrade level set etcd-only: exit %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	if o.Code != fleet.ExitDone {
		t.Fatal("it is not done")
	}
	// Memory is plenty, so that it would step up by itself; a person holds that.
	pause, err := s.CLI(ctx, "pause", "--reason", "etcd_only_votes")
	s.must(err)
	if pause.Code != 0 {
		t.Fatalf("%s%s", pause.Stdout, pause.Stderr)
	}
	stop := func(name string) {
		t.Helper()
		_, err := s.Host(name).Systemctl(ctx, "stop", cluster.ServerUnit)
		s.must(err)
	}
	stop("n2")
	s.eventually(soon, "a write with one full server stopped", func(ctx context.Context) (bool, string) {
		err := s.write(ctx)
		return err == nil, fmt.Sprint(err)
	})
	wrote := s.writer.Acknowledged()
	s.eventually(soon, "more writes with one full server stopped", func(context.Context) (bool, string) {
		return s.writer.Acknowledged() > wrote+20, "not yet"
	})
	stop("n1")
	time.Sleep(15 * time.Second)
	for range 3 {
		if err := s.write(ctx); err == nil {
			t.Error("a write succeeded with two of three voters stopped")
		}
	}
	for _, name := range []string{"n1", "n2"} {
		_, err := s.Host(name).Systemctl(ctx, "start", "--no-block", cluster.ServerUnit)
		s.must(err)
	}
	s.must(s.AwaitVoters(ctx, 2*time.Minute, "n1", "n2", "n3"))
	s.must(s.AwaitNodesReady(ctx, 2*time.Minute, "n2", "n3"))
	if l := s.level("n1"); l != fleet.LevelEtcdOnly {
		t.Errorf("n1 came back at %s", l)
	}
	// The gates of the way up name the pause, and are open without it.
	o, err = s.Level(ctx, s.Host("n1"), "set", "full", "--dry-run")
	s.must(err)
	if o.Code != fleet.ExitRefused || !strings.Contains(o.Stdout, "Paused") {
		t.Errorf("exit %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	resume, err := s.CLI(ctx, "resume")
	s.must(err)
	if resume.Code != 0 {
		t.Fatalf("%s%s", resume.Stdout, resume.Stderr)
	}
	s.eventually(2*time.Minute, "n1 to be full by hand", func(ctx context.Context) (bool, string) {
		o, err := s.Level(ctx, s.Host("n1"), "set", "full")
		return err == nil && o.Code == fleet.ExitDone, fmt.Sprintf("exit %d, %v: %s%s", o.Code, err, o.Stdout, o.Stderr)
	})
	if ids := s.memberIDs(); !slices.Equal(ids, before) {
		t.Errorf("the members were %v and are %v", before, ids)
	}
	s.end("n1", "n2", "n3")
}

// write tries one write through n3.
func (s *scenario) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	api, err := s.Via(s.Host("n3"))
	if err != nil {
		return err
	}
	_, err = api.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "votes-"}}, metav1.CreateOptions{})
	return err
}

// Real pressure: tasks on the host read more than the memory they may use, so that its own cgroup says that they wait. The
// first file of the setting is away, the second is the cgroup's.
func Test_real_pressure_steps_down(t *testing.T) {
	long(t)
	s := graded(t, cluster.Standard(), "n2", "n3")
	ctx := t.Context()
	h := s.Host("n1")
	s.must(h.Remove(cluster.PressureFile))
	if _, err := h.Run(ctx, "cat", cluster.CgroupPressure); err != nil {
		t.Skipf("a host's own cgroup shows no pressure here: %v", err)
	}
	// Pages read in no order, of a file somewhat larger than the memory: what was just thrown away is wanted again, which is
	// what the kernel counts. Reading it from end to end counts for little and takes the disk and the CPUs of all hosts.
	const press = "until (-e '/run/lab-press') { select undef, undef, undef, 0.2 }\n" +
		"open F, '<:raw', '/var/tmp/big' or die;\nwhile (1) { sysseek F, 4096 * int rand 8192, 0; sysread F, $b, 4096 }\n"
	s.must(h.WriteFile("/run/lab-press.pl", []byte(press), 0o644))
	units := []string{"lab-press-1", "lab-press-2", "lab-press-3", "lab-press-4"}
	for _, u := range units {
		_, err := h.Run(ctx, "systemd-run", "--unit="+u, "perl", "/run/lab-press.pl")
		s.must(err)
	}
	folder := s.squeeze(h.Name(), units, 24<<20)
	// Pages are on the account of who read them first: none may be there before the tasks read.
	for _, argv := range [][]string{
		{"dd", "if=/dev/zero", "of=/var/tmp/big", "bs=1M", "count=32", "conv=fdatasync"}, {"dd", "if=/var/tmp/big", "iflag=nocache", "count=0"}, {"touch", "/run/lab-press"},
	} {
		_, err := h.Run(ctx, argv...)
		s.must(err)
	}
	s.Logf("four tasks read 32 MB with 24 MiB of memory, in %s", folder)
	s.awaitLevel("n1", fleet.LevelControlPlane)
	said, err := h.Run(ctx, "cat", cluster.CgroupPressure)
	s.must(err)
	s.Logf("its cgroup says: %s", said)
	for _, name := range []string{"n2", "n3"} {
		if l := s.level(name); l != fleet.LevelFull {
			t.Errorf("%s is %s: the pressure was n1's alone", name, l)
		}
	}
	for _, u := range units {
		_, err := h.Systemctl(ctx, "stop", u)
		s.must(err)
	}
	// The minute's average falls for some minutes, and may take it down one level more before.
	s.awaitLevelWithin(10*time.Minute, "n1", fleet.LevelFull)
	s.end("n1", "n2", "n3")
}

// slowReads makes the blkio cgroup beside a memory cgroup, in which reads from the lab's disk get so many bytes a second
// and no more. The hosts of a fleet do not share a disk: without it the tasks on one take the voters' disk from the others.
func (s *scenario) slowReads(memory string, rate int) string {
	s.t.Helper()
	folder := strings.Replace(memory, "/sys/fs/cgroup/memory/", "/sys/fs/cgroup/blkio/", 1)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		s.t.Skipf("the blkio cgroup: %v", err)
	}
	s.t.Cleanup(func() { _ = os.Remove(folder) })
	var disk syscall.Stat_t
	s.must(syscall.Stat(s.Lab.Dir(), &disk))
	device := fmt.Sprintf("%d:%d", unix.Major(disk.Dev), unix.Minor(disk.Dev))
	s.must(os.WriteFile(filepath.Join(folder, "blkio.throttle.read_bps_device"), fmt.Appendf(nil, "%s %d", device, rate), 0o644))
	return folder
}

// squeeze puts the processes of units on a host into a memory cgroup of their own below the host's.
func (s *scenario) squeeze(name string, units []string, limit int64) string {
	s.t.Helper()
	hosts, err := filepath.Glob("/sys/fs/cgroup/memory/regrade-lab/*/" + name)
	s.must(err)
	hosts = slices.DeleteFunc(hosts, func(p string) bool { return !strings.Contains(p, filepath.Base(s.Lab.Dir())) })
	if len(hosts) != 1 {
		s.t.Skipf("the memory cgroup of %s: %v", name, hosts)
	}
	folder := filepath.Join(hosts[0], "lab-press")
	if err := os.Mkdir(folder, 0o755); err != nil && !os.IsExist(err) {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.Remove(folder) })
	s.must(os.WriteFile(filepath.Join(folder, "memory.limit_in_bytes"), fmt.Append(nil, limit), 0o644))
	slow := s.slowReads(folder, 16<<20)
	moved := 0
	for _, u := range units {
		out, err := s.Host(name).Systemctl(s.t.Context(), "show", "--value", "--property=ControlGroup", u)
		s.must(err)
		// As this machine sees it, systemd-nspawn's own folder comes before what the host calls its root.
		raw, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/systemd/regrade-lab", filepath.Base(s.Lab.Dir()), name, "payload", strings.TrimSpace(out), "cgroup.procs"))
		s.must(err)
		for pid := range strings.FieldsSeq(string(raw)) {
			// A task's sleep may have ended meanwhile; its shell has not.
			inMemory := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(pid), 0o644)
			if inMemory == nil && os.WriteFile(filepath.Join(slow, "cgroup.procs"), []byte(pid), 0o644) == nil {
				moved++
			}
		}
	}
	if moved < len(units) {
		s.t.Fatalf("%d processes of %d tasks are squeezed", moved, len(units))
	}
	return folder
}
