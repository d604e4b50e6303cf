package writer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestLost(t *testing.T) {
	at := time.Unix(0, 0)
	for _, test := range []struct {
		name  string
		acked []write
		there map[string]string
		want  int
	}{
		{"nothing written, nothing lost", nil, nil, 0},
		{"a new object that is there", []write{{object: "a", value: "1", at: at}}, map[string]string{"a": "1"}, 0},
		{"a new object that is not there", []write{{object: "a", value: "1", at: at}}, nil, 1},
		{"an older change is covered by a newer", []write{{object: "a", value: "1", at: at}, {object: "a", value: "2", at: at}}, map[string]string{"a": "2"}, 0},
		{"the last change is gone, the one before came back", []write{{object: "a", value: "1", at: at}, {object: "a", value: "2", at: at}}, map[string]string{"a": "1"}, 1},
		{"a write that failed may have happened", []write{{object: "a", value: "1", at: at}}, map[string]string{"a": "2"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := lost(test.acked, test.there); len(got) != test.want {
				t.Fatalf("got %q, want %d", got, test.want)
			}
		})
	}
}

func TestGap(t *testing.T) {
	second := func(n float64) time.Time { return time.Unix(1000, int64(n*1e9)) }
	w := &Writer{began: second(0), ended: second(10), acked: []write{{at: second(1)}, {at: second(2)}, {at: second(6)}, {at: second(9)}}}
	for _, test := range []struct {
		name     string
		from, to time.Time
		want     time.Duration
	}{
		{"over all", time.Time{}, time.Time{}, 4 * time.Second},
		{"a window before the gap", second(0), second(2), time.Second},
		{"a window that ends in the gap", second(0), second(5), 3 * time.Second},
		{"a window that begins in the gap", second(4), second(9), 3 * time.Second},
		{"a window with no write", second(2.5), second(5.5), 3 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := w.Gap(test.from, test.to); got != test.want {
				t.Fatalf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAFailureIsCountedAndALossIsNamed(t *testing.T) {
	api := fake.NewClientset()
	var calls atomic.Int64
	api.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if _, write := action.(clienttesting.CreateAction); write && calls.Add(1) == 3 {
			return true, nil, errors.New("no")
		}
		return false, nil, nil
	})
	w, err := New(context.Background(), Options{Run: "r", Interval: time.Millisecond}, api, Server{Name: "one", API: api})
	if err != nil {
		t.Fatal(err)
	}
	for w.Acknowledged() < 20 {
		time.Sleep(time.Millisecond)
	}
	w.halt()
	// An acknowledged write vanishes behind the writer's back.
	if err := api.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace, "r-new-00000000"); err != nil {
		t.Fatal(err)
	}
	report, err := w.Stop(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed != 1 || report.Writes < 20 || len(report.Lost) != 1 {
		t.Fatalf("%s: %q %v", report, report.Lost, report.Failures)
	}
}
