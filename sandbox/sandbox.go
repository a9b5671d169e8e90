// Package sandbox defines the sandboxes in which tools run.
//
// A [Backend] opens sandboxes over a directory that the caller owns and fills. A [Sandbox]
// runs commands in that directory and reads and writes files below it, never outside. A
// sandbox has no state of its own: all durable state is in the directory, which package
// workspace snapshots and restores.
//
// A backend that cannot enforce a [Spec] fails with ErrUnsupported. It never opens a weaker
// sandbox.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

var (
	// ErrClosed is returned by every method of a closed sandbox.
	ErrClosed = errors.New("sandbox: closed")
	// ErrUnsupported is returned by Open when the backend cannot enforce the Spec.
	ErrUnsupported = errors.New("sandbox: not enforceable here")
	// ErrPath is returned for a name that leaves the sandbox, and for a name of another
	// kind of file where a regular file or directory is required.
	ErrPath = errors.New("sandbox: path refused")
	// ErrTooMany is returned for a directory with more than MaxList entries.
	ErrTooMany = errors.New("sandbox: too many entries")
	// ErrLost is returned when the sandbox itself died. The outcome of the call is unknown.
	ErrLost = errors.New("sandbox: lost")
)

// Isolation is the strength of the separation between a sandbox and its host.
type Isolation string

// The isolation levels, weakest first.
const (
	// IsolationProcess is an ordinary child process. Its process tree is killed at the
	// deadline; no other restriction is enforced.
	IsolationProcess Isolation = "process"
	// IsolationKernel confines files, system calls and the network of an
	// ordinary process (Landlock and seccomp).
	IsolationKernel Isolation = "landlock+seccomp"
	// IsolationContainer has namespaces of its own, which hide the processes, users and
	// files of the host.
	IsolationContainer Isolation = "container"
	// IsolationGVisor has a kernel of its own in user space.
	IsolationGVisor Isolation = "gvisor"
	// IsolationVM has a kernel of its own on a virtual machine.
	IsolationVM Isolation = "vm"
)

var isolations = []Isolation{IsolationProcess, IsolationKernel, IsolationContainer, IsolationGVisor, IsolationVM}

// AtLeast reports whether i is at least as strong as o. An unlisted level is weaker than
// every listed level, and no level is at least as strong as an unlisted level.
func (i Isolation) AtLeast(o Isolation) bool {
	return slices.Contains(isolations, o) && slices.Index(isolations, i) >= slices.Index(isolations, o)
}

// Spec describes a sandbox to open.
type Spec struct {
	Dir          string    // the host directory that holds the workspace; must exist
	Epoch        uint64    // the lease's epoch, recorded for the cleanup after a crash
	Owner        string    // the holder of the lease, recorded for the same purpose
	MinIsolation Isolation // the minimum level; "" accepts IsolationKernel or better
	Limits       Limits
	// Image is the file system around the workspace, by the backend's name or digest; "" is
	// the backend's default.
	Image   string
	Network Network // "" is the most restrictive network that the backend enforces
	// Proxy serves a connection of a command, the command's only way out, where Network is
	// a list of hosts. It returns before the connection ends. Commands find the proxy by
	// the usual variables, such as HTTPS_PROXY, and trust Authority, a certificate in PEM.
	Proxy     func(net.Conn)
	Authority []byte
	// Services makes all commands of this sandbox share one loopback, which no other
	// process has. Otherwise the backend need not connect them.
	Services bool
}

// Capabilities describes the abilities of a backend on this host, as probed.
type Capabilities struct {
	Isolation Isolation // the strongest level it offers
	Detail    string    // e.g. "landlock abi 7, seccomp, no network"
	Networks  []string  // the supported kinds of Network; the first is the default
	Images    bool      // whether Spec.Image is supported
	WholeTree bool      // whether processes that left their session are killed too
	Mounts    bool      // whether Spec.Dir may be mounted in this process's namespace only
	Limits    []string  // names of the Limits fields that are enforced
	Services  bool      // whether Spec.Services is supported
	// Programs are the entries of the package's Programs that commands find without an
	// image; nil if the backend runs commands in images only.
	Programs []string
}

