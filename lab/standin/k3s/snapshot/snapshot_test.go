package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNamesFollowBaseNodeAndTime(t *testing.T) {
	at := time.Unix(1700000000, 0)
	if got := FileName("on-demand", "N1.example", at); got != "on-demand-N1.example-1700000000" {
		t.Errorf("got %s", got)
	}
	f := File{Name: "Before-n1-1700000000", Node: "n1", Path: "/s/Before-n1-1700000000", Created: at}
	got := ObjectName(f)
	if !strings.HasPrefix(got, "local-before-n1-1700000000-") || len(got) != len("local-before-n1-1700000000-")+6 {
		t.Errorf("got %s", got)
	}
	f.Name = "under_score-n1-1700000000.zip"
	if got := ObjectName(f); !strings.HasPrefix(got, "local-etcd-snapshot-n1-1700000000.zip-") {
		t.Errorf("an unusable name: got %s", got)
	}
}

func TestSnapshotsAreListedOldestFirstWithTheirMetadata(t *testing.T) {
	dir := t.TempDir()
	meta := filepath.Join(dir, ".metadata")
	for _, n := range []string{"etcd-snapshot-n1-30", "etcd-snapshot-n1-10", "etcd-snapshot-n1-20", "note.txt", "other-n1-15", "x-n1-5.part"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeMetadata(meta, File{Name: "other-n1-15", Node: "n1", TokenHash: "abc"}); err != nil {
		t.Fatal(err)
	}
	files, err := List(dir, meta, "n1")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v %v", files, err)
	}
	if files[0].Name != "etcd-snapshot-n1-10" || files[1].TokenHash != "abc" {
		t.Errorf("got %+v", files)
	}
	drop := Prune(files, "etcd-snapshot", "n1", 2)
	if len(drop) != 1 || drop[0].Name != "etcd-snapshot-n1-10" {
		t.Errorf("got %v", drop)
	}
	if Prune(files, "other", "n1", 2) != nil {
		t.Error("retention counts each base name alone")
	}
}
