package k3s

import "syscall"

// errNotDir is what the kernel answers for a path below a file: nothing is there.
var errNotDir = syscall.ENOTDIR
