// Package alert says what is wrong with a fleet by its document fleet-health.json,
// and which messages that asks for: one alert for a condition, one recovery when it
// is over, whatever restarts meanwhile. From a document, or the lack of one, a small
// state and the time that has passed it makes the next state; nothing here sends.
//
// Times in the document are compared with the document's own time, which the API
// server gave them all. That no new document comes is judged by the time that this
// machine's own clock has counted while it looked, so that no clock that jumps, here
// or there, raises or ends an alert (safety rule 22).
//
// Package watch below it is the process that looks, and delivers.
package alert
