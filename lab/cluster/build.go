package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/exadev/regrade/lab/host"
)

// EnvK3s names a real k3s to be put on the hosts in place of the stand-in.
const EnvK3s = "LAB_K3S"

// standinVersion is what the stand-in calls itself, in k3s's form.
const standinVersion = "v1.34.2+k3s1"

// Binaries are the programs on the hosts, as paths on the machine.
type Binaries struct {
	K3s     string
	Regrade string
	// Real says that K3s is no stand-in: it runs containers, and the hosts need what those need.
	Real bool
	// Pause is what pods run when K3s is real.
	Pause string
}

// moduleRoot is the folder of the lab's go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the lab's module: %w", err)
	}
	file := strings.TrimSpace(string(out))
	for dir := filepath.Dir(file); filepath.Base(file) == "go.mod"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "standin", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", fmt.Errorf("find the lab's module: %q is not in it", file)
}

// Build makes the programs; each is built again only when its source changed. The first build of the stand-in compiles
// Kubernetes and takes five minutes on two cores. Regrade itself is left away on demand.
func Build(ctx context.Context, withRegrade bool, logf func(string, ...any)) (Binaries, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return Binaries{}, err
	}
	cache, err := host.CacheDir()
	if err != nil {
		return Binaries{}, err
	}
	// One at a time: two compilers at once take longer than one after the other.
	lock, err := host.LockCache("build")
	if err != nil {
		return Binaries{}, err
	}
	defer func() { _ = lock.Close() }()

	// Each checkout has its own regrade: another one's lab may build beside this one's.
	b := Binaries{Regrade: filepath.Join(cache, fmt.Sprintf("regrade-%.4x", sha256.Sum256([]byte(root)))), K3s: filepath.Join(cache, "k3s-standin")}
	if withRegrade {
		// As make build does, but for -trimpath: with it everything would be compiled a second time.
		if err := goBuild(ctx, filepath.Dir(root), b.Regrade, "-ldflags", "-s -w", "./cmd/regrade"); err != nil {
			return Binaries{}, err
		}
	}
	if given := os.Getenv(EnvK3s); given != "" {
		if b.K3s, err = filepath.Abs(given); err != nil {
			return Binaries{}, err
		}
		if _, err := os.Stat(b.K3s); err != nil {
			return Binaries{}, fmt.Errorf("%s: %w", EnvK3s, err)
		}
		if b.Pause, err = buildPause(ctx, root, cache); err != nil {
			return Binaries{}, err
		}
		b.Real = true
		return b, nil
	}
	if _, err := os.Stat(b.K3s); err != nil {
		logf("lab: building the stand-in k3s, 5 minutes on two cores when nothing is compiled yet")
	}
	base := "k8s.io/component-base/version"
	ldflags := fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=34", base, standinVersion, base, base)
	if err := goBuild(ctx, filepath.Join(root, "standin"), b.K3s, "-ldflags", ldflags, "./cmd/k3s"); err != nil {
		return Binaries{}, err
	}
	return b, nil
}

// WrongClock is a regrade whose wall clock is off by so much, as a path on the machine:
// all hosts share the machine's clock, so that one host's can only be wrong to a program of its own.
func (c *Cluster) WrongClock(ctx context.Context, off time.Duration) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	out := filepath.Join(c.Lab.Dir(), "regrade-"+off.String())
	return out, goBuild(ctx, filepath.Dir(root), out, "-ldflags", "-s -w -X main.clockOff="+off.String(), "./cmd/regrade")
}

func goBuild(ctx context.Context, dir, out string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", out}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(out), err, said)
	}
	return nil
}
