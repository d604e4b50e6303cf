package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/exadev/regrade/internal/platform/atomicfile"
)

func TestWriteMakesFoldersAndReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "file")
	for _, content := range []string{"one\n", "two\n"} {
		if err := atomicfile.Write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("read %q, %v; want %q", got, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWriteOfTheSameContentKeepsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Write(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if err := atomicfile.Write(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(path)
	if !os.SameFile(before, after) {
		t.Error("the file was replaced")
	}
}

// A secret that is written over a file which others may read is not theirs to read. The
// break check: renameio.WriteFile.
func TestWriteGivesTheModeToAFileThatIsThere(t *testing.T) { // safety rule 31
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"old", "new", "new"} {
		if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
		}
	}
}

func TestRemoveTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Write(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := atomicfile.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
