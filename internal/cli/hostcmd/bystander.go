package hostcmd

import (
	"context"
	"fmt"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd"
	"github.com/exadev/regrade/internal/platform"
)

// bystander looks at a host that another process, its daemon, drives: what that one
// holds in its own process is read from outside, not from this one, which holds
// nothing.
type bystander struct {
	platform.Host
	answers func(context.Context) bool // something answers at this host's etcd peer port
}

// Observe implements platform.Host.
func (b bystander) Observe(ctx context.Context) (platform.Facts, error) {
	f, err := b.Host.Observe(ctx)
	if err != nil {
		return f, err
	}
	// While a server runs the port is etcd's.
	f.PeerPort = f.Server.Gone() && b.answers(ctx)
	j, err := hostd.ParseJournal(f.Journal)
	if err == nil && j.Step == fleet.StepSnapshot && j.Phase == fleet.PhaseRunning && f.Snapshot.Base == "" {
		f.Snapshot = platform.SnapshotRun{Base: fleet.SnapshotPrefix + string(j.Swap), Running: true}
	}
	return f, nil
}

func peerPortText(f platform.Facts) string {
	if f.PeerPort {
		return "held for the voters to try"
	}
	return "nothing answers: a voter cannot try it"
}

// intent says what the daemon would do.
func intent(e hostd.Effect) string {
	switch e.Kind {
	case hostd.Note:
		return fmt.Sprintf("note: %s %s", e.Journal.Step, e.Journal.Phase)
	case hostd.WriteRole:
		return "write the role file: " + string(e.Role)
	case hostd.Leave:
		if e.Swap == "" {
			return "delete the leaving file"
		}
		return "write the leaving file"
	case hostd.Join:
		if e.Joining.Swap == "" {
			return "delete the joining file"
		}
		return "write the joining file"
	case hostd.Identify:
		return "write cluster-id, member-id and voters"
	case hostd.SetLevel:
		return "set the level " + string(e.Level)
	case hostd.SetJoin:
		return fmt.Sprintf("have the %s join %q", e.Role, e.URL)
	case hostd.Start, hostd.Stop, hostd.Restart:
		return fmt.Sprintf("%s the %s", e.Kind, e.Role)
	case hostd.KillShims:
		return "end the pods that the stopped agent left"
	case hostd.MoveAside:
		return "move the datastore aside"
	case hostd.Snapshot:
		return "begin the etcd snapshot " + e.Base
	case hostd.Prune:
		return fmt.Sprintf("keep the newest %d etcd snapshots of its own", e.Keep)
	case hostd.PeerPort:
		if e.Hold {
			return "hold etcd's peer port; the daemon does not hold it: is it running?"
		}
		return "let etcd's peer port go"
	case hostd.MoveLeader:
		return fmt.Sprintf("hand etcd's leadership to member %s", e.Member)
	}
	return string(e.Kind)
}
