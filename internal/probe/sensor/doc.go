// Package sensor holds what a probe measures with: the way to each voter's peer
// port, etcd's own metrics page, a disk's fdatasync, memory, and the link of the
// default route. Each sensor reads the real thing through a root folder or a URL,
// so that fixtures serve as well; none judges what it reads, and none knows of a
// cluster. A reading that cannot be taken is a *Fault, never a zero.
package sensor
