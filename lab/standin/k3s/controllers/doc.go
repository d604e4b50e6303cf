// Package controllers runs k3s's controllers: the label and annotations of a server's own Node, the member controller
// and Node finalizers behind their Leases, the learner loop, apiserver addresses in etcd and node password Secrets
// (k3s facts §4 to §7, §9). What they decide is in package membership.
package controllers
