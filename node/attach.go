package node

import (
	"context"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Client connects a client of the tenant "default", see ClientOf.
func (n *Instance) Client(ctx context.Context) (*client.Client, error) {
	return n.ClientOf(ctx, session.DefaultTenant)
}

// ClientOf connects a client of a tenant to the servers of this node, with its rights,
// as the operator. The caller closes it, before this node if its server is in this
// process.
func (n *Instance) ClientOf(ctx context.Context, t session.Tenant) (*client.Client, error) {
	o := &n.link.login
	return client.Connect(ctx, o.URL, &client.Options{
		Tenant: t, Name: o.Name + " client", User: o.User, Password: o.Password, Login: o.Login, CredsFile: o.CredsFile, As: messages.UserOperator,
		RootCAs: o.RootCAs, Inbox: o.Inbox, Dialer: o.Dialer, Logger: n.o.Logger,
	})
}

// Attach connects, with all rights, to the node that runs over Options.Store: to read
// its logs and blobs, and to ask it. The returned Instance takes no tasks and answers
// no requests; Close only ends the connection, which is restored when a node is back
// under the address of this one. Attach fails with client.ErrUnreachable if no node
// runs there.
func Attach(ctx context.Context, opts *Options) (*Instance, error) {
	n := newInstance(opts)
	a, err := supervise.ReadAttachment(n.o.Store)
	if err != nil {
		return nil, err
	}
	n.o.NATS.URL, n.o.NATS.Level, n.o.NATS.Disk = a.URL, a.Level, storeDir(n.o.Store)
	user, password := a.User, a.Password
	login := func() (string, string) {
		if now, err := supervise.ReadAttachment(n.o.Store); err == nil { // a node draws a password when it starts
			user, password = now.User, now.Password
		}
		return user, password
	}
	// The node verified the server's durability; this process only reads.
	l := &n.link
	l.login = conn.Options{URL: a.URL, Login: login, Name: "rath " + l.incarnation, Inbox: conn.NodeInbox, Logger: n.o.Logger}
	l.conn, err = api.Connect(ctx, &streams.Options{Options: l.login, Level: streams.Lazy, Disk: l.disk})
	if err != nil {
		return nil, err
	}
	l.install()
	return n, nil
}
