//go:build race

package sim

// underRace: the race detector makes a walk ten times as long, and it has one goroutine.
const underRace = true
