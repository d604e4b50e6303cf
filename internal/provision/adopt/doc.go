// Package adopt reads how a k3s was set up, as its install script or a person did it,
// and splits that into one configuration file for each role without changing what runs
// (k3s-facts §1.1 to §1.4, issue 7). It decides only: what is on the host is handed in,
// what is to be written comes out. What it does not understand it refuses.
package adopt
