package deliver

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/alert"
	"github.com/exadev/regrade/internal/heartbeat"
	"github.com/exadev/regrade/internal/obs"
)

const token = obs.Secret("hunter2hunter2")

// server answers as told and keeps what it was asked.
type server struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request)
	got    []*http.Request
	bodies []string
}

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *server {
	s := &server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.got, s.bodies = append(s.got, r), append(s.bodies, string(body))
		s.answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func (s *server) url(t *testing.T, path string) *url.URL {
	t.Helper()
	u, err := CheckURL(obs.Secret(s.URL + path))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var files = heartbeat.Files{"fleet-health.json": []byte(`{"at":"x"}`), "role-status.json": []byte(`{}`)}

func message() alert.Message {
	return alert.Would(alert.Condition{Kind: alert.ServerNotReady, Subject: "n2", Severity: alert.Critical, Since: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Sentence: "The server n2 <is> not Ready & more."}, time.Date(2026, 11, 30, 12, 20, 0, 0, time.UTC))
}

func TestAFolderHoldsWholeFiles(t *testing.T) {
	f := Folder{Path: filepath.Join(t.TempDir(), "made")}
	if raw, err := f.Read(t.Context(), "fleet-health.json"); raw != nil || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if err := f.Publish(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	raw, err := f.Read(t.Context(), "fleet-health.json")
	if err != nil || string(raw) != `{"at":"x"}` {
		t.Errorf("%q, %v", raw, err)
	}
	left, err := os.ReadDir(f.Path)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
	// It is for others to read: a web server, a monitoring program.
	if info, err := os.Stat(filepath.Join(f.Path, "fleet-health.json")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAFileIsPutUnderItsName(t *testing.T) {
	s := serve(t, says(http.StatusCreated))
	p := Put{Web: NewWeb("test"), Base: s.url(t, "/fleet?sig=secret"), Token: token}
	if err := p.Publish(t.Context(), heartbeat.Files{"fleet-health.json": []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	r := s.got[0]
	if r.Method != http.MethodPut || r.URL.Path != "/fleet/fleet-health.json" || r.URL.RawQuery != "sig=secret" || r.Header.Get("Authorization") != "Bearer "+token.Reveal() || s.bodies[0] != "{}" {
		t.Errorf("%s %s %v %q", r.Method, r.URL, r.Header, s.bodies)
	}
	s.answer = says(http.StatusNotFound)
	if raw, err := p.Read(t.Context(), "fleet-health.json"); raw != nil || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
}

// A late request of before, which carries the name of what it was to replace, is refused
// by the server; ours goes over whatever is there, and none is empty.
func TestAFileIsPutOverWhatWasThereLast(t *testing.T) {
	kept, version, lose := "", 0, false
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf("%q", strconv.Itoa(version))
		if r.Method == http.MethodPut {
			if want := r.Header.Get("If-Match"); want != "" && want != tag {
				w.WriteHeader(http.StatusPreconditionFailed)
				return
			}
			kept, version = s.bodies[len(s.bodies)-1], version+1
			if lose {
				w.WriteHeader(http.StatusGatewayTimeout) // it was carried out all the same
				return
			}
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", strconv.Itoa(version)))
	}
	p := Put{Web: NewWeb("test"), Base: s.url(t, "/"), Token: token, Tags: &Tags{}}
	put := func(content string) error {
		return p.Publish(t.Context(), heartbeat.Files{"a": []byte(content)})
	}
	if err := errors.Join(put("1"), put("2")); err != nil || kept != "2" {
		t.Fatal(kept, err)
	}
	if got := s.got[1].Header.Get("If-Match"); got != `"1"` {
		t.Errorf("put over %s", got)
	}
	lose = true
	if put("3") == nil {
		t.Error("an answer that was lost is taken for one")
	}
	lose = false
	version++ // and then somebody else
	if err := put("4"); err != nil || kept != "4" {
		t.Error(kept, err)
	}
	version++ // a change that nobody told of
	if err := put("5"); err != nil || kept != "5" {
		t.Error(kept, err)
	}
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"x"`)
		if r.Header.Get("If-Match") != "" {
			w.WriteHeader(http.StatusPreconditionFailed)
		} else if r.Method == http.MethodPut {
			kept = s.bodies[len(s.bodies)-1]
		}
	}
	if err := put("6"); err != nil || kept != "6" {
		t.Error("a server whose names do not hold:", kept, err)
	}
	if put("") == nil || kept != "6" {
		t.Error("an empty file is put")
	}
}

func TestAllFilesOfAGistAreOneRequest(t *testing.T) {
	s := serve(t, says(http.StatusOK))
	g := Gist{Web: NewWeb("test"), API: s.url(t, "/api"), ID: "0123456789abcdef", Token: token}
	if err := g.Publish(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	if len(s.got) != 1 || s.got[0].Method != http.MethodPatch || s.got[0].URL.Path != "/api/gists/0123456789abcdef" || s.got[0].Header.Get("Authorization") != "Bearer "+token.Reveal() {
		t.Fatalf("%+v", s.got)
	}
	want := `{"files":{"fleet-health.json":{"content":"{\"at\":\"x\"}"},"role-status.json":{"content":"{}"}}}`
	if s.bodies[0] != want {
		t.Error(s.bodies[0])
	}
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"x","files":{"fleet-health.json":{"filename":"fleet-health.json","content":"{}"},"big":{"truncated":true}}}`)
	}
	if raw, err := g.Read(t.Context(), "fleet-health.json"); err != nil || string(raw) != "{}" {
		t.Errorf("%q, %v", raw, err)
	}
	if raw, err := g.Read(t.Context(), "other"); err != nil || raw != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if _, err := g.Read(t.Context(), "big"); err == nil {
		t.Error("a file that was cut off is taken")
	}
}

// Issue 6, "Figures and bad input": hangs, 500, 413, a token that is not accepted.
func TestPublishersAnswersAreNamed(t *testing.T) {
	for code, want := range map[int]string{
		500: "answers 500 Internal Server Error", 503: "answers 503", 413: "answers 413 Request Entity Too Large", 401: "the credentials are not accepted",
		403: "the credentials are not accepted", 404: "answers 404", 302: "redirects are not followed",
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, r.Header.Get("Authorization")) // some servers say what they were sent
		})
		web := NewWeb("test")
		for name, publish := range map[string]func() error{
			"put": func() error {
				return Put{Web: web, Base: s.url(t, "/hidden-path?key=hidden-key"), Token: token}.Publish(t.Context(), files)
			},
			"gist": func() error {
				return Gist{Web: web, API: s.url(t, ""), ID: "0123456789abcdef", Token: token}.Publish(t.Context(), files)
			},
		} {
			err := publish()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %d: %v", name, code, err)
				continue
			}
			if errors.Is(err, heartbeat.ErrTooLarge) != (code == 413) {
				t.Errorf("%s, %d: too large: %v", name, code, err)
			}
			for _, secret := range []string{token.Reveal(), "hidden"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s, %d shows %q: %v", name, code, secret, err)
				}
			}
		}
		if n := len(s.got); n != 3 {
			t.Errorf("%d: %d requests, want one for each file put and one for the gist: none is repeated or redirected", code, n)
		}
	}
}

