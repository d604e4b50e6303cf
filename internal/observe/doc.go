// Package observe gathers one swap.Observation through a port. It reads
// everything before anything acts, judges freshness by its own monotonic clock
// (safety rule 22) and turns what it cannot read or understand into words in
// the Observation, never into health and never into death (safety rule 24).
package observe
