// Package sandbox is the vocabulary of the places where tools run.
//
// A [Backend] opens sandboxes over a directory that the caller owns and fills; a
// [Sandbox] runs commands there and reads and writes files below it, never
// outside. A sandbox has no state of its own: everything that has to last is in
// the directory, which package workspace snapshots and restores.
//
// A backend that cannot enforce what a [Spec] asks for refuses to open
// (ErrUnsupported) instead of pretending.
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
	// ErrUnsupported is returned by Open when the backend cannot enforce what
	// the Spec asks for.
	ErrUnsupported = errors.New("sandbox: not enforceable here")
	// ErrPath is returned for a name that leaves the sandbox, or that is not
	// a regular file or directory where one is needed.
	ErrPath = errors.New("sandbox: path refused")
	// ErrTooMany is returned for a directory that has more entries than are listed.
	ErrTooMany = errors.New("sandbox: too many entries")
	// ErrLost is returned when the sandbox itself died; the outcome of the
	// call is unknown.
	ErrLost = errors.New("sandbox: lost")
)

// Isolation is how strongly a sandbox is separated from its host.
type Isolation string

// The isolation levels, weakest first.
const (
	// IsolationProcess is an ordinary child process: its tree is killed at the
	// deadline, nothing else is enforced.
	IsolationProcess Isolation = "process"
	// IsolationKernel confines files, system calls and the network of an
	// ordinary process (Landlock and seccomp).
	IsolationKernel Isolation = "landlock+seccomp"
	// IsolationContainer has namespaces of its own: no process, user or file of the
	// host is in sight.
	IsolationContainer Isolation = "container"
	// IsolationGVisor has a kernel of its own in user space.
	IsolationGVisor Isolation = "gvisor"
	// IsolationVM has a kernel of its own on a virtual machine.
	IsolationVM Isolation = "vm"
)

var isolations = []Isolation{IsolationProcess, IsolationKernel, IsolationContainer, IsolationGVisor, IsolationVM}

// AtLeast reports whether a level is as strong as another one or stronger. A level that
// is not listed here is weaker than each that is, and no level is as strong as it.
func (i Isolation) AtLeast(o Isolation) bool {
	return slices.Contains(isolations, o) && slices.Index(isolations, i) >= slices.Index(isolations, o)
}

// Spec says what to open.
type Spec struct {
	Dir          string    // the host directory that holds the workspace; must exist
	Epoch        uint64    // the lease's epoch, recorded for the cleanup after a crash
	Owner        string    // the holder of the lease, recorded likewise
	MinIsolation Isolation // refuse anything weaker; "" accepts IsolationKernel or better
	Limits       Limits
	// Image is what the commands find around the workspace, by the name or digest that
	// the backend has for it; "" is the backend's default.
	Image   string
	Network Network // "" is the least that the backend can hold commands to
	// Proxy serves a connection of a command, which has no other way out, where Network
	// is a list of hosts. It does not wait for the connection's end. Commands find it by
	// the usual variables, such as HTTPS_PROXY, and Authority, a certificate in PEM, is
	// what they trust.
	Proxy     func(net.Conn)
	Authority []byte
	// Services says that commands are to reach one another: all commands of this sandbox
	// have one loopback, which no other process has. Without it they need not.
	Services bool
}

// Capabilities is what a backend can do on this host, found by trying.
type Capabilities struct {
	Isolation Isolation // the strongest level it offers
	Detail    string    // e.g. "landlock abi 7, seccomp, no network"
	Networks  []string  // the kinds of Network that can be asked for; the first is the default
	Images    bool      // whether an Image can be asked for
	WholeTree bool      // whether processes that left their session are killed too
	Mounts    bool      // whether Spec.Dir may be mounted, in this process's namespace alone
	Limits    []string  // names of the Limits fields that are enforced
	Services  bool      // whether Services can be asked for
	// Programs are those of the package's Programs that commands find without an image; nil
	// if the backend runs commands in images alone.
	Programs []string
}

// Programs are the programs that commands of agents use most, a shell first.
var Programs = []string{"sh", "bash", "git", "python3", "node", "go"}

// Info is what holds for the commands of one sandbox.
type Info struct {
	Isolation Isolation
	Network   Network // never ""
	Limits    Limits  // those that were asked for
	Image     string  // the digest of the image; "" if the commands see the system of the host
	WholeTree bool    // as in Capabilities
	Services  bool    // as in Spec
	// Dir is the absolute name that the commands have for the workspace, without links; ""
	// in the answer of Resolve. It differs between sandboxes of one session.
	Dir string
	// Outside says that a service keeps state outside of the workspace. The caller, who
	// knows the services, sets it.
	Outside bool
}

// Backend opens sandboxes of one kind. Its methods may be called concurrently.
type Backend interface {
	// Name is the word that Session.To takes, such as "local". It never changes.
	Name() string
	// Probe returns what this host allows, found by trying. It may run
	// short-lived processes. Open enforces at most this.
	Probe(ctx context.Context) (Capabilities, error)
	// Resolve returns what would hold for a sandbox that Open opens with s, whose Dir
	// need not exist. It refuses what Open refuses for reasons that last, and leaves
	// nothing behind. An Image comes back as its digest, which Open takes as well, so
	// that a name which is moved later changes nothing.
	Resolve(ctx context.Context, s Spec) (Info, error)
	// Open returns a sandbox over s.Dir, which must exist. The caller keeps the
	// directory and its content; it removes neither before Close. The caller
	// closes the sandbox; the end of ctx does not.
	//
	// The error wraps ErrUnsupported, and names the limit, network, image, services or level,
	// if the backend cannot enforce what s asks for. A Backend never opens a weaker
	// sandbox instead. After an error nothing is left on the host.
	//
	// A Backend lets several sandboxes be open over one directory. That only one
	// lease drives a directory is the caller's part.
	Open(ctx context.Context, s Spec) (Sandbox, error)
}

