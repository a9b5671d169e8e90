package sandboxtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leakFile opens a file that every child inherits, as a careless host might.
func leakFile(name string) (func() error, error) {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o600) // not O_CLOEXEC
	if err != nil {
		return nil, err
	}
	return func() error { return unix.Close(fd) }, nil
}

// inMemory reports whether the files of a directory are in memory.
func inMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// errnoName returns the name of the system's error, "" for another error.
func errnoName(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return ""
}

func outside(name string) string { return filepath.Join(os.Getenv("OUTSIDE"), name) }

func hostPID() int {
	pid, err := strconv.Atoi(os.Getenv("HOST_PID"))
	if err != nil {
		panic("HOST_PID: " + err.Error())
	}
	return pid
}

func second[T any](_ T, err error) error { return err }

// closing closes the file of an attempt that succeeded.
func closing(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// call makes a system call with invalid arguments, so that it has no effect if it is
// allowed.
func call(nr uintptr, args ...uintptr) func() error {
	var a [6]uintptr
	copy(a[:], args)
	return func() error {
		if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

const bad = ^uintptr(0) // as a descriptor -1, as a pointer a fault

// Commands that query the status of other processes' System V objects.
const (
	shmStat = 13
	semStat = 18
	msgStat = 11
)

func openWrite(name string, flags int) error {
	f, err := os.OpenFile(name, os.O_WRONLY|flags, 0o644)
	if err == nil {
		f.Close()
	}
	return err
}

func socket(family, kind, proto int) func() error {
	return func() error { return closing(unix.Socket(family, kind, proto)) }
}

func dial(network, env string) func() error {
	return func() error {
		c, err := net.DialTimeout(network, os.Getenv(env), 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		return second(c.Write([]byte("x")))
	}
}

func handle(name string) (int, error) { return unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0) }

func at(fd int) uintptr { return uintptr(fd) }

// attempts are the operations of the probe. An attempt that must succeed returns the reason
// why it did not.
var attempts = map[string]func() error{
	"proxy": func() error {
		r, err := http.Get(os.Getenv("URL"))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if body, err := io.ReadAll(r.Body); string(body) != "through to "+os.Getenv("URL") {
			return fmt.Errorf("it says %q, %v", body, err)
		}
		return nil
	},
	"connect to the Internet": func() error { return second(net.DialTimeout("tcp", "1.1.1.1:443", 5*time.Second)) },
	"serve":                   serve,
	"ask":                     ask,
	"a server of one's own": func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		return second(net.Dial("tcp", l.Addr().String()))
	},
	"read":                          func() error { return second(os.ReadFile(outside("canary"))) },
	"read through a link":           func() error { return second(os.ReadFile("link-out")) },
	"read through a directory link": func() error { return second(os.ReadFile("dir-out/canary")) },
	"read through /proc/self/root":  func() error { return second(os.ReadFile("/proc/self/root" + outside("canary"))) },
	"read through the host's root":  func() error { return second(os.ReadFile(fmt.Sprintf("/proc/%d/root%s", hostPID(), outside("canary")))) },
	"list":                          func() error { return second(os.ReadDir(outside(""))) },
	"write":                         func() error { return os.WriteFile(outside("canary"), []byte("x"), 0o644) },
	"append":                        func() error { return openWrite(outside("canary"), os.O_APPEND) },
	"truncate":                      func() error { return openWrite(outside("canary"), os.O_TRUNC) },
	"truncate by path":              func() error { return os.Truncate(outside("canary"), 0) },
	"truncate for reading": func() error {
		return closing(unix.Open(outside("canary"), unix.O_RDONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0))
	},
	"truncate for nothing":        func() error { return closing(unix.Open(outside("canary"), 3|unix.O_TRUNC|unix.O_CLOEXEC, 0)) },
	"create":                      func() error { return openWrite(outside("new"), os.O_CREATE) },
	"create through a link":       func() error { return openWrite("dir-out/new", os.O_CREATE) },
	"mkdir":                       func() error { return os.Mkdir(outside("new"), 0o755) },
	"symlink":                     func() error { return os.Symlink("x", outside("new")) },
	"remove":                      func() error { return os.Remove(outside("canary")) },
	"rename out":                  func() error { return os.Rename("mine", outside("new")) },
	"rename in":                   func() error { return os.Rename(outside("canary"), "stolen") },
	"link in":                     func() error { return os.Link(outside("canary"), "stolen") },
	"link out":                    func() error { return os.Link("mine", outside("new")) },
	"link inside":                 func() error { return os.Link("mine", "second-name") },
	"read /etc/shadow":            func() error { return second(os.ReadFile("/etc/shadow")) },
	"list /root":                  func() error { return second(os.ReadDir("/root")) },
	"list /home":                  func() error { return second(os.ReadDir("/home")) },
	"list /":                      func() error { return second(os.ReadDir("/")) },
	"list /tmp":                   func() error { return second(os.ReadDir("/tmp")) },
	"open /dev/mem":               func() error { return second(os.ReadDir("/dev")) },
	"device node":                 func() error { return unix.Mknod("device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	"read host environment":       func() error { return second(os.ReadFile(fmt.Sprintf("/proc/%d/environ", hostPID()))) },
	"read host command line":      func() error { return second(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", hostPID()))) },
	"read supervisor memory":      func() error { return second(os.Open(fmt.Sprintf("/proc/%d/mem", os.Getppid()))) },
	"chmod":                       func() error { return os.Chmod(outside("canary"), 0o777) },
	"chmod through a link":        func() error { return os.Chmod("link-out", 0o777) },
	"chmod the directory":         func() error { return os.Chmod("dir-out", 0o777) },
	"chmod by handle":             chmodByHandle,
	"chmod through /proc/self/fd": chmodThroughProc,
	"chmod a system file by descriptor": func() error {
		f, err := os.Open("/usr")
		if err != nil {
			return fmt.Errorf("cannot even open it: %s", err)
		}
		defer f.Close()
		return f.Chmod(0o755)
	},
	"chown":                        func() error { return os.Chown(outside("canary"), os.Getuid(), os.Getgid()) },
	"lchown":                       func() error { return os.Lchown(outside("canary"), os.Getuid(), os.Getgid()) },
	"chtimes":                      func() error { return os.Chtimes(outside("canary"), time.Unix(1, 0), time.Unix(1, 0)) },
	"chtimes through a link":       func() error { return os.Chtimes("link-out", time.Unix(1, 0), time.Unix(1, 0)) },
	"setxattr":                     func() error { return unix.Setxattr(outside("canary"), "user.x", []byte("x"), 0) },
	"set-user-ID file":             func() error { return closing(unix.Open("suid", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o4755)) },
	"chown inside to another user": chownInside,
	"metadata inside":              metadataInside,

	"tcp":         dial("tcp", "TCP"),
	"tcp of IPv6": func() error { return second(net.DialTimeout("tcp6", "[::1]:9", 5*time.Second)) },
	"udp of IPv6": func() error { return second(net.Dial("udp6", "[::1]:9")) },
	"ask a name server": func() error {
		c, err := net.Dial("udp", "1.1.1.1:53")
		if err != nil {
			return err
		}
		defer c.Close()
		return second(c.Write([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")))
	},
	"connect to the metadata service": func() error { return second(net.DialTimeout("tcp", "169.254.169.254:80", 5*time.Second)) },
	"udp":                             dial("udp", "UDP"),
	"unix":                            dial("unix", "UNIX"),
	"abstract unix":                   dial("unix", "ABSTRACT"),
	"tcp listen": func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			l.Close()
		}
		return err
	},
	"unix datagram pair": func() error { return second(unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)) },
	"netlink":            socket(unix.AF_NETLINK, unix.SOCK_RAW, 0),
	"packet":             socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"vsock":              socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"alg":                socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	"raw":                socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),

	"signal the host":          func() error { return unix.Kill(hostPID(), 0) },
	"signal the supervisor":    func() error { return unix.Kill(os.Getppid(), 0) },
	"signal the process":       func() error { return unix.Kill(hostPID(), unix.SIGKILL) },
	"signal the process group": func() error { return unix.Kill(-hostPID(), unix.SIGKILL) },
	"signal the thread":        func() error { return unix.Tgkill(hostPID(), hostPID(), unix.SIGKILL) },
	"signal any thread":        func() error { return call(unix.SYS_TKILL, uintptr(hostPID()), uintptr(unix.SIGKILL))() },
	"queue a signal":           func() error { return queueSignal(unix.SYS_RT_SIGQUEUEINFO, uintptr(hostPID()), uintptr(unix.SIGKILL)) },
	"queue a signal of a thread": func() error {
		return queueSignal(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(hostPID()), uintptr(hostPID()), uintptr(unix.SIGKILL))
	},
	"signal by the owner of a pipe": signalByOwner,
	"signal by pidfd": func() error {
		fd, err := unix.PidfdOpen(os.Getppid(), 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, 0, nil, 0)
	},
	"ptrace the host":  func() error { return unix.PtraceSeize(hostPID()) },
	"read host memory": call(unix.SYS_PROCESS_VM_READV, 1, bad, 1, bad, 1, 0),
	"limit the host": func() error {
		var have unix.Rlimit
		return unix.Prlimit(hostPID(), unix.RLIMIT_CORE, nil, &have)
	},
	"renice the host": func() error { return unix.Setpriority(unix.PRIO_PROCESS, hostPID(), 0) },
	"renice the user": func() error { return unix.Setpriority(unix.PRIO_USER, 0, 0) },
	"bind the host to a processor": func() error {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(hostPID(), &set); err != nil {
			return fmt.Errorf("cannot even ask: %s", err)
		}
		return unix.SchedSetaffinity(hostPID(), &set)
	},

	"write the first process's memory":     func() error { return openWrite("/proc/1/mem", 0) },
	"read the first process's environment": func() error { return second(os.ReadFile("/proc/1/environ")) },
	"find the daemon's socket":             func() error { return second(os.ReadDir("/run/rath/socket")) },
	"connect to the daemon":                func() error { return second(net.Dial("unix", "/run/rath/socket/s")) },
	"make a socket beside it":              func() error { return second(net.Listen("unix", "/run/rath/socket/t")) },
	"alarms":                               alarms,
	"32-bit entry": func() error {
		c := exec.Cmd{Path: "/proc/self/exe", Args: []string{probeName, "32-bit entry itself"}}
		out, err := c.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && strings.Contains(string(exit.Stderr), "SIGSEGV") {
			// A kernel without the entry raises a fault before any filter sees the call:
			// there is no call to reject.
			return errors.New("signal: bad system call")
		}
		if err == nil && !strings.Contains(string(out), "succeeded") {
			err = errors.New(strings.TrimSpace(string(out)))
		}
		return err
	},
	"32-bit entry itself": entry32,

	"mount":                  call(unix.SYS_MOUNT, bad, bad, bad, 0, 0),
	"umount":                 call(unix.SYS_UMOUNT2, bad, 0),
	"unshare":                call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
	"setns":                  call(unix.SYS_SETNS, bad, 0),
	"clone a user namespace": call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.CLONE_THREAD), 0, 0, 0, 0),
	"clone3":                 call(unix.SYS_CLONE3, bad, 1),
	"chroot":                 call(unix.SYS_CHROOT, bad),
	"pivot_root":             call(unix.SYS_PIVOT_ROOT, bad, bad),
	"fsopen":                 call(unix.SYS_FSOPEN, bad, bad),
	"open_tree":              call(unix.SYS_OPEN_TREE, bad, bad, bad),
	"bpf":                    call(unix.SYS_BPF, bad, bad, 1),
	"perf_event_open":        call(unix.SYS_PERF_EVENT_OPEN, bad, bad, bad, bad, bad),
	"userfaultfd":            call(unix.SYS_USERFAULTFD, bad),
	"io_uring_setup":         call(unix.SYS_IO_URING_SETUP, 1, bad),
	"io_uring_enter":         call(unix.SYS_IO_URING_ENTER, bad, 0, 0, 0, 0, 0),
	"keyctl":                 call(unix.SYS_KEYCTL, bad, bad),
	"add_key":                call(unix.SYS_ADD_KEY, bad, bad, bad, 1, 0),
	"request_key":            call(unix.SYS_REQUEST_KEY, bad, bad, bad, 0),
	"kexec_load":             call(unix.SYS_KEXEC_LOAD, bad, bad, bad, bad),
	"init_module":            call(unix.SYS_INIT_MODULE, bad, 0, bad),
	"finit_module":           call(unix.SYS_FINIT_MODULE, bad, bad, bad),
	"delete_module":          call(unix.SYS_DELETE_MODULE, bad, bad),
	"reboot":                 call(unix.SYS_REBOOT, bad, bad, bad, bad),
	"swapon":                 call(unix.SYS_SWAPON, bad, bad),
	"settimeofday":           call(unix.SYS_SETTIMEOFDAY, bad, bad),
	"clock_settime":          call(unix.SYS_CLOCK_SETTIME, 0, bad),
	"sethostname":            call(unix.SYS_SETHOSTNAME, bad, 1),
	"open_by_handle_at":      call(unix.SYS_OPEN_BY_HANDLE_AT, bad, bad, 0),
	"process_vm_writev":      call(unix.SYS_PROCESS_VM_WRITEV, 1, bad, 1, bad, 1, 0),
	"kcmp":                   call(unix.SYS_KCMP, 1, 1, 0, 0, 0),
	"pidfd_getfd":            call(unix.SYS_PIDFD_GETFD, bad, 0, 0),
	"shmget":                 call(unix.SYS_SHMGET, 0, 4096, 0),
	"msgget":                 call(unix.SYS_MSGGET, 0, 0),
	"semget":                 call(unix.SYS_SEMGET, 0, 1, 0),
	"mq_open":                call(unix.SYS_MQ_OPEN, bad, 0, 0, 0),
	"mq_unlink":              call(unix.SYS_MQ_UNLINK, bad),
	"mq_send":                call(unix.SYS_MQ_TIMEDSEND, bad, bad, 0, 0, 0),
	"mq_receive":             call(unix.SYS_MQ_TIMEDRECEIVE, bad, bad, 0, 0, 0),
	"mq_notify":              call(unix.SYS_MQ_NOTIFY, bad, 0),
	"shmat":                  call(unix.SYS_SHMAT, bad, 0, 0),
	"shmctl":                 call(unix.SYS_SHMCTL, 0, shmStat, bad),
	"semop":                  call(unix.SYS_SEMOP, 0, bad, 1),
	"semtimedop":             call(unix.SYS_SEMTIMEDOP, 0, bad, 1, 0),
	"semctl":                 call(unix.SYS_SEMCTL, 0, 0, semStat, bad),
	"msgsnd":                 call(unix.SYS_MSGSND, 0, bad, 0, 0),
	"msgrcv":                 call(unix.SYS_MSGRCV, 0, bad, 0, 0, 0),
	"msgctl":                 call(unix.SYS_MSGCTL, 0, msgStat, bad),
	"inotify_init":           func() error { return closing(unix.InotifyInit1(unix.IN_CLOEXEC)) },
	"inotify_add_watch":      call(unix.SYS_INOTIFY_ADD_WATCH, bad, bad, unix.IN_CREATE),
	"directory notification": directoryNotification,
	"x32":                    x32,

	"open files":    openFiles,
	"threads":       threads,
	"children":      func() error { return exec.Command("sh", "-c", "true | true").Run() },
	"pair":          func() error { return second(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) },
	"memory file":   func() error { return closing(unix.MemfdCreate("x", unix.MFD_CLOEXEC)) },
	"rename inside": renameInside,
	"rename to the temporary files": func() error {
		if err := os.Mkdir("away", 0o755); err != nil {
			return err
		}
		return os.Rename("away", filepath.Join(os.Getenv("TMPDIR"), "moved"))
	},
	"truncate inside":    truncateInside,
	"signals inside":     signalsInside,
	"take memory":        takeMemory,
	"take a memory file": takeMemoryFile,
	"take /dev/shm":      func() error { return fill("/dev/shm/rath-sandboxtest", 512<<20) },
	"write a large file": func() error { return fill("large", 192<<20) },
	"use processors":     useProcessors,
	"take threads":       takeThreads,
	"own limits": func() error {
		var have unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
			return err
		}
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &have)
	},
}

// chmodByHandle names the file by a handle that requires no right to open it.
func chmodByHandle() error {
	fd, err := handle(outside("canary"))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	empty := [1]byte{}
	return call(unix.SYS_FCHMODAT2, at(fd), uintptr(unsafe.Pointer(&empty)), 0o777, unix.AT_EMPTY_PATH)()
}

func chmodThroughProc() error {
	fd, err := handle(outside("canary"))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o777)
}

