package fleetcmd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/fleetcmd"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"regrade": regrade}) }

func regrade() {
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	d := cli.Deps{}
	d.More = append(d.More, fleetcmd.NewInit(e, fleetcmd.InitProduction("test")))
	os.Exit(cli.Run(context.Background(), os.Args[1:], e, d))
}

// The scripts run the real client on an API server that has the Nodes of nodes.json in
// the script's folder, and nothing else. Its kubeconfig is $KUBECONFIG.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes" {
					http.ServeFile(w, r, filepath.Join(e.WorkDir, "nodes.json"))
					return
				}
				http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`, http.StatusForbidden)
			}))
			e.Defer(api.Close)
			file := filepath.Join(e.WorkDir, "kubeconfig")
			e.Setenv("KUBECONFIG", file)
			return os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"`+api.URL+`"}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}
