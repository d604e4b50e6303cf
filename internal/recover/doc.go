// Package recover decides which Nodes are tainted as out of service, cleared,
// deleted or left alone, and why: a function of an observation (requirements B,
// design §3).
//
// The taint says that a host is dead. Kubernetes believes it: the pods are gone and
// their volumes are another host's. On a host that still runs that can corrupt a
// volume, so each gate here is in the way of the taint, and none in the way of its
// removal.
package recover
