package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
	"github.com/exadev/regrade/lab/host"
)

// Safety rule 22: clocks minutes off. As IN the host is refused by name; as OUT, and as
// a voter that stays, it does no harm. The hosts share the machine's clock, so that it is the
// host daemon's that is wrong; k3s's and the kernel's are right.
func Test_bad_clock(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	for _, off := range []time.Duration{5 * time.Minute, -7 * time.Minute} {
		s.setClock(in, off)
		s.refuses(t, fleet.ExitFailed, out, in, "the clock of "+in+" is ")
	}
	s.setClock(in, 0)
	s.setClock(out, 5*time.Minute)
	s.setClock("n2", -7*time.Minute)
	s.eventually(soon, "the status to name both clocks", func(context.Context) (bool, string) {
		var named []string
		for _, h := range s.status().Hosts {
			for _, r := range h.Reasons {
				if r.Code == "ClockSkew" {
					named = append(named, h.Name)
				}
			}
		}
		return len(named) == 2, fmt.Sprint(named)
	})
	s.mustSwap(out, in)
	s.backAsAgent(out)
	// It stands by now, with a clock that is wrong.
	s.refuses(t, fleet.ExitFailed, in, out, "the clock of "+out)
	s.setClock(out, 0)
	s.setClock("n2", 0)
	s.checkAgent(out)
	s.end("n2", "n3", in)
}

// setClock gives the host a daemon whose clock is off by so much, and waits for its
// word; zero is the shipped one again.
func (s *scenario) setClock(name string, off time.Duration) {
	s.t.Helper()
	ctx, h := s.t.Context(), s.Host(name)
	const program, dropIn = "/usr/local/bin/regrade-clock", "/run/systemd/system/" + cluster.HostUnit + ".d/clock.conf"
	if off == 0 {
		s.must(h.Remove(dropIn))
	} else {
		path, err := s.WrongClock(ctx, off)
		s.must(err)
		binary, err := os.ReadFile(path)
		s.must(err)
		s.must(h.WriteFile(program, binary, 0o755))
		s.must(h.WriteFile(dropIn, []byte("[Service]\nExecStart=\nExecStart="+program+" host\n"), 0o644))
	}
	for _, args := range [][]string{{"daemon-reload"}, {"restart", cluster.HostUnit}} {
		_, err := h.Systemctl(ctx, args...)
		s.must(err)
	}
	s.eventually(soon, fmt.Sprintf("the daemon of %s to be %s off", name, off), func(context.Context) (bool, string) {
		skew := time.Duration(s.report(name).SkewMS) * time.Millisecond
		return (skew - off).Abs() < 5*time.Second, skew.String()
	})
	s.Logf("the clock of %s is %s off", name, off)
}

// Issue 3, bad input: a host daemon of an older version, as one writes whose protocol
// is an older one. As IN and as a voter that stays it is refused by name; in the middle of
// a swap it is held, named, and goes on with the daemon of today.
func Test_older_daemon(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	older := func(r map[string]any) { r["protocol"] = 0 }
	for _, name := range []string{in, "n2"} {
		s.stopDaemon(name)
		s.doctor(name, older)
		s.refuses(t, fleet.ExitFailed, out, in, "the report of "+name+" cannot be used: report: protocol 0")
		s.startDaemon(name)
		s.awaitReports()
	}
	s.ask(out, in)
	s.awaitState("promote")
	s.stopDaemon("n3")
	s.doctor("n3", older)
	s.waitsFor("n3", "BadReport")
	s.held(10 * time.Second)
	s.startDaemon("n3")
	s.completed(out, in)
}

