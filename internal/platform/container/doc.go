// Package container is the part of a host that is files where k3s runs in
// containers: what native is under systemd. The role files and k3s's data folder
// are the same; a join URL is a role file or a variable in place of drop-ins, and
// the level a file in the data folder, because a container's own arguments and
// variables change only when it is made anew (R-112-15).
//
// `regrade entrypoint` reads it in the k3s containers, where the role folder is
// mounted read-only; the Docker adapter of the host daemon reads and writes it.
// Both are given the same variables (R-C-09), so that both see the same URL.
package container
