// Package apply makes of a cluster and its hosts what fleet.yaml says, and takes it off
// again. It goes in phases; what a host has to change the program on that host decides
// (package setup), and one gate makes a look of the whole (settings.Check). Whatever ends a
// turn in its middle, the next one completes it.
package apply
