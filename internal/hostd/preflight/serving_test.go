package preflight_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/preflight"
)

// A server has a datastore and a member of its own; everything else is asked of it too.
func TestAServerIsAskedWhatAStandbyIsButForItsOwnMember(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *standby)
		code   string
	}{
		"a server in order":            {func(*standby) {}, ""},
		"another flag than the others": {func(s *standby) { s.plant(fleet.FileServerConf+".d/1.yaml", "flannel-backend: vxlan\n") }, preflight.CodeFlags},
		"an agent's token":             {func(s *standby) { s.plant(fleet.FileServerConf+".d/1.yaml", "token: agent-secret\n") }, preflight.CodeWrongToken},
		"another k3s":                  {func(s *standby) { s.k3s = "v1.34.2+k3s1" }, preflight.CodeVersion},
		"a full disk":                  {func(s *standby) { s.free = 1 << 20 }, preflight.CodeDisk},
		"a voter whose port is shut":   {func(s *standby) { s.c.Ports = append(s.c.Ports, shut(s.t)) }, preflight.CodeUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandby(t)
			s.plant(fleet.DefaultDataDir+"/server/db/etcd/name", "n4-0123abcd")
			s.voter.members = strings.Replace(s.voter.members, "n1-0123abcd", "n4-89abcdef", 1)
			c.change(s)
			ps := s.c.Serving(t.Context(), s.in)
			switch {
			case c.code == "" && len(ps) > 0:
				t.Errorf("%+v", ps)
			case c.code != "" && (len(ps) != 1 || ps[0].Code != c.code):
				t.Errorf("%+v, want %s alone", ps, c.code)
			}
		})
	}
}

// Rule 22: what a host's clock is compared with is the Date of each server that answers.
func TestAClockIsComparedWithEachServersDate(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	serve := func(date string) string {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"] = nil
			if date != "" {
				w.Header().Set("Date", date)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	urls := []string{serve(now.Add(-time.Minute).Format(http.TimeFormat)), serve(now.Format(http.TimeFormat)), serve(""), "https://127.0.0.1:" + shut(t)}
	ds := preflight.Dates(t.Context(), urls, func() time.Time { return now })
	if ds[0].Ahead != time.Minute-time.Second/2 || ds[1].Ahead != -time.Second/2 || ds[0].Err != nil || ds[1].Err != nil {
		t.Errorf("%+v", ds)
	}
	if ds[2].Err == nil || ds[3].Err == nil || ds[3].URL != urls[3] {
		t.Errorf("what does not answer has no time: %+v", ds[2:])
	}
}
