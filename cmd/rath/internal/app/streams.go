package app

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
)

// Rights are the permissions that a connection to the streams needs.
type Rights uint8

const (
	ToAsk   Rights = iota // request answers of nodes, with a client's credentials
	ToRead                // read the stored data
	ToStore               // commits and blobs, as a node does
	ToPurge               // and to purge, as the operator does
	ToGrant               // read and write the tokens of the web, as the operator does
)

// Streams is a connection to the streams of the configured system.
type Streams struct {
	Conn  *api.Conn
	level string
	// Alone is set if no other process has the store open.
	Alone    bool
	shutdown func() error // stops the server that was started for it; nil for another server
}

// Close ends the connection, and the server that was started for it.
func (s *Streams) Close() error {
	err := s.Conn.Conn.Close()
	if s.shutdown != nil {
		err = errors.Join(err, s.shutdown())
	}
	return err
}

// OpenStreams connects to the streams: of a server, of the node that runs over the
// store, or of a server that it starts on the store and that executes no runs. monitor
// are the monitoring addresses of a server, which the right to store requires.
func (a *App) OpenStreams(ctx context.Context, r Rights, monitor []string) (*Streams, error) {
	ctx, cancel := context.WithTimeout(ctx, OpenTimeout)
	defer cancel()
	level, err := streams.ParseLevel(a.Config.Level.Value)
	if err != nil {
		return nil, err
	}
	o := &streams.Options{Options: conn.Options{Name: "rath", Inbox: conn.NodeInbox, Logger: a.Logger()}, Client: r == ToRead || r == ToGrant, Level: level}
	if a.Ambient() {
		if r == ToAsk {
			o.Client, o.Inbox = true, "" // the inbox of clients
		}
		if err := a.Login(o); err != nil {
			return nil, err
		}
		if len(monitor) > 0 {
			o.Probe = streams.MonitorProbe(monitor...)
		}
		return connected(ctx, o)
	}
	store := a.Config.Store.Value
	if running, err := supervise.ReadAttachment(store); err == nil {
		o.URL, o.User, o.Password = running.URL, running.User, running.Password
		if r == ToPurge || r == ToGrant {
			o.User, o.Password = running.OperatorUser, running.OperatorPassword
		}
		o.Level = streams.Lazy // the node verified its own server
		s, err := connected(ctx, o)
		if err == nil {
			s.level = running.Level
		}
		if !errors.Is(err, conn.ErrUnreachable) {
			return s, err
		}
		// The process that wrote the file is dead: the store is ours.
		o.URL, o.Level = "", level
	}
	if err := a.StoreThere(); err != nil {
		return nil, err
	}
	server, err := natsserver.Start(ctx, &natsserver.Options{StoreDir: logDir(store), Lazy: level == streams.Lazy, Logger: a.Logger()})
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
	if r == ToPurge || r == ToGrant {
		o.User, o.Password = server.Operator()
	}
	o.Probe = func(context.Context) ([]streams.SyncState, error) {
		always, interval, err := server.Sync()
		return []streams.SyncState{{Server: server.Name(), Always: always, Interval: interval}}, err
	}
	s, err := connected(ctx, o)
	if err != nil {
		return nil, errors.Join(err, shutdown())
	}
	s.Alone = true
	s.shutdown = shutdown
	return s, nil
}

func connected(ctx context.Context, o *streams.Options) (*Streams, error) {
	conn, err := api.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Streams{Conn: conn, level: string(o.Level)}, nil
}

// Login fills in the server and the credentials that the configuration names.
func (a *App) Login(o *streams.Options) error {
	c, err := a.login()
	o.URL, o.User, o.Password, o.CredsFile, o.NKeyFile, o.RootCAs = c.URL, c.User, c.Password, c.Creds, c.NKey, c.CA
	o.Inbox = cmp.Or(c.Inbox, o.Inbox)
	return err
}
