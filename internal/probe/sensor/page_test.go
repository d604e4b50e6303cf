package sensor

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fitness"
)

// recorded is a page that a real member of a cluster of three showed.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// small is a page with just what is needed, one peer at one open stream and
// another at two.
const smallPage = `etcd_server_has_leader 1
etcd_server_is_leader 0
etcd_server_is_learner 0
etcd_server_id{server_id="a"} 1
etcd_server_leader_changes_seen_total 1
etcd_server_heartbeat_send_failures_total 2
etcd_server_slow_apply_total 3
etcd_network_known_peers{Local="a",Remote="a"} 1
etcd_network_known_peers{Local="a",Remote="b"} 1
etcd_network_known_peers{Local="a",Remote="c"} 1
etcd_network_known_peers{Local="a",Remote="d"} 0
etcd_network_active_peers{Local="a",Remote="b"} 1
etcd_network_active_peers{Local="a",Remote="c"} 2
etcd_network_active_peers{Local="a",Remote="d"} 0
`

// histogramText is a family with one observation in the bucket so numbered.
func histogramText(name, labels string, first float64, buckets, at, n int, sum float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# TYPE %s histogram\n", name)
	with := func(extra string) string {
		l := strings.Trim(labels+","+extra, ",")
		if l == "" {
			return ""
		}
		return "{" + l + "}"
	}
	for i := range buckets + 1 {
		le, count := "+Inf", 0
		if i < buckets {
			le = fmt.Sprint(first * float64(int(1)<<i))
		}
		if i >= at {
			count = n
		}
		fmt.Fprintf(&b, "%s_bucket%s %d\n", name, with(`le="`+le+`"`), count)
	}
	fmt.Fprintf(&b, "%s_sum%s %v\n%s_count%s %d\n", name, with(""), sum, name, with(""), n)
	return b.String()
}

func whole() string {
	return smallPage + histogramText(walFsync, "", 0.001, 14, 3, 5, 0.03) + histogramText(backendCommit, "", 0.001, 14, 4, 2, 0.03) +
		histogramText(roundTrip, `To="b"`, 0.0001, 16, 2, 1, 0.0003)
}

func TestAMembersPageIsRead(t *testing.T) { // R-185-04, R-185-24
	m, err := ParseMetrics([]byte(whole()))
	if err != nil {
		t.Fatal(err)
	}
	if !m.HasLeader || m.IsLeader || m.IsLearner || m.Member != 0xa {
		t.Errorf("%+v", m.Etcd)
	}
	if m.KnownMembers != 3 || fmt.Sprint(m.Members) != "[a b c]" {
		t.Errorf("it knows %d: %v; a removed member's series stays with 0", m.KnownMembers, m.Members)
	}
	if m.ActivePeers != 2 {
		t.Errorf("%d active peers; two streams are one peer", m.ActivePeers)
	}
	wal := m.WALFsync.Histogram()
	if wal.Counts[3] != 5 || wal.Total() != 5 || wal.Sum != 30*time.Millisecond {
		t.Errorf("WAL fsync %+v", wal)
	}
	if trip := m.RoundTrip[0xb].Histogram(); trip.Counts[2] != 1 {
		t.Errorf("round trip %+v", trip)
	}
	if m.LeaderChanges != 1 || m.SendFailures != 2 || m.SlowApplies != 3 || m.DBSizeBytes != 0 {
		t.Errorf("%+v", m)
	}
}

// Pages that etcd 3.5 and 3.6 showed, as members of clusters of three (R-185-40).
func TestPagesOfRealMembersAreRead(t *testing.T) {
	for _, name := range []string{"etcd-3.5.21-follower", "etcd-3.5.21-leader", "etcd-3.6.6-follower"} {
		t.Run(name, func(t *testing.T) {
			kept, err := wanted(bytes.NewReader(recorded(t, name)))
			if err != nil {
				t.Fatal(err)
			}
			m, err := ParseMetrics(kept)
			if err != nil {
				t.Fatal(err)
			}
			known := 3
			if strings.HasPrefix(name, "etcd-3.5") {
				known = 0 // it has no such gauge
			}
			if !m.HasLeader || m.IsLeader != strings.HasSuffix(name, "leader") || m.IsLearner || m.KnownMembers != known || len(m.Members) != known || m.ActivePeers != 2 {
				t.Errorf("%+v", m.Etcd)
			}
			if m.WALFsync.total() == 0 || m.BackendCommit.total() == 0 || len(m.RoundTrip) != 2 {
				t.Errorf("WAL fsync %d, backend commit %d, %d peers", m.WALFsync.total(), m.BackendCommit.total(), len(m.RoundTrip))
			}
			if m.DBSizeBytes == 0 || m.QuotaBytes != 2<<30 || m.Started == 0 {
				t.Errorf("database %d of %d, started %v", m.DBSizeBytes, m.QuotaBytes, m.Started)
			}
		})
	}
}