func chownInside() error {
	if err := os.WriteFile("owned", nil, 0o644); err != nil {
		return fmt.Errorf("prepare: %s", err)
	}
	return os.Chown("owned", os.Getuid()+1, -1)
}

// metadataInside changes the metadata of its own files in every possible way.
func metadataInside() error {
	if err := os.WriteFile("meta", nil, 0o644); err != nil {
		return err
	}
	f, err := os.Open("meta")
	if err != nil {
		return err
	}
	defer f.Close()
	fd, err := handle("meta")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for i, change := range []func(mode uint32) error{
		func(m uint32) error { return unix.Chmod("meta", m) },
		func(m uint32) error { return unix.Fchmod(int(f.Fd()), m) },
		func(m uint32) error { return unix.Fchmodat(unix.AT_FDCWD, "meta", m, 0) },
		func(m uint32) error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), m) },
		func(m uint32) error { return unix.Chmod(fmt.Sprintf("/dev/fd/%d", fd), m) },
	} {
		mode := uint32(0o600 + i)
		if err := change(mode); err != nil {
			return fmt.Errorf("way %d: %w", i, err)
		}
		fi, err := f.Stat()
		if err != nil || uint32(fi.Mode().Perm()) != mode {
			return fmt.Errorf("way %d left mode %v, %w", i, fi.Mode(), err)
		}
	}
	if err := os.Chown("meta", os.Getuid(), -1); err != nil {
		return err
	}
	when := time.Unix(1e9, 123456789)
	if err := os.Chtimes("meta", when, when); err != nil {
		return err
	}
	fi, err := os.Stat("meta")
	if err != nil || !fi.ModTime().Equal(when) {
		return fmt.Errorf("times are %v, %w", fi.ModTime(), err)
	}
	return nil
}

