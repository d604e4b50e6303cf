// Package remote runs commands as root on hosts, and writes files there: over SSH, or on
// this machine. It enforces known_hosts, never asks a person, writes nothing on the side it
// is started from, and puts no content of a file into an argument.
//
// What keeps a host from doing what it is told is a [Problem] with a code.
package remote
