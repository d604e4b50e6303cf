// Command regrade keeps a k3s cluster's etcd votes on its fittest hosts.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/hostcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	d := cli.Production()
	d.More = append(d.More, hostcmd.New(e, hostcmd.Production()))
	code := cli.Run(ctx, os.Args[1:], e, d)
	stop()
	os.Exit(code)
}
