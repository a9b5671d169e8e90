package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/demo"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// system is what a command works on: a server that it talks to, the node that
// runs in this directory, or the store itself.
type system struct {
	*client.Client
	// log, values and blobs are nil for a server: a client reads what nodes
	// answer, and nothing else.
	log    session.Log
	values *run.Values
	blobs  func(session.Tenant) blob.Store
	stores func(context.Context) error // nil if something can be stored; nil for a server
	level  string
	node   *node.Instance               // hosted in this process; nil if it is not
	alone  bool                         // that node takes no work, and there is no other
	moved  <-chan string                // gets the address of an attached node that has started at another one
	mint   func(name string) session.ID // the id of a session of this name
	where  string                       // "store .rath", "nats://host:4222"
	close  func() error
	ended  bool
}

// end closes the system, once: a command that follows a run to its end closes
// it before it prints the last lines, and again on its way out.
func (s *system) end() error {
	if s.ended {
		return nil
	}
	s.ended = true
	return s.close()
}

// openTimeout bounds how long it takes to reach a system.
const openTimeout = 90 * time.Second

// ambient reports whether the configuration names a server.
func (a *app) ambient() bool {
	c := &a.config
	if c.Store.given() && !c.Server.given() && !c.Context.given() {
		return false
	}
	return c.Server.Value != "" || c.Context.Value != "" || a.useSelected()
}

// useSelected reports whether the context that the nats command line has
// selected is used: only where there is no store, because the store of this
// directory is closer.
func (a *app) useSelected() bool {
	if a.config.Store.Origin != "default" || a.selectedContext() == "" {
		return false
	}
	return a.storeThere() != nil
}

// logDir is the directory of a store that holds its log. Without it there is no
// store, whatever else lies there.
func logDir(store string) string { return filepath.Join(store, "nats") }

// storeThere says what to do where there is no store; nil if there is one.
func (a *app) storeThere() error {
	store := a.config.Store.Value
	if _, err := os.Stat(logDir(store)); errors.Is(err, fs.ErrNotExist) {
		return fail(exitNotFound, "there is no store at %s: start with %q or %q, or name another place with --store or --server",
			store, a.invocation()+" demo", a.invocation()+" run")
	}
	return nil
}

// openThere is open for commands about what a store holds: they make none.
func (a *app) openThere(ctx context.Context, work *node.Options) (*system, error) {
	if !a.ambient() {
		if err := a.storeThere(); err != nil {
			return nil, err
		}
	}
	return a.open(ctx, work)
}

// open reaches the system, and makes the store that is missing. It becomes a
// node, unless one runs already.
func (a *app) open(ctx context.Context, work *node.Options) (*system, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if a.ambient() {
		return a.dial(ctx)
	}
	store := a.config.Store.Value
	s, err := a.attach(ctx, store)
	if err == nil || !errors.Is(err, client.ErrUnreachable) {
		return s, err
	}
	// No node lives here, although one may have left its attachment: the store is ours.
	s, err = a.host(ctx, work)
	if errors.Is(err, natsserver.ErrStoreInUse) {
		err = fmt.Errorf("%w. Several commands share a store while %q runs: start that first", err, a.hint("dev"))
	}
	return s, err
}

// dial connects to a server as a client.
func (a *app) dial(ctx context.Context) (*system, error) {
	c := &a.config
	o := &client.Options{Tenant: a.tenant(), Name: "rath", CredsFile: c.Creds.Value, Logger: a.logger()}
	url := c.Server.Value
	if url == "" {
		name := cmp.Or(c.Context.Value, a.selectedContext())
		nc, err := a.readContext(name)
		if err != nil {
			return nil, err
		}
		url = nc.URL
		o.User, o.Password, o.NKeyFile, o.RootCAs, o.Inbox = nc.User, nc.Password, nc.NKey, nc.CA, nc.Inbox
		o.CredsFile = cmp.Or(o.CredsFile, nc.Creds)
	}
	if o.CredsFile == "" && o.NKeyFile == "" && o.User == "" {
		o.User, o.Password = a.getenv("NATS_USER"), a.getenv("NATS_PASSWORD")
	}
	cl, err := client.Dial(ctx, url, o)
	if err != nil {
		return nil, err
	}
	s := &system{Client: cl, where: url, close: cl.Close}
	a.tellOfConnection(s, func(told bool) {
		if !told {
			a.remark("the connection to %s is lost and is being made again", s.where)
		}
	})
	return s, nil
}

