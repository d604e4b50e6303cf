package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const sumsFile = "SHA256SUMS"

// sums writes the sum of every other file, as sha256sum -c reads it.
func (r *release) sums(context.Context) error {
	entries, err := os.ReadDir(r.dist)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries { // sorted
		if e.Name() == sumsFile {
			continue
		}
		sum, err := sumOf(filepath.Join(r.dist, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(r.dist, sumsFile), []byte(b.String()), 0o644)
}
