// Package web is what a process shows over HTTP: metrics for Prometheus, and
// whether it lives and is ready. Nothing in it acts on the fleet.
package web
