package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// start runs a server for one example.
func start(ctx context.Context) (srv *natsserver.Server, stop func()) {
	dir, err := os.MkdirTemp("", "rath-example-")
	if err != nil {
		panic(err)
	}
	srv, err = natsserver.Start(ctx, &natsserver.Options{StoreDir: dir, MaxStore: 16 << 30})
	if err != nil {
		panic(err)
	}
	return srv, func() {
		if err := errors.Join(srv.Shutdown(ctx), os.RemoveAll(dir)); err != nil {
			panic(err)
		}
	}
}

// connect connects a node to the server in its process.
func connect(ctx context.Context, srv *natsserver.Server) (*api.Conn, error) {
	user, password := srv.Node()
	c, err := api.Connect(ctx, &streams.Options{
		Options: conn.Options{Dialer: srv.Dial, Name: "example", User: user, Password: password, Inbox: conn.NodeInbox},
		Probe: func(context.Context) ([]streams.SyncState, error) {
			always, interval, err := srv.Sync()
			return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
		},
	})
	if err != nil {
		return nil, err
	}
	if err := c.Streams.Provision(ctx); err != nil {
		return nil, errors.Join(err, c.Conn.Close())
	}
	return c, nil
}

// A commit is durable when Append returns, and a second writer is refused.
func Example_log() {
	ctx := context.Background()
	srv, stop := start(ctx)
	defer stop()
	c, err := connect(ctx, srv)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Conn.Close()

	minter := commitlog.IDGenerator{Generation: c.Streams.Generation(), Partitions: c.Streams.Partitions()}
	k := session.Key{Tenant: session.DefaultTenant, ID: minter.ID("example")}
	first := commitlog.Commit{
		Key: k, Root: k.ID, Seq: 1, Epoch: 1,
		Events: []session.Event{session.ChunkEvent(session.UserText("hello"))},
	}
	at, err := c.Logs.Log().Append(ctx, commitlog.Position{}, first)
	fmt.Println("commit", at.Seq, err)

	first.Epoch = 2 // another writer, which has not read the log
	_, err = c.Logs.Log().Append(ctx, commitlog.Position{}, first)
	fmt.Println("refused:", errors.Is(err, session.ErrConflict))

	for e, err := range c.Logs.Log().Read(ctx, k, commitlog.Position{}) {
		fmt.Println("read", e.Commit.Seq, e.Commit.Events[0].Kind, err)
	}
	// Output:
	// commit 1 <nil>
	// refused: true
	// read 1 session.chunk <nil>
}

// A blob is found under the digest of its bytes, by its tenant only.
func Example_blobs() {
	ctx := context.Background()
	srv, stop := start(ctx)
	defer stop()
	c, err := connect(ctx, srv)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Conn.Close()

	ref, err := c.Logs.Blobs("one").Put(ctx, bytes.NewReader([]byte("a long tool output")))
	fmt.Println(ref.Size, err)
	r, err := c.Logs.Blobs("one").Get(ctx, ref.Digest)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	fmt.Println(string(data), err)
	_, err = c.Logs.Blobs("two").Get(ctx, ref.Digest)
	fmt.Println(err != nil)
	// Output:
	// 18 <nil>
	// a long tool output <nil>
	// true
}

// A server that does not sync is refused unless its durability is accepted by
// name.
func ExampleConnect() {
	ctx := context.Background()
	srv, stop := start(ctx)
	defer stop()
	user, password := srv.Node()
	opts := &streams.Options{
		Options: conn.Options{Dialer: srv.Dial, User: user, Password: password},
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "nats-0", Always: false}}, nil
		},
	}
	_, err := api.Connect(ctx, opts)
	fmt.Println("refused:", errors.Is(err, streams.ErrDurability))

	opts.Level = streams.Lazy
	c, err := api.Connect(ctx, opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("level:", c.Streams.Level(), c.Conn.Close())
	// Output:
	// refused: true
	// level: lazy <nil>
}