func TestAServerThatHangsIsLeft(t *testing.T) {
	hold := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-hold })
	defer close(hold)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := Put{Web: NewWeb("test"), Base: s.url(t, "/hidden"), Token: token}.Publish(ctx, heartbeat.Files{"a": []byte("b")})
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), token.Reveal()) {
		t.Error(err)
	}
}

// Safety rule 31, in every way that something is shown.
func TestNoSecretIsShown(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	u, err := CheckURL(obs.Secret(gone.URL + "/hidden/T0/B0?sig=hidden"))
	if err != nil {
		t.Fatal(err)
	}
	web := NewWeb("test")
	var log bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&log, nil))
	for _, err := range []error{
		Put{Web: web, Base: u, Token: token}.Publish(t.Context(), files),
		Gist{Web: web, API: u, ID: "0123456789abcdef", Token: token}.Publish(t.Context(), files),
		Webhook{Web: web, URL: u, Token: token}.Send(t.Context(), message()),
		Ntfy{Web: web, URL: u, Token: token}.Send(t.Context(), message()),
		Slack{Web: web, URL: u}.Send(t.Context(), message()),
		func() error { _, _, err := Page{Web: web, URL: u, Token: token}.Read(t.Context()); return err }(),
	} {
		if err == nil {
			t.Fatal("a server that is gone answered")
		}
		l.Error("failed", "err", err, "token", token)
		_, _ = fmt.Fprintf(&log, "%v %+v %#v %s %q %x", err, err, token, token, token, token)
	}
	for _, bad := range []string{"http://user:hunter2hunter2@%zz/", "ftp://hidden", "hidden", "https://", "https://h/#hidden"} {
		_, err := CheckURL(obs.Secret(bad))
		if err == nil {
			t.Errorf("%q is taken", bad)
		}
		_, _ = fmt.Fprintln(&log, err)
	}
	for _, secret := range []string{token.Reveal(), "hidden"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%q is shown: %s", secret, log.String())
		}
	}
	if !strings.Contains(log.String(), `"token":"***"`) {
		t.Error(log.String())
	}
}

