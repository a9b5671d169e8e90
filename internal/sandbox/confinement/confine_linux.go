package confinement

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights of Landlock, by the ABI that introduced them.
const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REFER
	deviceRights = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK // never granted

	allRights = readRights | writeRights | deviceRights
)

// systemPaths may be read and executed by every command: programs, libraries and the few
// settings that the C library and interpreters need. The list has no path that reveals this
// host's users, services or secrets.
var systemPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/nix/store",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
	"/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/redhat-release", "/etc/alpine-release", "/etc/mime.types", "/etc/terminfo", "/etc/magic", "/etc/services", "/etc/protocols",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs",
	"/etc/fonts",
	"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version", "/proc/filesystems", "/proc/loadavg",
	"/proc/sys/kernel/osrelease", "/proc/sys/kernel/pid_max", "/proc/sys/vm/overcommit_memory",
	"/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
}

// devicePaths may be read and written.
var devicePaths = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// Filters reports whether this package has the system calls of this processor.
const Filters = auditArch != 0

// ABI returns the kernel's Landlock ABI, capped at most unless most is zero.
func ABI(most int) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	if most > 0 {
		return min(int(v), most), nil
	}
	return int(v), nil
}

// confine removes every right that a command must not have from the calling thread and its
// future children. It cannot be undone. The returned listener receives the calls that serve
// answers.
func confine(j Job, rules *ruleset) (listener int, err error) {
	abi, err := ABI(j.ABI)
	if err != nil {
		return -1, fmt.Errorf("landlock: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return -1, fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("no_new_privs: %w", err)
	}
	if err := restrictFiles(j, abi, rules); err != nil {
		return -1, fmt.Errorf("landlock: %w", err)
	}
	if listener, err = restrictCalls(abi, j.Network); err != nil {
		return -1, fmt.Errorf("seccomp: %w", err)
	}
	return listener, nil
}

// dropCapabilities matters for a host that runs as root: its commands stay user 0, as the
// owner of their workspace, but lose every privilege.
func dropCapabilities() error {
	for c := range unix.CAP_LAST_CAP + 1 {
		// EINVAL: this kernel does not have the capability. EPERM: this process is not
		// privileged, so it has no capability to give away.
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&hdr, &none[0])
}

// ruleset is the set of files that a supervisor's commands may reach. It is created for the
// first command, as creating a ruleset takes longer than applying one.
type ruleset struct {
	fd   int
	made time.Time // zero: not yet
}

// rulesetAge is how long a ruleset is used. A system file that was replaced meanwhile is
// not covered by the ruleset.
const rulesetAge = 10 * time.Second

// restrictFiles puts the calling thread into a Landlock domain.
func restrictFiles(j Job, abi int, rules *ruleset) error {
	if !rules.made.IsZero() && time.Since(rules.made) > rulesetAge {
		unix.Close(rules.fd)
		rules.made = time.Time{}
	}
	if rules.made.IsZero() {
		fd, err := makeRuleset(j, abi)
		if err != nil {
			return err
		}
		rules.fd, rules.made = fd, time.Now()
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules.fd), 0, 0); errno != 0 {
		return fmt.Errorf("restrict: %w", errno)
	}
	return nil
}

// The ABIs of Landlock that replaced a check of the supervisor, on processors where the
// supervisor makes that check.
const (
	abiRefer    = 2 // renames from one directory to another
	abiTruncate = 3
	abiScope    = 6 // signals
)

// makeRuleset creates the ruleset with the files that a command may reach.
func makeRuleset(j Job, abi int) (ruleset int, err error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: allRights}
	if abi < abiRefer {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi < abiTruncate {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 && !j.Network {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= abiScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	if abi >= 9 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	if abi >= 10 && !j.Network {
		attr.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_BIND_UDP | unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP
	}
	r, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("create ruleset: %w", errno)
	}
	ruleset = int(r)
	defer func() {
		if err != nil {
			unix.Close(ruleset)
		}
	}()

	allow := func(fd int, rights uint64) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			rights &= fileRights
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & attr.Handled_access_fs, Parent_fd: int32(fd)}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, r, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
	allowPath := func(p string, rights uint64) error {
		fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			err = allow(fd, rights)
			unix.Close(fd)
		}
		if err != nil {
			return &os.PathError{Op: "allow", Path: p, Err: err}
		}
		return nil
	}
	all := attr.Handled_access_fs &^ uint64(deviceRights|unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
	if err := allow(workspaceFD, all); err != nil {
		return -1, fmt.Errorf("allow the workspace: %w", err)
	}
	if err := allowPath(j.Tmp, all); err != nil {
		return -1, err
	}
	for _, list := range []struct {
		paths  []string
		rights uint64
	}{
		{systemPaths, readRights},
		{j.ReadOnly, readRights},
		{devicePaths, unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE},
	} {
		for _, p := range list.paths {
			// A path that is missing on a host cannot be allowed and is not needed.
			err := allowPath(p, list.rights)
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOTDIR) {
				return -1, err
			}
		}
	}
	return ruleset, nil
}

// probe confines a thread of this process and attempts the accesses that a command must not
// be able to make. Refused is the reason why this host does not confine it.
func probe(j Job) Result {
	out := make(chan string, 1)
	onOtherThread(func() { out <- probeConfined(j) })
	return Result{Refused: <-out}
}

func probeConfined(j Job) string {
	if _, err := confine(j, &ruleset{}); err != nil {
		return err.Error()
	}
	if fd, err := unix.Open(j.Probe, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
		return "Landlock does not hold back reading"
	}
	if fd, err := unix.Open(j.Probe[:strings.LastIndexByte(j.Probe, '/')]+"/new", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
		unix.Close(fd)
		return "Landlock does not hold back writing"
	}
	if fd, err := unix.Open(j.Tmp+"/new", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
		return "Landlock holds back writing below the workspace: " + err.Error()
	} else {
		unix.Close(fd)
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		if fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			return "seccomp does not hold back sockets"
		}
	}
	return ""
}
