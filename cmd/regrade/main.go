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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], env.Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now,
	}, cli.Production())
	stop()
	os.Exit(code)
}
