// Package execd runs the commands of a sandbox inside a container: this same binary,
// mounted there and started as its first process, to which the node speaks over a
// private Unix socket. An image has to contain nothing for it.
//
// The first process does nothing but wait for what has lost its parent. Its child serves
// the socket, as root, and runs each command as package local does, under a user of its
// own: a command can neither signal nor trace it, and cannot open the socket. When the
// connection of the holder ends, or says nothing for the time of the lease, the daemon
// ends, and with it the container and all that runs there.
//
// A holder that is gone cannot come back: a new one opens a new container.
package execd

import (
	"path/filepath"
	"strings"
	"sync/atomic"
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
	socket    = "s"
	serveRole = "serve"
)

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
	local.Reexec()
}

// Opening says what the daemon opens for its holder.
type Opening struct {
	UID, GID int            // of the commands, to whom the workspace belongs
	Limits   sandbox.Limits // those that the daemon enforces: Disk and PIDs
	// Network, a list of hosts, is reached through the proxy whose socket is beside the
	// daemon's (see loopback.Listen), and Authority is what commands trust.
	Network   sandbox.Network
	Authority []byte
}

// imageEnv are the variables of a container's image that commands get. What tells of the
// container itself is not passed on.
func imageEnv(environ []string) map[string]string {
	env := make(map[string]string)
	for _, v := range environ {
		k, value, ok := strings.Cut(v, "=")
		switch k {
		case "", "PATH", "HOME", "HOSTNAME", "TMPDIR", "PWD", "GOMEMLIMIT", "GOGC":
		default:
			if ok {
				env[k] = value
			}
		}
	}
	return env
}
