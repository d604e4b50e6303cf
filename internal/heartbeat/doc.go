// Package heartbeat makes the document fleet-health.json of one observation: what
// a fleet is like now, told to people and programs outside of it, whether it is
// well or not. The document is a pure function of what was read, of what the
// document before it says, and of the time. Its JSON Schema is in internal/status/schemas.
//
// What could not be read is named and left out: it never reads as health, and never
// as the end of a trouble (safety rule 24).
//
// Package beat below it is the process that reads, and publishes what comes of it.
package heartbeat
