package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exadev/regrade/internal/bundle"
	"github.com/exadev/regrade/internal/bundle/bundletest"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestABundleHasItsPartsAndAManifest(t *testing.T) {
	var out bytes.Buffer
	b := bundle.New(&out, "regrade-support-n1", noon, "hush-hush")
	b.Add("a.txt", "the first", []byte("it says hush-hush"))
	b.Add("a.txt", "another of that name", []byte("two"))
	b.Add("../../etc/x y", "a name that leads out", []byte("three"))
	b.Add(bundle.Manifest, "a part that would be the manifest", []byte("four"))
	b.Leave("b.txt", "it was hush-hush")
	b.Part("c.txt", "what cannot be read", func() ([]byte, error) { return nil, errors.New("EIO") })
	b.Part("d.txt", "read", func() ([]byte, error) { return []byte("d"), nil })
	b.Add("long.log", "a long one", []byte("begin"+strings.Repeat("x", bundle.MaxPart)+"end"))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	parts := bundletest.Read(t, out.Bytes())
	for name, want := range map[string]string{"a.txt": "it says ***", "a.txt_": "two", "etc/x_y": "three", "MANIFEST.txt_": "four", "d.txt": "d"} {
		if got := parts["regrade-support-n1/"+name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if long := parts["regrade-support-n1/long.log"]; !strings.HasSuffix(long, "end") || strings.Contains(long, "begin") || !strings.HasPrefix(long, "[the first 8 bytes are left out]") {
		t.Errorf("%.60q", long)
	}
	m := parts["regrade-support-n1/MANIFEST.txt"]
	for _, want := range []string{"Made 2026-11-29T12:00:00Z", "a.txt: the first\n", "b.txt: it was ***\n", "c.txt: EIO\n", "long.log: a long one, its beginning left out\n", "secrets: "} {
		if !strings.Contains(m, want) {
			t.Errorf("the manifest lacks %q:\n%s", want, m)
		}
	}
}

func TestABundleHasABound(t *testing.T) {
	var out bytes.Buffer
	b := bundle.New(&out, "f", noon)
	part := bytes.Repeat([]byte("x"), bundle.MaxPart)
	for range bundle.MaxWhole/bundle.MaxPart + 1 {
		b.Add("p", "", part)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	parts := bundletest.Read(t, out.Bytes())
	if n := len(parts); n != bundle.MaxWhole/bundle.MaxPart+1 || !strings.Contains(parts["f/MANIFEST.txt"], "would be more than 64 MiB") {
		t.Errorf("%d parts", n)
	}
}

// What a host hands over is masked here once more, and stays in its folder.
func TestABundleTakesAnother(t *testing.T) {
	var inner, out bytes.Buffer
	a := bundle.New(&inner, "of-a-host", noon)
	a.Add("x.txt", "", []byte("known here: hush-hush"))
	b := bundle.New(&out, "all", noon, "hush-hush")
	if err := errors.Join(a.Close(), b.Take("hosts/n1", inner.Bytes()), b.Close()); err != nil {
		t.Fatal(err)
	}
	parts := bundletest.Read(t, out.Bytes())
	if parts["all/hosts/n1/x.txt"] != "known here: ***" || parts["all/hosts/n1/MANIFEST.txt"] == "" {
		t.Errorf("%v", parts)
	}
	if err := bundle.New(&out, "all", noon).Take("n2", []byte("no archive")); err == nil || !strings.Contains(err.Error(), "n2") {
		t.Errorf("what is no bundle is taken: %v", err)
	}
}

// A few KiB of a hostile host's unpack to as many parts as it likes.
func TestABundleTakesNoMillionParts(t *testing.T) {
	var inner, out bytes.Buffer
	z := gzip.NewWriter(&inner)
	w := tar.NewWriter(z)
	for n := range 1500 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("h/%d", n), Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	b := bundle.New(&out, "all", noon)
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if err := b.Take("hosts/n1", inner.Bytes()); err == nil || !strings.Contains(err.Error(), "more than 1000 parts") {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(bundletest.Read(t, out.Bytes())); n != 1001 {
		t.Errorf("%d parts", n)
	}
}

func TestAFileTakesNothingsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	f, err := bundle.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || f.Path() != path {
		t.Errorf("%v %v %s", info, err, f.Path())
	}
	if _, err := bundle.Open(path, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there is written over: %v", err)
	}
	if err := f.Close(errors.New("no room")); err == nil || err.Error() != "no room" {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error("what could not be written to its end is still there")
	}
	var out bytes.Buffer
	f, err = bundle.Open("-", &out)
	if err != nil || f.Path() != "" || f.Close(nil) != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "-" }) {
		t.Error("- is a file")
	}
}
