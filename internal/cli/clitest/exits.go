// Package clitest holds what the command lines' scripts share.
package clitest

import (
	"errors"
	"os/exec"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// Exits is a script's command that runs another and wants just this exit status:
// exits 2 regrade swap a a.
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND ...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if x, ok := errors.AsType[*exec.ExitError](err); ok {
		got = strconv.Itoa(x.ExitCode())
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}
