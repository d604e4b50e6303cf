// Package cli is the stand-in's command line: which sub-commands there are, what they print and how they exit.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/access"
	"github.com/exadev/regrade/lab/standin/k3s/agent"
	"github.com/exadev/regrade/lab/standin/k3s/behaviour"
	"github.com/exadev/regrade/lab/standin/k3s/config"
	"github.com/exadev/regrade/lab/standin/k3s/host"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/notify"
	"github.com/exadev/regrade/lab/standin/k3s/server"
	"github.com/exadev/regrade/lab/standin/k3s/snapshot"
	"github.com/exadev/regrade/lab/standin/k3s/token"
	"github.com/exadev/regrade/lab/standin/parts"
)

// Version is what the parts are built from; the linker may set it.
var Version = "v1.34.2+k3s1"

const usage = `k3s (stand-in for tests) - a real etcd and Kubernetes control plane with k3s's command line and behaviour

  k3s server [OPTIONS]
  k3s agent [OPTIONS]
  k3s etcd-snapshot save|ls [OPTIONS]
  k3s --version
`

// Main runs one command line and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	b, err := behaviour.FromEnv(os.Getenv)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if len(args) == 0 {
		fmt.Fprint(stdout, usage)
		return 0
	}
	command, rest := args[0], args[1:]
	switch command {
	case "--version", "-v", "-version":
		fmt.Fprintf(stdout, "k3s version %s (stand-in, behaves as %s)\ngo version %s\n", Version, b.Name, runtime.Version())
		return 0
	case "--help", "-h", "help":
		fmt.Fprint(stdout, usage)
		return 0
	case string(config.Server), string(config.Agent):
		return daemon(config.Command(command), rest, b, stdout, stderr)
	case string(config.Snapshot):
		return snapshots(rest, stdout, stderr)
	default:
		fmt.Fprintf(stderr, "No help topic for '%s'\n", command)
		return 3
	}
}

// fatal prints an error as k3s's logger does and gives exit code 1.
func fatal(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "time=%q level=fatal msg=%q\n", time.Now().Format(time.RFC3339), err)
	return 1
}

func parse(cmd config.Command, args []string, stdout, stderr io.Writer) (config.Values, int, bool) {
	v, err := config.Parse(cmd, args, os.Getenv)
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Fprint(stdout, usage)
		return v, 0, false
	case err != nil:
		fmt.Fprintf(stdout, "Incorrect Usage: %v\n\n", err)
		return v, fatal(stderr, err), false
	}
	return v, 0, true
}

