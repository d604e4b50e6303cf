package entrypoint

import (
	"fmt"
	"log/slog"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/obs"
	"github.com/exadev/regrade/internal/platform/container"
)

// alone takes the data volume for the k3s that this process becomes. The role files
// let one role start; they do not stop one that runs, and somebody may have written
// another role beside it. Of two k3s on one volume each would ruin the other's files.
//
// A volume that cannot be locked (a full disk, a file system without locks) keeps no
// voter down: the role files have let it start.
func alone(root string, role fleet.Role, d Decision, log *slog.Logger) Decision {
	by, err := container.Lock(root, role)
	switch {
	case err != nil:
		log.Warn("the data volume is not locked", obs.Err, err)
	case by != "":
		return Decision{Kind: Idle, Why: fmt.Sprintf("k3s %s runs on this data volume, in another container: stop that first", by)}
	}
	return d
}
