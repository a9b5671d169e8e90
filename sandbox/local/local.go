// Package local runs commands as confined child processes of this machine.
//
// On Linux with Landlock (5.13 or later) and seccomp a command sees the system's programs
// and libraries read-only, writes only below its workspace and a temporary directory of its
// own, reaches no network and no process outside its sandbox, and inherits neither
// environment nor open files. This is [sandbox.IsolationKernel]; it needs no privileges, no
// namespaces, no daemon. Elsewhere commands are ordinary child processes,
// [sandbox.IsolationProcess], and Open fails unless its caller accepts that level. A list
// of hosts and services need a network namespace of the sandbox, held by a process of its
// own; without one they are rejected.
//
// Each command is run by a supervisor: this same binary, started again under another name.
// It confines the command and waits for it. Afterwards, or on request, or when this process
// dies, it kills every remaining process of the command, including detached ones. For that
// the program must call [Reexec] first:
//
//	func main() {
//		local.Reexec()
//		...
//	}
//
// and a test binary does the same at the top of TestMain.
//
// On Linux the processes and threads of a command, and the disk usage of the sandbox, are
// counted periodically, and a command is killed when they exceed its limit; it can exceed
// it for a moment. The default limit of processes is [MaxTasks]. Memory and processors are
// limited by control groups of either version, where this process may create them;
// otherwise a Spec with such a limit is rejected.
package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/sandbox"
)

// DefaultPath is the PATH of commands.
const DefaultPath = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"

// MaxTasks is the number of processes and threads above which a command is killed as a fork
// bomb. Where control groups can be created no more can be started. Elsewhere they are
// counted periodically, so a bomb can be larger for a while, and slow down the whole
// machine.
const MaxTasks = confinement.MaxTasks

// ErrNoReexec is returned when the program never called Reexec.
var ErrNoReexec = errors.New("local: this program cannot supervise commands: call local.Reexec() first in main, and first in TestMain of tests")

// Options configure a backend. The zero value is useful.
type Options struct {
	// State is the directory for the backend's own files: one folder per open sandbox with
	// its record and its temporary directory. It is created if missing, must belong to this
	// user, and must be on this machine. "" means rath-sandbox-<uid> in the system's
	// temporary directory.
	State string
	// ReadOnly are additional files and directories that commands may read and execute,
	// such as a toolchain below /opt. Missing ones are skipped.
	ReadOnly []string
	// Path is the PATH of commands; "" means DefaultPath.
	Path string
	// Isolation caps the backend's isolation. "" means the strongest level of this host.
	// IsolationProcess switches confinement off, for trusted commands.
	Isolation sandbox.Isolation
	// UID and GID are the user that commands run as, who owns the workspace, in a container
	// whose first process is root and alone there. 0 is this process's user. Linux only.
	UID, GID int
	// Loopback reports that the network of this process reaches only a proxy on its
	// loopback, as in a container without a network, so that commands may use it for a
	// list of hosts. Linux only.
	Loopback bool

	abi int // tests: pretend that the kernel has no later Landlock ABI
}

// driver is the sandbox.Backend of this machine.
type driver struct {
	o Options

	mu     sync.Mutex
	probed *sandbox.Capabilities

	hierarchies []hierarchy // set with probed
}

// ready is set once this program has called Reexec.
var ready atomic.Bool

// Reexec turns this process into a helper process of a sandbox if it was started as one,
// and then never returns; otherwise it returns at once. A program that opens sandboxes must
// call it before anything else: before it reads flags, starts servers or opens files. A
// supervisor does not reach this call: it takes over while packages are initialized.
func Reexec() {
	ready.Store(true)
	becomeHolder()
}

// New returns a backend; nil options mean the defaults. It has no effect until the backend
// is used.
func New(o *Options) sandbox.Backend { return newDriver(o) }

func newDriver(o *Options) *driver {
	b := &driver{}
	if o != nil {
		b.o = *o
	}
	if b.o.State == "" {
		b.o.State = filepath.Join(os.TempDir(), fmt.Sprintf("rath-sandbox-%d", os.Getuid()))
	}
	if b.o.Path == "" {
		b.o.Path = DefaultPath
	}
	return b
}

// Name implements sandbox.Backend.
func (b *driver) Name() string { return "local" }

// Probe implements sandbox.Backend. The first call confines a short-lived process that
// attempts the forbidden operations; later calls return the first result.
func (b *driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	if !ready.Load() {
		return sandbox.Capabilities{}, ErrNoReexec
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probed != nil {
		return *b.probed, nil
	}
	c := sandbox.Capabilities{Isolation: sandbox.IsolationProcess, Detail: "process: asked for by options", Networks: []string{string(sandbox.NetworkOpen)}, WholeTree: wholeTree, Mounts: true}
	if b.o.Isolation != sandbox.IsolationProcess {
		detail, why, err := tryConfinement(ctx, b.o)
		switch {
		case err != nil:
			return sandbox.Capabilities{}, fmt.Errorf("local: probe: %w", err)
		case why != "":
			c.Detail = "process: " + why
		default:
			c = sandbox.Capabilities{Isolation: sandbox.IsolationKernel, Detail: detail, Networks: []string{string(sandbox.NetworkNone)}, WholeTree: wholeTree, Mounts: true}
			if !b.o.Loopback && tryLoopback(ctx) == nil {
				c.Networks = append(c.Networks, sandbox.NetworkList, sandbox.NetworkReadOnly)
				c.Services = true
			}
		}
	}
	if b.o.Loopback {
		c.Networks = []string{string(sandbox.NetworkNone), sandbox.NetworkList, sandbox.NetworkReadOnly}
		c.Services = true
	}
	b.hierarchies = hierarchies()
	c.Limits = enforced(b.hierarchies)
	for _, name := range sandbox.Programs {
		if finds(b.o.Path, name) {
			c.Programs = append(c.Programs, name)
		}
	}
	b.probed = &c
	return c, nil
}

// finds reports whether commands find a program in a PATH.
func finds(path, name string) bool {
	if runtime.GOOS == "windows" { // commands have this process's PATH
		_, err := exec.LookPath(name)
		return err == nil
	}
	return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
		fi, err := os.Stat(filepath.Join(dir, name))
		return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
	})
}

// Resolve implements sandbox.Backend.
func (b *driver) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	can, err := b.Probe(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	return can.Resolve("local", s)
}

// Open implements sandbox.Backend.
func (b *driver) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	info, err := b.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	return openBox(ctx, b.o, b.hierarchies, info, s)
}