func logger(v config.Values, stderr io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if v.Bool("debug") {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
}

// daemon runs a server or an agent until a signal; a second signal ends it at once with 1.
func daemon(cmd config.Command, args []string, b behaviour.Behaviour, stdout, stderr io.Writer) int {
	v, code, ok := parse(cmd, args, stdout, stderr)
	if !ok {
		return code
	}
	socket, err := notify.Take()
	if err != nil {
		return fatal(stderr, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	log := logger(v, stderr)
	log.Info("Starting k3s stand-in", "version", Version, "behaviour", b.Name, "command", cmd)
	if cmd == config.Server {
		return server.Run(ctx, v, b, socket.Ready, log)
	}
	return runAgent(ctx, v, b, socket.Ready, log, stderr)
}

func runAgent(ctx context.Context, v config.Values, b behaviour.Behaviour, up func() error, log *slog.Logger, stderr io.Writer) int {
	text := v.Text("token")
	if file := v.Text("token-file"); file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return fatal(stderr, fmt.Errorf("token file: %w", err))
		}
		text = string(content)
	}
	data := layout.Data(v.Text("data-dir"))
	if text == "" && !exists(data.Agent("client-kubelet.key")) {
		return fatal(stderr, errors.New("--token is required"))
	}
	if v.Text("server") == "" {
		return fatal(stderr, errors.New("--server is required"))
	}
	h, err := host.From(v)
	if err != nil {
		return fatal(stderr, err)
	}
	var mu sync.Mutex
	var kubelet *parts.Process
	err = agent.Run(ctx, agent.Config{
		Mode: agent.Alone, Values: v, Host: h, Data: data, ServerURL: v.Text("server"), Token: text,
		ReadyLimit: b.ReadyLimit, Log: log,
		Started: func(p *parts.Process) {
			mu.Lock()
			defer mu.Unlock()
			kubelet = p
		},
		Ready: func() {
			if err := up(); err != nil {
				log.Error("Failed to notify systemd", "error", err)
			}
			log.Info("k3s agent is up and running")
		},
	})
	mu.Lock()
	defer mu.Unlock()
	if kubelet != nil {
		kubelet.Kill()
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, agent.ErrStopped):
		log.Error("Shutting down", "reason", err)
		return 0
	default:
		return fatal(stderr, err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// snapshots is k3s etcd-snapshot save and ls: requests to a server's /db/snapshot as user server.
func snapshots(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stdout, usage)
		return 0
	}
	operation := map[string]string{"save": "save", "ls": "list", "list": "list", "l": "list"}[args[0]]
	if operation == "" {
		return fatal(stderr, fmt.Errorf("etcd-snapshot %s is not supported by this stand-in", args[0]))
	}
	v, code, ok := parse(config.Snapshot, args[1:], stdout, stderr)
	if !ok {
		return code
	}
	answer, err := ask(v, operation)
	if err != nil {
		return fatal(stderr, err)
	}
	if operation == "save" {
		var a snapshot.Answer
		if err := json.Unmarshal(answer, &a); err != nil {
			return fatal(stderr, fmt.Errorf("snapshot answer: %w", err))
		}
		for _, name := range a.Created {
			fmt.Fprintf(stderr, "time=%q level=info msg=\"Snapshot %s saved.\"\n", time.Now().Format(time.RFC3339), name)
		}
		return 0
	}
	if v.Text("output") == "json" {
		fmt.Fprintf(stdout, "%s\n", answer)
		return 0
	}
	if err := table(answer, stdout); err != nil {
		return fatal(stderr, err)
	}
	return 0
}

func ask(v config.Values, operation string) ([]byte, error) {
	text := v.Text("etcd-token")
	if text == "" {
		b, err := os.ReadFile(layout.Data(v.Text("data-dir")).Token())
		if err != nil {
			return nil, fmt.Errorf("see server log for details: read token: %w", err)
		}
		text = string(b)
	}
	tok, err := token.Parse(text, token.ServerUser)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	acc, err := access.Connect(ctx, v.Text("etcd-server"), tok, token.ServerUser)
	if err != nil {
		return nil, err
	}
	request := snapshot.Request{Operation: operation}
	if operation == "save" {
		request.Name = []string{v.Text("name")}
		if dir := v.Text("etcd-snapshot-dir"); dir != "" {
			request.Dir = &dir
		}
		if v.IsSet("etcd-snapshot-compress") {
			compress := v.Bool("etcd-snapshot-compress")
			request.Compress = &compress
		}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("snapshot request: %w", err)
	}
	return acc.Post(ctx, "/db/snapshot", body, nil, 2*time.Minute)
}

// table prints a list of ETCDSnapshotFiles.
func table(answer []byte, stdout io.Writer) error {
	var list struct {
		Items []struct {
			Spec struct {
				SnapshotName string `json:"snapshotName"`
				Location     string `json:"location"`
			} `json:"spec"`
			Status struct {
				Size         string `json:"size"`
				CreationTime string `json:"creationTime"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("snapshot answer: %w", err)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 1, ' ', 0)
	fmt.Fprint(w, "Name\tLocation\tSize\tCreated\n")
	for _, i := range list.Items {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Spec.SnapshotName, i.Spec.Location, i.Status.Size, i.Status.CreationTime)
	}
	return w.Flush()
}
