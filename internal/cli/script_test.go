package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/entrycmd"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// The scripts run this binary as regrade, on a cluster in memory that begins as
// cluster.json and is written back when the command ends; and as fleet, which
// makes and changes cluster.json.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"regrade": regrade, "fleet": editFleet})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true,
		UpdateScripts: os.Getenv("UPDATE") != "",
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}

const file = "cluster.json"

func regrade() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	var c *clustertest.Cluster
	d := cli.Deps{
		More:    []*cobra.Command{entrycmd.New(e)},
		Look:    2 * time.Millisecond,
		Rules:   controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove},
		Install: func(kube.Access, kube.Options) (apply.Cluster, error) { return nil, errors.New("no API here") },
		Connect: func(a kube.Access, o kube.Options) (cli.Cluster, error) {
			s, err := load()
			if err != nil {
				return nil, err
			}
			c = clustertest.New(s)
			c.Beating = true
			play(c)
			return c, nil
		},
	}
	code := cli.Run(ctx, os.Args[1:], e, d)
	if c != nil {
		if err := save(c.State()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 125
		}
	}
	os.Exit(code)
}

// play lets a controller answer a request: PLAY names how the swap goes.
func play(c *clustertest.Cluster) {
	how := os.Getenv("PLAY")
	if how == "" {
		return
	}
	reads := 0
	c.Hook = func(call string) error {
		if call != "ConfigMap "+fleet.ConfigMapStatus {
			return nil
		}
		m := c.State().Maps[fleet.ConfigMapStatus]
		if _, asked := m.Data[fleet.KeyRequest]; !asked && reads == 0 {
			return nil
		}
		reads++
		c.Edit(func(s *clustertest.State) { act(s, how, reads) })
		return nil
	}
}

func act(s *clustertest.State, how string, reads int) {
	id := fleet.SwapID("20261129T120000Z-n1-n4")
	data := maps.Clone(s.Maps[fleet.ConfigMapStatus].Data)
	st := status.Status{Protocol: status.Protocol, At: when, Target: 3}
	running := func(step string) {
		st.Swap = &status.Swap{ID: id, Out: "n1", In: "n4", Step: step, StartedAt: when}
	}
	switch {
	case how == "dropped":
		delete(data, fleet.KeyRequest)
	case how == "refused":
		r, err := status.ParseRequest([]byte(data[fleet.KeyRequest]))
		if err != nil {
			return // it is gone by now
		}
		delete(data, fleet.KeyRequest)
		st.Dropped = &status.Dropped{Out: r.Out, In: r.In, Asked: r.At, At: r.At, Reasons: []status.Reason{{Code: "Pinned", Sentence: "n4 is pinned"}}}
	case how == "held":
		st.Next = status.Next{Code: "RequestHeld", Waits: []status.Reason{{Code: "NotReady", Sentence: "n2 is not Ready"}}}
	case reads == 1:
		running("prepare")
		delete(data, fleet.KeyRequest)
	case reads == 2 || how == "forever":
		running("promote")
		st.Swap.Reasons = []status.Reason{{Code: "Learner", Sentence: "n4 is a learner"}}
	default:
		st.LastSwap = &status.LastSwap{ID: id, Out: "n1", In: "n4", Outcome: fleet.Outcome(how), EndedAt: when.Add(25 * time.Second)}
		if how != "completed" {
			st.LastSwap.Reasons = []status.Reason{{Code: "StepTimeout", Sentence: "n4 did not become a voter"}}
		}
	}
	raw, err := json.Marshal(st)
	if err != nil {
		panic(err)
	}
	data[fleet.KeyStatus] = string(raw)
	s.Maps[fleet.ConfigMapStatus] = observe.ConfigMap{Exists: true, Data: data}
}

var when = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func load() (clustertest.State, error) {
	var s clustertest.State
	raw, err := os.ReadFile(file)
	if err != nil {
		return s, errors.New("no cluster answers")
	}
	return s, json.Unmarshal(raw, &s)
}

func save(s clustertest.State) error {
	raw, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}

