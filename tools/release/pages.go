package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	regrade "github.com/exadev/regrade/internal/cli/program"
)

// pages writes the shells' completions and a man page for each command.
func (r *release) pages(context.Context) error {
	return writePages(r.stage, r.Source)
}

func writePages(stage string, s Source) error {
	root := tree()
	man := filepath.Join(stage, "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	at := s.Time
	header := &doc.GenManHeader{Title: "REGRADE", Section: "1", Date: &at, Source: "regrade " + s.Version, Manual: "regrade"}
	if err := doc.GenManTree(root, header, man); err != nil {
		return fmt.Errorf("man pages: %w", err)
	}
	for name, write := range map[string]func(io.Writer) error{
		"regrade.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_regrade":     root.GenZshCompletion,
		"regrade.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("completion %s: %w", name, err)
		}
		p := filepath.Join(stage, "completions", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tree is the program's commands. Pages say nothing of when they were made but the
// release's time.
func tree() *cobra.Command {
	e := env.Env{In: bytes.NewReader(nil), Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }, Now: time.Now}
	root := cli.New(e, regrade.Commands(e))
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	return root
}