// x32 makes a call by its number for 32-bit pointers, which on amd64 reaches the same
// kernel function under another number.
func x32() error {
	if runtime.GOARCH != "amd64" {
		return unix.ENOSYS
	}
	return call(0x40000000 | unix.SYS_GETPID)()
}

// openFiles searches for open files of the host.
func openFiles() error {
	var found []string
	for fd := 3; fd < 1024; fd++ {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		// The Go runtime's own.
		if err == nil && !strings.HasPrefix(name, "anon_inode:[event") {
			found = append(found, fmt.Sprintf("%d is %s", fd, name))
		}
	}
	if found != nil {
		return errors.New(strings.Join(found, ", "))
	}
	return nil
}

func threads() error {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			runtime.LockOSThread()
			time.Sleep(time.Millisecond)
		})
	}
	wg.Wait()
	return nil
}

func renameInside() error {
	for _, d := range []string{"ren/a", "ren/b"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile("ren/a/f", nil, 0o644); err != nil {
		return err
	}
	return os.Rename("ren/a/f", "ren/b/f")
}

// queueSignal sends a signal with sender-supplied information.
func queueSignal(nr uintptr, args ...uintptr) error {
	info := struct {
		signo, errno, code int32
		rest               [29]int32
	}{signo: int32(unix.SIGKILL), code: -1} // SI_QUEUE
	return call(nr, append(args, uintptr(unsafe.Pointer(&info)))...)()
}

// directoryNotification requests signals for changes of a directory outside.
func directoryNotification() error {
	fd, err := unix.Open("/usr", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot even open it: %s", err)
	}
	defer unix.Close(fd)
	return second(unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, 0x4 /* DN_CREATE */))
}