// editFleet makes three voters n1 to n3 and a standby n4, all well, and changes
// it as its arguments say: node.label=value, node!report, node.problem=code,
// node.unready, status=text, request=text.
func editFleet() {
	s := well()
	for _, arg := range os.Args[1:] {
		change(&s, arg)
	}
	if err := save(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func well() clustertest.State {
	keys := fleet.DefaultKeys()
	names := []string{"n1", "n2", "n3", "n4"}
	var members []status.Member
	for i, n := range names[:3] {
		members = append(members, status.Member{
			ID: fleet.MemberID(i + 1), Name: n + "-0000000" + n[1:], PeerURLs: []string{"https://10.0.0." + n[1:] + ":2380"},
		})
	}
	s := clustertest.State{
		Nodes: map[string]observe.Node{}, Beats: map[string]observe.Heartbeat{},
		Maps: map[string]observe.ConfigMap{fleet.ConfigMapActuators: {Data: map[string]string{}}},
	}
	for i, n := range names {
		node := swap.Node{
			Ready: true, InternalIP: "10.0.0." + n[1:], KubeletVersion: "v1.34.2+k3s1",
			Labels: map[string]string{keys.Eligible(): "true"}, Annotations: map[string]string{},
		}
		r := status.Report{Protocol: status.Protocol, At: when, BootID: "b", Counter: 1, K3sVersion: "v1.34.2+k3s1", Role: fleet.RoleAgent, Preflight: &status.Preflight{OK: true}}
		if i < 3 {
			node.Labels[fleet.LabelEtcd], node.EtcdIsVoter = "true", "True"
			r.Role, r.Preflight, r.MemberID, r.ClusterID = fleet.RoleServer, nil, members[i].ID, 0xc
			r.Etcd = &status.EtcdView{Linearizable: true, ClusterID: 0xc, Leader: 1, Members: members, Version: "3.6.6"}
			r.Standbys, r.AsAgent = []status.Dial{{Node: "n4", OK: true}}, &status.Preflight{OK: true}
		}
		s.Nodes[n] = observe.Node{Node: node}
		s.Beats[n] = observe.Heartbeat{BootID: "b", Counter: "1", Renewed: when}
		put(&s, fleet.ConfigMapActuators, n, text(r))
	}
	return s
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func put(s *clustertest.State, m, key, value string) {
	cm := s.Maps[m]
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Exists, cm.Data[key] = true, value
	s.Maps[m] = cm
}

func change(s *clustertest.State, arg string) {
	keys := fleet.DefaultKeys()
	if raw, ok := strings.CutPrefix(arg, "status="); ok {
		put(s, fleet.ConfigMapStatus, fleet.KeyStatus, raw)
		return
	}
	if raw, ok := strings.CutPrefix(arg, "request="); ok {
		put(s, fleet.ConfigMapStatus, fleet.KeyRequest, strings.ReplaceAll(raw, "NOW", time.Now().UTC().Format(time.RFC3339)))
		return
	}
	name, what, _ := strings.Cut(arg, ".")
	n := s.Nodes[name]
	reports := s.Maps[fleet.ConfigMapActuators].Data
	switch what {
	case "unready":
		n.Ready = false
	case "pinned":
		n.Labels[keys.Pinned()] = "true"
	case "ineligible":
		n.Labels[keys.Eligible()] = "perhaps"
	case "no-daemon":
		delete(reports, name)
	case "silent":
		delete(s.Beats, name)
	case "nonsense":
		reports[name] = `{"protocol":1,`
	case "unstaged":
		r, err := status.ParseReport([]byte(reports[name]))
		if err != nil {
			panic(err)
		}
		if r.Role == fleet.RoleServer {
			r.AsAgent = &status.Preflight{Problems: []status.Problem{{Code: "AgentNotStaged", Sentence: "there is no agent.yaml"}}}
		} else {
			r.Preflight = &status.Preflight{Problems: []status.Problem{{Code: "NotStaged", Sentence: "there is no server.yaml"}}}
		}
		reports[name] = text(r)
	case "pod":
		s.Pods = append(s.Pods, clustertest.Pod{Node: name, Pod: observe.Pod{Namespace: "ns", Name: "db", UID: "1", Owner: "StatefulSet"}, Budget: "budget db needs 2"})
	case "demoted-server":
		n.Annotations[k3s.AnnotationArgs] = `["agent","--server","https://10.0.0.4:6443","--token","********"]`
	case "controller":
		s.Survey.OwnPods = append(s.Survey.OwnPods, observe.OwnPod{Namespace: "ns", Name: "controller-" + name, Component: "controller", Container: "controller", Node: name, Image: "regrade:1", Phase: "Running", Ready: true})
	case "probe":
		s.Beats["probe of "+name] = observe.Heartbeat{Node: name, Probe: true, BootID: "b", Counter: "1", Renewed: when}
	default:
		panic("fleet: " + arg)
	}
	s.Nodes[name] = n
}

// Every FLEET_ROLE_ variable is a flag, and every flag that has one says so in
// its help (design §3).
func TestEveryVariableIsAFlag(t *testing.T) {
	root := cli.New(env.Env{Getenv: func(string) string { return "" }}, cli.Deps{})
	found := map[string]bool{}
	for _, cmd := range root.Commands() {
		usage := cmd.Flags().FlagUsages()
		for word := range strings.FieldsSeq(usage) {
			if name := strings.Trim(word, "($)"); strings.HasPrefix(name, "FLEET_ROLE_") {
				found[name] = true
			}
		}
	}
	for _, name := range []string{ // R-E2-10, R-E2-06 and the rest of the settings
		"FLEET_ROLE_OPERATION_TIMEOUT_SECONDS", "FLEET_ROLE_RUNNER_WAIT_SECONDS", "FLEET_ROLE_LEASE_SECONDS", "FLEET_ROLE_ACTUATOR_CONFIGMAP",
		"FLEET_ROLE_DRY_RUN", "FLEET_ROLE_TARGET", "FLEET_ROLE_PERIOD_SECONDS", "FLEET_ROLE_LABEL_PREFIX", "FLEET_ROLE_NAMESPACE",
		"FLEET_ROLE_RUNNER_SELECTOR", "FLEET_ROLE_LEARNER_STALL_SECONDS", "FLEET_ROLE_SELF", "FLEET_ROLE_API_SERVERS",
	} {
		if !found[name] {
			t.Errorf("%s is no flag: %v", name, slices.Sorted(maps.Keys(found)))
		}
	}
}
