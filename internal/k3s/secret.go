package k3s

import "github.com/exadev/regrade/internal/obs"

// Secret is text that nothing prints, logs or marshals.
type Secret = obs.Secret
