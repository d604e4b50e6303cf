package probecmd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/probecmd"
	"github.com/exadev/regrade/internal/hostapi"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/probe"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"regrade": regrade}) }

// once is a cluster of one standby, n1. It ends the program after some passes and
// leaves the entry in a file, and what the program shows of its first pass in
// others.
type once struct {
	end    context.CancelFunc
	passes atomic.Int32
}

func (o *once) Nodes(context.Context) ([]hostapi.Node, []string, error) {
	return nil, []string{"n1"}, nil
}
func (o *once) Entry(context.Context) (string, error) { return "", nil }
func (o *once) PutEntry(_ context.Context, entry string) (int, error) {
	return len(entry), os.WriteFile("entry.json", []byte(entry), 0o600)
}
func (o *once) DropEntry(context.Context) error { return nil }
func (o *once) Beat(context.Context, hostapi.Beat) error {
	if o.passes.Add(1) < 2 {
		return nil
	}
	defer o.end()
	address := os.Getenv("FLEET_ROLE_METRICS_ADDRESS")
	if address == "" {
		return nil
	}
	for _, page := range []string{"metrics", "healthz", "readyz"} {
		resp, err := http.Get("http://" + address + "/" + page)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err = errors.Join(err, os.WriteFile(page, body, 0o600)); err != nil {
			return err
		}
	}
	return nil
}
func (o *once) Requests() int64 { return 7 }

func regrade() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	d := probecmd.Production("test")
	if os.Getenv("CLUSTER") == "" {
		d.Connect = func(kube.Access, kube.ProbeOptions) (probe.Cluster, error) {
			return nil, errors.New("a check must not connect")
		}
	} else {
		d.Connect = func(kube.Access, kube.ProbeOptions) (probe.Cluster, error) { return &once{end: stop}, nil }
	}
	deps := cli.Deps{}
	deps.More = append(deps.More, probecmd.New(e, d))
	os.Exit(cli.Run(ctx, os.Args[1:], e, deps))
}

// The scripts have an etcd's metrics page at $METRICS, a listener at $OPEN, a port
// at which nobody listens, $CLOSED, and one that a script may take, $FREE.
func TestScripts(t *testing.T) { // R-185-08
	page, err := os.ReadFile("testdata/page.txt")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	t.Cleanup(srv.Close)
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("METRICS", srv.URL+"/metrics")
			e.Setenv("OPEN", open.Addr().String())
			e.Setenv("CLOSED", closed.Addr().String())
			e.Setenv("FREE", free.Addr().String())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}
