package level_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/fleet"
	. "github.com/exadev/regrade/internal/level"
)

var update = flag.Bool("update", false, "write the recorded decisions anew")

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const total = 4 << 30

// Readings of a host.
var (
	calm    = Reading{Pressure: &Pressure{}, AvailableBytes: 2 << 30, TotalBytes: total}
	pressed = Reading{Pressure: &Pressure{SomeAvg10: 60, SomeAvg60: 40, FullAvg10: 20, FullAvg60: 10}, AvailableBytes: 2 << 30, TotalBytes: total}
	low     = Reading{Pressure: &Pressure{}, AvailableBytes: 100 << 20, TotalBytes: total}
	between = Reading{Pressure: &Pressure{SomeAvg60: 10}, AvailableBytes: 2 << 30, TotalBytes: total}
	waking  = Reading{Pressure: &Pressure{SomeAvg10: 30}, AvailableBytes: 2 << 30, TotalBytes: total}
	blind   = Reading{AvailableBytes: 2 << 30, TotalBytes: total}
)

// stretch is one reading again and again for a time.
type stretch struct {
	r     Reading
	lasts time.Duration
}

// watched folds stretches of readings 15 s apart and gives the last moment.
func watched(p Policy, stretches ...stretch) (Watch, time.Time) {
	var w Watch
	at := t0
	first := true
	for _, s := range stretches {
		for end := at.Add(s.lasts); first || at.Before(end); {
			if !first {
				at = at.Add(15 * time.Second)
			}
			first = false
			w = w.See(at, s.r, p)
		}
	}
	return w, at
}

func automatic() Policy {
	p := DefaultPolicy()
	p.StepUp = Automatic
	return p
}

