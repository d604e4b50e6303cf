package behaviour

import (
	"strings"
	"testing"
	"time"
)

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

// k3s facts §14.3, row "Versions".
func TestVersionsSwitchesFor1341And1342And1344(t *testing.T) {
	for _, tc := range []struct {
		version                                                  string
		move, drop, die, refuse, disableRemoves, fatalJoinErrors bool
	}{
		{version: "1.34.1", die: true, disableRemoves: true, fatalJoinErrors: true},
		{version: "1.34.2", move: true, drop: true, disableRemoves: true},
		{version: "1.34.4", move: true, drop: true, refuse: true},
		{version: "1.36", move: true, drop: true, refuse: true},
		{version: "", move: true, drop: true, refuse: true},
	} {
		b, err := FromEnv(env(map[string]string{EnvVersion: tc.version}))
		if err != nil {
			t.Fatalf("%q: %v", tc.version, err)
		}
		if b.MoveLeaderFirst != tc.move || b.DropRemoveAnnotation != tc.drop || b.DieWithEtcd != tc.die ||
			b.RefuseTombstoneWithoutServer != tc.refuse || b.DisableEtcdRemovesMember != tc.disableRemoves ||
			b.FatalJoinErrors != tc.fatalJoinErrors {
			t.Errorf("%q: got %+v", tc.version, b)
		}
		if b.TombstoneWhenDown {
			t.Errorf("%q: a tombstone after a removal while down must be off by default", tc.version)
		}
	}
}

func TestSwitchesAreReadFromTheEnvironment(t *testing.T) {
	b, err := FromEnv(env(map[string]string{EnvLearnerStall: "30s", EnvTombstoneWhenDown: "1"}))
	if err != nil {
		t.Fatal(err)
	}
	if b.LearnerStall != 30*time.Second || !b.TombstoneWhenDown || b.LearnerTick != 15*time.Second {
		t.Errorf("got %+v", b)
	}
}

func TestABadSwitchIsNamed(t *testing.T) {
	for _, m := range []map[string]string{{EnvVersion: "1.2"}, {EnvLearnerStall: "soon"}, {EnvReadyLimit: "-1s"}} {
		_, err := FromEnv(env(m))
		for k := range m {
			if err == nil || !strings.Contains(err.Error(), k) {
				t.Errorf("%v: error %v does not name the variable", m, err)
			}
		}
	}
}
