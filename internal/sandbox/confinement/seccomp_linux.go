//go:build amd64 || arm64

package confinement

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both processors are little-endian, so the
// low half of an argument comes first.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
)

func retErrno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

// denied are calls that no command needs and that lead out of the sandbox, or
// into parts of the kernel that are better left alone. They fail with EPERM.
var denied = []uint32{
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// mounts and namespaces
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_TREE_ATTR,
	// files past Landlock: by handle, by watching, and hard links, which a
	// workspace cannot keep
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_LINKAT,
	// the kernel
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_LOOKUP_DCOOKIE,
	// System V and POSIX queues are shared with all processes of the same user
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
	// watching files needs no right on them
	unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_RM_WATCH,
}

// selfOnly are calls whose argument of this index is a process, zero being the caller. A
// command must not change the scheduling and the limits of other processes of the same
// user, such as the host.
var selfOnly = []struct {
	nr  uint32
	arg int
}{
	{unix.SYS_PRLIMIT64, 0},
	{unix.SYS_SCHED_SETAFFINITY, 0},
	{unix.SYS_SCHED_SETSCHEDULER, 0},
	{unix.SYS_SCHED_SETPARAM, 0},
	{unix.SYS_SCHED_SETATTR, 0},
}

// unsupported are calls that fail as on a file system without the feature: extended
// attributes are metadata that Landlock does not restrict.
var unsupported = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// hidden are calls with arguments in memory, where a filter cannot check them. Callers fall
// back to older calls.
var hidden = []uint32{unix.SYS_CLONE3, unix.SYS_OPENAT2}

// creator is a call that makes a file.
type creator struct {
	nr          uint32
	flags, mode int // indices of arguments
}

// setIDs are the mode bits that no new file may have; see change.
const setIDs = unix.S_ISUID | unix.S_ISGID

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// program assembles a filter. Every rule is a block that ends in returns, so
// rules do not depend on each other.
type program []unix.SockFilter

func (p *program) load(off uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off})
}

func (p *program) ret(v uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v})
}

// skipIf jumps over the next n instructions if the condition holds; skipUnless does so if it
// does not hold.
func (p *program) skipIf(op uint16, k uint32, n uint8) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: n, K: k})
}

func (p *program) skipUnless(op uint16, k uint32, n uint8) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jf: n, K: k})
}

// on adds a block that runs for one call only; the number is loaded again
// after a block that loaded something else.
func (p *program) on(nr uint32, body program) {
	p.skipUnless(unix.BPF_JEQ, nr, uint8(len(body)))
	*p = append(*p, body...)
}

const (
	fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR
	fioSetOwn  = 0x8901     // FIOSETOWN
	siocSetOwn = 0x8902     // SIOCSPGRP
)

func arg(i int) uint32 { return offArgs + 8*uint32(i) }

