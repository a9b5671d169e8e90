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
// The methods of a Client submit tasks and follow runs. The rest is in its groups: Runs,
// Questions, Sessions, Lineage, Memory, Tools and Fleet. Their methods take the id or
// the name first. Methods for decisions of people take a messages.Control, with the
// author and the reason:
//
//	open, err := c.Questions.List(ctx)
//	if err != nil {
//		return err
//	}
//	for _, q := range open {
//		err = errors.Join(err, c.Questions.Approve(ctx, q.Run, messages.Control{Step: q.Step, By: "ann"}))
//	}
//
// The client uses only the subjects that package messages documents, which any NATS client in
// any language may use too. It needs no credentials for the tenant "default". The
// command line uses this package.
//
// The nodes answer requests; without a node, reads fail with ErrNoAnswer and submitted
// tasks wait.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
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

// Client talks to Rath for one tenant. It is safe for concurrent use. Its fields are the
// groups of its methods, and must not be changed.
type Client struct {
	Runs      *Runs
	Questions *Questions
	Sessions  *Sessions
	Lineage   *Lineage
	Memory    *Memory
	Tools     *Tools
	Fleet     *Fleet

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
	return (&Client{conn: nc, requests: requests.New(nc), tenant: o.Tenant, submissions: &submissions{submitted: map[run.ID]struct{}{}}}).grouped(), nil
}

// As returns a client that acts for another user over the same connection, whose
// credentials may name any user, such as those of a gateway that has authenticated its
// users. via names the gateway and its reason, as in "web/api/7f3a", and is kept as
// evidence beside the user, with control requests. Close of the returned client does nothing.
func (c *Client) As(user, via string) *Client {
	return (&Client{conn: c.conn, requests: c.requests.As(user, via), tenant: c.tenant, shared: true, submissions: c.submissions}).grouped()
}

// grouped completes a new client with its groups.
func (c *Client) grouped() *Client {
	c.Runs, c.Questions, c.Sessions, c.Lineage = &Runs{c}, &Questions{c}, &Sessions{c}, &Lineage{c}
	c.Memory, c.Tools, c.Fleet = &Memory{c}, &Tools{c}, &Fleet{c}
	return c
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

// Workflows returns the offered workflows, sorted by name.
func (c *Client) Workflows(ctx context.Context) ([]messages.Workflow, error) {
	ws, err := query[wire.Workflows](ctx, c, messages.QueryWorkflows, wire.Query{})
	return ws.Workflows, err
}

// Blobs returns the blobs of the client's tenant, such as the files of heads. With it,
// package workspace makes a head of a directory, for messages.Task.Workspace, and a
// directory of a head. Blobs that are stored already are not sent again, so an
// interrupted upload resumes where it stopped. Put returns run.ErrBusy while the tenant
// has no storage left.
func (c *Client) Blobs() blob.Store { return c.requests.RemoteBlobs(c.tenant) }

func (c *Client) control(ctx context.Context, id run.ID, verb string, b messages.Control) error {
	if err := session.ValidID("run", string(id)); err != nil {
		return err
	}
	if _, err := c.requests.Control(ctx, c.tenant, id, verb, b); err != nil {
		return fmt.Errorf("%s run %s: %w", verb, id, err)
	}
	return nil
}

// Publish publishes an event of the tenant, for all runs that wait for it now or within 7
// days. d.Value is its value as JSON. d.ID makes it idempotent: while the event is kept, the
// same id with the same value is harmless, and with another value run.ErrKeyReused. It
// requires the role submit.
func (c *Client) Publish(ctx context.Context, name, key string, d messages.Control) error {
	d.Event, d.Key = name, key
	if err := d.Check(messages.VerbPublish); err != nil {
		return err
	}
	if _, err := c.requests.Control(ctx, c.tenant, messages.EventID, messages.VerbPublish, d); err != nil {
		return fmt.Errorf("publish event %s: %w", name, err)
	}
	return nil
}

// Query sends a query as FORMAT.md of package messages has it, and returns the reply as it
// came: for a program that passes replies on. q is the body of the query.
func (c *Client) Query(ctx context.Context, verb string, q any) (json.RawMessage, error) {
	return c.requests.Query(ctx, c.tenant, verb, q)
}

// query sends a query and decodes the answer.
func query[T any](ctx context.Context, c *Client, verb string, q wire.Query) (T, error) {
	var v T
	data, err := c.requests.Query(ctx, c.tenant, verb, q)
	if err == nil {
		if err = json.Unmarshal(data, &v); err != nil {
			err = fmt.Errorf("answer to %s: %w", verb, err)
		}
	}
	return v, err
}
