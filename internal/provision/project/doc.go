// Package project makes a Docker host one of regrade's: the folder of the shipped Compose
// project, its .env and k3s's configuration files, the images, and the three containers. It
// is what package setup is on a native host.
//
// Make and MakeRemoval decide only, from what Look saw. Carry makes the changes. Compose
// itself is asked to make containers, for nothing else knows how; it is never asked in a way
// that would make a container anew in which k3s runs: a change that needs that is refused.
package project
