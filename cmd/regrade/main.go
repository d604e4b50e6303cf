// Command regrade keeps a k3s cluster's etcd votes on its fittest hosts.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/program"
)

// A process that runs beside somebody's workloads is kept small: it does little,
// so that collecting more often costs nothing. What it needs it gets all the same: the
// second is no limit, only what it is collected for. GOGC and GOMEMLIMIT say otherwise.
const (
	gcPercent = 50
	memory    = 24 << 20
)

// clockOff is how far a host's wall clock is off, in the binary that the lab links for
// one host of it: the hosts of a machine share its clock. It is empty in every other.
var clockOff string

func now() time.Time {
	off, err := time.ParseDuration(clockOff)
	if err != nil {
		return time.Now()
	}
	return time.Now().Add(off)
}

// collectOften has the process collect its garbage as such a process should.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory)
	}
}

func main() {
	collectOften()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: now}
	code := cli.Run(ctx, os.Args[1:], e, program.Commands(e))
	stop()
	os.Exit(code)
}
