// Package chart renders the Helm chart of deploy/chart with Helm's own engine and
// compares it with `regrade manifests`. It is a module of its own, so that the
// product's graph does not hold Helm.
package chart
