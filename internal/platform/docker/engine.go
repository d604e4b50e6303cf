package docker

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// Engine is a Docker engine, as far as it is used. Start, Stop and Restart end when
// the engine is done with it; they are asked of containers that exist, and no call
// makes or removes one.
type Engine interface {
	// Ping says whether the engine answers.
	Ping(ctx context.Context) error
	// Version is the engine's own, like 24.0.7.
	Version(ctx context.Context) (string, error)
	// List gives the containers of a Compose project, running or not; all of the
	// engine's when the project is empty.
	List(ctx context.Context, project string) ([]Listed, error)
	Inspect(ctx context.Context, id string) (Container, error)
	// Processes are those in a running container, its pods' included; ErrAtRest when
	// it does not run.
	Processes(ctx context.Context, id string) ([]Process, error)
	Start(ctx context.Context, id string) error
	// Stop gives the container its own time to end (stop_grace_period).
	Stop(ctx context.Context, id string) error
	Restart(ctx context.Context, id string) error
	// Run runs a command in a running container and gives what it printed.
	Run(ctx context.Context, id string, command ...string) (Printed, error)
}

// What an engine's answer can mean for the caller.
var (
	// ErrGone: there is no such container.
	ErrGone = errors.New("no such container")
	// ErrAtRest: the container does not run.
	ErrAtRest = errors.New("the container does not run")
)

// Labels of Compose, by which its containers are found.
const (
	labelProject = "com.docker.compose.project"
	labelService = "com.docker.compose.service"
	labelDir     = "com.docker.compose.project.working_dir"
	labelOneOff  = "com.docker.compose.oneoff"
	labelVersion = "com.docker.compose.version"
)

// Listed is a container in a list.
type Listed struct {
	ID      string
	Names   []string
	Project string
	Service string
	Dir     string // the project's folder
	Compose string // the version of Compose that made it
	OneOff  bool   // of `compose run`
	State   string // as in Container
	Mounts  []Mount
}

// leftover says that it is what a removal has left behind: it never runs again.
func (l Listed) leftover() bool { return l.State == "dead" || l.State == "removing" }

// Container is one container.
type Container struct {
	ID      string
	Name    string
	Project string // Compose's, empty for none
	Image   string // its id
	// Command is what each start runs: entrypoint and arguments.
	Command []string
	// Env gives a variable of each start, empty when it is not set. It is a function
	// because a token is among them, and whatever prints a container must not print it
	// (safety rule 31).
	Env      func(name string) string
	HostName string
	// Network is the container whose network this one has, empty for its own or the host's.
	Network string
	// Addresses are those that the engine gave it, none in the host's network.
	Addresses []netip.Addr
	Restart   string // restart policy
	Mounts    []Mount

	// State is the engine's word: created, running, paused, restarting, removing,
	// exited, dead.
	State    string
	ExitCode int
	Pid      int // of its first process, as Processes counts them
	Started  time.Time
	// Health is healthy, unhealthy or starting; empty without a health check.
	Health string
	// StopTimeout is the container's own, zero for the engine's default.
	StopTimeout time.Duration
}

// Runs says that the container has processes.
func (c Container) Runs() bool { return c.State == "running" || c.State == "paused" }

// AtRest says that it neither runs nor will by itself, short of a start of the engine.
func (c Container) AtRest() bool {
	return c.State == "created" || c.State == "exited" || c.State == "dead"
}

// Mount is a folder of the host, or of a volume, in a container.
type Mount struct {
	Source   string // where the engine has it
	Target   string // where the container has it
	Writable bool
}

// Process is one process.
type Process struct {
	PID, Parent int
	State       string
	Name        string
	Args        []string
}

// Printed is what a command left.
type Printed struct {
	Text   string
	Status int
}
