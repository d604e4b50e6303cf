package recoverycmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/recoverycmd"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/recover"
	"github.com/exadev/regrade/internal/recovery"
	"github.com/exadev/regrade/internal/status"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"regrade": regrade}) }

// world is cluster.json of a script.
type world struct {
	Now   time.Time      `json:"now"`
	Nodes []recover.Node `json:"nodes"`
	// Fail is what every call says.
	Fail string `json:"fail"`
	// Passes after which the program is told to end, while it shows its metrics.
	Passes int `json:"passes"`
}

type fake struct {
	world
	end    context.CancelFunc
	passes int
}

func (f *fake) Nodes(context.Context) ([]recover.Node, error) {
	if f.Fail != "" {
		return nil, errors.New(f.Fail)
	}
	if f.passes++; f.Passes > 0 && f.passes == f.Passes {
		defer f.end()
		for _, page := range []string{"metrics", "healthz", "readyz"} {
			resp, err := http.Get("http://" + os.Getenv("FLEET_ROLE_METRICS_ADDRESS") + "/" + page)
			if err != nil {
				return nil, err
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err = errors.Join(err, os.WriteFile(page, body, 0o600)); err != nil {
				return nil, err
			}
		}
	}
	return append([]recover.Node(nil), f.world.Nodes...), nil
}
func (f *fake) Lease(context.Context) (observe.Lease, error) { return observe.Lease{}, nil }
func (f *fake) ConfigMap(context.Context, string) (observe.ConfigMap, error) {
	return observe.ConfigMap{}, nil
}
func (f *fake) Heartbeats(context.Context) ([]observe.Heartbeat, error)     { return nil, nil }
func (f *fake) KubeletLeases(context.Context) (map[string]time.Time, error) { return nil, nil }
func (f *fake) Date() time.Time                                             { return f.Now }
func (f *fake) Requests() int64                                             { return 7 }
func (f *fake) Tell(context.Context, status.Event) error                    { return nil }
func (f *fake) Write(_ context.Context, w recover.Write) error {
	fmt.Println("write", w.Node)
	return nil
}

func regrade() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	d := recoverycmd.Production("test")
	d.Look = time.Millisecond
	d.Connect = func(a kube.Access, namespace string, marks []string) (recovery.Cluster, error) {
		raw, err := os.ReadFile("cluster.json")
		if err != nil {
			return nil, errors.New("asked for a cluster: nothing may be asked when a setting is wrong")
		}
		f := &fake{end: stop}
		return f, json.Unmarshal(raw, &f.world)
	}
	deps := cli.Deps{}
	deps.More = append(deps.More, recoverycmd.New(e, d))
	os.Exit(cli.Run(ctx, os.Args[1:], e, deps))
}

func TestScripts(t *testing.T) { // issue 6, group B
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error { e.Setenv("FREE", l.Addr().String()); return nil },
		Cmds:  map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}

// Every field that is printed is on the page.
func TestThePageOfJSONOutputIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[recoverycmd.Report](), reflect.TypeFor[recoverycmd.Line]()} {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/cli-json.md lacks %s of %s", name, typ)
			}
		}
	}
}