// attach connects to the node that runs over a store, with its rights.
func (a *app) attach(ctx context.Context, store string) (*system, error) {
	n, err := node.Attach(ctx, &node.Options{Store: store, Logger: a.logger()})
	if err != nil {
		return nil, err
	}
	s, err := a.system(n, "the node over "+store)
	if err != nil {
		return nil, err
	}
	s.node = nil
	listens := func() string {
		at, _ := node.ReadAttachment(store) // no address where no node runs
		return at.URL
	}
	first, moved := listens(), make(chan string, 1)
	s.moved = moved
	a.tellOfConnection(s, func(told bool) {
		switch now := listens(); {
		case now != "" && now != first:
			select {
			case moved <- now:
			default: // it was told already
			}
		case told:
		case now == "":
			a.remark("the connection to %s is lost: it was stopped; this goes on when %q runs again", s.where, a.hint("dev"))
		default:
			a.remark("the connection to %s is lost and is being made again", s.where)
		}
	})
	return s, nil
}

// elsewhere is the error of who follows an attached node that has started again
// at another address.
func (s *system) elsewhere(to, next string) error {
	return fail(exitUnavailable, "%s has started again at %s: go on there with %q", s.where, to, next)
}

// lostAfter is how long a connection is away before somebody is told.
const lostAfter = 2 * time.Second

// tellOfConnection calls lost, again and again while the connection of a system
// is lost, with whether it did before, and tells that the connection is back,
// until the system is closed.
func (a *app) tellOfConnection(s *system, lost func(told bool)) {
	var group sync.WaitGroup
	done, end := make(chan struct{}), s.close
	group.Go(func() {
		tick := time.NewTicker(lostAfter / 8)
		defer tick.Stop()
		seen, told := time.Now(), false
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			switch up := s.Connected(); {
			case up && told:
				a.remark("the connection to %s is back", s.where)
				fallthrough
			case up:
				seen, told = time.Now(), false
			case time.Since(seen) > lostAfter:
				lost(told)
				told = true
			}
		}
	})
	s.close = sync.OnceValue(func() error {
		close(done)
		group.Wait()
		return end()
	})
}

// host opens the store in this process.
func (a *app) host(ctx context.Context, o *node.Options) (*system, error) {
	c := &a.config
	o.Store, o.Level, o.Logger, o.Env = c.Store.Value, c.Level.Value, a.logger(), a.getenv
	o.Model = cmp.Or(o.Model, c.Model.Value)
	o.Slots, _ = strconv.Atoi(c.Slots.Value) // checked when it was read
	if unsafe, _ := strconv.ParseBool(c.Unsafe.Value); unsafe {
		o.Unsafe = true
	}
	store, err := filepath.Abs(o.Store)
	if err != nil {
		return nil, err
	}
	o.Workflows = append(o.Workflows, demo.FleetRegistration(filepath.Join(store, "demo")))
	node.TuneMemory(a.getenv)
	n, err := node.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return a.system(n, "store "+o.Store)
}

func (a *app) system(n *node.Instance, where string) (*system, error) {
	c, err := n.ClientOf(a.tenant())
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	mint := func(name string) session.ID { return n.HomeOf(a.tenant(), run.ID(name)) }
	return &system{
		Client: c, mint: mint, log: n.Log(), values: n.Values(), blobs: n.Blobs, stores: n.Stores, level: n.Level(), node: n, where: where, close: n.Close,
	}, nil
}

// own reports whether the node runs in this process.
func (s *system) own() bool { return s.node != nil }

// with opens the system to look at it, runs fn, and closes it.
func (a *app) with(ctx context.Context, fn func(*system) error) (err error) {
	s, err := a.openThere(ctx, &node.Options{Idle: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.alone = s.own()
	return fn(s)
}

// direct explains what a command lacks that needs the log or the blobs.
func (s *system) direct(what string) error {
	if s.log != nil {
		return nil
	}
	return fail(exitUsage, "%s reads the log and the files of sessions, which %s gives to nodes only: "+
		"run it where the store or its node is, or with --store", what, s.where)
}

// look returns what adds details to stories.
func (s *system) look() view.Details {
	if s.log == nil {
		return nil
	}
	return view.StoredDetails{Values: s.values, Blobs: s.blobs}
}

// at reads a session at a version, zero for the newest.
func (s *system) at(ctx context.Context, r session.Ref) (session.Session, error) {
	v, err := s.values.At(ctx, r)
	if err != nil {
		return v, fmt.Errorf("session %s: %w", r, err)
	}
	return v, nil
}