// signalByOwner makes the kernel send a signal for a pipe whose owner is another process.
// Setting the owner is harmless unless a signal arrives, which the caller checks.
func signalByOwner() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe: %s", err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	for _, c := range [][2]int{{unix.F_SETOWN, hostPID()}, {unix.F_SETSIG, int(unix.SIGKILL)}, {unix.F_SETFL, unix.O_ASYNC}} {
		if _, err := unix.FcntlInt(uintptr(p[0]), c[0], c[1]); err != nil {
			return err
		}
	}
	return second(unix.Write(p[1], []byte("x")))
}

// signalsInside sends each permitted signal in each way.
func signalsInside() error {
	got := make(chan os.Signal, 8)
	signal.Notify(got, unix.SIGUSR1)
	defer signal.Stop(got)
	pid, usr1 := os.Getpid(), unix.SIGUSR1
	for name, send := range map[string]func() error{
		"kill":   func() error { return unix.Kill(pid, usr1) },
		"tgkill": func() error { return unix.Tgkill(pid, pid, usr1) },
		"tkill":  call(unix.SYS_TKILL, uintptr(pid), uintptr(usr1)),
	} {
		if err := send(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		<-got
	}
	for name, kill := range map[string]func(pid int) error{
		"kill":   func(pid int) error { return unix.Kill(pid, unix.SIGKILL) },
		"group":  func(pid int) error { return unix.Kill(-pid, unix.SIGKILL) },
		"tgkill": func(pid int) error { return unix.Tgkill(pid, pid, unix.SIGKILL) },
	} {
		c := exec.Command("sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			return err
		}
		if err := kill(c.Process.Pid); err != nil {
			return fmt.Errorf("%s of a child: %w", name, err)
		}
		if err := c.Wait(); c.ProcessState.Success() {
			return fmt.Errorf("%s of a child: %w", name, err)
		}
		if err := unix.Kill(c.Process.Pid, 0); err != unix.ESRCH {
			return fmt.Errorf("signal a process that is gone: %w", err)
		}
	}
	return nil
}

// truncateInside truncates the command's own files.
func truncateInside() error {
	if err := os.WriteFile("long", []byte("long"), 0o644); err != nil {
		return err
	}
	if err := os.Truncate("long", 2); err != nil {
		return err
	}
	if fi, err := os.Stat("long"); err != nil || fi.Size() != 2 {
		return fmt.Errorf("2 bytes are wanted, %d left: %w", fi.Size(), err)
	}
	if err := os.Truncate(".", 0); err == nil {
		return errors.New("a directory was shortened")
	}
	return openWrite("long", os.O_TRUNC)
}

// entry32 makes a call by the entry for 32-bit programs, where call numbers differ: 20 is
// getpid. A filter for 64-bit numbers only would allow it.
func entry32() error {
	if runtime.GOARCH != "amd64" {
		return unix.ENOSYS
	}
	// mov $20, eax; int 0x80; mov eax, result; ret
	code, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map code: %s", err)
	}
	copy(code, "\xb8\x14\x00\x00\x00\xcd\x80\x89\x05\x13\x00\x00\x00\xc3")
	entry := &code[0]
	value := &entry
	(*(*func())(unsafe.Pointer(&value)))()
	if result := *(*int32)(unsafe.Pointer(&code[32])); result < 0 {
		return syscall.Errno(-result)
	}
	return nil
}
