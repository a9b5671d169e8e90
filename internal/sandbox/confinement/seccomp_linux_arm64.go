package confinement

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archDenied are the denied calls that only this processor has.
var archDenied []uint32

// archHandled: all calls for the supervisor are those of every processor.
var archHandled []handled

// creating are the calls that make a file, with the index of their flags and
// of the new file's mode.
var creating = []creator{{unix.SYS_OPENAT, 2, 3}}

// nodes are the calls that make special files, with the index of the mode.
var nodes = []creator{{unix.SYS_MKNODAT, -1, 2}}
