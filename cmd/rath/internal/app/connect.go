package app

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/opensandbox"
	"github.com/rathcluster/rath/session"
)

// dial connects to a server as a client.
func (a *App) dial(ctx context.Context) (*System, error) {
	c, err := a.login()
	if err != nil {
		return nil, err
	}
	cl, err := client.Connect(ctx, c.URL, &client.Options{
		Tenant: a.Tenant(), Name: "rath", User: c.User, Password: c.Password, CredsFile: c.Creds, NKeyFile: c.NKey, RootCAs: c.CA, Inbox: c.Inbox,
		Logger: a.Logger(),
	})
	if err != nil {
		return nil, err
	}
	log := remotelog.Of(cl)
	s := &System{
		Client: cl, Remote: true, Log: log, Values: journal.NewValues(log), Where: llm.Redact(c.URL), Hint: a.Hint, Progress: a.Progress, close: cl.Close,
		Blobs: func(session.Tenant) blob.Store { return cl.Blobs() },
	}
	a.reportConnection(s, func(told bool) {
		if !told {
			a.Remark("the connection to %s is lost and is being made again", s.Where)
		}
	})
	return s, nil
}

// attach connects to the node that runs over a store, with its rights.
func (a *App) attach(ctx context.Context, store string) (*System, error) {
	n, err := node.Attach(ctx, &node.Options{Store: store, Logger: a.Logger()})
	if err != nil {
		return nil, err
	}
	s, err := a.system(ctx, n, "the node over "+store)
	if err != nil {
		return nil, err
	}
	s.Instance = nil
	listens := func() string {
		at, _ := supervise.ReadAttachment(store) // no address where no node runs
		return at.URL
	}
	first, moved := listens(), make(chan string, 1)
	s.Moved = moved
	a.reportConnection(s, func(told bool) {
		switch now := listens(); {
		case now != "" && now != first:
			select {
			case moved <- now:
			default: // a move is pending already
			}
		case told:
		case now == "":
			a.Remark("the connection to %s is lost: it was stopped; this command continues when %q runs again", s.Where, a.Hint("dev"))
		default:
			a.Remark("the connection to %s is lost and is being made again", s.Where)
		}
	})
	return s, nil
}

// Elsewhere returns the error of a command that follows an attached node after the node
// has restarted at another address.
func (s *System) Elsewhere(to, next string) error {
	return Fail(ExitUnavailable, "%s has restarted at %s: continue there with %q", s.Where, to, next)
}

// lostAfter is how long a connection is lost before a remark reports it.
const lostAfter = 2 * time.Second

// reportConnection calls lost repeatedly while the connection of a system is lost, and
// prints a remark when it is back, until the system is closed. told is true if lost has
// been called for this loss before.
func (a *App) reportConnection(s *System, lost func(told bool)) {
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
				a.Remark("the connection to %s is back", s.Where)
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

// OpenSandbox returns the configured server of sandboxes, without a URL if there is none.
func (s *Settings) OpenSandbox() opensandbox.Options {
	return opensandbox.Options{URL: s.ServiceURL.Value, KeyFile: s.ServiceKey.Value, Image: s.ServiceImage.Value}
}

// host opens the store in this process.
func (a *App) host(ctx context.Context, o *node.Options) (*System, error) {
	c, own := &a.Config, *o // it may be called again
	o = &own
	o.Store, o.NATS.Level, o.Logger, o.Env = c.Store.Value, c.Level.Value, a.Logger(), a.Getenv
	o.Models.Default, o.Models.List, o.MCPList = cmp.Or(o.Models.Default, c.Model.Value), c.Models.Value, c.MCP.Value
	o.Rules, o.Agents, o.Checks = c.Rules.Value, c.Agents.Value, c.Checks.Value
	o.Slots, _ = strconv.Atoi(c.Slots.Value)                  // checked when it was read
	o.Sandbox.Limits, _ = sandbox.ParseLimits(c.Limits.Value) // checked, too
	o.Sandbox.Network, _ = sandbox.ParseNetwork(c.Network.Value)
	o.Sandbox.Private, _ = node.ParsePrivate(c.Private.Value)
	o.Sandbox.Secrets = c.Secrets.Value
	o.Sandbox.Docker.Image, o.Sandbox.Docker.Runtime = c.Image.Value, c.Runtime.Value
	o.Sandbox.OpenSandbox = c.OpenSandbox()
	if unsafe, _ := strconv.ParseBool(c.Unsafe.Value); unsafe {
		o.Sandbox.Unsafe = true
	}
	store, err := filepath.Abs(o.Store)
	if err != nil {
		return nil, err
	}
	// Of this store alone: another node does not have its directory.
	dir := filepath.Join(store, "demo")
	o.Workflows = append(slices.Clip(o.Workflows), demo.Registration(dir), demo.FleetRegistration(dir))
	node.TuneMemory(a.Getenv)
	n, err := node.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return a.system(ctx, n, "store "+o.Store)
}

func (a *App) system(ctx context.Context, n *node.Instance, where string) (*System, error) {
	c, err := n.ClientOf(ctx, a.Tenant())
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	end := func() error { return errors.Join(c.Close(), n.Close()) }
	mint := func(name string) session.ID { return n.HomeOf(a.Tenant(), run.ID(name)) }
	return &System{
		Client: c, Mint: mint, Log: n.Log(), Values: journal.NewValues(n.Log()), Blobs: n.Blobs, Stores: n.Stores, Level: n.Level(), Instance: n, Where: where, Hint: a.Hint, Progress: a.Progress, close: end,
	}, nil
}