// Programs are the programs that agents' commands use most, a shell first.
var Programs = []string{"sh", "bash", "git", "python3", "node", "go"}

// Info describes the environment of the commands of one sandbox.
type Info struct {
	Isolation Isolation
	Network   Network // never ""
	Limits    Limits  // the limits of the Spec
	Image     string  // the digest of the image; "" if commands see the host's file system
	WholeTree bool    // as in Capabilities
	Services  bool    // as in Spec
	// Dir is the absolute path of the workspace as commands see it, without links; "" in
	// the result of Resolve. It differs between sandboxes of one session.
	Dir string
	// Outside reports that a service keeps state outside the workspace. The caller sets it.
	Outside bool
}

// Backend opens sandboxes of one kind. Its methods may be called concurrently.
type Backend interface {
	// Name is the backend's name in Session.To, such as "local". It never changes.
	Name() string
	// Probe tests the capabilities of this host. It may run short-lived processes. Open
	// enforces no more than Probe reports.
	Probe(ctx context.Context) (Capabilities, error)
	// Resolve returns the Info of a sandbox that Open would open with s, whose Dir need not
	// exist. It fails where Open fails for lasting reasons, and leaves no trace on the
	// host. It resolves an Image to its digest, which Open accepts too, so that moving an
	// image's name later has no effect.
	Resolve(ctx context.Context, s Spec) (Info, error)
	// Open returns a sandbox over s.Dir, which must exist. The caller keeps the directory
	// and its contents, and removes neither before Close. The caller closes the sandbox;
	// the end of ctx does not.
	//
	// If the backend cannot enforce s, the error wraps ErrUnsupported and names the limit,
	// network, image, services or level. A Backend never opens a weaker sandbox instead. A
	// failed Open leaves no trace on the host.
	//
	// Several sandboxes may be open over one directory. The caller makes sure that only one
	// lease drives a directory.
	Open(ctx context.Context, s Spec) (Sandbox, error)
}

// Sweeper is a Backend whose sandboxes can outlive the process that opened them. A node
// calls Sweep before it opens the first sandbox, and runs Run concurrently.
type Sweeper interface {
	// Sweep removes sandboxes without a live holder, and sandboxes whose owner has another
	// sandbox of a higher epoch. It returns the number of sandboxes removed.
	Sweep(ctx context.Context) (removed int, err error)
	// Run sweeps periodically and keeps the backend's pool filled until ctx ends. It is
	// called once. It logs sandboxes that it cannot remove.
	Run(ctx context.Context) error
}

// Sandbox runs commands and accesses files in one directory. Its methods may be called
// concurrently; the caller orders calls that change files.
type Sandbox interface {
	// Exec runs a command until it ends, its timeout expires or ctx ends, and then kills
	// every process that the command started. When Exec returns, none of them runs, within
	// the bounds of Capabilities.WholeTree.
	//
	// The command's changes are in the directory when Exec returns. A sandbox with its
	// files elsewhere shows no changes before that. A service's changes appear after the
	// next command, or after a call of the sandbox's method Sync(ctx) error; if a service
	// and the caller both changed a file, the caller's version wins.
	//
	// Every outcome of the command itself is an Exit with a nil error: any exit code, a
	// signal, the timeout, and a program that is missing or not executable (Refused). The
	// end of ctx is an Exit, too (Cancelled).
	//
	// An error means that the sandbox failed: ErrClosed; ErrLost, after which the outcome
	// is unknown; an invalid Cmd (no Argv, NUL in a string, a Dir that is ErrPath); or an
	// error of Stdin or Offload, in which case the Exit is valid as well.
	//
	// The caller owns the Exit. Exec does not retain c, but a Read of Stdin in progress
	// when the command ends may outlast the call.
	Exec(ctx context.Context, c Cmd) (Exit, error)
	// Files returns the files below the sandbox's directory.
	Files() Files
	// Info returns the restrictions that this sandbox enforces. It never changes.
	Info() Info
	// Close kills the running commands, whose Exec returns ErrClosed, and waits for them.
	// The directory remains. Further calls return the same result.
	Close() error
}

