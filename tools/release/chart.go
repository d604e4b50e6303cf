package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// chart packs the Helm chart as `helm package` does, with the release's version in it.
func (r *release) chart(context.Context) error {
	files, err := readTree(filepath.Join(r.Dir, "deploy/chart/regrade"), "regrade")
	if err != nil {
		return err
	}
	found := false
	for i, f := range files {
		if f.name != "regrade/Chart.yaml" {
			continue
		}
		text := string(f.content)
		for from, to := range map[string]string{"\nversion: 0.0.0\n": "\nversion: " + r.Number() + "\n", "\nappVersion: latest\n": "\nappVersion: " + r.Version + "\n"} {
			if strings.Count(text, from) != 1 {
				return fmt.Errorf("Chart.yaml: want one line %q", strings.TrimSpace(from))
			}
			text = strings.Replace(text, from, to, 1)
		}
		files[i].content, found = []byte(text), true
	}
	if !found {
		return fmt.Errorf("no Chart.yaml in %s", r.Dir)
	}
	raw, err := packGzip(files, r.Time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "regrade-"+r.Number()+".tgz"), raw, 0o644)
}
