package probecmd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/memory"
	"github.com/exadev/regrade/internal/probe/sensor"
)

// Sensing says what a probe measures with. `regrade manifests` takes the same
// flags for the DaemonSet.
type Sensing struct {
	Window     int
	MetricsURL string
	FsyncDir   string
	Pressure   string
}

// windowFlag is the probe's; the controller, which judges the same window, has
// its own of that name.
func (s *Sensing) windowFlag(fs *pflag.FlagSet) {
	s.Window = fitness.DefaultSize
	fs.Var(env.Int{Value: &s.Window, Min: minWindow, Max: fitness.MaxWindow}, "window", "samples that a probe keeps")
	env.Bind(fs, "window", "FLEET_ROLE_WINDOW")
}

// Flags adds the others.
func (s *Sensing) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.MetricsURL, "etcd-metrics-url", sensor.DefaultMetricsURL, "where this host's etcd shows its metrics")
	env.Bind(fs, "etcd-metrics-url", "FLEET_ROLE_ETCD_METRICS_URL")
	fs.StringVar(&s.FsyncDir, "fsync-dir", fleet.DirFsync, "folder on the disk that would hold the datastore; a standby's probe writes there")
	env.Bind(fs, "fsync-dir", "FLEET_ROLE_FSYNC_DIR")
	fs.StringVar(&s.Pressure, "pressure-files", memory.DefaultPressure, "files with memory pressure, comma-separated: the first that exists is read")
	env.Bind(fs, "pressure-files", "FLEET_ROLE_PRESSURE_FILES")
}

// minWindow is the least that is judged.
const minWindow = 5

// Check refuses what cannot work.
func (s *Sensing) Check() error {
	u, err := url.Parse(s.MetricsURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		// A password may stand in it, so it is not shown.
		return env.Usage("FLEET_ROLE_ETCD_METRICS_URL: want a URL without credentials like %s", sensor.DefaultMetricsURL)
	}
	for _, path := range append([]string{s.FsyncDir}, s.pressure()...) {
		if !filepath.IsAbs(path) {
			return env.Usage("path %q: want an absolute one", path)
		}
	}
	return nil
}

func (s *Sensing) pressure() []string {
	var files []string
	for f := range strings.SplitSeq(s.Pressure, ",") {
		if f = strings.TrimSpace(f); f != "" {
			files = append(files, f)
		}
	}
	return files
}

// memory is the reader of memory under a root.
func (s *Sensing) memory(root string) memory.Reader {
	return memory.Reader{Root: root, Pressure: s.pressure()}
}

func (s *Sensing) fsync(root string) sensor.Fsync {
	return sensor.DefaultFsync(filepath.Join("/", root, s.FsyncDir))
}

// bootID is the kernel's name for this boot.
func bootID(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join("/", root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", fmt.Errorf("boot id: the file is empty")
	}
	return id, nil
}
