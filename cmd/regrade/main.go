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
	"github.com/exadev/regrade/internal/cli/alertcmd"
	"github.com/exadev/regrade/internal/cli/entrycmd"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/fleetcmd"
	"github.com/exadev/regrade/internal/cli/heartbeatcmd"
	"github.com/exadev/regrade/internal/cli/hostcmd"
	"github.com/exadev/regrade/internal/cli/probecmd"
	"github.com/exadev/regrade/internal/cli/recoverycmd"
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
	d := cli.Production()
	d.More = append(d.More,
		entrycmd.New(e), hostcmd.New(e, hostcmd.Production(cli.Version)), hostcmd.NewLevel(e, hostcmd.Production(cli.Version)), probecmd.New(e, probecmd.Production(cli.Version)),
		heartbeatcmd.New(e, heartbeatcmd.Production(cli.Version)), alertcmd.New(e, alertcmd.Production(cli.Version)),
		recoverycmd.New(e, recoverycmd.Production(cli.Version)), fleetcmd.NewInit(e, fleetcmd.InitProduction(cli.Version)),
	)
	code := cli.Run(ctx, os.Args[1:], e, d)
	stop()
	os.Exit(code)
}
