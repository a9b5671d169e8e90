package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/node"
)

// rights say what a connection to the streams is for.
type rights uint8

const (
	toRead  rights = iota // what is stored
	toStore               // commits and blobs, as a node does
	toPurge               // and to purge, as the operator does
)

// streams is a connection to where the streams are.
type streams struct {
	*natsbus.Conn
	level string
	// alone is set if nobody else has the store open.
	alone bool
	close func() error
}

// openStreams connects to where the streams are: to a server, to the one of the
// node that runs over the store, or to one that it starts on the store and that
// executes nothing. monitor are the monitoring addresses of a server, needed to
// store there.
func (a *app) openStreams(ctx context.Context, r rights, monitor []string) (*streams, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	level, err := natsbus.ParseLevel(a.config.Level.Value)
	if err != nil {
		return nil, err
	}
	o := &natsbus.Options{Options: conn.Options{Name: "rath", Inbox: conn.NodeInbox, Logger: a.logger()}, Client: r == toRead, Level: level}
	if a.ambient() {
		if err := a.login(o); err != nil {
			return nil, err
		}
		if len(monitor) > 0 {
			o.Probe = natsbus.MonitorProbe(monitor...)
		}
		return connected(ctx, o)
	}
	store := a.config.Store.Value
	if running, err := node.ReadAttachment(store); err == nil {
		o.URL, o.User, o.Password = running.URL, running.User, running.Password
		if r == toPurge {
			o.User, o.Password = running.OperatorUser, running.OperatorPassword
		}
		o.Level = natsbus.Lazy // the node verified its own server
		s, err := connected(ctx, o)
		if err == nil {
			s.level = running.Level
		}
		if !errors.Is(err, conn.ErrUnreachable) {
			return s, err
		}
		// What wrote the file does not live any more: the store is ours.
		o.URL, o.Level = "", level
	}
	if err := a.storeThere(); err != nil {
		return nil, err
	}
	server, err := natsserver.Start(ctx, &natsserver.Options{StoreDir: logDir(store), Lazy: level == natsbus.Lazy, Logger: a.logger()})
	if err != nil {
		return nil, err
	}
	shutdown := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
	o.Dialer = func() (net.Conn, error) { return server.Dial() }
	o.User, o.Password = server.Node()
	if r == toPurge {
		o.User, o.Password = server.Operator()
	}
	o.Probe = func(context.Context) ([]natsbus.SyncState, error) {
		always, interval, err := server.Sync()
		return []natsbus.SyncState{{Server: server.Name(), Always: always, Interval: interval}}, err
	}
	s, err := connected(ctx, o)
	if err != nil {
		return nil, errors.Join(err, shutdown())
	}
	s.alone = true
	s.close = func() error { return errors.Join(s.Close(), shutdown()) }
	return s, nil
}

func connected(ctx context.Context, o *natsbus.Options) (*streams, error) {
	conn, err := natsbus.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &streams{Conn: conn, level: string(o.Level), close: conn.Close}, nil
}

// login fills in the server and the credentials that the configuration names.
func (a *app) login(o *natsbus.Options) error {
	c := &a.config
	o.CredsFile, o.URL = c.Creds.Value, c.Server.Value
	if o.URL == "" {
		nc, err := a.readContext(cmp.Or(c.Context.Value, a.selectedContext()))
		if err != nil {
			return err
		}
		o.URL, o.User, o.Password, o.NKeyFile, o.RootCAs = nc.URL, nc.User, nc.Password, nc.NKey, nc.CA
		o.CredsFile, o.Inbox = cmp.Or(o.CredsFile, nc.Creds), cmp.Or(nc.Inbox, o.Inbox)
	}
	if o.CredsFile == "" && o.NKeyFile == "" && o.User == "" {
		o.User, o.Password = a.getenv("NATS_USER"), a.getenv("NATS_PASSWORD")
	}
	return nil
}
