package swap

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEveryStateHasALastRow(t *testing.T) {
	rows := map[State][]Row{}
	for _, r := range Table() {
		if !slices.Contains(allStates, r.From) {
			t.Errorf("row %s is of unknown state %q", r.Code, r.From)
		}
		if r.To != "" && !slices.Contains(allStates, r.To) {
			t.Errorf("row %s leads to unknown state %q", r.Code, r.To)
		}
		rows[r.From] = append(rows[r.From], r)
	}
	for _, s := range allStates {
		rs := rows[s]
		if len(rs) == 0 {
			t.Errorf("state %s has no row", s)
			continue
		}
		for i, r := range rs {
			last := i == len(rs)-1
			if (r.when == nil) != last || (r.If == "") != last {
				t.Errorf("row %s of state %s: only the last row of a state is without a condition, and it must be", r.Code, s)
			}
		}
	}
}

func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Table() {
		if r.Code == "" || seen[r.Code] {
			t.Errorf("row code %q of state %s is empty or used twice", r.Code, r.From)
		}
		seen[r.Code] = true
		if r.say == nil {
			t.Errorf("row %s says nothing", r.Code)
		}
		if (r.Do == "") != (r.act == nil) {
			t.Errorf("row %s: Do %q and its action do not go together", r.Code, r.Do)
		}
	}
}

func TestDiagramIsCurrent(t *testing.T) {
	const file = "../../docs/swap-states.md"
	want := Diagram()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(got)) != strings.TrimSpace(want) {
		t.Error("docs/swap-states.md is stale: run make generate")
	}
}
