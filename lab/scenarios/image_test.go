package scenarios

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/exadev/regrade/lab/cluster"
)

// imageLimit is what the product's image may weigh, compressed (issue 5).
const imageLimit = 25 << 20

// checkImage: the product's image is one program, which runs, and no shell; and it
// is small (R-228-33).
func (s *scenario) checkImage(name string) {
	s.t.Helper()
	const saved = "/srv/regrade.tar"
	s.docker(name, "save", "-o", saved, cluster.RegradeImage)
	content, err := s.Host(name).ReadFile(saved)
	s.must(err)
	s.must(s.Host(name).Remove(saved))
	files, size := imageFiles(s.t, content)
	s.Logf("the image is %.1f MB compressed and holds %s", float64(size)/1e6, strings.Join(files, " "))
	if size > imageLimit {
		s.t.Errorf("the image is %d bytes compressed, more than %d", size, imageLimit)
	}
	if !slices.Equal(files, []string{"usr/local/bin/regrade"}) {
		s.t.Errorf("the image holds %v", files)
	}
	if out := s.docker(name, "run", "--rm", "--network", "none", cluster.RegradeImage, "version"); !strings.Contains(out, "regrade") {
		s.t.Errorf("regrade version in the image says %q", out)
	}
	if out, err := s.Docker(s.t.Context(), s.Host(name), "run", "--rm", "--network", "none", "--entrypoint", "sh", cluster.RegradeImage); err == nil {
		s.t.Errorf("there is a shell in the image: %q", out)
	}
}

// imageFiles are the files in all layers of a saved image, and the layers' size as a
// registry would keep them.
func imageFiles(t *testing.T, saved []byte) (files []string, size int) {
	t.Helper()
	parts := untar(t, saved)
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(parts["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("the saved image has the manifest %q: %v", parts["manifest.json"], err)
	}
	for _, layer := range manifest[0].Layers {
		for name := range untar(t, parts[layer]) {
			files = append(files, name)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(parts[layer]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		size += packed.Len()
	}
	slices.Sort(files)
	return files, size
}

// untar gives the regular files of an archive.
func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = content
	}
}
