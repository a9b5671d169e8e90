package confinement

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archDenied are the denied calls that only this processor has.
var archDenied = []uint32{
	unix.SYS_LINK, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL,
	unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT, // every C library uses utimensat
	unix.SYS_INOTIFY_INIT,
}

// archHandled are the calls for the supervisor that only this processor has.
var archHandled = []handled{
	{nr: unix.SYS_CHMOD, op: opMode, dirfd: -1, path: 0, val: 1, val2: -1, flags: -1},
	{nr: unix.SYS_CHOWN, op: opOwner, dirfd: -1, path: 0, val: 1, val2: 2, flags: -1},
	{nr: unix.SYS_LCHOWN, op: opOwner, dirfd: -1, path: 0, val: 1, val2: 2, flags: -1, noFollow: true},
	{nr: unix.SYS_RENAME, op: opRename, before: abiRefer, dirfd: -1, path: 0, dirfd2: -1, path2: 1, flags: -1},
}

// creating are the calls that make a file, with the index of their flags (-1:
// they always make one) and of the new file's mode.
var creating = []creator{
	{unix.SYS_OPENAT, 2, 3}, {unix.SYS_OPEN, 1, 2}, {unix.SYS_CREAT, -1, 1},
}

// nodes are the calls that make special files, with the index of the mode.
var nodes = []creator{{unix.SYS_MKNODAT, -1, 2}, {unix.SYS_MKNOD, -1, 1}}
