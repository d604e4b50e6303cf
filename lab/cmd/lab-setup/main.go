// Command lab-setup prepares a machine for the lab: the Debian packages, the hosts' Debian trees. "lab-setup check" only says
// whether the lab can run, "lab-setup sweep" takes down what killed runs left, "lab-setup end NAME" a lab that was kept.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/exadev/regrade/lab/host"
	"github.com/exadev/regrade/lab/preflight"
)

func main() {
	if err := perform(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func perform(args []string) error {
	ctx := context.Background()
	logf := func(format string, values ...any) { fmt.Printf(format+"\n", values...) }
	switch {
	case len(args) == 0:
		if err := preflight.Setup(ctx, logf); err != nil {
			return err
		}
		if err := canRun(); err != nil {
			return err
		}
		for _, packages := range [][]string{nil, host.EnginePackages} {
			tree, err := host.EnsureRootfs(ctx, packages, logf)
			if err != nil {
				return err
			}
			logf("lab: ready, hosts start from %s", tree)
		}
		return nil
	case len(args) == 1 && args[0] == "check":
		return canRun()
	case len(args) == 1 && args[0] == "sweep":
		return host.Sweep(logf)
	case len(args) == 2 && args[0] == "end":
		return host.End(args[1])
	default:
		return fmt.Errorf("usage: lab-setup [check | sweep | end NAME]")
	}
}

func canRun() error {
	if ok, reason := preflight.CanRun(); !ok {
		return fmt.Errorf("%s", reason)
	}
	return nil
}
