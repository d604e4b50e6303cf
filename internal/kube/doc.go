// Package kube is the one Kubernetes client. It turns API objects into the
// types of those who use it and back, and knows nothing of swaps.
//
// Reads name no resourceVersion, so that a quorum answers them; every request
// ends after RequestTimeout (safety rule 23). No discovery is made: the kinds
// used are few and fixed, which keeps the number of requests known and the
// rights small.
package kube
