package project_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/provision/project"
)

// What docker save writes says what it holds and for which machine, wherever in the file its list is.
func TestAnArchiveSaysWhatItHolds(t *testing.T) {
	const list = `[{"Config":"blobs/sha256/ab","RepoTags":["regrade:v1"],"Layers":[]},{"Config":"cd","RepoTags":["both:v1","both:v2"]}]`
	const config = `{"architecture":"arm64","os":"linux"}`
	write := func(packed bool, entries ...[2]string) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, e := range entries {
			if err := w.WriteHeader(&tar.Header{Name: e[0], Mode: 0o644, Size: int64(len(e[1]))}); err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write([]byte(e[1]))
		}
		_ = w.Close()
		if packed {
			var z bytes.Buffer
			g := gzip.NewWriter(&z)
			_, _ = g.Write(b.Bytes())
			_ = g.Close()
			b = z
		}
		file := filepath.Join(t.TempDir(), "images.tar")
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, file := range map[string]string{
		"the list last":  write(false, [2]string{"blobs/sha256/ab", config}, [2]string{"layer", "x"}, [2]string{"manifest.json", list}),
		"the list first": write(true, [2]string{"./manifest.json", list}, [2]string{"./blobs/sha256/ab", config}),
	} {
		a, err := project.ReadArchive(file)
		if err != nil || a.Arch != "arm64" || !slices.Equal(a.Names, []string{"regrade:v1", "both:v1", "both:v2"}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if a, err := project.ReadArchive(write(false, [2]string{"manifest.json", list})); err != nil || a.Arch != "" || len(a.Names) != 3 {
		t.Errorf("without a configuration: %+v, %v", a, err)
	}
	for name, c := range map[string]struct{ file, want string }{
		"no list":      {write(false, [2]string{"index.json", "{}"}), "no manifest.json"},
		"a list of no": {write(false, [2]string{"manifest.json", "[{"}), "manifest.json: "},
		"no names":     {write(false, [2]string{"manifest.json", `[{"Config":"x","RepoTags":null}]`}), "save them by name"},
		"no archive":   {write(false), "no manifest.json"},
		"nothing":      {filepath.Join(t.TempDir(), "nowhere"), "no such file"},
	} {
		if _, err := project.ReadArchive(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
