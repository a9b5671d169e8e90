// Package client is how programs talk to Rath: they submit tasks, watch runs,
// read sessions and lineage, and decide about runs.
//
//	c, err := client.Connect(ctx, "nats://localhost:4222", nil)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	id, err := c.Submit(ctx, "agent", messages.Task{Input: json.RawMessage(`"why is the build red?"`)})
//	if err != nil {
//		return err
//	}
//	result, err := c.Wait(ctx, id)
//
// It uses nothing but the subjects that package messages documents, which any
// NATS client in any language may use too, and it needs no credentials to be
// the tenant "default". The command line is written on it.
//
// Answers come from the nodes; without one, reads fail with ErrNoAnswer and
// submitted tasks wait.
package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Errors to branch on, beside those of packages run and session.
var (
	// ErrUnreachable means that there is no connection to NATS.
	ErrUnreachable = conn.ErrUnreachable
	// ErrDenied means that NATS refuses the credentials, or that they do not
	// allow this.
	ErrDenied = conn.ErrDenied
	// ErrNoAnswer means that NATS is there and no node is.
	ErrNoAnswer = conn.ErrNoAnswer
)

// Options say how to connect; nil means the defaults.
type Options struct {
	// Tenant to act for; empty means session.DefaultTenant. The credentials
	// decide which ones are allowed.
	Tenant session.Tenant
	// Name tells the connection from others in the server's monitoring; empty
	// means "rath client".
	Name string
	// User and Password, or CredsFile (a JWT and its seed), or NKeyFile (a
	// seed) log in; none of them is a client without credentials.
	User, Password, CredsFile, NKeyFile string
	// Login is asked for the user and the password at each connect, where a server may
	// have others when it is back; nil means User and Password.
	Login func() (user, password string)
	// As is the user that requests are made as, for credentials that may name any, such
	// as those of a gateway which has checked who asks; empty means their own user, or
	// "anonymous" without credentials. The server refuses a user that they may not name.
	As string
	// RootCAs is a PEM file of certificate authorities; with it, or with a URL
	// of scheme tls, the connection is encrypted.
	RootCAs string
	// Inbox is the subject prefix of answers, for credentials that allow only
	// one of their own; empty means "_INBOX".
	Inbox string
	// Dialer makes each connection, such as to a server in this process; nil dials the
	// server that Connect is given, which is not used otherwise.
	Dialer func() (net.Conn, error)
	// Logger receives what happens to the connection in the background; nil
	// discards it.
	Logger *slog.Logger
}

// Client talks to Rath for one tenant. It is safe for concurrent use.
type Client struct {
	conn     *conn.Conn
	requests *requests.Requests
	tenant   session.Tenant

	mu        sync.Mutex
	submitted map[run.ID]struct{} // by this client: nodes may not know them yet
}

// Connect connects to the NATS servers under one or more URLs, separated by
// commas; "" is the one on this machine. ErrUnreachable and ErrDenied say what
// to do. ctx bounds the first connect; the connection is restored by itself until
// Close.
func Connect(ctx context.Context, server string, opts *Options) (*Client, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = "rath client"
	}
	if o.Tenant == "" {
		o.Tenant = session.DefaultTenant
	}
	if err := session.ValidID("tenant", string(o.Tenant)); err != nil {
		return nil, err
	}
	nc, err := conn.Connect(ctx, &conn.Options{
		URL: server, Dialer: o.Dialer, Name: o.Name, User: o.User, Password: o.Password, Login: o.Login,
		CredsFile: o.CredsFile, NKeyFile: o.NKeyFile, As: o.As, RootCAs: o.RootCAs, Inbox: o.Inbox, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Client{conn: nc, requests: requests.New(nc), tenant: o.Tenant, submitted: map[run.ID]struct{}{}}, nil
}

// Tenant is the tenant that the client acts for.
func (c *Client) Tenant() session.Tenant { return c.tenant }

// Connected reports whether there is a connection to NATS at this moment. One
// that was lost is made again by itself, until Close.
func (c *Client) Connected() bool { return c.conn.Connected() }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Cancel asks a run to stop and returns once that is recorded; the run ends
// soon after. A run whose task no node has taken yet is cancelled too. reason is kept as
// evidence and so is by, who the caller says to be, beside the user of the connection. run.ErrState means that the run
// has ended, run.ErrUnknownRun that no task of this id was stored: then nothing is
// recorded, and a task that comes later runs.
func (c *Client) Cancel(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbCancel, messages.Control{By: by, Reason: reason, Submitted: true})
}

// Resolve decides about a run that needs review. d.Decision is run.Happened, with
// the result of the call in d.Value as JSON, run.Again, run.Pin or run.Fail;
// d.Reason is kept as evidence. It returns once the decision is recorded.
func (c *Client) Resolve(ctx context.Context, id run.ID, d messages.Control) error {
	return c.control(ctx, id, messages.VerbResolve, d)
}

func (c *Client) control(ctx context.Context, id run.ID, verb string, b messages.Control) error {
	if err := session.ValidID("run", string(id)); err != nil {
		return err
	}
	if _, err := c.requests.Control(ctx, c.tenant, id, verb, b); err != nil {
		return fmt.Errorf("%s run %s: %w", verb, id, err)
	}
	return nil
}
