package heartbeatcmd_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/heartbeatcmd"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/heartbeat/beat"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/observe"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"regrade": regrade}) }

// cluster has the voters that $VOTERS names, and the status of status.json; it
// publishes into the folder configmap.
type cluster struct{}

func (cluster) Nodes(context.Context) ([]heartbeat.Node, error) {
	if os.Getenv("VOTERS") == "" {
		return nil, errors.New("connection refused")
	}
	var nodes []heartbeat.Node
	for name := range strings.FieldsSeq(os.Getenv("VOTERS")) {
		name, down := strings.CutSuffix(name, "!")
		nodes = append(nodes, heartbeat.Node{Name: name, Ready: !down, EtcdIsVoter: "True", Labels: map[string]string{fleet.LabelEtcd: "true"}})
	}
	return nodes, nil
}

func (cluster) Heartbeats(context.Context) ([]observe.Heartbeat, error) { return nil, nil }

func (cluster) RoleStatus(context.Context) (string, error) {
	raw, err := os.ReadFile("status.json")
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(raw), err
}

func (cluster) Runners(_ context.Context, w heartbeat.Wanted) *heartbeat.Runners {
	r := &heartbeat.Runners{ControllerFound: true, Controllers: 1}
	for _, s := range w.ScaleSets {
		r.ScaleSets = append(r.ScaleSets, heartbeat.ScaleSet{Name: s, Found: true, Listening: !strings.HasSuffix(s, "/deaf")})
	}
	return r
}

func (cluster) Date() time.Time           { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }
func (cluster) Requests() int64           { return 7 }
func (cluster) Publisher() beat.Publisher { return configMap{} }

type configMap struct{}

func (configMap) Name() string { return "configmap" }

func (configMap) Publish(_ context.Context, files heartbeat.Files) error {
	for name, content := range files {
		if err := os.WriteFile("configmap/"+name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (configMap) Read(context.Context, string) ([]byte, error) { return nil, nil }

func regrade() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	d := heartbeatcmd.Production("test")
	d.Connect = func(kube.Access, kube.HealthOptions) (heartbeatcmd.Cluster, error) { return cluster{}, nil }
	deps := cli.Deps{}
	deps.More = append(deps.More, heartbeatcmd.New(e, d))
	os.Exit(cli.Run(ctx, os.Args[1:], e, deps))
}

// The scripts have a server at $SERVER that keeps what is sent to it: /ok takes it,
// /500 and the like answer that.
func TestScripts(t *testing.T) { // R-185-14, R-F-01, safety rule 31
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				f, err := os.OpenFile(filepath.Join(e.WorkDir, "sent"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if err == nil {
					_, _ = io.WriteString(f, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body)+"\n")
					_ = f.Close()
				}
				code, err := strconv.Atoi(strings.SplitN(r.URL.Path, "/", 3)[1])
				if err != nil {
					code = http.StatusOK
					if r.Method == http.MethodGet {
						code = http.StatusNotFound
					}
				}
				w.WriteHeader(code)
			}))
			e.Defer(srv.Close)
			e.Setenv("SERVER", srv.URL)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}