// Each decision as a person reads it, in testdata/decisions.txt.
func TestDecisionsAreAsRecorded(t *testing.T) { // R-112-02, R-112-04, R-112-07
	var out bytes.Buffer
	for _, tt := range []struct {
		name   string
		policy Policy
		level  fleet.Level
		seen   []stretch
		change func(*Observation)
		want   fleet.Level
		code   string
	}{
		{name: "a calm full server stays", level: fleet.LevelFull, seen: []stretch{{calm, time.Hour}}, want: fleet.LevelFull, code: CodeSteady},
		{name: "pressure just short of the window moves nothing", level: fleet.LevelFull, seen: []stretch{{calm, time.Hour}, {pressed, 2 * time.Minute}}, want: fleet.LevelFull, code: CodePressed},
		{name: "pressure for the whole window steps down one level", level: fleet.LevelFull, seen: []stretch{{calm, time.Hour}, {pressed, 135 * time.Second}}, want: fleet.LevelControlPlane, code: CodeStepDown},
		{name: "a cordoned server under pressure becomes etcd-only", level: fleet.LevelControlPlane, seen: []stretch{{pressed, time.Hour}}, want: fleet.LevelEtcdOnly, code: CodeStepDown},
		{name: "too little available memory is pressure as well", level: fleet.LevelFull, seen: []stretch{{low, time.Hour}}, want: fleet.LevelControlPlane, code: CodeStepDown},
		{name: "an etcd-only server under pressure stays: the vote is never given up", level: fleet.LevelEtcdOnly, seen: []stretch{{pressed, 24 * time.Hour}}, want: fleet.LevelEtcdOnly, code: CodeLowest},
		{name: "the lowest level is a setting", policy: func() Policy { p := DefaultPolicy(); p.Lowest = fleet.LevelControlPlane; return p }(), level: fleet.LevelControlPlane, seen: []stretch{{pressed, time.Hour}}, want: fleet.LevelControlPlane, code: CodeLowest},
		{name: "one calm reading in the window begins it anew", level: fleet.LevelFull, seen: []stretch{{pressed, 110 * time.Second}, {calm, 15 * time.Second}, {pressed, time.Minute}}, want: fleet.LevelFull, code: CodePressed},
		{name: "the way up is by hand unless it is set", level: fleet.LevelEtcdOnly, seen: []stretch{{calm, time.Hour}}, want: fleet.LevelEtcdOnly, code: CodeByHand},
		{name: "an automatic server steps up one level after the cooldown", policy: automatic(), level: fleet.LevelEtcdOnly, seen: []stretch{{pressed, time.Hour}, {calm, 615 * time.Second}}, want: fleet.LevelControlPlane, code: CodeStepUp},
		{name: "calm just short of the cooldown steps up nothing", policy: automatic(), level: fleet.LevelControlPlane, seen: []stretch{{pressed, time.Hour}, {calm, 600 * time.Second}}, want: fleet.LevelControlPlane, code: CodeNotCalm},
		{name: "what is neither short nor plenty steps nowhere", policy: automatic(), level: fleet.LevelControlPlane, seen: []stretch{{between, time.Hour}}, want: fleet.LevelControlPlane, code: CodeNotCalm},
		{name: "a wait that has just begun is not calm", policy: automatic(), level: fleet.LevelControlPlane, seen: []stretch{{waking, time.Hour}}, want: fleet.LevelControlPlane, code: CodeNotCalm},
		{name: "no step within the cooldown of the last, by the Date", level: fleet.LevelFull, seen: []stretch{{pressed, time.Hour}}, change: func(o *Observation) { o.Ended = o.Date.Add(-599 * time.Second) }, want: fleet.LevelFull, code: CodeCooldown},
		{name: "a step once the cooldown of the last is over", level: fleet.LevelFull, seen: []stretch{{pressed, time.Hour}}, change: func(o *Observation) { o.Ended = o.Date.Add(-600 * time.Second) }, want: fleet.LevelControlPlane, code: CodeStepDown},
		{name: "a process that saw the step end goes by its own clock", level: fleet.LevelFull, seen: []stretch{{pressed, time.Hour}}, change: func(o *Observation) { o.Ended, o.SeenEnd = o.Date.Add(-24*time.Hour), o.At.Add(-time.Minute) }, want: fleet.LevelFull, code: CodeCooldown},
		{name: "a step that ended in the future is waited out by the own clock", level: fleet.LevelFull, seen: []stretch{{pressed, 9 * time.Minute}}, change: func(o *Observation) { o.Ended = o.Date.Add(time.Hour) }, want: fleet.LevelFull, code: CodeCooldown},
		{name: "and no longer than that", level: fleet.LevelFull, seen: []stretch{{pressed, 11 * time.Minute}}, change: func(o *Observation) { o.Ended = o.Date.Add(time.Hour) }, want: fleet.LevelControlPlane, code: CodeStepDown},
		{name: "without a Date a cooldown is not over", level: fleet.LevelFull, seen: []stretch{{pressed, time.Hour}}, change: func(o *Observation) { o.Ended, o.Date = t0, time.Time{} }, want: fleet.LevelFull, code: CodeCooldown},
		{name: "memory that was never read moves nothing", level: fleet.LevelFull, change: func(o *Observation) { o.Watch = Watch{} }, want: fleet.LevelFull, code: CodeUnknownMemory},
		{name: "a reading of long ago moves nothing", level: fleet.LevelFull, seen: []stretch{{pressed, time.Hour}}, change: func(o *Observation) { o.At = o.At.Add(61 * time.Second) }, want: fleet.LevelFull, code: CodeUnknownMemory},
		{name: "a clock that went back moves nothing", level: fleet.LevelFull, seen: []stretch{{pressed, time.Hour}}, change: func(o *Observation) { o.At = o.At.Add(-time.Second) }, want: fleet.LevelFull, code: CodeUnknownMemory},
		{name: "a kernel without pressure moves nothing while pressure is asked for", level: fleet.LevelFull, seen: []stretch{{blind, time.Hour}}, want: fleet.LevelFull, code: CodeUnknownMemory},
		{name: "a level that is none moves nothing", level: "half", seen: []stretch{{pressed, time.Hour}}, want: "half", code: CodeNoLevel},
	} {
		p := tt.policy
		if p == (Policy{}) {
			p = DefaultPolicy()
		}
		w, at := watched(p, tt.seen...)
		o := Observation{At: at, Level: tt.level, Watch: w, Date: at}
		if tt.change != nil {
			tt.change(&o)
		}
		d := Decide(o, p)
		if d.Want != tt.want || d.Code != tt.code || d.Sentence == "" {
			t.Errorf("%s: %s %s %q, want %s %s", tt.name, d.Want, d.Code, d.Sentence, tt.want, tt.code)
		}
		out.WriteString(tt.name + "\n")
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("    " + string(raw) + "\n")
	}
	golden(t, "decisions.txt", out.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-recorded +now; -update writes it anew):\n%s", path, diff)
	}
}

