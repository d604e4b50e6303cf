package quorum

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/exadev/regrade/internal/fleet"
)

func TestNeedAndTolerance(t *testing.T) {
	for _, tt := range []struct{ n, need, tolerance int }{{0, 1, 0}, {1, 1, 0}, {2, 2, 0}, {3, 2, 1}, {4, 3, 1}, {5, 3, 2}, {7, 4, 3}} {
		if Need(tt.n) != tt.need || Tolerance(tt.n) != tt.tolerance {
			t.Errorf("%d voters: need %d, tolerance %d; want %d, %d", tt.n, Need(tt.n), Tolerance(tt.n), tt.need, tt.tolerance)
		}
	}
}

func members(spec string) []Member {
	var ms []Member
	for i, c := range spec {
		ms = append(ms, Member{ID: fleet.MemberID(i + 1), Up: c == 'u' || c == 'l', Learner: c == 'l' || c == 'd'})
	}
	return ms
}

// Safety rule 2. In a spec u is a voter that is up, x one that is down, l a
// learner that is up, d one that is down.
func TestMayJudgesWhatAChangeWouldLeave(t *testing.T) {
	tests := map[string]struct {
		spec   string
		change Change
		want   string
	}{
		"adding a fourth to three healthy voters is safe though it may fail":  {"uuu", Change{Kind: Add}, ""},
		"adding to three voters with one down is refused":                     {"uux", Change{Kind: Add}, CodeNoQuorumAfter},
		"removing one of four healthy voters is safe":                         {"uuuu", Change{Kind: Remove, ID: 1}, ""},
		"removing the one that is down of four is safe":                       {"xuuu", Change{Kind: Remove, ID: 1}, ""},
		"removing a healthy one of four with one down leaves two of three":    {"uuux", Change{Kind: Remove, ID: 1}, ""},
		"removing from four with two down finds no quorum":                    {"uuxx", Change{Kind: Remove, ID: 1}, CodeNoQuorumNow},
		"removing one of three with another down is refused":                  {"uux", Change{Kind: Remove, ID: 1}, CodeNoQuorumAfter},
		"removing the one that is down of three is arithmetically safe":       {"uux", Change{Kind: Remove, ID: 3}, ""},
		"removing at two voters is never allowed":                             {"uu", Change{Kind: Remove, ID: 1}, CodeTwoVoters},
		"removing the last voter is never allowed":                            {"u", Change{Kind: Remove, ID: 1}, CodeTwoVoters},
		"removing a learner is no change to the quorum":                       {"uud", Change{Kind: Remove, ID: 3}, ""},
		"removing a learner without a quorum is refused":                      {"uxxd", Change{Kind: Remove, ID: 4}, CodeNoQuorumNow},
		"removing somebody who is no member changes nothing":                  {"uuu", Change{Kind: Remove, ID: 9}, ""},
		"restarting one of four needs the other three":                        {"uuuu", Change{Kind: Restart, ID: 1}, ""},
		"restarting one of four with the newcomer down is refused":            {"uuux", Change{Kind: Restart, ID: 1}, CodeNoQuorumAfter},
		"restarting one of three keeps two":                                   {"uuu", Change{Kind: Restart, ID: 1}, ""},
		"a learner never counts as a voter":                                   {"uul", Change{Kind: Restart, ID: 1}, CodeNoQuorumAfter},
		"no members at all have no quorum":                                    {"", Change{Kind: Add}, CodeNoQuorumNow},
		"a voter of five that is down does not hold the removal of another":   {"uuuux", Change{Kind: Remove, ID: 1}, ""},
		"restarting one of six with two down leaves too few":                  {"uuuuxx", Change{Kind: Restart, ID: 1}, CodeNoQuorumAfter},
		"restarting a voter that is down changes nothing, three of four stay": {"xuuu", Change{Kind: Restart, ID: 1}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ref, ok := May(members(tt.spec), tt.change)
			if ok != (tt.want == "") || ref.Code != tt.want {
				t.Errorf("refusal %+v, want %q", ref, tt.want)
			}
			if !ok && ref.Sentence == "" {
				t.Error("a refusal without a sentence")
			}
		})
	}
}

// Whatever is allowed leaves a quorum, and a removal never leaves fewer than
// two voters.
func TestWhatIsAllowedLeavesAQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := members(rapid.StringMatching(`[uxld]{0,7}`).Draw(t, "members"))
		c := Change{
			Kind: rapid.SampledFrom([]Kind{Add, Remove, Restart}).Draw(t, "kind"),
			ID:   fleet.MemberID(rapid.IntRange(1, 8).Draw(t, "id")),
		}
		if _, ok := May(ms, c); !ok {
			return
		}
		after := Project(ms, c)
		if !after.Safe() {
			t.Fatalf("%+v of %+v leaves %s", c, ms, after)
		}
		if c.Kind == Remove && after.Voters < 2 && after.Voters != Now(ms).Voters {
			t.Fatalf("a removal leaves %d voters", after.Voters)
		}
	})
}

// Two routes to one membership agree: adding, then removing another, is the
// same voters as a swap in one step.
func TestAddAndRemoveCommute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := members(rapid.StringMatching(`[ux]{1,7}`).Draw(t, "members"))
		out := Change{Kind: Remove, ID: 1}
		added := append(append([]Member{}, ms...), Member{ID: 99})
		a := Project(added, out)
		var rest []Member
		for _, m := range ms {
			if m.ID != 1 {
				rest = append(rest, m)
			}
		}
		if b := Project(rest, Change{Kind: Add}); a != b {
			t.Fatalf("%s and %s", a, b)
		}
	})
}
