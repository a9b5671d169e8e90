// Package execd runs the commands of a sandbox inside a container. The daemon is this same
// binary, mounted or copied there and started as the first process, so an image needs no
// files for it. The node connects to the daemon over a private Unix socket or, for a pod on
// another machine, over TLS to a port of the pod; see [Keys].
//
// The first process only reaps orphaned processes and reports when the memory killer killed
// its child. The child serves the socket and runs each command as package local does. In a
// container the child is root, and commands have a user of their own: they can neither
// signal nor trace it, nor open the socket. A pod has one user for both. There Landlock
// keeps commands from the daemon, and neither of the daemon's processes can be inspected by
// other processes of its user. The exception is the daemon of a sandbox with a list of
// hosts or services: the kernel would not let a protected daemon give networks to commands.
// When the holder's connection ends, or is silent for the time of the lease, the daemon
// ends, and with it the container and all its processes.
//
// A holder cannot reconnect: a new holder opens a new container.
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

// The paths in a container.
const (
	Name      = "rath-sandbox-daemon" // of the binary, and argv[0]
	SocketDir = "/run/rath/socket"    // the mount point of the node's directory
	StateDir  = "/run/rath/state"     // temporary: the tmpfs of commands
	Workspace = "/workspace"
	// InstallDir is the directory with the binary in a pod; see InstallCommand.
	InstallDir = "/run/rath/program"
	// VolumeDir is the mount point of the workspace's volume for InstallCommand.
	// WorkspacePath is the path in the volume that a pod mounts at Workspace.
	VolumeDir     = "/run/rath/volume"
	WorkspacePath = "own"
	socket        = "s"
)

// The roles of a process of this name.
const (
	serveRole    = "serve"
	podRole      = "pod"
	servePodRole = "serve-pod"
	installRole  = "install"

	// upgradeRole is the podRole of a daemon that is reached by WebSockets.
	upgradeRole      = "upgrade"
	serveUpgradeRole = "serve-upgrade"
)

// AddressVariable is the variable with the address on which the daemon of a pod listens.
const AddressVariable = "RATH_SANDBOX_ADDRESS"

// DefaultLease is how long a daemon lives without a message from its holder.
const DefaultLease = 30 * time.Second

// ready is set once this program has called Reexec.
var ready atomic.Bool

// Ready reports whether this program called Reexec, so that its binary is a daemon when
// a container starts it.
func Ready() bool { return ready.Load() }

// Reexec turns this process into a daemon, or a process of a daemon, if it was started as
// one, and then never returns.
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

// InstallCommand returns the command with which a program that calls Reexec copies itself
// to InstallDir and prepares VolumeDir.
func InstallCommand(program string) []string {
	return []string{program, Name, installRole, InstallDir, VolumeDir}
}

// PodCommand returns the command that starts the installed daemon in a pod.
func PodCommand() []string { return []string{InstallDir + "/" + Name, podRole} }

// Opening describes the sandbox that the daemon opens for its holder.
type Opening struct {
	UID, GID int            // user of the commands, who owns the workspace
	Limits   sandbox.Limits // the limits that the daemon enforces: Disk and PIDs
	// Network, a list of hosts, is reached through the proxy whose socket is beside the
	// daemon's (see loopback.Listen). Commands trust Authority.
	Network   sandbox.Network
	Authority []byte
	Services  bool // see sandbox.Spec
}

// memoryFile, beside the socket, marks a daemon that the memory killer killed.
const memoryFile = "out-of-memory"

// RanOut reports whether a daemon ended because it ran out of memory. dir is the directory
// of its socket. Its container has ended.
func RanOut(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, memoryFile))
	return err == nil
}

// OutOfMemory returns the Exit of a command after the memory of its sandbox ran out, if
// more than the command was killed. then describes the consequence.
func OutOfMemory(then string) sandbox.Exit {
	note := "killed: the memory of the sandbox ran out" + then + "\n"
	return sandbox.Exit{
		Code: 128 + int(syscall.SIGKILL), Ended: sandbox.OutOfMem, Stderr: sandbox.Output{Head: []byte(note), Total: int64(len(note))},
	}
}

// imageEnv returns the variables of a container's image that commands get. Variables that
// describe the container itself are dropped.
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
