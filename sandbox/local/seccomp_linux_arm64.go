package local

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archDenied are the denied calls that only this processor has.
var archDenied []uint32
