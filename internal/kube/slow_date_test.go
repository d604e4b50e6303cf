package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Safety rule 22: what is compared is the Date of the server that answered the request,
// not that of one which was only asked beside it whether it is ready, said no, and whose
// host has a clock of its own.
func TestAServerThatIsOnlyComparedGivesNoDate(t *testing.T) {
	used := newAPI(t, 1)
	used.delay.Store(int64(30 * time.Millisecond))
	asked := make(chan struct{}, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC).Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
		asked <- struct{}{}
	}))
	t.Cleanup(other.Close)
	conn := connectTo(t, used.URL, other.URL)
	conn.Transport.pace.limit, conn.Transport.pace.every = 10*time.Millisecond, 0
	api := newHostAPI(conn, conn, HostOptions{Node: "n0"})
	want, err := http.ParseTime(date)
	if err != nil {
		t.Fatal(err)
	}
	// A comparison ends with the first answer, perhaps before the other was reached.
	for n := 0; len(asked) == 0; n++ {
		if n == 1000 {
			t.Fatal("the servers were not compared")
		}
		if _, err := api.ListNodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := conn.Transport.Date(); !got.Equal(want) {
			t.Fatalf("the Date is %s, the server that is used says %s", got, want)
		}
	}
}