// Issue 3, bad input, and safety rules 22, 24, 25: reports that hold values from the
// future. Each is named and nothing is done on it; with the true report back the swap is
// accepted. In the middle of a swap the daemons live, and write over what was doctored.
func Test_report_from_future(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	future := map[string]struct {
		word   string
		change func(map[string]any)
	}{
		"a number":   {"heartbeat has come to", func(r map[string]any) { r["counter"] = json.Number("18446744073709551615") }},
		"a boot":     {`of boot "the next one"`, func(r map[string]any) { r["boot_id"] = "the next one" }},
		"a protocol": {"protocol 99", func(r map[string]any) { r["protocol"] = 99 }},
		"a step":     {`step "teleport"`, func(r map[string]any) { r["step"], r["phase"] = "teleport", "running" }},
		"a phase":    {`phase "soon"`, func(r map[string]any) { r["step"], r["phase"] = "promote", "soon" }},
	}
	for _, name := range []string{in, "n3"} {
		for what, f := range future {
			s.Logf("%s from the future in the report of %s", what, name)
			s.stopDaemon(name)
			s.doctor(name, f.change)
			s.refuses(t, fleet.ExitFailed, out, in, f.word)
			s.startDaemon(name)
		}
	}
	// A time is looked at in a report that is fresh: the daemon beats, and has nothing new to write.
	s.doctor(in, func(r map[string]any) { r["at"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339) })
	s.refuses(t, fleet.ExitFailed, out, in, "the report of "+in+" is of")
	s.restartDaemon(in)
	s.awaitReports()

	s.ask(out, in)
	s.awaitState("promote")
	// Somebody writes again and again that the candidate has failed, with a number from the
	// future: a word that would take it back if it were the host's.
	forged := func(r map[string]any) {
		r["counter"], r["phase"], r["code"], r["message"] = json.Number("99999999999999999"), "failed", "Forged", "somebody says so"
	}
	s.eventually(soon, "a wait that names the forged report", func(context.Context) (bool, string) {
		s.doctor(in, forged)
		time.Sleep(500 * time.Millisecond)
		next := s.status().Next
		for _, w := range next.Waits {
			if w.Node == in && w.Code == "BadReport" {
				s.Logf("%s: %s; %s", next.State, next.Sentence, w.Sentence)
				return true, ""
			}
		}
		return false, fmt.Sprintf("%s: %s %+v", next.State, next.Sentence, next.Waits)
	})
	s.restartDaemon(in)
	s.awaitState("settle", "drain-out", "step-down")
	s.stopDaemon("n2")
	s.doctor("n2", future["a number"].change)
	s.waitsFor("n2", "BadReport")
	s.held(10 * time.Second)
	s.startDaemon("n2")
	// Nobody restarts this one: a daemon writes its report again each minute of a swap.
	s.doctor("n3", future["a boot"].change)
	s.completed(out, in)
}

