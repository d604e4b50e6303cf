package host

// EnginePackages are what a host with a Docker engine has besides: Debian's, with Compose 1.29.
var EnginePackages = []string{"docker.io", "docker-compose"}

// afterPrepare lets an engine begin when the host's cgroups are writable.
const afterPrepare = "[Unit]\nRequires=lab-prepare.service\nAfter=lab-prepare.service\n" +
	// Scenarios restart it more often than Debian lets it.
	"StartLimitIntervalSec=0\n"

// ReadyForEngine makes a host that is not up yet, and whose tree has [EnginePackages], one whose engine can run containers.
func (h *Host) ReadyForEngine() error {
	for path, content := range map[string]string{
		"/etc/lab/containers":                               "",
		"/etc/systemd/system/docker.service.d/lab.conf":     afterPrepare,
		"/etc/systemd/system/containerd.service.d/lab.conf": afterPrepare,
	} {
		if err := h.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
