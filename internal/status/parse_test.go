package status

import (
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/fleet"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func someRecord() Record {
	return Record{
		Protocol: Protocol, Prefix: fleet.DefaultPrefix, ID: fleet.NewSwapID(start, "n1", "n4"), Out: "n1", In: "n4", Started: start,
		ClusterID: 0xc1, OutMember: 0xa1, Voters: []RecordVoter{{Node: "n1", ID: 0xa1, Name: "n1-00000001"}},
	}
}

// Safety rule 25: a record that cannot be read is never taken for no record.
func TestARecordIsReadWholeOrNotAtAll(t *testing.T) {
	if got, err := ParseRecord(someRecord().String()); err != nil || got.ID != someRecord().ID || got.Voters[0].ID != 0xa1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(*Record){
		"another protocol":            func(r *Record) { r.Protocol = 2 },
		"no outgoing node":            func(r *Record) { r.Out = "" },
		"one node twice":              func(r *Record) { r.Out = "n4" },
		"an id of another pair":       func(r *Record) { r.ID = fleet.NewSwapID(start, "n2", "n4") },
		"a malformed id":              func(r *Record) { r.ID = "x-n1-n4" },
		"no cluster id":               func(r *Record) { r.ClusterID = 0 },
		"no voters":                   func(r *Record) { r.Voters = nil },
		"no id of the outgoing voter": func(r *Record) { r.OutMember = 0 },
	} {
		r := someRecord()
		change(&r)
		if got, err := ParseRecord(r.String()); err == nil {
			t.Errorf("%s: taken as %+v", name, got)
		}
	}
	for _, raw := range []string{"", "{", "null", "[]", `{"protocol":"1"}`, strings.Repeat(" ", MaxDocument+1)} {
		if _, err := ParseRecord(raw); err == nil {
			t.Errorf("%.20q is taken", raw)
		}
	}
}

func TestAReportIsCheckedForItsForm(t *testing.T) {
	good := `{"protocol":1,"boot_id":"b","counter":3,"role":"agent","at":"2026-11-29T12:00:00Z","a_later_field":1}`
	if r, err := ParseReport([]byte(good)); err != nil || r.Counter != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, raw := range map[string]string{
		"not JSON":         `{`,
		"no protocol":      `{"boot_id":"b"}`,
		"another protocol": `{"protocol":9,"boot_id":"b"}`,
		"no boot id":       `{"protocol":1}`,
		"a foreign role":   `{"protocol":1,"boot_id":"b","role":"king"}`,
		"a foreign phase":  `{"protocol":1,"boot_id":"b","phase":"soon"}`,
		"a foreign step":   `{"protocol":1,"boot_id":"b","step":"teleport"}`,
		"a foreign level":  `{"protocol":1,"boot_id":"b","level":"low"}`,
		"a malformed swap": `{"protocol":1,"boot_id":"b","swap":"x"}`,
		"an id as number":  `{"protocol":1,"boot_id":"b","member_id":12}`,
		"too large":        `{"protocol":1,"boot_id":"` + strings.Repeat("b", MaxDocument) + `"}`,
	} {
		if r, err := ParseReport([]byte(raw)); err == nil {
			t.Errorf("%s: taken as %+v", name, r)
		}
	}
}

// Safety rule 29: what moves all the time is not worth a write.
func TestAReportIsWrittenOnAChangeOnly(t *testing.T) {
	a := Report{Protocol: Protocol, BootID: "b", Counter: 1, At: start, SkewMS: 120, Etcd: &EtcdView{Linearizable: true, AppliedIndex: 7}}
	b := a
	b.At, b.Counter, b.SkewMS, b.Etcd = start.Add(time.Hour), 2, 900, &EtcdView{Linearizable: true, AppliedIndex: 9000}
	if !a.SameAs(b) {
		t.Error("clock, counter and applied index make a write")
	}
	if a.Etcd.AppliedIndex != 7 || a.SkewMS != 120 {
		t.Error("the comparison changed its subject")
	}
	for name, change := range map[string]func(*Report){
		"etcd stops answering":    func(r *Report) { r.Etcd = &EtcdView{} },
		"another leader":          func(r *Report) { r.Etcd = &EtcdView{Linearizable: true, Leader: 5} },
		"another phase":           func(r *Report) { r.Phase = fleet.PhaseDone },
		"the clock drifts by 10s": func(r *Report) { r.SkewMS = 10_120 },
		"another boot":            func(r *Report) { r.BootID = "c" },
	} {
		c := a
		change(&c)
		if a.SameAs(c) {
			t.Errorf("%s makes no write", name)
		}
	}
}

