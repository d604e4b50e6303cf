package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/lab/host"
)

// Outcome of a command.
type Outcome = host.Result

// Regrade runs a regrade command that needs no cluster and gives what it prints.
func (c *Cluster) Regrade(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Binaries.Regrade, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("regrade %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// CLI runs a regrade command as the operator does: on a machine beside the hosts, with the administrator's kubeconfig. A status
// other than 0 is in the outcome and is no error.
func (c *Cluster) CLI(ctx context.Context, args ...string) (Outcome, error) {
	file, err := c.adminKubeconfig()
	if err != nil {
		return Outcome{}, err
	}
	cmd, err := c.Lab.Command(ctx, append([]string{c.Binaries.Regrade}, args...)...)
	if err != nil {
		return Outcome{}, err
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+file, "FLEET_ROLE_API_SERVERS="+c.ServerURLs())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	outcome := Outcome{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		outcome.Code = exit.ExitCode()
	case err != nil:
		outcome.Code = -1
		return outcome, fmt.Errorf("regrade %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return outcome, nil
}

// HostCLI runs "regrade host …" on the host, as its operator would.
func (c *Cluster) HostCLI(ctx context.Context, h *host.Host, args ...string) (Outcome, error) {
	if c.IsDocker(h) {
		return h.Exec(ctx, append([]string{"docker", "exec", HostContainer, "regrade", "host"}, args...)...)
	}
	return h.Exec(ctx, append([]string{"/usr/local/bin/regrade", "host"}, args...)...)
}

func (c *Cluster) adminKubeconfig() (string, error) {
	content, err := c.adminFile()
	if err != nil {
		return "", err
	}
	// k3s writes its own loopback address; from the lab's network it is the first host.
	text := string(content)
	for _, port := range []string{"6443", "6444"} {
		text = strings.ReplaceAll(text, "https://127.0.0.1:"+port, URL(c.Lab.Hosts()[0]))
	}
	file := filepath.Join(c.Lab.Dir(), "admin.kubeconfig")
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// Controller is the controller as a process on the lab's network, with its own ServiceAccount's token.
type Controller struct {
	cluster *Cluster
	// Args are given after "regrade controller".
	Args []string
	// Env is set besides what the lab sets.
	Env []string

	log string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	runs int
}

// NewController prepares a controller; Start starts it.
func (c *Cluster) NewController(args ...string) *Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controllers++
	name := "controller.log"
	if c.controllers > 1 {
		name = fmt.Sprintf("controller-%d.log", c.controllers)
	}
	return &Controller{cluster: c, Args: args, log: filepath.Join(c.Lab.Dir(), name)}
}

// Start starts the process. Each start has an id of its own, as each pod of a Deployment has.
func (k *Controller) Start(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd != nil {
		return errors.New("start controller: it runs")
	}
	c := k.cluster
	content, err := c.Kubeconfig(ctx, fleet.DefaultNamespace, fleet.ServiceAccountController, c.Lab.Hosts()[0])
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.Lab.Dir(), "controller.kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return fmt.Errorf("start controller: %w", err)
	}
	cmd, err := c.Lab.Command(context.WithoutCancel(ctx), append([]string{c.Binaries.Regrade, "controller"}, k.Args...)...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.runs++
	k.runs = c.runs // an id of its own beside every other controller's
	c.mu.Unlock()
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "FLEET_ROLE_API_SERVERS="+c.ServerURLs(),
		fmt.Sprintf("FLEET_ROLE_SELF=lab-%s-%d", c.Lab.Name(), k.runs))
	cmd.Env = append(cmd.Env, k.Env...)
	log, err := os.OpenFile(k.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start controller: %w", err)
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(log, "--- start %d at %s\n", k.runs, time.Now().UTC().Format(time.RFC3339Nano))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start controller: %w", err)
	}
	k.cmd, k.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		err := cmd.Wait()
		k.mu.Lock()
		k.err = err
		k.mu.Unlock()
		close(done)
	}(k.done)
	return nil
}

// Stop ends the process as Kubernetes does, Kill at once.
func (k *Controller) Stop() error { return k.signal(syscall.SIGTERM) }

// Kill ends the process at once.
func (k *Controller) Kill() error { return k.signal(syscall.SIGKILL) }

func (k *Controller) signal(signal syscall.Signal) error {
	k.mu.Lock()
	cmd, done := k.cmd, k.done
	k.mu.Unlock()
	if cmd == nil {
		return errors.New("end controller: it does not run")
	}
	_ = cmd.Process.Signal(signal)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		return errors.New("end controller: it did not end within 30 s")
	}
	k.mu.Lock()
	k.cmd = nil
	k.mu.Unlock()
	return nil
}

// Pause stops the process where it stands; Continue lets it run on.
func (k *Controller) Pause() error { return k.send(syscall.SIGSTOP) }

// Continue lets a paused controller run on.
func (k *Controller) Continue() error { return k.send(syscall.SIGCONT) }

func (k *Controller) send(signal syscall.Signal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd == nil {
		return errors.New("signal controller: it does not run")
	}
	return k.cmd.Process.Signal(signal)
}

// Restart is Kill and Start.
func (k *Controller) Restart(ctx context.Context) error {
	if err := k.Kill(); err != nil {
		return err
	}
	return k.Start(ctx)
}

// Running says whether the process runs; an error is how it ended by itself.
func (k *Controller) Running() (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd == nil {
		return false, nil
	}
	select {
	case <-k.done:
		return false, fmt.Errorf("controller ended by itself: %w", errors.Join(errors.New("see its log"), k.err))
	default:
		return true, nil
	}
}

// Log is all the controller has written in all its runs.
func (k *Controller) Log() (string, error) {
	content, err := os.ReadFile(k.log)
	return string(content), err
}

// PID of the running process, 0 when it does not run.
func (k *Controller) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd == nil {
		return 0
	}
	return k.cmd.Process.Pid
}