func TestSeriesOfReadings(t *testing.T) { // safety rules 22 and 24
	p := DefaultPolicy()
	at := t0.Add(time.Hour)
	long := Watch{Begun: t0, Last: at, OverSince: t0}
	for name, tt := range map[string]struct {
		at                time.Time
		r                 Reading
		begun, over, calm time.Time
	}{
		"pressure goes on":                          {at.Add(15 * time.Second), pressed, t0, t0, time.Time{}},
		"pressure that ends":                        {at.Add(15 * time.Second), calm, t0, time.Time{}, at.Add(15 * time.Second)},
		"neither short nor plenty ends both":        {at.Add(15 * time.Second), between, t0, time.Time{}, time.Time{}},
		"a reading that lacks something ends both":  {at.Add(15 * time.Second), blind, t0, time.Time{}, time.Time{}},
		"a pause of the process begins anew":        {at.Add(p.Gap + 1), pressed, at.Add(p.Gap + 1), at.Add(p.Gap + 1), time.Time{}},
		"a clock that jumped ahead begins anew":     {at.Add(24 * time.Hour), pressed, at.Add(24 * time.Hour), at.Add(24 * time.Hour), time.Time{}},
		"a clock that went back begins anew":        {at.Add(-time.Second), pressed, at.Add(-time.Second), at.Add(-time.Second), time.Time{}},
		"two readings of one moment go on":          {at, pressed, t0, t0, time.Time{}},
		"the longest pause of one series is a part": {at.Add(p.Gap), pressed, t0, t0, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := long.See(tt.at, tt.r, p)
			if !w.Begun.Equal(tt.begun) || !w.OverSince.Equal(tt.over) || !w.CalmSince.Equal(tt.calm) || !w.Last.Equal(tt.at) {
				t.Errorf("%+v", w)
			}
		})
	}
}

func TestAKernelWithoutPressureIsJudgedByItsMemoryAlone(t *testing.T) { // R-112-04
	p := automatic()
	p.Over.SomeAvg60, p.Over.FullAvg60 = 0, 0
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	w, at := watched(p, stretch{blind, time.Hour})
	if d := Decide(Observation{At: at, Date: at, Level: fleet.LevelEtcdOnly, Watch: w}, p); d.Want != fleet.LevelControlPlane {
		t.Errorf("%+v", d)
	}
}

// R-112-04, R-112-07: what cannot go together is refused, and named.
func TestSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	if err := DefaultPolicy().Check(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Policy)
		want   string
	}{
		"a cooldown as long as the window":                 {func(p *Policy) { p.Cooldown = p.Window }, "cooldown: 2m0s is not longer than window"},
		"a cooldown of two days":                           {func(p *Policy) { p.Cooldown = 48 * time.Hour }, "cooldown: 48h0m0s is more than 24h"},
		"a window of a second":                             {func(p *Policy) { p.Window = time.Second }, "window: 1s is not between"},
		"a window shorter than what lies between readings": {func(p *Policy) { p.Gap = p.Window }, "period: readings"},
		"no limit at all":                                  {func(p *Policy) { p.Over = Limits{} }, "some, full, floor"},
		"more than all of the time":                        {func(p *Policy) { p.Over.SomeAvg60 = 101 }, "some: 101"},
		"not a number":                                     {func(p *Policy) { p.Over.FullAvg60 = nan() }, "full: NaN"},
		"calm above pressure":                              {func(p *Policy) { p.Calm.FullAvg60 = 6 }, "calm-full: 6 % is not above 0 and at or under full"},
		"calm that never is":                               {func(p *Policy) { p.Calm.SomeAvg60 = 0 }, "calm-some: 0 %"},
		"calm with less than the floor":                    {func(p *Policy) { p.Calm.AvailableFloorBytes = 1 }, "calm-floor: 0 MiB is less than floor, 256 MiB"},
		"a way up that is none":                            {func(p *Policy) { p.StepUp = "maybe" }, `step-up: "maybe"`},
		"a lowest level that gives up votes":               {func(p *Policy) { p.Lowest = "agent" }, `lowest: "agent"`},
		"full as the lowest level":                         {func(p *Policy) { p.Lowest = fleet.LevelFull }, `lowest: "full"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			tt.change(&p)
			if err := p.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func nan() float64 { z := 0.0; return z / z }

func TestALevelIsOneStepFromTheNext(t *testing.T) {
	for _, tt := range []struct{ here, there, want fleet.Level }{
		{fleet.LevelFull, fleet.LevelEtcdOnly, fleet.LevelControlPlane},
		{fleet.LevelControlPlane, fleet.LevelEtcdOnly, fleet.LevelEtcdOnly},
		{fleet.LevelEtcdOnly, fleet.LevelFull, fleet.LevelControlPlane},
		{fleet.LevelControlPlane, fleet.LevelFull, fleet.LevelFull},
		{fleet.LevelFull, fleet.LevelFull, fleet.LevelFull},
		{"half", fleet.LevelFull, "half"},
	} {
		if got := Toward(tt.here, tt.there); got != tt.want {
			t.Errorf("from %s toward %s: %s, want %s", tt.here, tt.there, got, tt.want)
		}
	}
}
