// Package platform is the port to a host: what the host daemon can see and do
// there, whatever runs k3s (systemd units, containers). Adapters are in
// systemd/ (and later docker/, command/); platformtest holds a fake and the
// conformance suite that every adapter passes.
//
// No method waits for k3s. A start is queued, because READY may never come; a
// stop is asked for; Observe says how it went. Every effect is safe to repeat,
// and each is small enough that a crash behind it leaves a state which Observe
// tells apart.
package platform