// doctor changes the host's report as it stands in the map.
func (s *scenario) doctor(name string, change func(report map[string]any)) {
	s.t.Helper()
	documents := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace)
	s.eventually(soon, "a doctored report of "+name, func(ctx context.Context) (bool, string) {
		cm, err := documents.Get(ctx, fleet.ConfigMapActuators, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		r := map[string]any{}
		d := json.NewDecoder(strings.NewReader(cm.Data[name]))
		d.UseNumber()
		if err := d.Decode(&r); err != nil {
			return false, err.Error()
		}
		change(r)
		var raw bytes.Buffer
		s.must(json.NewEncoder(&raw).Encode(r))
		patch, err := json.Marshal(map[string]any{"data": map[string]string{name: raw.String()}})
		s.must(err)
		_, err = documents.Patch(ctx, fleet.ConfigMapActuators, types.MergePatchType, patch, metav1.PatchOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func (s *scenario) stopDaemon(name string) {
	s.t.Helper()
	if s.IsDocker(s.Host(name)) {
		s.docker(name, "stop", cluster.HostContainer)
		return
	}
	_, err := s.Host(name).Systemctl(s.t.Context(), "stop", cluster.HostUnit)
	s.must(err)
}

// startDaemon starts it and waits for a report that it wrote.
func (s *scenario) startDaemon(name string) {
	s.t.Helper()
	if s.IsDocker(s.Host(name)) {
		began := time.Now()
		s.docker(name, "start", cluster.HostContainer)
		s.eventually(soon, "a report of "+name, func(context.Context) (bool, string) {
			r := s.report(name)
			return r.At.After(began), fmt.Sprint(r.At)
		})
		return
	}
	_, err := s.Host(name).Systemctl(s.t.Context(), "start", cluster.HostUnit)
	s.must(err)
	s.eventually(soon, "a true report of "+name, func(ctx context.Context) (bool, string) {
		cm, err := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace).Get(ctx, fleet.ConfigMapActuators, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		boot, err := s.Host(name).BootID(ctx)
		s.must(err)
		r, err := status.ParseReport([]byte(cm.Data[name]))
		return err == nil && r.BootID == boot && r.Code != "Forged" && time.Since(r.At).Abs() < 10*time.Minute && r.Counter < 1<<60, fmt.Sprint(err, r)
	})
}

func (s *scenario) restartDaemon(name string) {
	s.t.Helper()
	s.stopDaemon(name)
	s.startDaemon(name)
}

// held checks for a while that the controllers carry nothing out.
func (s *scenario) held(during time.Duration) {
	s.t.Helper()
	before := s.actions()
	s.must(cluster.Never(s.t.Context(), during, "an action on a report that holds the swap", func(context.Context) (bool, string) {
		return s.actions() > before, s.lastAction()
	}))
}

// Issue 3, bad input: the controller's requests take four seconds each, then the API
// refuses it for a minute, both in the middle of a swap. While it is slow the swap goes on; refused
// it carries nothing out and says why; nothing is lost, and the swap ends.
func Test_slow_api(t *testing.T) {
	long(t)
	s, out, in := troubled(t, "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=120", "FLEET_ROLE_FINISH_SECONDS=120")
	ctx := t.Context()
	proxy, err := fault.NewProxy(s.Lab, cluster.APIPort, s.Host("n2"), s.Host("n3"))
	s.must(err)
	s.must(s.controller.Stop())
	s.controller.Env = append(s.controller.Env, "FLEET_ROLE_API_SERVERS="+strings.Join(proxy.URLs(), ","))
	s.must(s.controller.Start(ctx))
	s.ask(out, in)
	s.awaitState("promote")
	proxy.Slow(4 * time.Second)
	before, began := s.actions(), time.Now()
	s.Logf("each request takes 4 s")
	// A pass and its action are some sixteen requests.
	s.eventually(5*time.Minute, "two actions over a slow API", func(context.Context) (bool, string) {
		n := s.actions() - before
		return n >= 2, fmt.Sprintf("%d actions; the last: %s", n, s.lastAction())
	})
	s.Logf("two actions after %s, in %s", time.Since(began).Round(time.Second), s.status().Next.State)
	proxy.Refuse()
	proxy.Slow(0)
	s.Logf("the API refuses the controller for a minute")
	refused := s.actions()
	log, err := s.controller.Log()
	s.must(err)
	s.must(cluster.Never(ctx, time.Minute, "something was done while the API refused", func(context.Context) (bool, string) {
		return s.actions() > refused, s.lastAction()
	}))
	all, err := s.controller.Log()
	s.must(err)
	if said := all[len(log):]; !strings.Contains(said, "pass cut short") && !strings.Contains(said, "not carried out") {
		t.Errorf("the controller said nothing of the API: %s", said)
	} else {
		s.Logf("it said: %s", strings.TrimSpace(said[:min(len(said), 600)]))
	}
	proxy.Admit()
	s.completed(out, in)
}

// Issue 3, bad input: the disk of the host going out is full, at each of its steps: the role
// directory, the daemon's note and the server's drop-ins are on disks that are filled up. What it
// cannot write is named, no role file is ever half written, and the step goes on once there is room.
func Test_full_disk_out(t *testing.T) {
	long(t)
	s, out, in := troubled(t, "FLEET_ROLE_OPERATION_TIMEOUT_SECONDS=300", "FLEET_ROLE_FINISH_SECONDS=300")
	const roles, notes, dropIns = "/etc/github-runner", "/var/lib/regrade", fleet.FileServerConf + ".d"
	disks := s.smallDisks(out, roles, notes, dropIns)
	stop := s.watchRole(out)
	s.ask(out, in)
	s.awaitState("promote")
	disks.fill(roles, notes, dropIns)
	s.waitsFor(out, "note: write "+notes)
	s.held(10 * time.Second)

	// The note may be written, its first effect on the host may not.
	disks.clear(notes)
	s.waitsFor(out, "leaving: write "+fleet.FileLeaving)
	if left, err := s.Host(out).Exists(fleet.FileLeaving); err != nil || left || s.role(out) != "server\n" {
		t.Errorf("leaving is there: %v (%v), the role is %q", left, err, s.role(out))
	}
	disks.clear(roles)

	// Nor the drop-in that it restarts with, nor its last effect.
	s.waitsFor(out, "level: write "+fleet.FileLevelDropIn)
	disks.fill(roles)
	disks.clear(dropIns)
	s.waitsFor(out, "role: write "+fleet.FileRole)
	if s.role(out) != "server\n" {
		t.Errorf("the role is %q", s.role(out))
	}
	s.held(5 * time.Second)
	disks.clear(roles)

	s.untilMember(out, "removed", func(m *cluster.Member) bool { return m == nil })
	disks.fill(roles, notes, dropIns)
	s.waitsFor(out, "no space left")
	if members := s.members(); len(members.Voters()) != 3 {
		t.Errorf("the voters are %s", members)
	}
	disks.clear(roles, notes, dropIns)
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	s.checkAgent(out)
	if odd := stop(); len(odd) > 0 {
		t.Errorf("the role files of %s held %q", out, odd)
	}
	disks.leave()
	s.end("n2", "n3", in)
}

// The datastore of the host going out is on a disk of its own, as server/db may be, and
// that is full from the promotion on. Etcd has claimed its space before and goes on; what moves
// it aside needs none. The host is stepped down, removed, and becomes an agent all the same.
func Test_full_datastore_out(t *testing.T) {
	long(t)
	s, out, in := troubled(t)
	s.leaderDies = true
	ctx, h := t.Context(), s.Host(out)
	run := func(script string) {
		t.Helper()
		_, err := h.Run(ctx, "sh", "-c", script)
		s.must(err)
	}
	const db = fleet.DefaultDataDir + "/server/db"
	s.stopDaemon(out)
	run(fmt.Sprintf("systemctl stop k3s && mv %[1]s %[1]s.lab && mkdir -m 700 %[1]s && mount -t tmpfs -o size=320m,mode=700 db %[1]s && cp -a %[1]s.lab/. %[1]s/ && rm -rf %[1]s.lab && systemctl start --no-block k3s", db))
	s.startDaemon(out)
	s.checkFull(out)
	s.awaitReports()
	s.ask(out, in)
	s.awaitState("promote")
	run(fmt.Sprintf("cat /dev/zero 2>/dev/null > %[1]s/fill; ! dd if=/dev/zero of=%[1]s/probe bs=64k count=1 2>/dev/null", db))
	s.Logf("the datastore's disk of %s is full", out)
	s.ends(out, in, fleet.OutcomeCompleted)
	s.backAsAgent(out)
	// Back on the host's own disk, with the one old datastore beside it as on any host.
	s.stopDaemon(out)
	run(fmt.Sprintf("rm %[1]s/db.demoted/fill && mv %[1]s/db.demoted %[1]s/../db.demoted && umount %[1]s && test -z \"$(ls -A %[1]s)\"", db))
	s.startDaemon(out)
	s.checkAgent(out)
	s.end("n2", "n3", in)
}

// role is the content of the host's role file.
func (s *scenario) role(name string) string {
	s.t.Helper()
	raw, err := s.Host(name).ReadFile(fleet.FileRole)
	s.must(err)
	return string(raw)
}

// watchRole looks all the time at the files that decide what may start, until stop,
// which gives every content that is neither an old nor a new one.
func (s *scenario) watchRole(name string) (stop func() []string) {
	h, end, done := s.Host(name), make(chan struct{}), make(chan struct{})
	odd := map[string]bool{}
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if raw, err := h.ReadFile(fleet.FileRole); err != nil || string(raw) != "server\n" && string(raw) != "agent\n" {
				odd[fmt.Sprintf("role: %q %v", raw, err)] = true
			}
			if raw, err := h.ReadFile(fleet.FileLeaving); err == nil {
				if _, err := fleet.ParseSwapID(strings.TrimSpace(string(raw))); err != nil {
					odd[fmt.Sprintf("leaving: %q", raw)] = true
				}
			}
		}
	}()
	return func() []string {
		close(end)
		<-done
		return slices.Sorted(maps.Keys(odd))
	}
}

// disks are small file systems of a host's own, one for each of some folders.
type disks struct {
	s       *scenario
	host    *host.Host
	folders []string
}

// smallDisks puts each of the folders of the host, with what is in it, on a disk of 128 KiB.
func (s *scenario) smallDisks(name string, folders ...string) disks {
	s.t.Helper()
	d := disks{s: s, host: s.Host(name), folders: folders}
	s.stopDaemon(name)
	for _, folder := range folders {
		d.run(fmt.Sprintf("mkdir -p %[1]s /mnt/was && cp -a %[1]s/. /mnt/was/ && mount -t tmpfs -o size=128k,mode=755 small %[1]s && cp -a /mnt/was/. %[1]s/ && rm -rf /mnt/was", folder))
	}
	s.startDaemon(name)
	return d
}

func (d disks) run(script string) {
	d.s.t.Helper()
	_, err := d.host.Run(d.s.t.Context(), "sh", "-c", script)
	d.s.must(err)
}

// fill leaves no room for a single page.
func (d disks) fill(folders ...string) {
	d.s.t.Helper()
	for _, folder := range folders {
		d.run(fmt.Sprintf("cat /dev/zero 2>/dev/null > %[1]s/fill; ! echo x 2>/dev/null > %[1]s/probe", folder))
	}
	d.s.Logf("full on %s: %s", d.host.Name(), strings.Join(folders, " "))
}

func (d disks) clear(folders ...string) {
	d.s.t.Helper()
	for _, folder := range folders {
		d.run(fmt.Sprintf("rm -f %[1]s/fill %[1]s/probe", folder))
	}
	d.s.Logf("room again on %s: %s", d.host.Name(), strings.Join(folders, " "))
}

// leave puts the folders back on the host's own disk.
func (d disks) leave() {
	d.s.t.Helper()
	d.s.stopDaemon(d.host.Name())
	for _, folder := range d.folders {
		d.run(fmt.Sprintf("mkdir -p /mnt/was && cp -a %[1]s/. /mnt/was/ && umount %[1]s && rm -rf %[1]s && mv /mnt/was %[1]s", folder))
	}
	d.s.startDaemon(d.host.Name())
}
