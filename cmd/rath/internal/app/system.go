package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// System is the system that a command works on: a remote server, the node that runs in
// this directory, or the store itself.
type System struct {
	*client.Client
	// Remote is true for a server: Log, Values and Blobs read the answers of its nodes
	// to a client, and cannot append.
	Remote   bool
	Log      commitlog.Log
	Values   *journal.Values
	Blobs    func(session.Tenant) blob.Store
	Stores   func(context.Context) error // nil if something can be stored; nil for a server
	Level    string
	Instance *node.Instance               // hosted in this process; nil if it is not
	Alone    bool                         // Instance takes no work, and there is no other node
	Moved    <-chan string                // receives the new address of an attached node that has restarted elsewhere
	Mint     func(name string) session.ID // the id of a session of this name
	Where    string                       // "store .rath", "nats://host:4222"
	Hint     func(args ...string) string  // App.Hint
	Progress func() func(text string)     // App.Progress
	close    func() error
	ended    bool
}

// Close closes the system, once: a command that follows a run to its end closes
// it before it prints the last lines, and again on its way out.
func (s *System) Close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	return s.close()
}

// ListRuns is Runs for a long list: it reports its progress.
func (s *System) ListRuns(ctx context.Context, o client.RunsOptions) ([]messages.RunInfo, error) {
	tell := s.Progress()
	defer tell("")
	o.Progress = func(found int, part float64) {
		tell(fmt.Sprintf("searching runs: %d %% of the history read, %s found", int(100*part), view.Counted(int64(found), "run")))
	}
	return s.Runs.List(ctx, &o)
}

// OpenTimeout bounds how long it takes to reach a system.
const OpenTimeout = 90 * time.Second

// Ambient reports whether the configuration names a server.
func (a *App) Ambient() bool {
	c := &a.Config
	if c.Store.Given() && !c.Server.Given() && !c.Context.Given() {
		return false
	}
	return c.Server.Value != "" || c.Context.Value != "" || a.useSelected()
}

// useSelected reports whether the selected context of the nats command line applies:
// only without a store, because the store of this directory takes precedence.
func (a *App) useSelected() bool {
	if a.Config.Store.Origin != "default" || a.selectedContext() == "" {
		return false
	}
	return a.StoreThere() != nil
}

// logDir returns the directory of a store that holds its log. Without it there is no
// store, even if other files lie there.
func logDir(store string) string { return filepath.Join(store, "nats") }

// StoreThere returns an error with the remedy if there is no store.
func (a *App) StoreThere() error {
	store := a.Config.Store.Value
	if _, err := os.Stat(logDir(store)); errors.Is(err, fs.ErrNotExist) {
		return Fail(ExitNotFound, "there is no store at %s: start with %q or %q, or name another place with --store or --server",
			store, a.Hint("demo"), a.Hint("run"))
	}
	return nil
}

// OpenThere is Open for commands that read a store: it creates none.
func (a *App) OpenThere(ctx context.Context, work *node.Options) (*System, error) {
	if !a.Ambient() {
		if err := a.StoreThere(); err != nil {
			return nil, err
		}
	}
	return a.Open(ctx, work)
}

// Open opens the system, and creates a missing store. It becomes a node, unless one
// runs already.
func (a *App) Open(ctx context.Context, work *node.Options) (*System, error) {
	ctx, cancel := context.WithTimeout(ctx, OpenTimeout)
	defer cancel()
	if a.Ambient() {
		return a.dial(ctx)
	}
	store := a.Config.Store.Value
	s, err := a.attach(ctx, store)
	if err == nil || !errors.Is(err, client.ErrUnreachable) {
		return s, err
	}
	// No node answers, although its attachment may be left over: the store is ours.
	if s, err = a.host(ctx, work); !errors.Is(err, natsserver.ErrStoreInUse) {
		return s, err
	}
	// A process holds it: another command, which may end at any moment, or, if a node
	// has left its attachment, a node that restarts or waits for a slow disk.
	for until := time.Now().Add(storePatience); time.Now().Before(until); {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if _, none := supervise.ReadAttachment(store); none != nil {
			if s, err = a.host(ctx, work); !errors.Is(err, natsserver.ErrStoreInUse) {
				return s, err
			}
		} else if there, failed := a.attach(ctx, store); failed == nil || !errors.Is(failed, client.ErrUnreachable) {
			return there, failed
		}
	}
	held, _ := errors.AsType[*natsserver.InUseError](err)
	if at, none := supervise.ReadAttachment(store); none == nil && held != nil && at.PID == held.PID {
		return s, Fail(ExitUnavailable, "the node over %s, process %d, does not answer at %s: check the process and its log; after it has ended, %q resumes its runs",
			store, at.PID, at.URL, a.Hint("dev"))
	}
	return s, fmt.Errorf("%w. Several commands share a store while %q runs: start that first", err, a.Hint("dev"))
}

// storePatience is how long a command waits for a store that another process holds.
const storePatience = 3 * time.Second

// Host opens the store in this process, for a command that is a node and stays. It
// waits for another command that holds the store for a moment; if a node holds it, Host
// fails at once with an error that names the node.
func (a *App) Host(ctx context.Context, o *node.Options) (*System, error) {
	for until := time.Now().Add(storePatience); ; {
		s, err := a.host(ctx, o)
		held, ok := errors.AsType[*natsserver.InUseError](err)
		if !ok || time.Now().After(until) {
			return s, err
		}
		if at, none := supervise.ReadAttachment(a.Config.Store.Value); none == nil && at.PID == held.PID {
			return s, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// With opens the system for reading, runs fn, and closes it.
func (a *App) With(ctx context.Context, fn func(*System) error) (err error) {
	s, err := a.OpenThere(ctx, &node.Options{Idle: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Alone = s.Own()
	return fn(s)
}

// Own reports whether the node runs in this process.
func (s *System) Own() bool { return s.Instance != nil }

// Direct returns an error for a command that writes to the log itself if the system is
// a server.
func (s *System) Direct(what string) error {
	if !s.Remote {
		return nil
	}
	return Fail(ExitUsage, "%s writes to the log itself, which %s lets nodes do only: run it where the store or its node is, with --store", what, s.Where)
}

// Details returns the source of the details of timelines.
func (s *System) Details() *view.Details {
	return &view.Details{Values: s.Values, Blobs: s.Blobs}
}

// At reads a session at a version, zero for the newest.
func (s *System) At(ctx context.Context, r session.Ref) (session.Session, error) {
	v, err := s.Values.At(ctx, r)
	if err != nil {
		return v, fmt.Errorf("session %s: %w", r, err)
	}
	return v, nil
}
