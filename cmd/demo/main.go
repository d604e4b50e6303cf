// Command demo shows regrade's main job on one machine, without root, network
// or k3s: hosts with real etcd members (one process each, this same binary), the
// real controller and the real host daemons over a simulated cluster
// (internal/sim). A voter's link turns slow; the fleet notices, says why, and
// swaps it for a standby while writes go on. It ends with a summary and exit
// status 0, or says what went wrong and exits with 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/exadev/regrade/internal/etcd/embedded"
)

// memberArg makes this binary an etcd member: the demo starts itself again.
const memberArg = "etcd-member"

func main() {
	if len(os.Args) == 3 && os.Args[1] == memberArg {
		os.Exit(embedded.Main(os.Args[2]))
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, []string{self, memberArg}, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the demo; command starts a member.
func run(ctx context.Context, command, args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(errs, "demo:", err)
		return 2
	}
	dir, err := os.MkdirTemp("", "regrade-demo-")
	if err != nil {
		_, _ = fmt.Fprintln(errs, "demo:", err)
		return 1
	}
	if err := show(ctx, o, command, dir, out); err != nil {
		if ctx.Err() != nil {
			_, _ = fmt.Fprintln(errs, "demo: interrupted; every process has ended")
			_ = os.RemoveAll(dir)
			return 130
		}
		_, _ = fmt.Fprintln(errs, "demo:", err)
		_, _ = fmt.Fprintln(errs, "demo: the logs of the etcd members are kept in", dir)
		return 1
	}
	if err := os.RemoveAll(dir); err != nil {
		_, _ = fmt.Fprintln(errs, "demo:", err)
		return 1
	}
	return 0
}
