package hostcmd_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/exadev/regrade/internal/execute"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// levelAPI is the rig's cluster by the credential of the level half.
type levelAPI struct{ r *rig }

func (a levelAPI) err() error {
	if a.r.noAPI {
		return errors.New("no candidate is ready")
	}
	return nil
}
func (a levelAPI) Date() time.Time { return a.r.now }
func (a levelAPI) Node(context.Context, string) (observe.Node, bool, error) {
	return observe.Node{Name: "a", Version: "1", Node: *a.r.self}, true, a.err()
}

func (a levelAPI) Nodes(context.Context) ([]observe.Node, error) {
	out := []observe.Node{{Name: "a", Node: *a.r.self}}
	for _, n := range []string{"b", "c"} {
		o := observe.Node{Name: n, Node: swap.Node{Ready: a.r.ready[n], Labels: map[string]string{fleet.LabelControlPlane: "true"}}}
		if l, ok := a.r.others.Levels[n]; ok {
			o.Labels[fleet.DefaultKeys().Level()] = l
		}
		if id, ok := a.r.others.Swaps[n]; ok {
			o.Annotations = map[string]string{fleet.DefaultKeys().Swap(): id}
		}
		out = append(out, o)
	}
	return out, a.err()
}

func (a levelAPI) Lease(context.Context) (observe.Lease, error) {
	return observe.Lease{Lease: a.r.lease, Version: "1"}, a.err()
}

func (a levelAPI) ConfigMap(context.Context, string) (observe.ConfigMap, error) {
	var m observe.ConfigMap
	if a.r.others.Pause != "" {
		m.Data = map[string]string{fleet.KeyPause: a.r.others.Pause}
	}
	return m, a.err()
}

func (a levelAPI) Pods(context.Context, string) ([]observe.Pod, error) {
	if a.r.others.PodsUnread != "" {
		return nil, errors.New(a.r.others.PodsUnread)
	}
	return a.r.others.Pods, a.err()
}
func (a levelAPI) TryEvict(context.Context, observe.Pod) (string, error) {
	return "", a.err()
}
func (a levelAPI) Evict(context.Context, observe.Pod) (string, error) { return "", a.err() }
func (a levelAPI) PatchNode(_ context.Context, _, _ string, p execute.NodePatch) error {
	for k, v := range p.Labels {
		delete(a.r.self.Labels, k)
		if v != nil {
			a.r.self.Labels[k] = *v
		}
	}
	for k, v := range p.Annotations {
		delete(a.r.self.Annotations, k)
		if v != nil {
			a.r.self.Annotations[k] = *v
		}
	}
	if p.Unschedulable != nil {
		a.r.self.Unschedulable = *p.Unschedulable
	}
	return a.err()
}

func (a levelAPI) PutLease(_ context.Context, _ string, l lease.Lease) error {
	a.r.lease = l
	return a.err()
}

// others is what the cluster around the host is like besides.
type others struct {
	Levels     map[string]string `json:"levels,omitempty"`    // labels of other servers, by node
	Swaps      map[string]string `json:"swaps,omitempty"`     // their annotation of a swap
	Disagrees  []string          `json:"disagrees,omitempty"` // client URLs of a voter with another member list
	Pause      string            `json:"pause,omitempty"`
	Pods       []observe.Pod     `json:"pods,omitempty"`
	PodsUnread string            `json:"pods_unread,omitempty"`
}

// newLevelRig is the voter a of three, with levels on.
func newLevelRig(t *testing.T, more string) *rig {
	r := newRig(t, "a")
	r.members = slices.DeleteFunc(r.members, func(m status.Member) bool { return m.ID == ids["e"] })
	r.self.Ready, r.lease = true, lease.Lease{Exists: true}
	r.memory = level.Reading{Pressure: &level.Pressure{SomeAvg60: 50, FullAvg60: 1}, AvailableBytes: 1 << 30, TotalBytes: 4 << 30}
	r.plant(fleet.FileHostConfig, "node: a\nservers: [\"https://10.0.0.2:6443\"]\nlog-level: error\noperation-timeout: 10s\nperiod: 1s\n"+more)
	on := r.host.OnAdvance
	r.host.OnAdvance = func(f *platform.Facts) {
		on(f)
		r.self.Ready = f.Server.Level != fleet.LevelEtcdOnly
	}
	return r
}

const levelsOn = "levels: {enabled: true}\n"

