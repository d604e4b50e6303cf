package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one to be packed. Its folders are packed with it.
type file struct {
	name    string // with slashes, relative
	mode    fs.FileMode
	content []byte
}

// pack writes files as a tar: sorted, root's, all of one time.
func pack(w io.Writer, files []file, at time.Time) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, f := range files {
		var parents []string
		for dir := path.Dir(f.name); !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			parents = append(parents, dir)
		}
		slices.Reverse(parents)
		for _, dir := range parents {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR}); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := t.Write(f.content); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return t.Close()
}

// packGzip is the same, compressed.
func packGzip(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := pack(z, files, at); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// zipped is a file's content compressed, without name and time.
func zipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// readTree are the files below a folder, named below another; what runs keeps its bit.
func readTree(dir, below string) (out []file, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		out = append(out, file{path.Join(below, filepath.ToSlash(rel)), mode, content})
		return nil
	})
	return out, err
}

// archives hold what a host without packages needs.
func (r *release) archives(context.Context) error {
	for _, a := range r.arches {
		top := r.name(a, "")
		files, err := r.common(top)
		if err != nil {
			return err
		}
		binary, err := os.ReadFile(r.binary(a))
		if err != nil {
			return err
		}
		files = append(files, file{path.Join(top, "regrade"), 0o755, binary})
		raw, err := packGzip(files, r.Time)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.dist, r.name(a, ".tar.gz")), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// common are the files of every archive: licences, pages, and what is installed beside
// the program.
func (r *release) common(top string) (files []file, err error) {
	for _, t := range []struct{ from, below string }{
		{filepath.Join(r.stage, "completions"), "completions"},
		{filepath.Join(r.stage, "man"), "man"},
		{filepath.Join(r.Dir, "deploy/units"), "deploy/units"},
		{filepath.Join(r.Dir, "deploy/compose"), "deploy/compose"},
		{filepath.Join(r.Dir, "deploy/monitoring"), "deploy/monitoring"},
	} {
		more, err := readTree(t.from, path.Join(top, t.below))
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	for _, p := range []string{filepath.Join(r.Dir, "LICENSE"), filepath.Join(r.stage, noticesFile)} {
		raw, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Join(top, filepath.Base(p)), 0o644, raw})
	}
	return files, nil
}