// filter returns the program for a Landlock ABI. It rejects the calls that only later ABIs
// restrict. With network the network namespace is the limit, and commands may open Internet
// sockets.
func filter(abi int, network bool) program {
	var p program
	p.load(offArch)
	p.skipIf(unix.BPF_JEQ, auditArch, 1)
	p.ret(retKill) // calls of another architecture have other numbers
	p.load(offNr)
	if runtime.GOARCH == "amd64" {
		p.skipUnless(unix.BPF_JSET, 0x40000000, 1) // the x32 numbers
		p.ret(retErrno(unix.ENOSYS))
	}
	for _, list := range [][]uint32{denied, archDenied} {
		for _, nr := range list {
			p.skipUnless(unix.BPF_JEQ, nr, 1)
			p.ret(retErrno(unix.EPERM))
		}
	}
	for _, nr := range unsupported {
		p.skipUnless(unix.BPF_JEQ, nr, 1)
		p.ret(retErrno(unix.EOPNOTSUPP))
	}
	for _, nr := range hidden {
		p.skipUnless(unix.BPF_JEQ, nr, 1)
		p.ret(retErrno(unix.ENOSYS))
	}
	for _, nr := range slices.Sorted(maps.Keys(handledCalls(abi))) {
		p.skipUnless(unix.BPF_JEQ, nr, 1)
		p.ret(unix.SECCOMP_RET_USER_NOTIF)
	}

	var clone program
	clone.load(arg(0))
	clone.skipUnless(unix.BPF_JSET, newNamespaces, 1)
	clone.ret(retErrno(unix.EPERM))
	clone.ret(retAllow)
	p.on(unix.SYS_CLONE, clone)

	// No sockets, except Internet sockets with network, and Unix sockets where Landlock
	// confines them.
	var socket program
	if abi >= 9 {
		socket.load(arg(0))
		socket.skipUnless(unix.BPF_JEQ, unix.AF_UNIX, 1)
		socket.ret(retAllow)
	}
	if network {
		for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
			socket.load(arg(0))
			socket.skipUnless(unix.BPF_JEQ, family, 5)
			socket.load(arg(1))
			socket = append(socket, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf})
			socket.skipIf(unix.BPF_JEQ, unix.SOCK_STREAM, 1)
			socket.skipUnless(unix.BPF_JEQ, unix.SOCK_DGRAM, 1)
			socket.ret(retAllow)
		}
	}
	socket.ret(retErrno(unix.EACCES))
	p.on(unix.SYS_SOCKET, socket)

	// A connected pair is a better pipe. A datagram socket could be sent
	// elsewhere, so only the kinds that stay connected.
	var pair program
	pair.load(arg(0))
	pair.skipIf(unix.BPF_JEQ, unix.AF_UNIX, 1)
	pair.ret(retErrno(unix.EACCES))
	pair.load(arg(1))
	pair = append(pair, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf})
	pair.skipIf(unix.BPF_JEQ, unix.SOCK_STREAM, 2)
	pair.skipIf(unix.BPF_JEQ, unix.SOCK_SEQPACKET, 1)
	pair.ret(retErrno(unix.EACCES))
	pair.ret(retAllow)
	p.on(unix.SYS_SOCKETPAIR, pair)

	for _, s := range selfOnly {
		var self program
		self.load(arg(s.arg))
		self.skipIf(unix.BPF_JEQ, 0, 1)
		self.ret(retErrno(unix.EPERM))
		self.ret(retAllow)
		p.on(s.nr, self)
	}

	// Priorities: only of the calling process, not of its user's.
	for _, s := range []struct{ nr, which uint32 }{{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS}, {unix.SYS_IOPRIO_SET, 1}} {
		var self program
		self.load(arg(0))
		self.skipIf(unix.BPF_JEQ, s.which, 1)
		self.ret(retErrno(unix.EPERM))
		self.load(arg(1))
		self.skipIf(unix.BPF_JEQ, 0, 1)
		self.ret(retErrno(unix.EPERM))
		self.ret(retAllow)
		p.on(s.nr, self)
	}

	// Typing into a terminal that the host may have left open, changing the flags of
	// files, which Landlock does not restrict, and signals to the owner of a file.
	var ioctl program
	ioctl.load(arg(1))
	for _, request := range []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.FS_IOC_SETFLAGS & math.MaxUint32, fsSetXattr, fioSetOwn, siocSetOwn} {
		ioctl.skipUnless(unix.BPF_JEQ, request, 1)
		ioctl.ret(retErrno(unix.EPERM))
	}
	ioctl.ret(retAllow)
	p.on(unix.SYS_IOCTL, ioctl)

	// A process that is not dumpable hides its open files from the count of the disk. The
	// call succeeds without effect: some programs end when it fails.
	var prctl program
	prctl.load(arg(0))
	prctl.skipUnless(unix.BPF_JEQ, unix.PR_SET_DUMPABLE, 1)
	prctl.ret(retErrno(0))
	prctl.ret(retAllow)
	p.on(unix.SYS_PRCTL, prctl)

	// Signals that the kernel sends for a file: to an owner, or when a directory changes.
	var fcntl program
	fcntl.load(arg(1))
	commands := []uint32{unix.F_NOTIFY}
	if abi < abiScope {
		commands = append(commands, unix.F_SETOWN, unix.F_SETOWN_EX)
	}
	for _, c := range commands {
		fcntl.skipUnless(unix.BPF_JEQ, c, 1)
		fcntl.ret(retErrno(unix.EPERM))
	}
	fcntl.ret(retAllow)
	p.on(unix.SYS_FCNTL, fcntl)

	for _, c := range creating {
		var open program
		if c.flags >= 0 {
			if abi < abiTruncate {
				// Opening truncates a file even if it is not opened for writing.
				for _, mode := range []uint32{unix.O_RDONLY, unix.O_ACCMODE} {
					open.load(arg(c.flags))
					open = append(open, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: unix.O_TRUNC | unix.O_ACCMODE})
					open.skipUnless(unix.BPF_JEQ, unix.O_TRUNC|mode, 1)
					open.ret(retErrno(unix.EPERM))
				}
			}
			open.load(arg(c.flags))
			open.skipIf(unix.BPF_JSET, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY, 1)
			open.ret(retAllow)
		}
		open.load(arg(c.mode))
		open.skipUnless(unix.BPF_JSET, setIDs, 1)
		open.ret(retErrno(unix.EPERM))
		open.ret(retAllow)
		p.on(c.nr, open)
	}
	for _, c := range nodes {
		var node program // FIFOs only
		node.load(arg(c.mode))
		node = append(node, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: unix.S_IFMT | setIDs})
		node.skipIf(unix.BPF_JEQ, unix.S_IFIFO, 1)
		node.ret(retErrno(unix.EPERM))
		node.ret(retAllow)
		p.on(c.nr, node)
	}

	if abi < abiScope {
		for _, nr := range []uint32{unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIDFD_OPEN} {
			p.skipUnless(unix.BPF_JEQ, nr, 1)
			p.ret(retErrno(unix.EPERM))
		}
	}
	p.ret(retAllow)
	return p
}

// restrictCalls applies the filter to the calling thread and returns the listener for the
// calls that the supervisor makes itself.
func restrictCalls(abi int, network bool) (listener int, err error) {
	p := filter(abi, network)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// Only death interrupts a call that is being answered. Otherwise a program with
	// frequent timers would restart it endlessly.
	set := func(flags uintptr) (fd uintptr, errno unix.Errno) {
		fd, _, errno = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
		return fd, errno
	}
	fd, errno := set(unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if errno == unix.EINVAL { // before Linux 5.19
		fd, errno = set(0)
	}
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil // seccomp(2) makes it close-on-exec
}
