package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/exadev/regrade/internal/provision/apply"
)

// programs finds regrade for an architecture: this very program, or a file of a release
// in a folder.
func programs(dir string) func(arch string) (apply.Program, error) {
	var mu sync.Mutex
	known := map[string]apply.Program{}
	return func(arch string) (apply.Program, error) {
		mu.Lock()
		defer mu.Unlock()
		if p, ok := known[arch]; ok {
			return p, nil
		}
		p, err := program(dir, arch)
		if err == nil {
			known[arch] = p
		}
		return p, err
	}
}

func program(dir, arch string) (apply.Program, error) {
	path := filepath.Join(dir, "regrade-linux-"+arch)
	switch {
	case dir != "":
	case runtime.GOOS == "linux" && runtime.GOARCH == arch:
		own, err := os.Executable()
		if err != nil {
			return apply.Program{}, fmt.Errorf("this program's own file: %w", err)
		}
		path = own
	default:
		return apply.Program{}, fmt.Errorf("this is regrade for %s/%s and the host wants linux/%s: give the folder of a release with --programs", runtime.GOOS, runtime.GOARCH, arch)
	}
	f, err := os.Open(path)
	if err != nil {
		return apply.Program{}, fmt.Errorf("regrade for linux/%s: %w", arch, err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return apply.Program{}, fmt.Errorf("regrade for linux/%s: %w", arch, err)
	}
	return apply.Program{Path: path, Size: size, Sum: hex.EncodeToString(h.Sum(nil))}, nil
}
