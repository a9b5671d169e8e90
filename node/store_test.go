package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestStoreWithoutSnapshots starts a node over a store with an open run that has lost
// all snapshots, checkpoints and open sets: the run continues, from its log.
func TestStoreWithoutSnapshots(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	model := &held{call: make(chan struct{}), answer: make(chan struct{})}
	o := Options{Store: store, NATS: NATS{Level: "lazy"}, Models: Models{Source: model}, Drain: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	of := func(n *Instance) *client.Client {
		c := must.Get(n.ClientOf(t.Context(), session.DefaultTenant))(t)
		return c
	}
	n := begin(t, &o).started(t)
	c := of(n)
	defer c.Close()
	must.Get(c.Submit(t.Context(), "agent", messages.Task{ID: "r1", Input: json.RawMessage(`"hello"`)}))(t)
	<-model.call
	must.Do(t, n.Close())

	srv := natstest.Start(t, &natsserver.Options{StoreDir: filepath.Join(store, "nats"), Port: -1, Lazy: true})
	user, password := srv.Operator()
	nc, err := nats.Connect(srv.URL(), nats.UserInfo(user, password))
	must.Do(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	snap, err := js.Stream(ctx, streams.StreamSnap)
	if err == nil {
		err = snap.Purge(ctx)
	}
	must.Do(t, err)
	nc.Close()
	must.Do(t, srv.Shutdown(ctx))

	close(model.answer)
	n = begin(t, &o).started(t)
	again := of(n)
	defer again.Close()
	if r, err := again.Wait(ctx, "r1"); err != nil || r.State != run.Succeeded {
		t.Errorf("the open run: %+v, %v", r, err)
	}
	echoed(t, n)
}

// TestStoreOfAnotherNode gives the store of a live node to a second one, as if both
// were started in one directory: the second does not start, and the files of the first
// one's runs stay.
func TestStoreOfAnotherNode(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	o := Options{NATS: NATS{URL: srv.URL(), Level: "lazy"}, Store: t.TempDir()}
	o.NATS.User, o.NATS.Password = srv.Node()
	first := begin(t, &o).started(t)
	dir := filepath.Join(o.Store, "work", "acme", "s1", "1-1")
	must.Do(t, os.MkdirAll(dir, 0o700))
	second, err := Start(t.Context(), &o)
	if err == nil {
		err = second.Close()
		t.Errorf("a second node started over the store; it ended with %v", err)
	} else if !errors.Is(err, natsserver.ErrStoreInUse) {
		t.Errorf("the second node did not start: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the files of the first one: %v", err)
	}
	must.Do(t, first.Close())
	begin(t, &o).started(t)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next node of the store found what the first one left: %v", err)
	}
}

// TestStoreIsIgnored: git ignores a store that lies in a repository, and a file of the
// user's own stays.
func TestStoreIsIgnored(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), ".rath")
	ignore := filepath.Join(store, ".gitignore")
	for _, want := range []string{"*\n", "mine\n"} {
		n := begin(t, &Options{Store: store, NATS: NATS{Level: "lazy"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}).started(t)
		if text, err := os.ReadFile(ignore); err != nil || string(text) != want {
			t.Errorf("%s holds %q, %v, want %q", ignore, text, err, want)
		}
		must.Do(t, n.Close())
		must.Do(t, os.WriteFile(ignore, []byte("mine\n"), 0o600))
	}
}
