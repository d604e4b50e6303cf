package fitness

import (
	"math/rand"
	"testing"
)

func TestAReaderKeepsWhatHasNotChanged(t *testing.T) {
	w := worst("n1", false, rand.New(rand.NewSource(1)))
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var r Reader
	first, problem := r.Read("n1", string(raw))
	if problem != nil || len(first.Samples) != DefaultSize {
		t.Fatal(problem)
	}
	if again, _ := r.Read("n1", string(raw)); again != first {
		t.Error("the same entry is read twice")
	}
	if _, problem := r.Read("n1", string(raw[:100])); problem == nil || problem.Code != CodeEntryMalformed {
		t.Errorf("half an entry: %v", problem)
	}
	if back, problem := r.Read("n1", string(raw)); problem != nil || back == first || len(back.Samples) != DefaultSize {
		t.Errorf("it is not read anew: %v", problem)
	}
	if _, problem := r.Read("n2", string(raw)); problem == nil || problem.Code != CodeEntryNode {
		t.Errorf("another node's entry: %v", problem)
	}
	r.Keep(map[string]bool{"n1": true})
	if len(r.read) != 1 {
		t.Errorf("%d entries are kept", len(r.read))
	}
}
