// Package behaviour holds what differs between k3s versions (k3s facts §4.3) and the switches tests set through the
// environment.
package behaviour

import (
	"fmt"
	"time"
)

// Names of the environment variables that change the stand-in. None of them exists in k3s.
const (
	// EnvVersion chooses the k3s version whose behaviour is imitated: 1.34.1, 1.34.2 (also 1.34.3) or 1.36 (also
	// 1.34.4 and later 1.34). Default 1.36.
	EnvVersion = "K3S_STANDIN_VERSION"
	// EnvLearnerStall is the time without progress after which an unstarted learner is evicted. Default 5m.
	EnvLearnerStall = "K3S_STANDIN_LEARNER_STALL"
	// EnvLearnerTick is the period of the learner loop. Default 15s.
	EnvLearnerTick = "K3S_STANDIN_LEARNER_TICK"
	// EnvTombstoneWhenDown, set to 1, makes a server that was removed while it was down write a tombstone when it
	// starts and learns of it. A real k3s 1.36.3 did not in 7 starts of 7.
	EnvTombstoneWhenDown = "K3S_STANDIN_TOMBSTONE_WHEN_DOWN"
	// EnvReadyLimit is how long a server waits for its apiserver before it shuts itself down. Default 15m.
	EnvReadyLimit = "K3S_STANDIN_READY_LIMIT"
	// EnvVoterHeartbeat is the longest time an unchanged EtcdIsVoter condition goes without a new heartbeat. Default 5m.
	EnvVoterHeartbeat = "K3S_STANDIN_VOTER_HEARTBEAT"
)

// Behaviour is one k3s version's way of doing what changed between versions.
type Behaviour struct {
	Name string
	// MoveLeaderFirst: leadership is moved before a leading member is removed.
	MoveLeaderFirst bool
	// DropRemoveAnnotation: the remove annotation is deleted after a removal.
	DropRemoveAnnotation bool
	// DieWithEtcd: a process whose etcd stops without a tombstone exits 1 instead of lingering.
	DieWithEtcd bool
	// RefuseTombstoneWithoutServer: a tombstone without --server is an error instead of a new cluster.
	RefuseTombstoneWithoutServer bool
	// DisableEtcdRemovesMember: --disable-etcd on a former member removes that member.
	DisableEtcdRemovesMember bool
	// FatalJoinErrors: a failed join exits 1 instead of asking for a shutdown (exit 0).
	FatalJoinErrors bool

	LearnerTick       time.Duration
	LearnerStall      time.Duration
	VoterHeartbeat    time.Duration
	ReadyLimit        time.Duration
	TombstoneWhenDown bool
}

// FromEnv reads the switches. An unknown version or a bad duration is an error that names the variable.
func FromEnv(getenv func(string) string) (Behaviour, error) {
	b := Behaviour{
		LearnerTick:    15 * time.Second,
		LearnerStall:   5 * time.Minute,
		VoterHeartbeat: 5 * time.Minute,
		ReadyLimit:     15 * time.Minute,
	}
	switch v := getenv(EnvVersion); v {
	case "1.34.1":
		b.Name = v
		b.DieWithEtcd, b.DisableEtcdRemovesMember, b.FatalJoinErrors = true, true, true
	case "1.34.2", "1.34.3":
		b.Name = v
		b.MoveLeaderFirst, b.DropRemoveAnnotation, b.DisableEtcdRemovesMember = true, true, true
	case "", "1.36", "1.34.4", "1.34.5":
		b.Name = v
		if v == "" {
			b.Name = "1.36"
		}
		b.MoveLeaderFirst, b.DropRemoveAnnotation, b.RefuseTombstoneWithoutServer = true, true, true
	default:
		return Behaviour{}, fmt.Errorf("%s: unknown version %q (1.34.1, 1.34.2 or 1.36)", EnvVersion, v)
	}
	for _, d := range []struct {
		env string
		to  *time.Duration
	}{
		{EnvLearnerTick, &b.LearnerTick},
		{EnvLearnerStall, &b.LearnerStall},
		{EnvReadyLimit, &b.ReadyLimit},
		{EnvVoterHeartbeat, &b.VoterHeartbeat},
	} {
		v := getenv(d.env)
		if v == "" {
			continue
		}
		parsed, err := time.ParseDuration(v)
		if err != nil || parsed <= 0 {
			return Behaviour{}, fmt.Errorf("%s: %q is not a positive duration", d.env, v)
		}
		*d.to = parsed
	}
	b.TombstoneWhenDown = getenv(EnvTombstoneWhenDown) == "1"
	return b, nil
}
