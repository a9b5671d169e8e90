// Package sandbox is the vocabulary of the places where tools run.
//
// A [Backend] opens sandboxes over a directory that somebody else owns and
// fills; a [Sandbox] runs commands there and reads and writes files below it,
// never outside. Sandboxes are cattle: whatever has to last is in the
// directory, which the workspace packages snapshot and restore.
//
// A backend that cannot enforce what a [Spec] asks for refuses to open
// (ErrUnsupported) instead of pretending.
package sandbox

import (
	"context"
	"errors"
	"io"
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
)

// Limits are what a sandbox may use. Zero means the backend's default, which
// need not be enforced; any other value is enforced or refused.
type Limits struct {
	CPU    float64 // cores
	Memory int64   // bytes
	Disk   int64   // bytes
	PIDs   int     // processes and threads at one time
}

// Spec says what to open.
type Spec struct {
	Dir          string    // the host directory that holds the workspace; must exist
	Epoch        uint64    // the lease's epoch, recorded for those who clean up
	Owner        string    // who holds the lease, recorded likewise
	MinIsolation Isolation // refuse anything weaker; "" accepts IsolationKernel or better
	Limits       Limits
}

// Capabilities is what a backend can do on this host, found by trying.
type Capabilities struct {
	Isolation Isolation // the strongest level it offers
	Detail    string    // e.g. "landlock abi 7, seccomp, no network"
	Network   bool      // whether commands can reach a network
	WholeTree bool      // whether processes that left their session are killed too
	Limits    []string  // names of the Limits fields that are enforced
}

// Backend opens sandboxes of one kind. It is safe for concurrent use.
type Backend interface {
	// Name is the word that Session.To takes: "local".
	Name() string
	// Probe says what this host allows. It may run short-lived processes.
	Probe(ctx context.Context) (Capabilities, error)
	// Open returns a sandbox over s.Dir or an error that wraps ErrUnsupported
	// and names the limit or level that is missing.
	Open(ctx context.Context, s Spec) (Sandbox, error)
}

// Sandbox runs commands and touches files in one directory. It is safe for
// concurrent use; ordering mutating calls is the caller's business.
type Sandbox interface {
	// Exec runs a command to its end, its deadline or the end of ctx, and
	// then kills every process it started. Whatever the command does is an
	// Exit with a nil error, also a program that is missing or cannot be
	// executed (Refused); an error means that the sandbox could not do its
	// part: ErrClosed, ErrLost, a Cmd that makes no sense (no Argv, NUL in a
	// string, a Dir that is ErrPath), or Stdin or Spill failed, in which case
	// the Exit is filled all the same.
	Exec(ctx context.Context, c Cmd) (Exit, error)
	// Files gives the files below the sandbox's directory.
	Files() Files
	// Info is what this sandbox really enforces.
	Info() Capabilities
	// Close kills what still runs. The directory stays. Closing twice is fine.
	Close() error
}

// Files is a confined view of a sandbox's directory. Names are slash
// separated and relative to it; an absolute name or one that leaves the
// directory, also through a link, is ErrPath. A missing file is fs.ErrNotExist.
type Files interface {
	// Open reads a regular file; FIFOs, devices and sockets are ErrPath.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create replaces or makes a file of mode 0644, with its parents; a
	// directory, a link or a special file is not replaced (ErrPath). The new
	// content is there, whole, when Close returns nil; until then the old one
	// is.
	Create(ctx context.Context, name string) (io.WriteCloser, error)
	// List returns the entries of a directory sorted by name.
	List(ctx context.Context, name string) ([]Entry, error)
	// Stat describes one name without following a final link. "" and "." are
	// the sandbox's directory itself.
	Stat(ctx context.Context, name string) (Entry, error)
}

// Cmd is one command.
type Cmd struct {
	ID      string            // the call id, for logs of the host
	Argv    []string          // the program and its arguments; no shell is involved
	Env     map[string]string // added to a clean environment
	Dir     string            // relative to the workspace; "" is its root
	Stdin   io.Reader         // nil: empty; a Read under way when the command ends is not waited for
	Timeout time.Duration     // zero: DefaultTimeout
	Output  int               // bytes kept of each of stdout and stderr; zero: DefaultOutput
	Spill   io.Writer         // gets stdout and stderr whole, as they come, up to MaxSpill; may be nil
}

// Limits of one command.
const (
	DefaultTimeout = 2 * time.Minute
	DefaultOutput  = 64 << 10 // half from the head, half from the tail
	MaxSpill       = 16 << 20
)

// End says how a command ended. The list is closed.
type End string

// The ends of a command.
const (
	Exited    End = "exited"      // by itself; Exit.Code holds the code
	Signaled  End = "signaled"    // by a signal; Exit.Code is 128 plus its number
	Deadline  End = "deadline"    // killed at its timeout
	Cancelled End = "cancelled"   // killed because ctx ended
	OutOfMem  End = "oom"         // killed by a memory limit
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

// Entry describes a file or directory.
type Entry struct {
	Name string // base name
	Path string // slash separated, relative to the sandbox's directory
	Dir  bool
	Size int64
}
