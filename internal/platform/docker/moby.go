package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/exadev/regrade/internal/platform"
)

// Bounds of calls. The engine answers questions in milliseconds. A start mounts
// volumes and runs hooks; a stop takes as long as the container may.
const (
	callTimeout  = 5 * time.Second
	startTimeout = 60 * time.Second
	// stopMargin is given to a stop beyond the container's own time, which ends with
	// a SIGKILL that a busy disk may delay.
	stopMargin  = 30 * time.Second
	defaultStop = 10 * time.Second // the engine's, where a container says nothing
)

// maxPrinted bounds what is kept of a command's output.
const maxPrinted = 64 << 10

// moby is an engine behind its socket.
type moby struct {
	socket string
	client *client.Client
	agreed atomic.Bool // on a version of the API, which is asked for once
}

// NewEngine is the engine at a socket of this host. It connects on first use, and
// speaks the newest API that both know, 1.41 with Debian's engine.
func NewEngine(socket string) (Engine, error) {
	c, err := client.New(client.WithHost("unix://"+socket), client.WithUserAgent("regrade"))
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	return &moby{socket: socket, client: c}, nil
}

// call bounds one call, and says in words what an engine that is out of reach means.
func (m *moby) call(ctx context.Context, bound time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := f(ctx)
	switch {
	case err == nil:
		m.agreed.Store(true)
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if ctx.Err() == nil {
			return fmt.Errorf("docker: %s: %w", what, err)
		}
		return fmt.Errorf("docker: %s: the engine at %s did not answer in time: %w", what, m.socket, ctx.Err())
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EACCES), strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("docker: %s: no right to use the socket %s: run as root, or in its group: %w", what, m.socket, os.ErrPermission)
	case client.IsErrConnectionFailed(err) && taken(m.socket):
		return fmt.Errorf("docker: %s: the engine has made itself another socket, and the one that this container has mounted answers to nobody: %w", what, platform.ErrAnew)
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("docker: %s: no engine answers at %s: is it mounted, and does the engine run? %w", what, m.socket, err)
	case errdefs.IsNotFound(err):
		return fmt.Errorf("docker: %s: %w", what, ErrGone)
	case m.agreed.Load() && otherVersion(err):
		return fmt.Errorf("docker: %s: %w: the engine is another one by now (%w)", what, platform.ErrAnew, err)
	}
	return fmt.Errorf("docker: %s: %w", what, err)
}

// otherVersion says that the engine no longer speaks the version that was agreed on. One
// with live-restore is replaced under containers that run on, and the daemon's would ask it
// in vain for ever.
func otherVersion(err error) bool {
	return strings.Contains(err.Error(), "client version ") && (strings.Contains(err.Error(), " is too old") || strings.Contains(err.Error(), " is too new"))
}

// taken says that the socket has no name any more. An engine that makes its socket
// itself takes the old one away; a container that has that one mounted keeps it, and no
// dial brings it back to life.
func taken(socket string) bool {
	var s syscall.Stat_t
	return syscall.Stat(socket, &s) == nil && s.Nlink == 0
}

func (m *moby) Ping(ctx context.Context) error {
	return m.call(ctx, callTimeout, "ask the engine", func(ctx context.Context) error {
		_, err := m.client.Ping(ctx, client.PingOptions{})
		return err
	})
}

func (m *moby) Version(ctx context.Context) (string, error) {
	var v string
	err := m.call(ctx, callTimeout, "ask the engine's version", func(ctx context.Context) error {
		r, err := m.client.ServerVersion(ctx, client.ServerVersionOptions{})
		v = r.Version
		return err
	})
	return v, err
}

func (m *moby) List(ctx context.Context, project string) ([]Listed, error) {
	var out []Listed
	err := m.call(ctx, callTimeout, "list containers", func(ctx context.Context) error {
		o := client.ContainerListOptions{All: true}
		if project != "" {
			o.Filters = client.Filters{}.Add("label", labelProject+"="+project)
		}
		r, err := m.client.ContainerList(ctx, o)
		for _, c := range r.Items {
			l := Listed{
				ID: c.ID, Project: c.Labels[labelProject], Service: c.Labels[labelService], Dir: c.Labels[labelDir],
				Compose: c.Labels[labelVersion],
				OneOff:  strings.EqualFold(c.Labels[labelOneOff], "true"),
				State:   string(c.State),
			}
			for _, mp := range c.Mounts {
				l.Mounts = append(l.Mounts, Mount{Source: mp.Source, Target: mp.Destination, Writable: mp.RW})
			}
			for _, n := range c.Names {
				l.Names = append(l.Names, strings.TrimPrefix(n, "/"))
			}
			out = append(out, l)
		}
		return err
	})
	return out, err
}

func (m *moby) Inspect(ctx context.Context, id string) (Container, error) {
	var c Container
	err := m.call(ctx, callTimeout, "look at container "+short(id), func(ctx context.Context) error {
		r, err := m.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		c, err = converted(r.Container)
		return err
	})
	return c, err
}

