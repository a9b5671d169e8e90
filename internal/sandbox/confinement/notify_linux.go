//go:build amd64 || arm64

package confinement

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock does not restrict calls that change a file's metadata: its mode, its owner, its
// times. A command could make them on every file of its user, also outside the workspace,
// and could leave set-user-ID programs behind. The filter therefore forwards these calls to
// the supervisor. The supervisor resolves the file itself, checks that it lies inside, and
// makes the change on its own handle, so a concurrent change of the path has no effect.
//
// Forks are not forwarded, although that would make limits and the killing of trees exact:
// until the supervisor has received a call, a signal with a handler interrupts the call
// with EINTR, and shells do not expect that of fork.

// On kernels with an early Landlock the supervisor handles more calls: calls that their
// Landlock does not restrict, or always rejects.

// notifyOp is the effect of a call, independent of how the call names the file.
type notifyOp int

const (
	opMode notifyOp = iota
	opOwner
	opTimes
	opTruncate
	opRename
	opSignal
	opThread // a signal, too
)

// handled describes the arguments of one call: the index of each, or -1 if the call does
// not have it.
type handled struct {
	nr            uint32
	op            notifyOp
	before        int // the ABI of Landlock that makes it unnecessary; 0 if none does
	dirfd, path   int
	dirfd2, path2 int // of a rename
	val, val2     int // val: mode, uid, times, length, process or thread; val2: gid, signal
	flags         int
	noFollow      bool
}

// calls are the calls that the supervisor makes for the command on every processor;
// archHandled are calls of some processors only.
var calls = []handled{
	{nr: unix.SYS_FCHMOD, op: opMode, dirfd: 0, path: -1, val: 1, val2: -1, flags: -1},
	{nr: unix.SYS_FCHMODAT, op: opMode, dirfd: 0, path: 1, val: 2, val2: -1, flags: -1},
	{nr: unix.SYS_FCHMODAT2, op: opMode, dirfd: 0, path: 1, val: 2, val2: -1, flags: 3},
	{nr: unix.SYS_FCHOWN, op: opOwner, dirfd: 0, path: -1, val: 1, val2: 2, flags: -1},
	{nr: unix.SYS_FCHOWNAT, op: opOwner, dirfd: 0, path: 1, val: 2, val2: 3, flags: 4},
	{nr: unix.SYS_UTIMENSAT, op: opTimes, dirfd: 0, path: 1, val: 2, val2: -1, flags: 3},
	{nr: unix.SYS_TRUNCATE, op: opTruncate, before: abiTruncate, dirfd: -1, path: 0, val: 1, val2: -1, flags: -1},
	{nr: unix.SYS_RENAMEAT, op: opRename, before: abiRefer, dirfd: 0, path: 1, dirfd2: 2, path2: 3, flags: -1},
	{nr: unix.SYS_RENAMEAT2, op: opRename, before: abiRefer, dirfd: 0, path: 1, dirfd2: 2, path2: 3, flags: 4},
	{nr: unix.SYS_KILL, op: opSignal, before: abiScope, val: 0, val2: 1},
	{nr: unix.SYS_RT_SIGQUEUEINFO, op: opSignal, before: abiScope, val: 0, val2: 1},
	{nr: unix.SYS_TKILL, op: opThread, before: abiScope, val: 0, val2: 1},
	{nr: unix.SYS_TGKILL, op: opSignal, before: abiScope, val: 0, val2: 2},
	{nr: unix.SYS_RT_TGSIGQUEUEINFO, op: opSignal, before: abiScope, val: 0, val2: 2},
}

// handledCalls are the calls that the supervisor makes on a kernel with this ABI.
func handledCalls(abi int) map[uint32]handled {
	all := make(map[uint32]handled)
	for _, h := range slices.Concat(calls, archHandled) {
		if h.before == 0 || abi < h.before {
			all[h.nr] = h
		}
	}
	return all
}

// everyHandled has the calls of all kernels.
var everyHandled = handledCalls(0)

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// notifIDValid is SECCOMP_IOCTL_NOTIF_ID_VALID.
const notifIDValid = 0x40082102

