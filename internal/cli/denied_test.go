package cli_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/swap"
)

// A command that waits for reports to change waited as long for an API that refused
// it, and said nothing meanwhile.
func TestWhatTheAPIAnswersIsSaid(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		kind   string
		body   string
		atOnce bool
		want   string
	}{
		{"credentials that nobody knows", http.StatusUnauthorized, "application/json", failure(401, "Unauthorized"), true, "the API at ADDRESS does not accept these credentials (401)"},
		{"credentials without the right", http.StatusForbidden, "application/json", failure(403, "Forbidden"), true, "the API at ADDRESS does not allow these credentials to do this (403)"},
		{"an API in trouble", http.StatusInternalServerError, "application/json", failure(500, "InternalError"), false, "the API at ADDRESS answers 500 (InternalError)"},
		{"an API that says nothing in time", http.StatusGatewayTimeout, "application/json", failure(504, "Timeout"), false, "the API at ADDRESS answers 504 (Timeout)"},
		{"a page", http.StatusOK, "text/html", "<html>", true, "the API at ADDRESS answers with something that is no Kubernetes: 200 OK, text/html"},
		{"a page that is not there", http.StatusNotFound, "text/html", "<html>", true, "the API at ADDRESS answers with something that is no Kubernetes: 404 Not Found, text/html"},
		{"a proxy whose server is away", http.StatusBadGateway, "text/html", "<html>", false, "the API at ADDRESS answers with something that is no Kubernetes: 502 Bad Gateway, text/html; tried again for up to 2s"},
	} {
		for _, command := range []string{"plan", "swap n1 n4", "status", "explain n1", "controller --once --self me", "pause"} {
			t.Run(command+" "+c.name, func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int64
				api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					asked.Add(1)
					w.Header().Set("Content-Type", c.kind)
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.body))
				}))
				t.Cleanup(api.Close)
				var out, errs bytes.Buffer
				args := append(strings.Fields(command), "--kubeconfig", kubeconfig(t, api.URL))
				want, once := strings.ReplaceAll(c.want, "ADDRESS", strings.TrimPrefix(api.URL, "http://")), false
				switch args[0] {
				case "status", "explain":
					// They look once, whatever it says.
					want, once = strings.TrimSuffix(want, "; tried again for up to 2s"), true
				case "pause":
					if !c.atOnce {
						return // half a minute
					}
				default:
					args = append(args, "--period", "1")
				}
				code := cli.Run(t.Context(), args, env.Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}, cli.Deps{
					Look: 100 * time.Millisecond, Rules: controller.Rules{Next: swap.Next, MayRemove: swap.MayRemove},
					Connect: func(a kube.Access, o kube.Options) (cli.Cluster, error) {
						conn, err := kube.Connect(a)
						if err != nil {
							return nil, err
						}
						return kube.NewClient(conn, o), nil
					},
				})
				if code != fleet.ExitFailed || strings.Count(errs.String(), want) != 1 || out.Len() > 0 {
					t.Errorf("exit status %d, %q, %q", code, errs.String(), out.String())
				}
				if again := strings.Count(errs.String(), "tried again for up to 2s"); (again == 1) != (!c.atOnce && !once) {
					t.Errorf("that it is tried again is said %d times: %s", again, errs.String())
				}
				if n := asked.Load(); (c.atOnce || once) != (n == 1) {
					t.Errorf("it asked %d times", n)
				}
			})
		}
	}
}

func failure(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, server)
	if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