// Files is a confined view of a sandbox's directory. Its methods may be called
// concurrently. Names are slash separated and relative to the directory. An absolute name
// is ErrPath, and so is a name that leaves the directory, also through a link. A missing
// file is fs.ErrNotExist. After Close of the sandbox every method returns ErrClosed.
type Files interface {
	// Open returns a reader of a regular file, which the caller closes. FIFOs,
	// devices and sockets are ErrPath.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create returns a writer that replaces a file and keeps its mode, or creates a file of
	// mode 0644 with its parents. It does not replace a directory, a link or a special file
	// (ErrPath). The caller closes the writer. The new content appears as a whole when
	// Close returns nil; until then, and after an error, the old content remains.
	Create(ctx context.Context, name string) (io.WriteCloser, error)
	// Remove removes a regular file or a link. A directory or a special file is ErrPath.
	Remove(ctx context.Context, name string) error
	// Rename renames a regular file and creates the parents of the new name. It does not
	// replace an existing entry (fs.ErrExist).
	Rename(ctx context.Context, name, to string) error
	// List returns the entries of a directory sorted by name. A directory of more than
	// MaxList entries is ErrTooMany; it is not read to its end.
	List(ctx context.Context, name string) ([]Entry, error)
	// Stat describes one name without following a final link. "" and "." are
	// the sandbox's directory itself.
	Stat(ctx context.Context, name string) (Entry, error)
}

// MaxList is the maximum number of entries of a directory that List returns.
const MaxList = 20_000

// Cmd is one command.
type Cmd struct {
	ID      string            // the call id, for logs of the host
	Argv    []string          // the program and its arguments; no shell is involved
	Env     map[string]string // added to a clean environment
	Dir     string            // relative to the workspace; "" is its root
	Stdin   io.Reader         // nil: empty; Exec does not wait for a Read in progress when the command ends
	Timeout time.Duration     // zero: DefaultTimeout; NoTimeout: none
	Output  int               // bytes kept of each of stdout and stderr; zero: DefaultOutput
	Offload io.Writer         // gets all of stdout and stderr as they are written, up to MaxOffload, or without a timeout unbounded; may be nil
	// Port, unless zero, replaces the program: the command tries once to connect to this
	// port of the loopback and exits with 0 or 1. Errors call it by Argv. It requires
	// Spec.Services.
	Port int
}

// Limits of one command.
const (
	DefaultTimeout = 2 * time.Minute
	NoTimeout      = time.Duration(-1)
	DefaultOutput  = 64 << 10 // half from the head, half from the tail
	MaxOffload     = 16 << 20
)

// End is the way in which a command ended. The list is closed.
type End string

// The ends of a command.
const (
	Exited    End = "exited"      // by itself; Exit.Code holds the code
	Signaled  End = "signaled"    // by a signal; Exit.Code is 128 plus its number
	Deadline  End = "deadline"    // killed at its timeout
	Cancelled End = "cancelled"   // killed because ctx ended
	OutOfMem  End = "oom"         // killed by the limit of memory
	DiskFull  End = "disk_full"   // killed by the limit of disk, or it ended above it
	Refused   End = "not_started" // the program could not be started; Stderr has the reason
)

// Exit is the outcome of a command and its output.
type Exit struct {
	Code    int
	Ended   End
	Stdout  Output
	Stderr  Output
	Elapsed time.Duration
}

// Output is the retained part of one stream: its head and its tail.
type Output struct {
	Head, Tail []byte
	Total      int64 // bytes written by the command, including dropped ones
}

// Dropped returns the number of bytes dropped between head and tail.
func (o Output) Dropped() int64 { return o.Total - int64(len(o.Head)) - int64(len(o.Tail)) }

// Bytes returns the output as one piece: the whole output if no bytes were dropped,
// otherwise the head, a line with the number of missing bytes, and the tail.
func (o Output) Bytes() []byte {
	data := append([]byte(nil), o.Head...)
	if n := o.Dropped(); n > 0 {
		data = fmt.Appendf(data, "\n[... %d bytes dropped ...]\n", n)
	}
	return append(data, o.Tail...)
}

// Entry describes a file or directory.
type Entry struct {
	Name string // base name
	Path string // slash separated, relative to the sandbox's directory
	Dir  bool
	Size int64
}
