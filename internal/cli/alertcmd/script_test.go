package alertcmd_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/alert/watch"
	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/alertcmd"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/deliver"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/kube"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"regrade": regrade, "health": health})
}

// cluster has the document of the file configmap.json and keeps the state beside it.
type cluster struct{}

func (cluster) Source() watch.Source {
	return deliver.File{Path: "configmap.json", Now: func() time.Time { return at.Add(time.Minute) }}
}
func (cluster) Store() watch.Store { return &deliver.StateFile{Path: "kept.json"} }
func (cluster) Requests() int64    { return 7 }

func regrade() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	if os.Getenv("NOW") == "document" {
		e.Now = func() time.Time { return at.Add(time.Minute) }
	}
	d := alertcmd.Production("test")
	d.Connect = func(kube.Access, kube.HealthOptions) (alertcmd.Cluster, error) { return cluster{}, nil }
	deps := cli.Deps{}
	deps.More = append(deps.More, alertcmd.New(e, d))
	os.Exit(cli.Run(ctx, os.Args[1:], e, deps))
}

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// health FILE [lost SINCE-AGO] writes a document: of a moment ago with a number of
// seconds after FILE, of the fixed time without.
func health() {
	file, args := os.Args[1], os.Args[2:]
	now := at
	if len(args) > 0 && args[0] == "now" {
		now, args = time.Now().UTC().Truncate(time.Second), args[1:]
	}
	d := heartbeat.Document{
		Protocol: 1, At: now, Healthy: true, Reasons: []string{}, NotReady: []heartbeat.NotReady{}, NodePressure: []heartbeat.Pressure{},
		Voters: &heartbeat.Voters{Count: 3, Up: 3, Target: 3, Tolerance: 1, By: heartbeat.ByMembers},
	}
	if len(args) == 2 && args[0] == "lost" {
		ago, err := time.ParseDuration(args[1])
		if err != nil {
			panic(err)
		}
		d.NotReady = []heartbeat.NotReady{{Name: "n2", Role: fleet.RoleServer, Since: now.Add(-ago)}}
	}
	raw, err := d.JSON()
	if err == nil {
		err = os.WriteFile(file+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The scripts have a receiver at $SERVER that keeps what it takes in the file sent. It
// answers 503 while there is a file down.
func TestScripts(t *testing.T) { // R-F-04, R-F-08, safety rule 31
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if raw, err := os.ReadFile(filepath.Join(e.WorkDir, strings.TrimPrefix(r.URL.Path, "/"))); err == nil && r.Method == http.MethodGet {
					w.Header().Set("Date", at.Add(time.Minute).Format(http.TimeFormat))
					if r.URL.RawQuery == "undated" {
						w.Header()["Date"] = nil
					}
					_, _ = w.Write(raw)
					return
				}
				if _, err := os.Stat(filepath.Join(e.WorkDir, "down")); err == nil || r.Method == http.MethodGet {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				body, _ := io.ReadAll(r.Body)
				f, err := os.OpenFile(filepath.Join(e.WorkDir, "sent"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				_, _ = io.WriteString(f, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body)+"\n")
				_ = f.Close()
			}))
			e.Defer(srv.Close)
			e.Setenv("SERVER", srv.URL)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits, "until": until},
	})
}

// until waits for a text in a file: until FILE TEXT.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until FILE TEXT")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for {
		raw, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(raw), args[1]) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			ts.Fatalf("no %q in %s: %q, %v", args[1], args[0], raw, err)
		}
	}
}

// Every field that is printed is on the page.
func TestThePageOfJSONOutputIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[alertcmd.Checked](), reflect.TypeFor[alert.Condition]()} {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/cli-json.md lacks %s of %s", name, typ)
			}
		}
	}
}
