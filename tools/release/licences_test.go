package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mit = "Copyright\n\nPermission is hereby granted, free of charge, to any person obtaining\na copy of this software"
	bsd = "Redistribution and use in source and binary forms, with or without\nmodification … to endorse or promote products derived"
)

func TestLicencesAreKnownByTheirText(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"ours":              {read(t, "../../LICENSE"), []string{"Apache-2.0"}},
		"MIT":               {mit, []string{"MIT"}},
		"BSD, three":        {bsd, []string{"BSD-3-Clause"}},
		"BSD, two":          {"Redistribution and use in source and binary forms, with", []string{"BSD-2-Clause"}},
		"two in one file":   {mit + "\n" + bsd, []string{"BSD-3-Clause", "MIT"}},
		"the GNU one":       {"GNU GENERAL PUBLIC LICENSE Version 3", nil},
		"no licence at all": {"All rights reserved.", nil},
	} {
		if got := spdx(test.text); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Issue 7: a module without a licence, or with one that nobody here has read, stops the
// release.
func TestTheLicencesOfAModule(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		ids   []string
		texts []string
		want  string // of the error
	}{
		"one at its root": {map[string]string{"LICENSE": mit, "a/a.go": ""}, []string{"MIT"}, []string{"LICENSE"}, ""},
		"notice, patents and a part with its own": {
			map[string]string{"LICENSE.txt": mit, "NOTICE": "thanks", "PATENTS": "granted", "a/LICENSE": bsd, "not-linked/LICENSE": "GNU"},
			[]string{"BSD-3-Clause", "MIT"}, []string{"LICENSE.txt", "NOTICE", "PATENTS", "a/LICENSE"}, "",
		},
		"none":                        {map[string]string{"README": mit, "license.go": "package x"}, nil, nil, "example.com/x v1.0.0 has no licence"},
		"a notice is none":            {map[string]string{"NOTICE": mit}, nil, nil, "has no licence"},
		"one that is not known":       {map[string]string{"COPYING": "GNU GENERAL PUBLIC LICENSE"}, nil, nil, "the licence in COPYING is none that is known here"},
		"one known, one not, in part": {map[string]string{"LICENSE": mit, "a/LICENSE": "All mine"}, nil, nil, "a/LICENSE"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a", "a.go"), "package a")
			for f, text := range test.files {
				write(t, filepath.Join(dir, f), text)
			}
			m := &module{path: "example.com/x", version: "v1.0.0", dir: dir}
			err := m.read([]string{filepath.Join(dir, "a")})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v", err)
				}
				return
			}
			var texts []string
			for f := range m.texts {
				texts = append(texts, f)
			}
			slices.Sort(texts)
			if err != nil || !slices.Equal(m.ids, test.ids) || !slices.Equal(texts, test.texts) {
				t.Errorf("%v %v %v", m.ids, texts, err)
			}
		})
	}
}

// Every module that the product links, with its licences, from the module cache: what a
// release will find.
func TestEveryModuleOfTheProductHasALicence(t *testing.T) {
	for _, a := range arches[:1] {
		folders, err := packages(t.Context(), "../..", a)
		if err != nil {
			t.Fatal(err)
		}
		if len(folders) < 40 {
			t.Fatalf("%d modules", len(folders))
		}
		for path, dirs := range folders {
			if path == "github.com/exadev/regrade" {
				continue
			}
			dir, err := moduleDir(t.Context(), "../..", path)
			if err != nil {
				t.Fatal(err)
			}
			m := &module{path: path, dir: dir}
			if err := m.read(dirs); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestNoticesHaveEachTextWholeAndOnce(t *testing.T) {
	var b strings.Builder
	writeNotices(&b, []*module{
		{path: "a", version: "v1", ids: []string{"MIT"}, texts: map[string]string{"LICENSE": mit + "\n", "NOTICE": "thanks to a"}},
		{path: "b", version: "v2", ids: []string{"MIT"}, texts: map[string]string{"LICENSE": mit}},
		{path: standard, version: "1.26", ids: []string{"BSD-3-Clause"}, texts: map[string]string{"LICENSE": bsd}},
	})
	got := b.String()
	for _, want := range []string{"  a v1 (MIT)\n", "  b v2 (MIT)\n", "thanks to a", "\nb v2: LICENSE\n", "The same text as of a v1: LICENSE\n", "Go's standard library 1.26: LICENSE"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, mit); n != 1 {
		t.Errorf("%d times", n)
	}
}

func TestABillNamesEachModuleWithItsLicence(t *testing.T) {
	r := &release{Source: Source{Version: "v1.2.3", Commit: "abc", Time: commitTime}, stage: t.TempDir()}
	write(t, r.binary(arches[2]), "binary")
	raw, err := r.bill(arches[2], []*module{{path: "example.com/x", version: "v0.0.0-20260101000000-aaaaaaaaaaaa", ids: []string{"BSD-3-Clause", "MIT"}}, {path: standard, version: "1.26.8", ids: []string{"BSD-3-Clause"}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bill
	decode(t, string(raw), &b)
	if b.Format != "CycloneDX" || b.Spec != "1.6" || b.Metadata.Timestamp != "2026-11-30T12:00:00Z" || b.Metadata.Component.Properties[0].Value != "linux/armv7" {
		t.Errorf("%s", raw)
	}
	refs := map[string]bool{}
	for _, c := range b.Components {
		refs[c.Ref] = true
		if c.Version == "" || c.PURL == "" || len(c.Licenses) != 1 || c.Licenses[0].Expression == "" {
			t.Errorf("%+v", c)
		}
	}
	for _, on := range b.Dependencies[0].On {
		if !refs[on] {
			t.Errorf("%s is none of the components", on)
		}
	}
	if len(refs) != 2 || b.Components[0].Licenses[0].Expression != "BSD-3-Clause AND MIT" || b.Components[1].PURL != "pkg:golang/std@1.26.8" {
		t.Errorf("%s", raw)
	}
	if !json.Valid(raw) || len(b.Serial) != len("urn:uuid:")+36 {
		t.Errorf("%s", b.Serial)
	}
}
