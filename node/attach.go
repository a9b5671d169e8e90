package node

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// Client returns a client of the tenant "default" in this process. It works
// until Close.
func (n *Instance) Client() (*client.Client, error) { return n.ClientOf(session.DefaultTenant) }

// ClientOf returns a client of a tenant in this process. It works until Close.
func (n *Instance) ClientOf(t session.Tenant) (*client.Client, error) { return client.New(n.conn, t) }

// Attach connects, with all rights, to the node that runs over
// Options.Store: to read its logs and blobs, and to ask it. The Instance that
// it returns takes no tasks and answers nothing; Close only ends the
// connection, which is made again when a node is back under the address of this
// one. It fails with client.ErrUnreachable when no node runs there.
func Attach(ctx context.Context, opts *Options) (*Instance, error) {
	n := &Instance{failed: make(chan error, 1)}
	if opts != nil {
		n.o = *opts
	}
	n.defaults()
	a, err := ReadAttachment(n.o.Store)
	if err != nil {
		return nil, err
	}
	n.o.NATS, n.o.Level, n.o.Disk = a.URL, a.Level, storeDir(n.o.Store)
	user, password := a.User, a.Password
	login := func() (string, string) {
		if now, err := ReadAttachment(n.o.Store); err == nil { // a node draws a password when it starts
			user, password = now.User, now.Password
		}
		return user, password
	}
	// The node verified the server's durability; this process only reads.
	n.conn, err = api.Connect(ctx, &streams.Options{
		Options: conn.Options{URL: a.URL, Login: login, Name: "rath " + n.incarnation, Inbox: conn.NodeInbox, Logger: n.log}, Level: streams.Lazy, Disk: n.disk,
	})
	if err != nil {
		return nil, err
	}
	n.events = n.conn.Log()
	n.values = journal.NewValues(n.events)
	return n, nil
}

// Member returns the Options with which another process of this machine
// becomes a node on the server of this one, which has to listen: the address,
// how to log in, and how to verify that every write is synced. They hold a
// password, so they do not belong into arguments or files.
func (n *Instance) Member() *Options {
	o := &Options{NATS: n.URL(), Level: n.o.Level}
	if n.server != nil {
		o.User, o.Password = n.server.Node()
	}
	if n.server != nil {
		o.Disk = n.server.StoreDir()
	}
	if n.o.MonitorPort != 0 {
		o.Monitor = []string{fmt.Sprintf("http://127.0.0.1:%d", n.o.MonitorPort)}
	}
	return o
}
