package fleet

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// R-D1-02.
func TestASwapIDNamesItsMomentAndItsNodes(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 30, 5, 0, time.FixedZone("CET", 3600))
	id := NewSwapID(at, "mini-pc", "board-2")
	if id != "20261129T113005Z-mini-pc-board-2" {
		t.Fatalf("id %s", id)
	}
	if got, err := ParseSwapID(string(id)); err != nil || got != id {
		t.Errorf("parsed %q, %v", got, err)
	}
	if !id.Started().Equal(at) || !id.Is("mini-pc", "board-2") || id.Is("mini", "pc-board-2") && id.Is("x", "y") {
		t.Errorf("started %s", id.Started())
	}
}

func TestAMalformedSwapIDIsRefused(t *testing.T) {
	for _, s := range []string{
		"", "x", "20261129T113005Z", "20261129T113005Z-", "20261129T113005Z-a", "20261129T113005Z-a-", "20261129T113005Z--b",
		"20261129-a-b", "20261129T113005Z-A-b", "20261129T113005Z-a b-c", "20261129T113005Z-a-b\n", "99999999T999999Z-a-b",
		"20261129T113005Z-" + strings.Repeat("a", 600),
	} {
		if id, err := ParseSwapID(s); err == nil {
			t.Errorf("%q is taken as %q", s, id)
		}
	}
}

func FuzzParseSwapID(f *testing.F) {
	f.Add("20261129T113005Z-a-b")
	f.Add("20261129T113005Z--")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseSwapID(s)
		if err == nil && (string(id) != s || id.Started().IsZero()) {
			t.Errorf("%q is taken as %q", s, id)
		}
	})
}

// Ids exceed 2^53 (lab-notes): a document that wrote numbers would corrupt them.
func TestAMemberIDIsHexInDocuments(t *testing.T) {
	type doc struct {
		ID MemberID `json:"id"`
	}
	raw, err := json.Marshal(doc{0xfedcba9876543211})
	if err != nil || string(raw) != `{"id":"fedcba9876543211"}` {
		t.Fatalf("%s, %v", raw, err)
	}
	var back doc
	if err := json.Unmarshal(raw, &back); err != nil || back.ID != 0xfedcba9876543211 {
		t.Errorf("%v, %v", back, err)
	}
	for _, s := range []string{"xyz", "0x1", "-1", "11112222333344445", "1 "} {
		if id, err := ParseMemberID(s); err == nil {
			t.Errorf("%q is taken as %s", s, id)
		}
	}
}

// k3s-facts §3.4.
func TestTheNodeInAMemberName(t *testing.T) {
	for name, want := range map[string]string{"n1-0a1b2c3d": "n1", "mini-pc-0a1b2c3d": "mini-pc", "n1": "", "n1-0a1b2c3": "", "n1-0A1B2C3D": "", "-0a1b2c3d": "", "": "", "n1-0a1b2c3g": ""} {
		got, ok := MemberNodeName(name)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", name, got, ok)
		}
	}
}

func FuzzMemberNodeName(f *testing.F) {
	f.Add("n1-0a1b2c3d")
	f.Fuzz(func(t *testing.T, s string) {
		if node, ok := MemberNodeName(s); ok && (node == "" || len(s) != len(node)+9 || !strings.HasPrefix(s, node)) {
			t.Errorf("%q: node %q", s, node)
		}
	})
}

func TestEnumsRefuseWhatTheyDoNotKnow(t *testing.T) {
	for _, s := range []string{"x", "Server", "server ", "SERVER"} {
		if _, err := ParseRole(s); err == nil {
			t.Errorf("role %q", s)
		}
		if _, err := ParseLevel(s); err == nil {
			t.Errorf("level %q", s)
		}
		if _, err := ParseStep(s); err == nil {
			t.Errorf("step %q", s)
		}
		if _, err := ParseReported(s); err == nil {
			t.Errorf("reported step %q", s)
		}
		if _, err := ParsePhase(s); err == nil {
			t.Errorf("phase %q", s)
		}
	}
	if l, err := ParseLevel(""); err != nil || l != LevelFull {
		t.Errorf("no level is %q, %v", l, err)
	}
}

// R-216-12.
func TestEachStepGoesWithOneRole(t *testing.T) {
	for s, want := range map[Step]Role{StepPromote: RoleServer, StepStepUp: RoleServer, StepStepDown: RoleAgent, StepRollback: RoleAgent} {
		if got := s.DesiredRole(); got != want {
			t.Errorf("%s goes with %s, want %s", s, got, want)
		}
	}
}

func TestKeysStandUnderOnePrefix(t *testing.T) {
	k, err := NewKeys("example.org/")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append(k.SwapAnnotations(), k.Eligible(), k.Pinned(), k.DesiredRole(), k.Level(), k.Cordoned(), k.Taint()) {
		if !strings.HasPrefix(key, "example.org/") {
			t.Errorf("%s is under another prefix", key)
		}
	}
	if k.ForeignSwapKey(k.Swap()) || !k.ForeignSwapKey(DefaultKeys().Swap()) || k.ForeignSwapKey("example.org/x") {
		t.Error("a swap annotation under another prefix is not told from ours")
	}
	if (Keys{}).Prefix() != DefaultPrefix {
		t.Error("zero keys have no prefix")
	}
	for _, bad := range []string{"", "x", "/", "Example.org/", "a b/", "a/b/", "a_b/", "a$b/", "-a/", "a-/", "a..b/", ".a/", "ü/", "a\n/"} {
		if _, err := NewKeys(bad); err == nil {
			t.Errorf("prefix %q is taken", bad)
		}
	}
}