func TestLevelByHand(t *testing.T) { // issue 6: `regrade level` shows and sets by hand with the same gates
	t.Run("what is not on is said", func(t *testing.T) {
		r := newLevelRig(t, "")
		r.want(fleet.ExitDone, "levels are off", "level")
		r.want(fleet.ExitDone, `"enabled": false`, "level", "show", "-o", "json")
		r.want(fleet.ExitRefused, "LevelsOff", "level", "set", "etcd-only")
		r.want(fleet.ExitRefused, "LevelsOff", "level", "set", "etcd-only", "--dry-run")
		if len(r.host.Calls) > 0 {
			t.Errorf("%v", r.host.Calls)
		}
	})
	t.Run("show says the memory and what speaks against each step", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.want(fleet.ExitDone, "to control-plane nothing speaks against it", "level", "show")
		r.want(fleet.ExitDone, "MemoryPressureSome: some task waited", "level")
		r.ready["c"] = false
		r.want(fleet.ExitDone, "NotReady: c votes and is not Ready", "level", "show")
		valid(t, r.run("level", "show", "-o", "json"), r)
		if len(r.host.Calls) > 0 {
			t.Errorf("show acts: %v", r.host.Calls)
		}
	})
	t.Run("a dry run names every shut gate and changes nothing", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.want(fleet.ExitDone, "nothing speaks against it", "level", "set", "etcd-only", "--dry-run")
		r.lease = lease.Lease{Exists: true, Holder: fleet.LeaseHolder, RenewTime: r.now, Duration: time.Hour, Annotations: map[string]string{fleet.LeaseSwapID: string(id)}}
		r.silent = []string{"b"}
		r.want(fleet.ExitRefused, "LeaseTaken: the Lease fleet-regrade is held for the swap", "level", "set", "etcd-only", "--dry-run")
		if !strings.Contains(r.out.String(), "Silent: the etcd of b does not answer") {
			t.Errorf("%s", &r.out)
		}
		if len(r.host.Calls) > 0 {
			t.Errorf("%v", r.host.Calls)
		}
	})
	t.Run("down to etcd-only and up again, one step after the other", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.want(fleet.ExitDone, "etcd-only; the server runs at etcd-only, its Node says etcd-only", "level", "set", "etcd-only")
		if r.lease.Holder != "" || !r.self.Unschedulable {
			t.Errorf("%+v %+v", r.lease, r.self)
		}
		r.want(fleet.ExitDone, "etcd-only", "level", "set", "etcd-only")
		r.want(fleet.ExitDone, `"level": "full"`, "level", "set", "full", "-o", "json")
		if r.lease.Holder != "" || r.self.Unschedulable || len(r.self.Labels) > 0 {
			t.Errorf("%+v %+v", r.lease, r.self)
		}
		if n := strings.Count(strings.Join(r.host.Calls, "\n"), "restart server"); n != 2 {
			t.Errorf("%d restarts", n)
		}
	})
	t.Run("a shut gate is a refusal with nothing changed", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.ready["b"] = false
		r.want(fleet.ExitRefused, "NotReady: b votes and is not Ready", "level", "set", "control-plane")
		if slices.ContainsFunc(r.host.Calls, func(c string) bool { return strings.HasPrefix(c, "level") }) || r.lease.Holder != "" {
			t.Errorf("%v", r.host.Calls)
		}
	})
	t.Run("without an API server it is refused", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.noAPI = true
		r.want(fleet.ExitRefused, "NoAPI", "level", "set", "control-plane")
		r.want(fleet.ExitDone, "no candidate is ready", "level")
	})
	t.Run("a server that does not come back fails", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.want(fleet.ExitDone, "", "level", "set", "control-plane")
		own := r.own
		on := r.host.OnAdvance
		r.host.OnAdvance = func(f *platform.Facts) {
			if on(f); f.Server.Level == fleet.LevelEtcdOnly {
				r.own = 0
			}
		}
		r.want(fleet.ExitFailed, "ServerNotBack", "level", "set", "etcd-only")
		r.own = own
	})
	t.Run("an agent has no level", func(t *testing.T) {
		r := newRig(t, "d")
		r.plant(fleet.FileHostConfig, "node: d\nservers: [\"https://10.0.0.2:6443\"]\nlog-level: error\n"+levelsOn)
		r.want(fleet.ExitRefused, "NotServer", "level", "set", "etcd-only")
	})
	t.Run("wrong usage", func(t *testing.T) {
		r := newLevelRig(t, levelsOn)
		r.want(2, "want full, control-plane or etcd-only", "level", "set")
		r.want(2, `level "half"`, "level", "set", "half")
		r.want(2, `--output "yaml"`, "level", "show", "-o", "yaml")
	})
	t.Run("settings that cannot go together are named", func(t *testing.T) { // R-112-04
		r := newLevelRig(t, "levels: {enabled: true, cooldown: 60s, some: 120}\n")
		r.want(2, "levels.cooldown: 1m0s is not longer than window", "level")
		if !strings.Contains(r.errs.String(), "levels.some: 120") {
			t.Errorf("%s", &r.errs)
		}
	})
}

func valid(t *testing.T, code int, r *rig) {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("../../status/schemas/level.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.out.Bytes()))
	if err != nil || code != 0 {
		t.Fatalf("%d, %v: %s", code, err, &r.out)
	}
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
}