func TestTwoRecordedPagesGiveTheGains(t *testing.T) {
	pages := [][]byte{recorded(t, "etcd-3.6.6-follower"), recorded(t, "etcd-3.6.6-follower-20s-later")}
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(pages[min(n, 1)])
		n++
	}))
	defer srv.Close()
	e := &Etcd{URL: srv.URL, Client: NewPageClient(time.Minute)}
	first, err := e.Read(t.Context())
	if err != nil || !first.Restarted || first.Gains != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := e.Read(t.Context())
	if err != nil || second.Restarted || second.Gains == nil {
		t.Fatalf("%+v, %v", second, err)
	}
	// The writer made ten writes a second on one member.
	if got := second.Gains.WALFsync.Total(); got < 50 || got > 1000 {
		t.Errorf("%d WAL fsyncs in 20 s", got)
	}
	if _, ok := second.Gains.WALFsync.Mean(); !ok {
		t.Error("no mean")
	}
}

func TestPagesThatMakeNoSenseAreUnknown(t *testing.T) {
	good := whole()
	without := func(name string) string {
		var b strings.Builder
		for line := range strings.Lines(good) {
			if !strings.HasPrefix(line, name) && !strings.HasPrefix(line, "# TYPE "+name) {
				b.WriteString(line)
			}
		}
		return b.String()
	}
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the page", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, tt := range map[string]struct{ page, code string }{
		"empty":                                {"", CodeIncomplete},
		"no leader gauge":                      {without(hasLeader), CodeIncomplete},
		"no WAL fsync":                         {without(walFsync), CodeIncomplete},
		"no own id":                            {without(serverID), CodeIncomplete},
		"no known member":                      {strings.ReplaceAll(without(knownPeers+`{Local="a",Remote="c"`), `"} 1`, `"} 0`) + serverID + `{server_id="a"} 1` + "\n", CodeIncomplete},
		"a leader gauge of NaN":                {swap(hasLeader+" 1", hasLeader+" NaN"), CodeBadPage},
		"a leader gauge of 2":                  {swap(hasLeader+" 1", hasLeader+" 2"), CodeBadPage},
		"a negative counter":                   {swap(slowApplies+" 3", slowApplies+" -3"), CodeBadPage},
		"an infinite counter":                  {swap(slowApplies+" 3", slowApplies+" +Inf"), CodeBadPage},
		"a known-peers gauge of NaN":           {swap(`Remote="b"} 1`, `Remote="b"} NaN`), CodeBadPage},
		"a peer that is no member id":          {swap(`known_peers{Local="a",Remote="b"`, `known_peers{Local="a",Remote="zzz"`), CodeBadPage},
		"a NaN sum":                            {swap(walFsync+"_sum 0.03", walFsync+"_sum NaN"), CodeBadPage},
		"a negative sum":                       {swap(walFsync+"_sum 0.03", walFsync+"_sum -1"), CodeBadPage},
		"a bucket of NaN":                      {swap(walFsync+`_bucket{le="0.008"} 5`, walFsync+`_bucket{le="0.008"} NaN`), CodeBadPage},
		"a negative bucket":                    {swap(walFsync+`_bucket{le="0.008"} 5`, walFsync+`_bucket{le="0.008"} -5`), CodeBadPage},
		"a bucket lower than the one before":   {swap(walFsync+`_bucket{le="0.016"} 5`, walFsync+`_bucket{le="0.016"} 4`), CodeBadPage},
		"a count that is not the buckets'":     {swap(walFsync+"_count 5", walFsync+"_count 6"), CodeBadPage},
		"other buckets":                        {swap(walFsync+`_bucket{le="0.008"}`, walFsync+`_bucket{le="0.009"}`), CodeBuckets},
		"a bucket less":                        {swap(walFsync+"_bucket{le=\"0.008\"} 5\n", ""), CodeBuckets},
		"no histogram under its name":          {without(walFsync) + walFsync + " 5\n", CodeBadPage},
		"two series where there is one":        {good + hasLeader + `{x="y"} 1` + "\n", CodeBadPage},
		"text that is no metric":               {good + hasLeader + " one\n", CodeBadPage},
		"an unclosed label":                    {good + hasLeader + `{x="y` + "\n", CodeBadPage},
		"more peers than any cluster has":      {good + manyPeers(65), CodeBadPage},
		"a type that contradicts its samples":  {"# TYPE " + hasLeader + " histogram\n" + good, CodeBadPage},
		"a family whose type comes twice":      {good + "# TYPE " + walFsync + " histogram\n", CodeBadPage},
		"a counter larger than a float counts": {swap(slowApplies+" 3", slowApplies+" 1e300"), CodeBadPage},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ParseMetrics([]byte(tt.page))
			f, ok := errors.AsType[*Fault](err)
			if !ok || f.Code != tt.code {
				t.Errorf("got %+v, %v, want %s", m.Etcd, err, tt.code)
			}
		})
	}
}