// serve answers the calls of a command until none of its processes is left.
func serve(listener int, inside []string) {
	defer unix.Close(listener)
	for {
		// Receiving alone cannot distinguish a caller that died meanwhile from a tree that
		// has ended.
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil || fds[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
		case unix.EINTR, unix.ENOENT: // ENOENT: the caller died meanwhile
			continue
		default:
			return
		}
		a := answer{id: n.id}
		switch err := change(listener, &n, inside); {
		case err == errOwn:
			a.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
		case err != nil:
			a.errno = -int32(unix.EPERM)
			if e, ok := errors.AsType[unix.Errno](err); ok {
				a.errno = -int32(e)
			}
		}
		// ENOENT: the caller died and needs no answer.
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// change makes the change that a command requests, if the file is inside.
func change(listener int, n *notification, inside []string) error {
	h, ok := everyHandled[uint32(n.nr)]
	if !ok {
		return unix.ENOSYS
	}
	c := caller{n: n, listener: listener}
	switch h.op {
	case opSignal:
		return c.signal(int(int32(n.args[h.val])), unix.Signal(n.args[h.val2]))
	case opThread:
		return c.signalThread(int(int32(n.args[h.val])), unix.Signal(n.args[h.val2]))
	case opRename:
		return c.rename(h, inside)
	}
	fd, err := c.open(h)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	real, err := os.Readlink(self)
	if err != nil {
		return err
	}
	if !within(real, inside) {
		return unix.EPERM
	}
	switch h.op {
	case opMode:
		// Never a set-user-ID or set-group-ID bit: the file outlives the sandbox, and a
		// user who runs it later would run as this host's user.
		return unix.Chmod(self, uint32(n.args[h.val])&0o1777)
	case opOwner:
		// Allow only a change without effect: a command has no other user to give the file
		// to.
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		uid, gid := uint32(n.args[h.val]), uint32(n.args[h.val2])
		if (uid == ^uint32(0) || uid == st.Uid) && (gid == ^uint32(0) || gid == st.Gid) {
			return nil
		}
		return unix.EPERM
	case opTruncate:
		return unix.Truncate(self, int64(n.args[h.val]))
	case opTimes:
		times, err := c.times(n.args[h.val])
		if err != nil {
			return err
		}
		if times == nil {
			return utimens(self, nil)
		}
		return utimens(self, times)
	}
	return unix.ENOSYS
}

// within reports whether a path is one of the directories or below it.
func within(p string, dirs []string) bool {
	for _, d := range dirs {
		if p == d || strings.HasPrefix(p, d+"/") {
			return true
		}
	}
	return false
}

// utimens sets the times of the file that a path names now.
func utimens(p string, times *[2]unix.Timespec) error {
	name, err := unix.BytePtrFromString(p)
	if err != nil {
		return err
	}
	at := unix.AT_FDCWD
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(at), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// caller is the thread that waits for an answer.
type caller struct {
	n        *notification
	listener int
}

// read copies from the caller's memory and checks that it was the caller's: the pid may
// belong to another process by now.
func (c caller) read(at uint64, buf []byte) (int, error) {
	mem, err := unix.Open(fmt.Sprintf("/proc/%d/mem", c.n.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, unix.EPERM
	}
	defer unix.Close(mem)
	k, err := unix.Pread(mem, buf, int64(at))
	if err != nil {
		return 0, unix.EFAULT
	}
	return k, c.valid()
}

func (c caller) valid() error {
	id := c.n.id
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.listener), notifIDValid, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return errno
	}
	return nil
}

// text reads a path. It reads page by page, as the next page may be unmapped.
func (c caller) text(at uint64) (string, error) {
	var text []byte
	page := uint64(os.Getpagesize())
	for len(text) < unix.PathMax {
		buf := make([]byte, page-at%page)
		k, err := c.read(at, buf)
		if err != nil {
			return "", err
		}
		if i := bytes.IndexByte(buf[:k], 0); i >= 0 {
			return string(append(text, buf[:i]...)), nil
		}
		if k == 0 {
			return "", unix.EFAULT
		}
		text = append(text, buf[:k]...)
		at += uint64(k)
	}
	return "", unix.ENAMETOOLONG
}

// times reads two timespecs; nil means now.
func (c caller) times(at uint64) (*[2]unix.Timespec, error) {
	if at == 0 {
		return nil, nil
	}
	var t [2]unix.Timespec
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t))
	k, err := c.read(at, buf)
	if err == nil && k != len(buf) {
		err = unix.EFAULT
	}
	return &t, err
}