func converted(r container.InspectResponse) (Container, error) {
	if r.State == nil || r.Config == nil || r.HostConfig == nil {
		return Container{}, errors.New("the engine's answer lacks state or configuration")
	}
	c := Container{
		ID: r.ID, Name: strings.TrimPrefix(r.Name, "/"), Project: r.Config.Labels[labelProject], Image: r.Image,
		Command: append([]string{r.Path}, r.Args...), HostName: r.Config.Hostname,
		Restart: string(r.HostConfig.RestartPolicy.Name),
		State:   string(r.State.Status), ExitCode: r.State.ExitCode, Pid: r.State.Pid,
	}
	c.Network = r.HostConfig.NetworkMode.ConnectedContainer()
	if r.NetworkSettings != nil {
		for _, n := range r.NetworkSettings.Networks {
			for _, a := range []netip.Addr{n.IPAddress, n.GlobalIPv6Address} {
				if a.IsValid() {
					c.Addresses = append(c.Addresses, a)
				}
			}
		}
	}
	variables := map[string]string{}
	for _, kv := range r.Config.Env {
		key, value, _ := strings.Cut(kv, "=")
		variables[key] = value
	}
	c.Env = func(name string) string { return variables[name] }
	for _, mp := range r.Mounts {
		c.Mounts = append(c.Mounts, Mount{Source: mp.Source, Target: mp.Destination, Writable: mp.RW})
	}
	if h := r.State.Health; h != nil && h.Status != container.NoHealthcheck {
		c.Health = string(h.Status)
	}
	if t := r.Config.StopTimeout; t != nil {
		c.StopTimeout = time.Duration(*t) * time.Second
	}
	// A container that never ran has the year 1.
	if at, err := time.Parse(time.RFC3339Nano, r.State.StartedAt); err == nil && at.Year() > 1 {
		c.Started = at.UTC()
	}
	return c, nil
}

// columns are what ps is asked for, on the engine's side. The arguments come last:
// they hold spaces.
const columns = "-eo pid,ppid,stat,comm,args"

func (m *moby) Processes(ctx context.Context, id string) ([]Process, error) {
	var out []Process
	err := m.call(ctx, callTimeout, "list the processes of container "+short(id), func(ctx context.Context) error {
		r, err := m.client.ContainerTop(ctx, id, client.ContainerTopOptions{Arguments: strings.Fields(columns)})
		if err != nil {
			return atRest(err)
		}
		for _, row := range r.Processes {
			p, ok := processOf(row)
			if !ok {
				return fmt.Errorf("a row of ps has %d columns", len(row))
			}
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// atRest names the one conflict that these calls can meet.
func atRest(err error) error {
	if errdefs.IsConflict(err) {
		return fmt.Errorf("%w: %w", ErrAtRest, err)
	}
	return err
}

// processOf reads a row of ps. The engine splits it at spaces and puts what is more
// than the columns into the last.
func processOf(row []string) (Process, bool) {
	if len(row) < 5 {
		return Process{}, false
	}
	pid, err1 := strconv.Atoi(row[0])
	parent, err2 := strconv.Atoi(row[1])
	return Process{PID: pid, Parent: parent, State: row[2], Name: row[3], Args: strings.Fields(strings.Join(row[4:], " "))}, err1 == nil && err2 == nil
}

func (m *moby) Start(ctx context.Context, id string) error {
	return m.call(ctx, startTimeout, "start container "+short(id), func(ctx context.Context) error {
		_, err := m.client.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
}

func (m *moby) Stop(ctx context.Context, id string) error {
	bound, err := m.stopBound(ctx, id)
	if err != nil {
		return err
	}
	return m.call(ctx, bound, "stop container "+short(id), func(ctx context.Context) error {
		_, err := m.client.ContainerStop(ctx, id, client.ContainerStopOptions{})
		return err
	})
}

func (m *moby) Restart(ctx context.Context, id string) error {
	bound, err := m.stopBound(ctx, id)
	if err != nil {
		return err
	}
	return m.call(ctx, bound+startTimeout, "restart container "+short(id), func(ctx context.Context) error {
		_, err := m.client.ContainerRestart(ctx, id, client.ContainerRestartOptions{})
		return err
	})
}

func (m *moby) stopBound(ctx context.Context, id string) (time.Duration, error) {
	c, err := m.Inspect(ctx, id)
	if err != nil {
		return 0, err
	}
	if c.StopTimeout == 0 {
		return defaultStop + stopMargin, nil
	}
	return c.StopTimeout + stopMargin, nil
}

func (m *moby) Run(ctx context.Context, id string, command ...string) (Printed, error) {
	var p Printed
	// Bounded by its caller: an etcd snapshot takes minutes.
	err := m.call(ctx, time.Hour, "run "+command[0]+" in container "+short(id), func(ctx context.Context) error {
		e, err := m.client.ExecCreate(ctx, id, client.ExecCreateOptions{AttachStdout: true, AttachStderr: true, Cmd: command})
		if err != nil {
			return atRest(err)
		}
		at, err := m.client.ExecAttach(ctx, e.ID, client.ExecAttachOptions{})
		if err != nil {
			return err
		}
		// A hijacked connection knows no context.
		stop := context.AfterFunc(ctx, at.Close)
		defer func() {
			if stop() {
				at.Close()
			}
		}()
		var text tail
		if _, err := stdcopy.StdCopy(&text, &text, at.Reader); err != nil && !errors.Is(err, io.EOF) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		done, err := m.client.ExecInspect(ctx, e.ID, client.ExecInspectOptions{})
		if err != nil {
			return err
		}
		if done.Running {
			return errors.New("its output ended before it did")
		}
		p = Printed{Text: text.String(), Status: done.ExitCode}
		return nil
	})
	return p, err
}

// tail keeps the end of what is written.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if n > maxPrinted {
		p = p[n-maxPrinted:]
	}
	if over := t.Len() + len(p) - maxPrinted; over > 0 {
		t.Next(over)
	}
	_, _ = t.Buffer.Write(p)
	return n, nil
}

// short is an id as people see it.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
