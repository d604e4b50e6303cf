package sensor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// etcdAt serves a page that a test changes.
func etcdAt(t *testing.T) (*Etcd, func(page string)) {
	t.Helper()
	current := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(current)) }))
	t.Cleanup(srv.Close)
	return &Etcd{URL: srv.URL, Client: NewPageClient(time.Minute)}, func(page string) { current = page }
}

func page(wal, trips int, changes float64, started string) string {
	p := strings.Replace(smallPage, leaderChanges+" 1", fmt.Sprintf("%s %v", leaderChanges, changes), 1)
	p += histogramText(walFsync, "", 0.001, 14, 3, wal, float64(wal)*0.008) + histogramText(backendCommit, "", 0.001, 14, 4, 2, 0.03)
	if trips >= 0 {
		p += histogramText(roundTrip, `To="b"`, 0.0001, 16, 2, trips, float64(trips)*0.0003)
	}
	if started != "" {
		p += processStarted + " " + started + "\n"
	}
	return p
}

func TestACounterThatWentBackIsARestartAndNoGain(t *testing.T) { // issue 4, R-185-04
	now := time.Now()
	began := func(ago time.Duration) string { return fmt.Sprintf("%d", now.Add(-ago).Unix()) }
	for name, tt := range map[string]struct {
		before, after string
		restarted     bool
		wal           uint64
		trips         int
	}{
		"everything goes on":                            {page(5, 1, 1, ""), page(9, 3, 1, ""), false, 4, 1},
		"nothing happened":                              {page(5, 1, 1, ""), page(5, 1, 1, ""), false, 0, 0},
		"a histogram went back":                         {page(5, 1, 1, ""), page(2, 3, 1, ""), true, 0, 0},
		"a counter went back":                           {page(5, 1, 3, ""), page(9, 3, 1, ""), true, 0, 0},
		"a peer's histogram went back":                  {page(5, 4, 1, ""), page(9, 3, 1, ""), true, 0, 0},
		"a peer was removed":                            {page(5, 4, 1, ""), page(9, -1, 1, ""), false, 4, 0},
		"a peer is new":                                 {page(5, -1, 1, ""), page(9, 2, 1, ""), false, 4, 1},
		"a younger process with larger counters":        {page(5, 1, 1, began(time.Hour)), page(9, 3, 1, began(time.Minute)), true, 0, 0},
		"the same process":                              {page(5, 1, 1, began(time.Hour)), page(9, 3, 1, began(time.Hour)), false, 4, 1},
		"the kernel's boot time is off by some seconds": {page(5, 1, 1, began(time.Hour)), page(9, 3, 1, began(time.Hour-4*time.Second)), false, 4, 1},
		"another member":                                {page(5, 1, 1, ""), strings.ReplaceAll(strings.Replace(page(9, 3, 1, ""), `server_id="a"`, `server_id="e"`, 1), `Local="a"`, `Local="e"`), true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, serve := etcdAt(t)
			serve(tt.before)
			if r, err := e.Read(t.Context()); err != nil || !r.Restarted {
				t.Fatalf("the first reading: %+v, %v", r, err)
			}
			serve(tt.after)
			r, err := e.Read(t.Context())
			if err != nil || r.Restarted != tt.restarted || (r.Gains == nil) != tt.restarted {
				t.Fatalf("%+v, %v", r, err)
			}
			if !tt.restarted && (r.Gains.WALFsync.Total() != tt.wal || len(r.Gains.RoundTrip) != tt.trips) {
				t.Errorf("%+v", r.Gains)
			}
		})
	}
}

func TestAPageThatCouldNotBeReadLosesNoGain(t *testing.T) {
	e, serve := etcdAt(t)
	for _, p := range []string{page(5, 1, 1, ""), "nonsense"} {
		serve(p)
		_, _ = e.Read(t.Context())
	}
	serve(page(9, 1, 1, ""))
	if r, err := e.Read(t.Context()); err != nil || r.Gains == nil || r.Gains.WALFsync.Total() != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	e.Forget()
	if r, err := e.Read(t.Context()); err != nil || !r.Restarted {
		t.Errorf("after it was forgotten: %+v, %v", r, err)
	}
}