// open resolves the caller's file to an O_PATH handle, which still refers to the same file
// when the path changes.
func (c caller) open(h handled) (int, error) {
	dir := unix.AT_FDCWD
	if h.dirfd >= 0 {
		dir = int(int32(c.n.args[h.dirfd]))
	}
	var flags uint64
	if h.flags >= 0 {
		flags = c.n.args[h.flags]
	}
	if h.path < 0 || h.op == opTimes && c.n.args[h.path] == 0 {
		return c.own(dir)
	}
	name, err := c.text(c.n.args[h.path])
	if err != nil {
		return -1, err
	}
	if name == "" {
		if flags&unix.AT_EMPTY_PATH == 0 {
			return -1, unix.ENOENT
		}
		return c.own(dir)
	}
	return c.look(dir, name, h.noFollow || flags&unix.AT_SYMLINK_NOFOLLOW != 0)
}

// look opens a name as the caller sees it, below one of the caller's directories.
func (c caller) look(dir int, name string, noFollow bool) (int, error) {
	mode := unix.O_PATH | unix.O_CLOEXEC
	if noFollow {
		mode |= unix.O_NOFOLLOW
	}
	// Names that refer to the caller itself would refer to the supervisor here.
	for _, self := range []string{"/proc/self/", "/proc/thread-self/", "/dev/fd/"} {
		if rest, ok := strings.CutPrefix(name, self); ok {
			if self == "/dev/fd/" {
				rest = "fd/" + rest
			}
			name = fmt.Sprintf("/proc/%d/%s", c.n.pid, rest)
		}
	}
	if strings.HasPrefix(name, "/") {
		return c.checked(unix.Open(name, mode, 0))
	}
	base, err := c.own(dir)
	if err != nil {
		return -1, err
	}
	defer unix.Close(base)
	return unix.Openat(base, name, mode, 0)
}

// own opens one of the caller's open files, or its directory.
func (c caller) own(fd int) (int, error) {
	name := fmt.Sprintf("/proc/%d/fd/%d", c.n.pid, fd)
	if fd == unix.AT_FDCWD {
		name = fmt.Sprintf("/proc/%d/cwd", c.n.pid)
	}
	return c.checked(unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0))
}

// checked returns a file that was opened by the caller's process number, if the number
// still belongs to the caller.
func (c caller) checked(fd int, err error) (int, error) {
	if err == nil {
		if err = c.valid(); err != nil {
			unix.Close(fd)
		}
	}
	return fd, err
}

// rename moves a file from one directory to another, if both are inside.
func (c caller) rename(h handled, inside []string) error {
	var parents [2]int
	var names [2]string
	for i, a := range [][2]int{{h.dirfd, h.path}, {h.dirfd2, h.path2}} {
		dir := unix.AT_FDCWD
		if a[0] >= 0 {
			dir = int(int32(c.n.args[a[0]]))
		}
		name, err := c.text(c.n.args[a[1]])
		if err != nil {
			return err
		}
		// Slashes after the last name require a directory.
		above := strings.TrimRight(name, "/")
		at := strings.LastIndexByte(above, '/') + 1
		if names[i] = name[at:]; above == "" || above[at:] == "." || above[at:] == ".." {
			return unix.EBUSY
		}
		if above = name[:at]; above == "" {
			above = "."
		}
		if parents[i], err = c.look(dir, above, false); err != nil {
			return err
		}
		defer unix.Close(parents[i])
		real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", parents[i]))
		if err != nil {
			return err
		}
		if !within(real, inside) {
			return unix.EXDEV // as Landlock returns
		}
	}
	var flags uint
	if h.flags >= 0 {
		flags = uint(c.n.args[h.flags])
	}
	return unix.Renameat2(parents[0], names[0], parents[1], names[1], flags)
}
