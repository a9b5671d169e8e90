// Package client lets programs use Rath: they submit tasks, follow runs, read sessions
// and lineage, and decide about runs.
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
// It uses only the subjects that package messages documents, which any NATS client in
// any language may use too. It needs no credentials for the tenant "default". The
// command line uses this package.
//
// The nodes answer requests; without a node, reads fail with ErrNoAnswer and submitted
// tasks wait.
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

// Errors that callers can test for, besides those of packages run and session.
var (
	// ErrUnreachable means that there is no connection to NATS.
	ErrUnreachable = conn.ErrUnreachable
	// ErrDenied means that NATS rejects the credentials, or that they do not permit the
	// operation.
	ErrDenied = conn.ErrDenied
	// ErrNoAnswer means that NATS is reachable but no node is.
	ErrNoAnswer = conn.ErrNoAnswer
)

// Options are the settings of a connection; nil means the defaults.
type Options struct {
	// Tenant is the tenant to act for; empty means session.DefaultTenant. The
	// credentials determine the allowed tenants.
	Tenant session.Tenant
	// Name identifies the connection in the server's monitoring; empty means "rath
	// client".
	Name string
	// User and Password, or CredsFile (a JWT and its seed), or NKeyFile (a
	// seed) log in; none of them is a client without credentials.
	User, Password, CredsFile, NKeyFile string
	// Login returns the user and the password for each connect, because a restarted
	// server may require others; nil means User and Password.
	Login func() (user, password string)
	// As is the user on whose behalf requests are made, for credentials that may name
	// any user, such as those of a gateway that has authenticated its users. Empty
	// means the user of the credentials, or "anonymous" without credentials. The server
	// rejects a user that the credentials may not name.
	As string
	// RootCAs is a PEM file of certificate authorities; with it, or with a URL
	// of scheme tls, the connection is encrypted.
	RootCAs string
	// Inbox is the subject prefix of answers, for credentials that permit only one
	// prefix; empty means "_INBOX".
	Inbox string
	// Dialer makes each connection, for example to a server in this process; nil dials
	// the server passed to Connect, which is not used otherwise.
	Dialer func() (net.Conn, error)
	// Logger receives the background events of the connection; nil discards them.
	Logger *slog.Logger
}

// Client talks to Rath for one tenant. It is safe for concurrent use.
type Client struct {
	conn     *conn.Conn
	requests *requests.Requests
	tenant   session.Tenant
	shared   bool // with the client that Connect returned, which closes the connection

	*submissions
}

// submissions are the tasks of a connection: nodes may not have them yet.
type submissions struct {
	mu        sync.Mutex
	submitted map[run.ID]struct{}
}

// Connect connects to the NATS servers under one or more URLs, separated by commas; ""
// is the one on this machine. ErrUnreachable and ErrDenied include the remedy. ctx
// bounds the first connect. The client reconnects by itself until Close.
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
	return &Client{conn: nc, requests: requests.New(nc), tenant: o.Tenant, submissions: &submissions{submitted: map[run.ID]struct{}{}}}, nil
}

// As returns a client that acts for another user over the same connection, whose
// credentials may name any user, such as those of a gateway that has authenticated its
// users. via names the gateway and its reason, as in "web/api/token 7f3a", and is kept as
// evidence beside the user. Close of the returned client does nothing.
func (c *Client) As(user, via string) *Client {
	return &Client{conn: c.conn, requests: c.requests.As(user), tenant: c.tenant, shared: true, submissions: c.submissions}
}

// Tenant is the tenant that the client acts for.
func (c *Client) Tenant() session.Tenant { return c.tenant }

// Connected reports whether there is a connection to NATS at this moment. The client
// reconnects by itself, until Close.
func (c *Client) Connected() bool { return c.conn.Connected() }

// Close ends the connection.
func (c *Client) Close() error {
	if c.shared {
		return nil
	}
	return c.conn.Close()
}

// Cancel asks a run to stop and returns once the request is recorded; the run ends soon
// after. It also cancels a run whose task no node has accepted yet. reason is kept as
// evidence, and so is by, the caller's own claim of identity, beside the user of the
// connection. run.ErrState means that the run has ended. run.ErrUnknownRun means that
// no task with this id was stored: then nothing is recorded, and a task that arrives
// later runs.
func (c *Client) Cancel(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbCancel, messages.Control{By: by, Reason: reason, Submitted: true})
}

// Resolve decides about a run that needs review. d.Decision is run.Happened, with the
// result of the call in d.Value as JSON, run.Again, run.Pin or run.Fail; d.Reason is
// recorded as evidence. Resolve returns once the decision is recorded.
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
