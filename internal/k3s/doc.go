// Package k3s knows k3s on disk: the data folder with its datastore, tombstone,
// member name and certificates; the configuration with its drop-ins; tokens;
// the arguments that k3s publishes on a Node; and its snapshot command. It
// starts nothing and asks nobody.
//
// Everything is looked up below a root, so that tests and containers can move
// it. The source of what k3s does is its own, v1.34 and v1.36 (k3s-facts).
package k3s
