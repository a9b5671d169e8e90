package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/natsbus"
)

// openStreams connects to where the streams are, to read them as they are
// stored: to a server, to the one of the node that runs over the store, or to
// one that it starts on the store and that executes nothing.
func (a *app) openStreams(ctx context.Context) (*natsbus.Conn, func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := &natsbus.Options{Name: "rath", Client: true, Inbox: natsbus.NodeInbox, Logger: a.logger()}
	if a.ambient() {
		if err := a.login(o); err != nil {
			return nil, nil, err
		}
		return connected(ctx, o)
	}
	store := a.config.Store.Value
	var running struct {
		URL      string `json:"url"`
		User     string `json:"user"`
		Password string `json:"password"`
	}
	if data, err := os.ReadFile(filepath.Join(store, "node.json")); err == nil && json.Unmarshal(data, &running) == nil && running.URL != "" {
		o.URL, o.User, o.Password = running.URL, running.User, running.Password
		conn, close, err := connected(ctx, o)
		if !errors.Is(err, natsbus.ErrUnreachable) {
			return conn, close, err
		}
		// What wrote the file does not live any more: the store is ours.
		o.URL = ""
	}
	dir := filepath.Join(store, "nats")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fail(exitNotFound, "there is no store at %s: name another place with --store or --server, or a dump", store)
	}
	server, err := natsserver.Start(ctx, &natsserver.Options{StoreDir: dir, Logger: a.logger()})
	if err != nil {
		return nil, nil, err
	}
	shutdown := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
	o.Dialer = func() (net.Conn, error) { return server.Dial() }
	o.User, o.Password = server.Node()
	conn, close, err := connected(ctx, o)
	if err != nil {
		return nil, nil, errors.Join(err, shutdown())
	}
	return conn, func() error { return errors.Join(close(), shutdown()) }, nil
}

func connected(ctx context.Context, o *natsbus.Options) (*natsbus.Conn, func() error, error) {
	conn, err := natsbus.Connect(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return conn, conn.Close, nil
}

// login fills in the server and the credentials that the configuration names.
func (a *app) login(o *natsbus.Options) error {
	c := &a.config
	o.CredsFile, o.URL = c.Creds.Value, c.Server.Value
	if o.URL == "" {
		nc, err := a.readContext(or(c.Context.Value, a.selectedContext()))
		if err != nil {
			return err
		}
		o.URL, o.User, o.Password, o.NKeyFile, o.RootCAs = nc.URL, nc.User, nc.Password, nc.NKey, nc.CA
		o.CredsFile, o.Inbox = or(o.CredsFile, nc.Creds), or(nc.Inbox, o.Inbox)
	}
	if o.CredsFile == "" && o.NKeyFile == "" && o.User == "" {
		o.User, o.Password = a.getenv("NATS_USER"), a.getenv("NATS_PASSWORD")
	}
	return nil
}
