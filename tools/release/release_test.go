package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var commitTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// checkout is a repository with the parts of ours that go into a release.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS("../../deploy")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "LICENSE"), read(t, "../../LICENSE"))
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "x"}} {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-11-30T12:00:00Z", "GIT_AUTHOR_DATE=2026-11-30T12:00:00Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// staged is a release whose binaries are shell scripts, made from a fresh checkout.
func staged(t *testing.T) *release {
	t.Helper()
	s, err := open(t.Context(), checkout(t), "v1.2.3", false)
	if err != nil {
		t.Fatal(err)
	}
	s.Commit = strings.Repeat("a", 40)
	r := &release{Source: s, arches: arches, dist: t.TempDir(), stage: t.TempDir(), out: io.Discard}
	for _, a := range arches {
		write(t, r.binary(a), "#!/bin/sh\necho regrade "+a.name+"\n")
		if err := os.Chmod(r.binary(a), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(r.stage, noticesFile), "notices\n")
	for _, step := range []func(context.Context) error{r.pages, r.archives, r.packages, r.images, r.chart, r.sums} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestARelease(t *testing.T) {
	r := staged(t)

	t.Run("is the same, byte for byte, when it is made again elsewhere", func(t *testing.T) {
		again := staged(t)
		if a, b := read(t, filepath.Join(r.dist, sumsFile)), read(t, filepath.Join(again.dist, sumsFile)); a != b {
			t.Errorf("%s\n%s", a, b)
		}
	})

	t.Run("has a sum of every file", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--strict", "-c", sumsFile)
		cmd.Dir = r.dist
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		entries, err := os.ReadDir(r.dist)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), ": OK\n"); n != len(entries)-1 || n != 14 {
			t.Errorf("%d sums of %d files:\n%s", n, len(entries), out)
		}
	})

	t.Run("has an archive with the program, its pages and its licences", func(t *testing.T) {
		files := untar(t, unzip(t, read(t, filepath.Join(r.dist, "regrade-v1.2.3-linux-armv7.tar.gz"))), "regrade-v1.2.3-linux-armv7/")
		if files["regrade"] != "#!/bin/sh\necho regrade armv7\n" {
			t.Errorf("%q", files["regrade"])
		}
		for _, name := range []string{"LICENSE", noticesFile, "man/regrade.1", "man/regrade-host-setup.1", "completions/regrade.bash", "completions/_regrade", "completions/regrade.fish", "deploy/units/regrade-host.service", "deploy/compose/compose.yaml"} {
			if files[name] == "" {
				t.Errorf("no %s", name)
			}
		}
		if page := files["man/regrade-swap.1"]; !strings.Contains(page, "regrade v1.2.3") || !strings.Contains(page, "Nov 2026") {
			t.Errorf("%s", page)
		}
	})

	t.Run("has a chart of its own version", func(t *testing.T) {
		files := untar(t, unzip(t, read(t, filepath.Join(r.dist, "regrade-1.2.3.tgz"))), "regrade/")
		if c := files["Chart.yaml"]; !strings.Contains(c, "\nversion: 1.2.3\n") || !strings.Contains(c, "\nappVersion: v1.2.3\n") {
			t.Errorf("%s", c)
		}
		if files["values.yaml"] == "" || files["templates/controller.yaml"] == "" {
			t.Error("not whole")
		}
	})

	t.Run("has an image that is what the Dockerfile says", func(t *testing.T) { imageIsWhole(t, r) })
	t.Run("has shell completions that bash reads", func(t *testing.T) {
		if out, err := exec.CommandContext(t.Context(), "bash", "-n", filepath.Join(r.stage, "completions/regrade.bash")).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("has a Debian package", func(t *testing.T) { debian(t, r) })
	t.Run("has an rpm", func(t *testing.T) { anRPM(t, r) })
}

// imageIsWhole follows an image from its index down, each blob by its sum.
func imageIsWhole(t *testing.T, r *release) {
	for name, want := range map[string][]string{
		r.name(arches[1], ".image.tar"): {"arm64"}, "regrade-v1.2.3.image.tar": {"amd64", "arm64", "arm/v7"},
	} {
		files := untar(t, read(t, filepath.Join(r.dist, name)), "")
		get := func(digest string, size int) string {
			content := files[blob(digest)]
			if got := (layout{}).add([]byte(content)); got != digest || len(content) != size {
				t.Fatalf("%s: %s of %d bytes is %s", name, digest, size, got)
			}
			return content
		}
		var top index
		decode(t, files["index.json"], &top)
		d := top.Manifests[0]
		if d.Annotations["io.containerd.image.name"] != "ghcr.io/exadev/regrade:v1.2.3" {
			t.Errorf("%s: %v", name, d.Annotations)
		}
		manifests := top.Manifests
		if d.MediaType == typeIndex {
			var all index
			decode(t, get(d.Digest, d.Size), &all)
			manifests = all.Manifests
		}
		var got []string
		for _, d := range manifests {
			var m manifest
			decode(t, get(d.Digest, d.Size), &m)
			var c config
			decode(t, get(m.Config.Digest, m.Config.Size), &c)
			layer := unzip(t, get(m.Layers[0].Digest, m.Layers[0].Size))
			if c.RootFS.DiffIDs[0] != (layout{}).add([]byte(layer)) {
				t.Errorf("%s: the layer is not that of its config", name)
			}
			in := untar(t, layer, "")
			if in["usr/local/bin/regrade"] == "" || in["usr/share/doc/regrade/LICENSE"] == "" || in["usr/share/doc/regrade/"+noticesFile] == "" {
				t.Errorf("%s: %v", name, in)
			}
			if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/usr/local/bin/regrade"}) || !slices.Equal(c.Config.Env, []string{"PATH=/usr/local/bin"}) {
				t.Errorf("%s: %+v", name, c.Config)
			}
			machine := d.Platform.Architecture
			if d.Platform.Variant != "" {
				machine += "/" + d.Platform.Variant
			}
			got = append(got, machine)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is for %v, want %v", name, got, want)
		}
		if (files["manifest.json"] != "") != (len(want) == 1) {
			t.Errorf("%s: docker's own form %q", name, files["manifest.json"])
		}
	}
}

func decode(t *testing.T, raw string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
}

func unzip(t *testing.T, raw string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// untar are the files below a folder, every one of which is root's and of the commit's
// time.
func untar(t *testing.T, raw, below string) map[string]string {
	t.Helper()
	out := map[string]string{}
	r := tar.NewReader(strings.NewReader(raw))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(commitTime) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %v, %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, r); err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(h.Name, below); ok && h.Typeflag == tar.TypeReg {
			out[name] = b.String()
		}
	}
}