// R-E2-02, "Bad input": a malformed request.
func TestARequestIsCheckedForItsForm(t *testing.T) {
	if r, err := ParseRequest([]byte(`{"out":"n1","in":"n4","at":"2026-11-29T12:00:00Z"}`)); err != nil || r.Out != "n1" {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := ParseRequest([]byte(`{"protocol":1,"out":"n1","in":"n4","at":"2026-11-29T12:00:00Z"}`)); err != nil || r.Protocol != Protocol {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, raw := range []string{"", "{", "null", `{}`, `{"protocol":2,"out":"n1","in":"n4","at":"2026-11-29T12:00:00Z"}`, `{"out":"n1","in":"n4"}`, `{"out":"n1","in":"n1","at":"2026-11-29T12:00:00Z"}`, `{"out":1,"in":"n4"}`, `{"out":"n1","in":"n4","at":"yesterday"}`,
		`{"out":"N_1","in":"n4","at":"2026-11-29T12:00:00Z"}`, `{"out":"n1","in":"n\n4","at":"2026-11-29T12:00:00Z"}`} {
		if r, err := ParseRequest([]byte(raw)); err == nil {
			t.Errorf("%q is taken as %+v", raw, r)
		}
	}
}

// What the status carries of a request must not keep readers from the status.
func TestARequestsNamesAreBounded(t *testing.T) {
	_, err := ParseRequest([]byte(`{"out":"` + strings.Repeat("a", 200<<10) + `","in":"n4","at":"2026-11-29T12:00:00Z"}`))
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("it says: %.300v", err)
	}
}

// Design §3: a pause is read whole or not at all.
func TestAPauseIsCheckedForItsForm(t *testing.T) {
	if p, err := ParsePause([]byte(`{"protocol":1,"at":"2026-11-29T12:00:00Z","reason":"new switch"}`)); err != nil || p.Words() != "paused since 2026-11-29 12:00:00Z: new switch" {
		t.Fatalf("%+v, %v", p, err)
	}
	long := strings.Repeat("x", MaxPauseReason+1)
	for _, raw := range []string{"", "null", "{}", `{"protocol":1}`, `{"protocol":2,"at":"2026-11-29T12:00:00Z"}`, `{"protocol":1,"at":"2026-11-29T12:00:00Z","reason":"a\u001b[2J"}`, `{"protocol":1,"at":"2026-11-29T12:00:00Z","reason":"` + long + `"}`} {
		if p, err := ParsePause([]byte(raw)); err == nil {
			t.Errorf("%q is taken as %+v", raw, p)
		}
	}
}

func TestAStatusOfAnotherProtocolIsNotRead(t *testing.T) {
	if _, err := ParseStatus([]byte(`{"protocol":1,"swap":null}`)); err != nil {
		t.Error(err)
	}
	for _, raw := range []string{"", "x", `{"protocol":2}`, `{}`} {
		if _, err := ParseStatus([]byte(raw)); err == nil {
			t.Errorf("%q is taken", raw)
		}
	}
}

// A parser never panics, and what it takes it can write and take again.
func FuzzParsers(f *testing.F) {
	f.Add(someRecord().String())
	f.Add(`{"protocol":1,"boot_id":"b","etcd":{"members":[{"id":"a1"}]}}`)
	f.Add(`{"out":"n1","in":"n4","at":"2026-11-29T12:00:00Z"}`)
	f.Fuzz(func(t *testing.T, raw string) {
		if r, err := ParseRecord(raw); err == nil {
			if again, err := ParseRecord(r.String()); err != nil || again.ID != r.ID {
				t.Errorf("a record that was taken is not taken again: %v", err)
			}
		}
		_, _ = ParseReport([]byte(raw))
		_, _ = ParseStatus([]byte(raw))
		_, _ = ParseRequest([]byte(raw))
		_, _ = ParsePause([]byte(raw))
	})
}