func TestReceiversAreSentWhatTheyTake(t *testing.T) {
	s := serve(t, says(http.StatusOK))
	web := NewWeb("test")
	m := message()
	for _, send := range []func() error{
		func() error { return Webhook{Web: web, URL: s.url(t, "/hook"), Token: token}.Send(t.Context(), m) },
		func() error { return Ntfy{Web: web, URL: s.url(t, "/topic"), Token: token}.Send(t.Context(), m) },
		func() error { return Slack{Web: web, URL: s.url(t, "/services/T/B/x")}.Send(t.Context(), m) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	var got alert.Message
	if err := json.Unmarshal([]byte(s.bodies[0]), &got); err != nil || got != m || s.got[0].Header.Get("Idempotency-Key") != m.ID || s.got[0].Header.Get("Authorization") == "" {
		t.Errorf("%v %s", err, cmp.Diff(m, got))
	}
	if h := s.got[1].Header; s.bodies[1] != m.Sentence || h.Get("Title") != "regrade: server n2 is not Ready" || h.Get("Priority") != "urgent" || h.Get("Tags") != "rotating_light,server_not_ready" {
		t.Errorf("%q %v", s.bodies[1], h)
	}
	if want := `{"text":"*regrade: server n2 is not Ready*\nThe server n2 \u0026lt;is\u0026gt; not Ready \u0026amp; more."}`; s.bodies[2] != want || s.got[2].Header.Get("Authorization") != "" {
		t.Error(s.bodies[2])
	}
}

// Which answers say that the message may be what is wrong.
func TestWhatAnAnswerMeansForAMessage(t *testing.T) {
	for code, final := range map[int]bool{400: true, 413: true, 422: true, 415: true, 401: false, 403: false, 404: false, 408: false, 429: false, 500: false, 502: false, 302: false} {
		s := serve(t, says(code))
		err := Webhook{Web: NewWeb("test"), URL: s.url(t, "/")}.Send(t.Context(), message())
		if err == nil || errors.Is(err, alert.ErrRefused) != final {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func TestACommandIsGivenTheMessage(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "tell")
	script := "#!/bin/sh\ncat >" + dir + "/in\nenv >" + dir + "/env\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FLEET_ALERT_WEBHOOK_TOKEN", token.Reveal())
	if err := (Command{Path: program}).Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	in, _ := os.ReadFile(dir + "/in")
	env, _ := os.ReadFile(dir + "/env")
	var got alert.Message
	if err := json.Unmarshal(in, &got); err != nil || got != message() {
		t.Errorf("%q, %v", in, err)
	}
	if !strings.Contains(string(env), "REGRADE_ALERT_KIND=server_not_ready\n") || strings.Contains(string(env), token.Reveal()) {
		t.Errorf("%s", env)
	}
}

func TestACommandThatFailsOrHangsHasNotTakenIt(t *testing.T) {
	dir := t.TempDir()
	write := func(script string) Command {
		p := filepath.Join(dir, "tell")
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return Command{Path: p}
	}
	if err := write("yes no | head -c 100000 >&2; exit 3").Send(t.Context(), message()); err == nil || !strings.Contains(err.Error(), "exit status 3: no") || len(err.Error()) > 2000 {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := write("sleep 60 & echo $! >"+dir+"/pid; sleep 60").Send(ctx, message()); err == nil || !strings.Contains(err.Error(), "did not end in time") || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	raw, err := os.ReadFile(dir + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; {
		// A killed orphan stays a zombie until somebody takes it in.
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what it started lives on")
		}
		runtime.Gosched()
	}
	if err := (Command{Path: dir + "/none"}).Send(t.Context(), message()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What a program leaves behind is its own affair: the message was taken, and is not
// sent again.
func TestACommandThatLeavesAChildBehindHasTakenIt(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tell")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 5 &\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := (Command{Path: program}).Send(t.Context(), message()); err != nil || time.Since(began) > 4*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 5 &\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Command{Path: program}).Send(t.Context(), message()); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("one that failed beside its child: %v", err)
	}
}

// The status is the answer: what comes after it, or does not, makes no message one that
// was not taken, and no document one that was not published.
func TestAnAnswerWhoseBodyStallsIsAnAnswer(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	code := http.StatusOK
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(code)
		w.(http.Flusher).Flush()
		<-hold
	})
	web, m := NewWeb("test"), message()
	for name, send := range map[string]func(context.Context) error{
		"webhook": func(ctx context.Context) error { return Webhook{Web: web, URL: s.url(t, "/")}.Send(ctx, m) },
		"ntfy":    func(ctx context.Context) error { return Ntfy{Web: web, URL: s.url(t, "/")}.Send(ctx, m) },
		"slack":   func(ctx context.Context) error { return Slack{Web: web, URL: s.url(t, "/")}.Send(ctx, m) },
		"gist": func(ctx context.Context) error {
			return Gist{Web: web, API: s.url(t, ""), ID: "0123456789abcdef"}.Publish(ctx, files)
		},
	} {
		for _, answer := range []int{http.StatusOK, http.StatusBadGateway} {
			code = answer
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if err := send(ctx); status(err) != answer && answer != http.StatusOK || err != nil && answer == http.StatusOK || ctx.Err() != nil {
				t.Errorf("%s, %d: %v", name, answer, err)
			}
			cancel()
		}
	}
}

func TestADocumentIsReadFromFileAndPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet-health.json")
	f := File{Path: path, Now: time.Now}
	if _, _, err := f.Read(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), heartbeat.MaxDocument+100), 0o600); err != nil {
		t.Fatal(err)
	}
	if raw, _, err := f.Read(t.Context()); err != nil || len(raw) != heartbeat.MaxDocument+1 {
		t.Errorf("%d, %v", len(raw), err)
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Mon, 30 Nov 2026 12:00:00 GMT")
		_, _ = io.WriteString(w, "{}")
	})
	p := Page{Web: NewWeb("test"), URL: s.url(t, "/x"), Token: token}
	raw, date, err := p.Read(t.Context())
	if err != nil || string(raw) != "{}" || !date.Equal(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) || s.got[0].Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%q %s %v", raw, date, err)
	}
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), heartbeat.MaxDocument+1))
	}
	if _, _, err := p.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

