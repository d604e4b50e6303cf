package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const noticesFile = "THIRD_PARTY_NOTICES"

// notices writes the licences of everything that is in one of the binaries, and a bill
// of materials beside each.
func (r *release) notices(ctx context.Context) error {
	all := map[string]*module{}
	for _, a := range r.arches {
		modules, err := linked(ctx, r.Dir, r.binary(a), a)
		if err != nil {
			return err
		}
		for _, m := range modules {
			if had := all[m.path]; had != nil {
				maps.Copy(had.texts, m.texts)
				continue
			}
			all[m.path] = m
		}
		bill, err := r.bill(a, modules)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.dist, r.name(a, ".cdx.json")), bill, 0o644); err != nil {
			return err
		}
	}
	var b strings.Builder
	writeNotices(&b, slices.SortedFunc(maps.Values(all), func(a, b *module) int { return strings.Compare(a.path, b.path) }))
	for _, dir := range []string{r.dist, r.stage} {
		if err := os.WriteFile(filepath.Join(dir, noticesFile), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return r.copyLicence()
}

func (r *release) copyLicence() error {
	raw, err := os.ReadFile(filepath.Join(r.Dir, "LICENSE"))
	if err != nil {
		return err
	}
	if ids := spdx(string(raw)); !slices.Equal(ids, []string{"Apache-2.0"}) {
		return fmt.Errorf("LICENSE: %v, want Apache-2.0", ids)
	}
	return os.WriteFile(filepath.Join(r.dist, "LICENSE"), raw, 0o644)
}

// writeNotices gives each module with its texts whole. A text that several have is
// printed once, below the first.
func writeNotices(b *strings.Builder, modules []*module) {
	b.WriteString("regrade is licensed under the Apache License 2.0. It contains the following, each under\nits own licence.\n\n")
	for _, m := range modules {
		fmt.Fprintf(b, "  %s %s (%s)\n", m.title(), m.version, strings.Join(m.ids, ", "))
	}
	printed := map[string]string{}
	for _, m := range modules {
		for _, name := range slices.Sorted(maps.Keys(m.texts)) {
			text, here := strings.TrimSpace(m.texts[name]), m.title()+" "+m.version+": "+name
			fmt.Fprintf(b, "\n%s\n%s\n", strings.Repeat("=", 80), here)
			if at := printed[text]; at != "" {
				fmt.Fprintf(b, "\nThe same text as of %s\n", at)
				continue
			}
			printed[text] = here
			fmt.Fprintf(b, "\n%s\n", text)
		}
	}
}

// title is what people call it.
func (m *module) title() string {
	if m.path == standard {
		return "Go's standard library"
	}
	return m.path
}

// name of a file of the release.
func (r *release) name(a arch, suffix string) string {
	return fmt.Sprintf("regrade-%s-linux-%s%s", r.Version, a.name, suffix)
}