// Sweeper is a Backend whose sandboxes can outlive the process that opened them. A node calls
// Sweep before it opens the first, and Run beside.
type Sweeper interface {
	// Sweep removes sandboxes that no process holds any more, and those whose owner has one
	// of a higher epoch, and returns how many.
	Sweep(ctx context.Context) (removed int, err error)
	// Run sweeps, now and again, and keeps ready what the backend was told to, until ctx
	// ends. It is called once, and logs what it cannot remove.
	Run(ctx context.Context) error
}

// Sandbox runs commands and touches files in one directory. Its methods may be
// called concurrently; the caller orders the calls that change files.
type Sandbox interface {
	// Exec runs a command until it ends, its timeout is over or ctx ends, and
	// then kills every process that the command started. When Exec returns,
	// none of them runs, as far as Capabilities.WholeTree promises.
	//
	// What the command changed is in the directory when Exec returns. A sandbox whose files
	// lie elsewhere shows nothing of it before. What a service changes is there after the
	// next command, or once its method Sync(ctx) error has brought it; of what both a
	// service and the caller changed the caller's stays.
	//
	// Everything that the command does is an Exit with a nil error: any exit
	// code, a signal, the timeout, a program that is missing or cannot be
	// executed (Refused). The end of ctx is an Exit, too (Cancelled).
	//
	// An error means that the sandbox could not do its part: ErrClosed; ErrLost,
	// after which the outcome is unknown; a Cmd that makes no sense (no Argv, NUL
	// in a string, a Dir that is ErrPath); or an error of Stdin or Offload, beside
	// which the Exit is filled.
	//
	// The caller owns the Exit. Exec does not keep c, but a Read of Stdin that is
	// under way when the command ends may outlast the call.
	Exec(ctx context.Context, c Cmd) (Exit, error)
	// Files returns the files below the sandbox's directory.
	Files() Files
	// Info returns what this sandbox enforces. It never changes.
	Info() Info
	// Close kills the commands that still run, whose Exec returns ErrClosed, and
	// waits for them. The directory stays. Closing again returns the same.
	Close() error
}

// Files is a confined view of a sandbox's directory. Its methods may be called
// concurrently. Names are slash separated and relative to the directory; an
// absolute name or one that leaves the directory, also through a link, is
// ErrPath. A missing file is fs.ErrNotExist. After Close of the sandbox every
// method returns ErrClosed.
type Files interface {
	// Open returns a reader of a regular file, which the caller closes. FIFOs,
	// devices and sockets are ErrPath.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create returns a writer that replaces a file, which keeps its mode, or makes one of
	// mode 0644, with its parents. A directory, a link or a special file is not replaced
	// (ErrPath). The caller closes the writer: if Close returns nil, the new
	// content is there as a whole; until then, and after an error, the old one is.
	Create(ctx context.Context, name string) (io.WriteCloser, error)
	// Remove removes a regular file or a link. A directory or a special file is ErrPath.
	Remove(ctx context.Context, name string) error
	// Rename gives a regular file another name, whose parents it makes. What has that
	// name is not replaced (fs.ErrExist).
	Rename(ctx context.Context, name, to string) error
	// List returns the entries of a directory sorted by name. One of more than
	// MaxList entries is ErrTooMany: it is not read to its end.
	List(ctx context.Context, name string) ([]Entry, error)
	// Stat describes one name without following a final link. "" and "." are
	// the sandbox's directory itself.
	Stat(ctx context.Context, name string) (Entry, error)
}

// MaxList is how many entries a directory may have to be listed.
const MaxList = 20_000

// Cmd is one command.
type Cmd struct {
	ID      string            // the call id, for logs of the host
	Argv    []string          // the program and its arguments; no shell is involved
	Env     map[string]string // added to a clean environment
	Dir     string            // relative to the workspace; "" is its root
	Stdin   io.Reader         // nil: empty; a Read under way when the command ends is not waited for
	Timeout time.Duration     // zero: DefaultTimeout; NoTimeout: none
	Output  int               // bytes kept of each of stdout and stderr; zero: DefaultOutput
	Offload io.Writer         // gets stdout and stderr whole, as they come, up to MaxOffload, or without a timeout all; may be nil
	// Port, unless zero, stands for a program that tries to connect to this port of the
	// loopback, once, and exits with 0 or 1. Argv is what errors call it. It needs
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

// End says how a command ended. The list is closed.
type End string

// The ends of a command.
const (
	Exited    End = "exited"      // by itself; Exit.Code holds the code
	Signaled  End = "signaled"    // by a signal; Exit.Code is 128 plus its number
	Deadline  End = "deadline"    // killed at its timeout
	Cancelled End = "cancelled"   // killed because ctx ended
	OutOfMem  End = "oom"         // killed by the limit of memory
	DiskFull  End = "disk_full"   // killed by the limit of disk, or it ended above it
	Refused   End = "not_started" // the program could not be started; Stderr says why
)

// Exit is how a command ended and what it wrote.
type Exit struct {
	Code    int
	Ended   End
	Stdout  Output
	Stderr  Output
	Elapsed time.Duration
}

// Output is what was kept of one stream: its head and its tail.
type Output struct {
	Head, Tail []byte
	Total      int64 // bytes written by the command, also those not kept
}

// Dropped returns how many bytes between head and tail were not kept.
func (o Output) Dropped() int64 { return o.Total - int64(len(o.Head)) - int64(len(o.Tail)) }

// Bytes returns the output as one piece: all of it if nothing was dropped,
// else the head, a line that says how much is missing, and the tail.
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
