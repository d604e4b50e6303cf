package sim

// moreWalkFaults are kinds beside the fixed set: what it has no like of.
func moreWalkFaults() []walkFault {
	return []walkFault{
		{"controller dead, long", nil, func(k *walk) { k.later(long, "controller comes back", "") }},
		writes("", "of the controller lost", false), writes("", "of the controller made, not answered", true),
		writes("s1", "of the daemon of s1 lost", false), writes("v1", "of the daemon of v1 lost", false),
		{"network of v2 lost, long", up("v2"), func(k *walk) { k.w.Isolate("v2"); k.later(long, "network", "v2") }},
		crash("v3", "long", long),
		{"operator uncordons s1", nil, func(k *walk) { k.w.OperatorUncordons("s1") }},
		{"operator uncordons v1", nil, func(k *walk) { k.w.OperatorUncordons("v1") }},
		{"somebody removes the member of v2", nil, func(k *walk) { k.w.OperatorRemovesMember("v2") }},
		{"k3s is asked to remove the member of s1", nil, func(k *walk) { k.w.OperatorAsksRemoval("s1") }},
	}
}

// writes: those of a client time out for a short time, all made or none.
func writes(from, name string, made bool) walkFault {
	return walkFault{"writes " + name, func(k *walk) bool { _, already := k.w.failing[from]; return !already }, func(k *walk) {
		k.w.failing[from] = failing{until: k.w.now.Add(long * beat), made: func() bool { return made }}
		k.w.record(Effect{By: "fault", What: "writes " + name})
		what := "writes get through"
		if made {
			what = "writes are answered"
		}
		k.later(short, what, from)
	}}
}