func manyPeers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s{Local=\"a\",Remote=\"%x\"} 1\n", knownPeers, 0x1000+i)
	}
	return b.String()
}

func TestAPageIsFetchedBounded(t *testing.T) {
	good := whole()
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		code  string
	}{
		"a page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, good) }, ""},
		"what else is on it is not looked at": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "garbage that no parser takes }{\n# HELP x\n"+good+"etcd_other_total NaN\n")
		}, ""},
		"it ends within a line": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.TrimRight(good, "\n")) }, CodeTruncated},
		"it ends before its announced length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(good)+10))
			_, _ = io.WriteString(w, good)
		}, CodeTruncated},
		"it ends between two lines": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, good[:strings.Index(good, "# TYPE")])
		}, CodeIncomplete},
		"it never ends": {func(w http.ResponseWriter, r *http.Request) {
			line := []byte(strings.Repeat("x 1\n", 1<<14))
			for r.Context().Err() == nil {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, CodeTooLarge},
		"a line that never ends": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		}, CodeTooLarge},
		"another page":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello</html>\n") }, CodeIncomplete},
		"not found":       {http.NotFound, CodeNotServed},
		"a redirect":      {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/metrics", http.StatusFound) }, CodeNotServed},
		"it says nothing": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tt.serve)
			defer srv.Close()
			defer srv.CloseClientConnections()
			bound := 30 * time.Second
			if tt.code == CodeTimeout {
				bound = 100 * time.Millisecond
			}
			_, err := ReadEtcd(t.Context(), NewPageClient(bound), srv.URL)
			if got := AbsenceOf(fitness.ReadingEtcd, err).Code; err == nil && tt.code != "" || err != nil && got != tt.code {
				t.Errorf("got %v (%s), want %q", err, got, tt.code)
			}
		})
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	if _, err := ReadEtcd(t.Context(), NewPageClient(time.Minute), srv.URL); AbsenceOf("", err).Code != CodeRefused {
		t.Errorf("nobody listens: %v", err)
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte(whole()))
	f.Add([]byte(smallPage))
	for _, name := range []string{"etcd-3.5.21-leader", "etcd-3.6.6-follower"} {
		kept, err := wanted(bytes.NewReader(recorded(f, name)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kept)
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		kept, err := wanted(bytes.NewReader(page))
		if err != nil {
			return
		}
		m, err := ParseMetrics(kept)
		if err != nil {
			if _, ok := errors.AsType[*Fault](err); !ok {
				t.Errorf("%T", err)
			}
			return
		}
		if m.KnownMembers < 0 || m.ActivePeers < 0 || m.ActivePeers > maxPeers || !(m.SlowApplies >= 0) {
			t.Errorf("%+v", m)
		}
		h := m.WALFsync.Histogram()
		if h.Sum < 0 || !m.goesOn(m, 0) {
			t.Errorf("%+v", h)
		}
		if g := gains(m, m); g.WALFsync.Total() != 0 || len(g.RoundTrip) != 0 {
			t.Errorf("a page gains %+v on itself", g)
		}
	})
}
