package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ensureRuntime starts the fake runtime unless one answers on the socket, and waits until it does.
func ensureRuntime(ctx context.Context, cfg KubeletConfig) error {
	if runtimeAnswers(cfg.RuntimeSocket) {
		return nil
	}
	cmd, err := shimCommand(cfg)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the fake runtime: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	deadline := time.Now().Add(20 * time.Second)
	for !runtimeAnswers(cfg.RuntimeSocket) {
		if time.Now().After(deadline) {
			return fmt.Errorf("start the fake runtime: no answer on %s for 20 s", cfg.RuntimeSocket)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// keepRuntime starts the fake runtime again when it was killed, as containerd would start pods' shims again.
func keepRuntime(ctx context.Context, cfg KubeletConfig) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := ensureRuntime(ctx, cfg); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

func runtimeAnswers(socket string) bool {
	connection, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// shimCommand builds the detached process. It has the path, name and arguments of k3s's pod shims, so that
// whatever looks for those finds it: k3s-killall.sh greps "k3s/data/[^/]*/bin/containerd-shim".
func shimCommand(cfg KubeletConfig) (*exec.Cmd, error) {
	path, err := shimPath(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path:        path,
		Args:        []string{path, "-namespace", "k8s.io", "-id", cfg.NodeName, "-address", cfg.RuntimeSocket},
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}, nil
}

// shimPath is DataDir/data/<hash>/bin/containerd-shim-runc-v2, a link to this binary, made when it is missing.
func shimPath(dataDir string) (string, error) {
	hash := sha256.Sum256([]byte("stand-in"))
	folder := filepath.Join(dataDir, "data", hex.EncodeToString(hash[:]))
	bin := filepath.Join(folder, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("folder of the shim: %w", err)
	}
	for link, target := range map[string]string{
		filepath.Join(bin, ShimName):              selfPath(),
		filepath.Join(dataDir, "data", "current"): folder,
	} {
		if current, err := os.Readlink(link); err == nil && current == target {
			continue
		}
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			return "", fmt.Errorf("link of the shim: %w", err)
		}
		if err := os.Symlink(target, link); err != nil {
			return "", fmt.Errorf("link of the shim: %w", err)
		}
	}
	return filepath.Join(bin, ShimName), nil
}

// runShim serves the fake runtime on the socket until it is killed.
func runShim(args []string) int {
	flags := flag.NewFlagSet(ShimName, flag.ContinueOnError)
	_ = flags.String("namespace", "", "containerd namespace; for show")
	_ = flags.String("id", "", "name; for show")
	socket := flags.String("address", "", "unix socket to serve on")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := serveRuntime(*socket); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveRuntime(socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o711); err != nil {
		return fmt.Errorf("fake runtime socket: %w", err)
	}
	// A socket that outlived its process (host crash) refuses connections; its name must go first.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("fake runtime socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("fake runtime socket: %w", err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, newFakeRuntime())
	return server.Serve(listener)
}
