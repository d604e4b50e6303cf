// Package monitoring checks the alert rules and the dashboard in
// deploy/monitoring with Prometheus' own parser. It is a module of its own, so
// that the product's graph does not hold Prometheus.
package monitoring
