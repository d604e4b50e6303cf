package chart_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exadev/regrade/internal/cli/chart"
)

var update = flag.Bool("update", false, "write the chart's files anew")

const folder = "../../../deploy/chart/regrade"

// What is written by hand.
var byHand = []string{"Chart.yaml", "templates/NOTES.txt", "templates/_helpers.tpl", "templates/heartbeat-runners.yaml"}

// The chart in the tree is the one of the program: nothing is missing, old, or left over.
func TestTheChartIsCurrent(t *testing.T) {
	files, err := chart.Files()
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(maps.Keys(files))
	if *update {
		for _, name := range want {
			if err := os.WriteFile(filepath.Join(folder, name), files[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range want {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(files[name]), string(got)); diff != "" {
			t.Errorf("%s is not current; make generate (-want +got):\n%s", name, diff)
		}
	}
	var there []string
	for _, pattern := range []string{"*", "templates/*"} {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			rel, err := filepath.Rel(folder, p)
			if err != nil {
				t.Fatal(err)
			}
			if rel != "templates" {
				there = append(there, rel)
			}
		}
	}
	slices.Sort(there)
	all := append(slices.Clone(want), byHand...)
	slices.Sort(all)
	if diff := cmp.Diff(all, there); diff != "" {
		t.Errorf("files of the chart (-want +got):\n%s", diff)
	}
}

// Safety rule 25: an upgrade may replace what is in a chart, and a removal deletes it.
func TestNoLiveObjectIsInTheChart(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil || len(paths) < 8 {
		t.Fatal(paths, err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"ConfigMap", "Namespace", "Lease"} {
			if strings.Contains(string(raw), `kind: "`+kind+`"`) || strings.Contains(string(raw), "kind: "+kind+"\n") {
				t.Errorf("%s has a %s", p, kind)
			}
		}
	}
}

// A setting that is found by another one, where it is not set, is found so by the chart
// too: a new one of that kind needs its place in the package's table of those.
func TestWhichSettingsFollowOthers(t *testing.T) {
	got, err := chart.Follow()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"cooldown": {"learner-stall", "period", "window"}, "take-over": {"period"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
