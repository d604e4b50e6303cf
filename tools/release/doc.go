// Command release makes the files of a release out of a checkout, offline, the same
// bytes each time: binaries, archives, deb and rpm, images, the chart, notices, bills of
// materials, sums. `make release VERSION=v1.2.3` runs it; docs/adr/0019-releases.md says
// what it decides. It is a module of its own, so that the product's graph does not hold
// what makes packages.
package main
