// Command pause is what the lab's pods run on a real k3s: it waits to be told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	// The first process of a pod is given the pod's orphans.
	signal.Ignore(syscall.SIGCHLD)
	<-end
}
