// Package remote runs commands on hosts: over SSH, or on this machine. It enforces
// known_hosts, never asks a person, and never puts a secret into an argument.
package remote
