package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/platform"
)

const askEngineAgain = time.Hour

// CodeComposeVersion warns of a Compose that is not to be used.
const CodeComposeVersion = "ComposeVersion"

// madeBy warns of a Compose that makes each container anew at every `up`, which stops
// a running server: 2.37.1 and later, before 2.39.0. Each container says which made it.
func (h *Host) madeBy(listed []Listed) []platform.Warning {
	for _, l := range listed {
		if l.Project == h.project && Remakes(l.Compose) {
			return []platform.Warning{{Code: CodeComposeVersion, Sentence: fmt.Sprintf(
				"the service %s was made with Compose %s: 2.37.1 to 2.38 make every container anew at each `up`, which stops a running server: use another version", l.Service, l.Compose)}}
		}
	}
	return nil
}

// Remakes says that this version of Compose makes each container anew at every `up`.
func Remakes(version string) bool {
	major, minor, patch, ok := numbers(version)
	return ok && major == 2 && (minor == 37 && patch >= 1 || minor == 38)
}

// CodeEngineVersion warns of an engine that breaks a restart off.
const CodeEngineVersion = "EngineVersion"

// engineWarning names an engine that takes the end of a daemon which waits for a restart
// for a cancel (ADR 0013). It is asked for once in a while: an engine may be replaced
// under containers that run on.
func (h *Host) engineWarning(ctx context.Context) []platform.Warning {
	h.mu.Lock()
	version, old := h.engineVersion, time.Since(h.engineAsked) > askEngineAgain
	if old {
		h.engineAsked = time.Now()
	}
	h.mu.Unlock()
	if old {
		if v, err := h.engine.Version(ctx); err == nil {
			h.mu.Lock()
			h.engineVersion, version = v, v
			h.mu.Unlock()
		}
	}
	what := breaksOff(version)
	if what == "" {
		return nil
	}
	return []platform.Warning{{Code: CodeEngineVersion, Sentence: fmt.Sprintf("the engine is %s: %s: use 24.0.7 or later", version, what)}}
}

// breaksOff says what an engine does when the daemon dies in the middle of a restart of
// k3s: 23.0.0 to 24.0.2 kill k3s, 23.0.0 to 24.0.6 do not start it again.
func breaksOff(version string) string {
	major, minor, patch, ok := numbers(version)
	switch {
	case !ok || major != 23 && (major != 24 || minor != 0 || patch > 6):
		return ""
	case major == 23 || patch < 3:
		return "when the daemon dies while it restarts k3s, k3s is killed in the middle of its stop and stays down until there is a daemon again"
	}
	return "when the daemon dies while it restarts k3s, k3s stays down until there is a daemon again"
}

func numbers(version string) (major, minor, patch int, ok bool) {
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &major, &minor, &patch)
	return major, minor, patch, n == 3
}
