package fitness

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// withFailures is a window whose way to b failed as it is told, the oldest first.
func withFailures(why ...Failure) Window {
	w := Window{Node: "n1", BootID: "b", Period: 15 * time.Second, Size: 100}
	for i, y := range why {
		w.Append(Sample{At: began.Add(time.Duration(i) * 15 * time.Second), Connect: []Connect{{To: "a", Took: time.Millisecond}, {To: "b", Failed: true, Why: y}}})
	}
	return w
}

// Issue 6: an entry says of its newest samples whether a host refused a connect or did
// not answer, and a program that knows nothing of that reads it all the same.
func TestAnEntrySaysWhyItsNewestConnectsFailed(t *testing.T) {
	why := make([]Failure, 20)
	for i := range why {
		why[i] = []Failure{Refused, Unanswered, ""}[i%3]
	}
	w := withFailures(why...)
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode("n1", raw)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range got.Samples {
		want := why[i]
		if i < len(why)-toldFailures {
			want = ""
		}
		if c := s.Connect[1]; !c.Failed || c.Why != want || s.Connect[0].Why != "" {
			t.Errorf("sample %d: %+v, want %q", i, s.Connect, want)
		}
	}
	var head map[string]any
	if err := json.Unmarshal(raw, &head); err != nil {
		t.Fatal(err)
	}
	delete(head, "refused")
	delete(head, "unanswered")
	before, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	old, err := Decode("n1", before)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Samples {
		w.Samples[i].Connect[1].Why = ""
	}
	if diff := cmp.Diff(w, old); diff != "" {
		t.Error(diff)
	}
}

// What the head tells of connects that were not made, or did not fail, is not of these
// samples: nothing of such an entry is believed.
func TestFailuresThatDoNotGoWithTheSamplesAreRefused(t *testing.T) {
	w := withFailures(Refused, Unanswered, "")
	for name, c := range map[string]struct{ field, value string }{
		"one that did not fail":    {"refused", `{"a": 1}`},
		"a host that is not there": {"unanswered", `{"c": 1}`},
		"a sample too far back":    {"unanswered", `{"b": 8}`},
		"more samples than told":   {"refused", `{"b": 65536}`},
		"no sample":                {"refused", `{"b": 0}`},
		"both at once":             {"unanswered", `{"b": 6}`},
		"no number":                {"refused", `{"b": "x"}`},
		"less than nothing":        {"refused", `{"b": -1}`},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := w.Encode()
			if err != nil {
				t.Fatal(err)
			}
			var head map[string]json.RawMessage
			if err := json.Unmarshal(raw, &head); err != nil {
				t.Fatal(err)
			}
			head[c.field] = json.RawMessage(c.value)
			bad, err := json.Marshal(head)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode("n1", bad); err == nil {
				t.Errorf("believed: %+v", got)
			}
		})
	}
}
