// Package execd runs the commands of a sandbox inside a container: this same binary,
// mounted or copied there and started as its first process. An image has to contain
// nothing for it. The node speaks to it over a private Unix socket, or, in a pod of
// another machine, over TLS to a port of the pod; see [Keys].
//
// The first process does nothing but wait for what has lost its parent, and say when the
// memory killer took its child. That serves the socket and runs each command as package
// local does. In a container it is root, and
// commands have a user of their own: they can neither signal nor trace it, and cannot open
// the socket. A pod has one user for both: there it is Landlock that keeps commands from
// the daemon, and neither of its processes may be looked into by others of its user, but
// for the daemon of a sandbox with a list of hosts or services, which the kernel would not
// let give networks to commands. When the connection of the holder ends, or says nothing for the
// time of the lease, the daemon ends, and with it the container and all that runs there.
//
// A holder that is gone cannot come back: a new one opens a new container.
package execd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// The places in a container.
const (
	Name      = "rath-sandbox-daemon" // of the binary, and argv[0]
	SocketDir = "/run/rath/socket"    // where the node has it mounted from
	StateDir  = "/run/rath/state"     // temporary: the tmpfs of commands
	Workspace = "/workspace"
	// InstallDir is where a pod has the binary from; see InstallCommand.
	InstallDir = "/run/rath/program"
	// VolumeDir is where InstallCommand has the volume of the workspace, in which
	// WorkspacePath is what a pod has at Workspace.
	VolumeDir     = "/run/rath/volume"
	WorkspacePath = "own"
	socket        = "s"
)

// What a process of this name is told to be.
const (
	serveRole    = "serve"
	podRole      = "pod"
	servePodRole = "serve-pod"
	installRole  = "install"

	// upgradeRole is as podRole, of a daemon that is reached by WebSockets.
	upgradeRole      = "upgrade"
	serveUpgradeRole = "serve-upgrade"
)

// AddressVariable is the variable with the address that the daemon of a pod listens at.
const AddressVariable = "RATH_SANDBOX_ADDRESS"

// DefaultLease is how long a daemon lives without a word of its holder.
const DefaultLease = 30 * time.Second

// ready says that this program called Reexec.
var ready atomic.Bool

// Ready reports whether this program called Reexec, so that its binary is a daemon when
// a container starts it.
func Ready() bool { return ready.Load() }

// Reexec turns this process into a daemon, or into what a daemon starts, if it was
// started as one, and then never returns.
func Reexec(args []string) {
	ready.Store(true)
	if len(args) > 0 && filepath.Base(args[0]) == Name {
		main(args[1:])
	}
	if len(args) == 5 && args[1] == Name && args[2] == installRole {
		if err := install(args[3], args[4]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: copy this program: %v\n", Name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	local.Reexec()
}

// InstallCommand has a program that calls Reexec copy itself to InstallDir, and prepare
// VolumeDir.
func InstallCommand(program string) []string {
	return []string{program, Name, installRole, InstallDir, VolumeDir}
}

// PodCommand is the daemon's from there, in a pod.
func PodCommand() []string { return []string{InstallDir + "/" + Name, podRole} }

// Opening says what the daemon opens for its holder.
type Opening struct {
	UID, GID int            // of the commands, to whom the workspace belongs
	Limits   sandbox.Limits // those that the daemon enforces: Disk and PIDs
	// Network, a list of hosts, is reached through the proxy whose socket is beside the
	// daemon's (see loopback.Listen), and Authority is what commands trust.
	Network   sandbox.Network
	Authority []byte
	Services  bool // see sandbox.Spec
}

// memoryFile, beside the socket, says that the memory killer took the daemon.
const memoryFile = "out-of-memory"

// RanOut reports whether a daemon that ended did so because the memory ran out. dir is the
// directory of its socket, and its container has ended.
func RanOut(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, memoryFile))
	return err == nil
}

// OutOfMemory is the end of a command with which the memory of its sandbox ran out, and more
// than the command was killed: then says what follows from that.
func OutOfMemory(then string) sandbox.Exit {
	note := "killed: the memory of the sandbox ran out" + then + "\n"
	return sandbox.Exit{
		Code: 128 + int(syscall.SIGKILL), Ended: sandbox.OutOfMem, Stderr: sandbox.Output{Head: []byte(note), Total: int64(len(note))},
	}
}

// imageEnv are the variables of a container's image that commands get. What tells of the
// container itself is not passed on.
func imageEnv(environ []string) map[string]string {
	env := make(map[string]string)
	for _, v := range environ {
		k, value, ok := strings.Cut(v, "=")
		switch k {
		case "", "PATH", "HOME", "HOSTNAME", "TMPDIR", "PWD", "GOMEMLIMIT", "GOGC", AddressVariable, KeysVariable:
		default:
			if ok && !strings.HasPrefix(k, "KUBERNETES_") {
				env[k] = value
			}
		}
	}
	return env
}