func TestWhatIsNoSourceIsRefused(t *testing.T) {
	dir := checkout(t)
	for _, v := range []string{"", "1.2.3", "v1.2", "v01.2.3", "v1.2.3 ", "v1.2.3-", "v1.2.3+x", "latest"} {
		if _, err := open(t.Context(), dir, v, false); err == nil || !strings.Contains(err.Error(), "want one like v1.2.3") {
			t.Errorf("%q: %v", v, err)
		}
	}
	s, err := open(t.Context(), dir, "v1.2.3-rc.1", false)
	if err != nil || !s.Time.Equal(commitTime) || len(s.Commit) != 40 || s.Number() != "1.2.3-rc.1" {
		t.Errorf("%+v %v", s, err)
	}
	write(t, filepath.Join(dir, "more"), "x")
	if _, err := open(t.Context(), dir, "v1.2.3", false); err == nil || !strings.Contains(err.Error(), "?? more") {
		t.Errorf("%v", err)
	}
	if _, err := open(t.Context(), dir, "v1.2.3", true); err != nil {
		t.Error(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	if s, err := open(t.Context(), dir, "v1.2.3", true); err != nil || s.Time.Unix() != 1_000_000_000 {
		t.Errorf("%v %v", s.Time, err)
	}
}

// The binaries are built so that neither the folder nor the machine is in them. The
// product is compared by `make reproducible`; this is the same command on a program of
// three lines.
func TestAProgramIsTheSameFromAnotherFolder(t *testing.T) {
	var sums []string
	for _, name := range []string{"one", "another/and-a-longer-one"} {
		dir := filepath.Join(t.TempDir(), name)
		write(t, filepath.Join(dir, "go.mod"), "module example.com/x\n\ngo 1.26.0\n")
		write(t, filepath.Join(dir, "cmd", "main.go"), "package main\n\nfunc main() { panic(\"here\") }\n")
		to := filepath.Join(t.TempDir(), "program")
		if err := build(t.Context(), dir, "./cmd", "v1.2.3", to, arches[0]); err != nil {
			t.Fatal(err)
		}
		sum, err := sumOf(to)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(read(t, to), dir) {
			t.Errorf("the folder is in it")
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Errorf("%v", sums)
	}
}

func TestADockerfileThatSaysMoreIsNotHalfRead(t *testing.T) {
	const whole = "# x\nFROM scratch\nCOPY bin/regrade /bin/regrade\nUSER 1:1\nENTRYPOINT [\"/bin/regrade\"]\n"
	if im, err := readDockerfile([]byte(whole)); err != nil || im.binary != "bin/regrade" || im.User != "1:1" {
		t.Errorf("%+v %v", im, err)
	}
	for _, bad := range []string{whole + "RUN x\n", whole + "WORKDIR /\n", whole + "COPY a /a\n", strings.Replace(whole, "FROM scratch", "FROM debian", 1), strings.Replace(whole, "USER 1:1\n", "", 1), whole + "ENTRYPOINT x\n"} {
		if _, err := readDockerfile([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
