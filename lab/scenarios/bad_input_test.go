package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/lab/cluster"
)

// Safety rule 22: clocks minutes off. As IN the host is refused by name; as OUT, and as
// a voter that stays, it does no harm. The hosts share the machine's clock, so that it is the
// host daemon's that is wrong; k3s's and the kernel's are right.
func Test_bad_clock(t *testing.T) {
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
	// Every half a second somebody writes that the candidate has failed, with a number from the
	// future: a word of the host that would take it back.
	forged := func(r map[string]any) {
		r["counter"], r["phase"], r["code"], r["message"] = json.Number("99999999999999999"), "failed", "Forged", "somebody says so"
	}
	for range 10 {
		s.doctor(in, forged)
		time.Sleep(500 * time.Millisecond)
	}
	s.waitsFor(in, "BadReport")
	s.restartDaemon(in)
	s.awaitState("settle", "drain-out", "step-down")
	s.doctor("n2", future["a number"].change)
	s.waitsFor("n2", "BadReport")
	s.held(10 * time.Second)
	// Nobody restarts this one: a daemon writes its report again each minute of a swap.
	s.completed(out, in)
}

// doctor changes the host's report as it stands in the map.
func (s *scenario) doctor(name string, change func(report map[string]any)) {
	s.t.Helper()
	maps := s.api().CoreV1().ConfigMaps(fleet.DefaultNamespace)
	s.eventually(soon, "a doctored report of "+name, func(ctx context.Context) (bool, string) {
		cm, err := maps.Get(ctx, fleet.ConfigMapActuators, metav1.GetOptions{})
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
		_, err = maps.Patch(ctx, fleet.ConfigMapActuators, types.MergePatchType, patch, metav1.PatchOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func (s *scenario) stopDaemon(name string) {
	s.t.Helper()
	_, err := s.Host(name).Systemctl(s.t.Context(), "stop", cluster.HostUnit)
	s.must(err)
}

// startDaemon starts it and waits for a report that it wrote.
func (s *scenario) startDaemon(name string) {
	s.t.Helper()
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
