// Package bundle writes what a bug report needs into one file: parts that somebody chose
// one by one, each with what it is, secrets masked, and a manifest of what is in it and
// what was left out and why. Nothing gets in because it happened to lie there.
package bundle
