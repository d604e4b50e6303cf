package membership

import "time"

// Progress is the one slot for learner progress of a whole cluster, kept in etcd key k3s/etcd/learnerProgress.
type Progress struct {
	ID               uint64    `json:"id,omitempty"`
	Name             string    `json:"name,omitempty"`
	RaftAppliedIndex uint64    `json:"raftAppliedIndex,omitempty"`
	LastProgress     time.Time `json:"lastProgress"`
}

// ProgressKey is where Progress is kept.
const ProgressKey = "k3s/etcd/learnerProgress"

// Track records a learner's progress and says whether to evict it.
//
// applied is the applied index that a status call gave. Because k3s's client always asks the local etcd, it is the
// leader's own index, which grows with every tick: a learner that started and died is never evicted. Only a learner
// without client URLs, for which there is nobody to ask, stalls (k3s facts §4.1).
func Track(p Progress, m Member, applied uint64, now time.Time, stall time.Duration) (Progress, bool) {
	if p.ID != m.ID {
		p = Progress{ID: m.ID, Name: m.Name, LastProgress: now}
	}
	if len(m.ClientURLs) > 0 && applied > p.RaftAppliedIndex {
		p.RaftAppliedIndex, p.LastProgress = applied, now
	}
	p.Name = m.Name
	return p, now.Sub(p.LastProgress) > stall
}

// Condition is the Node condition EtcdIsVoter.
type Condition struct {
	Status  string
	Reason  string
	Message string
}

// ConditionType names the condition.
const ConditionType = "EtcdIsVoter"

// Voter is the condition of one Node that carries the etcd label (k3s facts §4.2). leaderErrors are those of the
// leader's own status, which k3s takes for every member's.
func Voter(n Node, members []Member, leaderErrors []string) Condition {
	for _, m := range members {
		if m.Name == "" || m.Name != n.Annotations[NameAnnotation] {
			continue
		}
		switch {
		case m.Learner:
			return Condition{"False", "MemberIsLearner", "Node has not been promoted to voting member of the etcd cluster"}
		case len(m.ClientURLs) == 0:
			return Condition{"False", "Unhealthy", "Node is unhealthy"}
		case len(leaderErrors) > 0:
			return Condition{"False", "Unhealthy", leaderErrors[0]}
		default:
			return Condition{"True", "MemberNotLearner", "Node is a voting member of the etcd cluster"}
		}
	}
	return Condition{"False", "NotAMember", "Node is not a member of the etcd cluster"}
}

// WriteCondition says whether a condition has to be written and whether it is a transition. An unchanged one only gets
// a new heartbeat, at most every period.
func WriteCondition(old *Condition, lastHeartbeat time.Time, next Condition, now time.Time, period time.Duration) (write, transition bool) {
	if old == nil || *old != next {
		return true, true
	}
	return now.Sub(lastHeartbeat) >= period, false
}