func TestAStateFileIsItsOwnersOnly(t *testing.T) {
	f := &StateFile{Path: filepath.Join(t.TempDir(), "a", "state.json")}
	if raw, _, err := f.Load(t.Context()); raw != nil || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if _, err := f.Save(t.Context(), []byte(`{"protocol":1}`), ""); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if raw, version, err := f.Load(t.Context()); string(raw) != `{"protocol":1}` || version != "" || err != nil {
		t.Errorf("%q, %q, %v", raw, version, err)
	}
}

// A second process on one state would tell everything twice. A check only looks.
func TestAStateFileIsOfOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	first, second := &StateFile{Path: path}, &StateFile{Path: path}
	if _, _, err := first.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Save(t.Context(), []byte("{}"), ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := second.Load(t.Context()); !errors.Is(err, alert.ErrTaken) || !strings.Contains(err.Error(), "state.json.lock") {
		t.Errorf("a second process may keep it: %v", err)
	}
	if raw, _, err := (&StateFile{Path: path, Glance: true}).Load(t.Context()); string(raw) != "{}" || err != nil {
		t.Errorf("a check: %q, %v", raw, err)
	}
	if err := first.lock.Unlock(); err != nil { // its process has ended
		t.Fatal(err)
	}
	if raw, _, err := second.Load(t.Context()); string(raw) != "{}" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
}

// regrade's image has no certificates of its own.
func TestWithoutCertificatesOfTheMachineTheBuiltInOnesAreTaken(t *testing.T) {
	pool := roots()
	if pool.Equal(x509.NewCertPool()) {
		t.Error("nobody is trusted")
	}
}

func TestGistIDs(t *testing.T) {
	for _, id := range []string{"", "short", "../../../user", strings.Repeat("a", 65), "0123456789abcdef?x"} {
		if CheckGist(id) == nil {
			t.Errorf("%q is taken", id)
		}
	}
	if err := CheckGist("aa5a315d61ae9438b18d"); err != nil {
		t.Error(err)
	}
}

func FuzzParseGist(f *testing.F) {
	f.Add([]byte(`{"files":{"a":{"content":"b"}}}`))
	f.Fuzz(func(_ *testing.T, raw []byte) { _, _ = parseGist(raw, "a") })
}

func FuzzCheckURL(f *testing.F) {
	f.Add("https://host/path?x=y")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := CheckURL(obs.Secret(s))
		if err == nil && (u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http") {
			t.Errorf("%q", s)
		}
	})
}
