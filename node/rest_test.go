package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/client/toolserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/tool"
)

// TestCloseWithStuckService: a service that ignores its end does not keep the node from
// ending, and the error reports it.
func TestCloseWithStuckService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInstance(nil)
		stuck := make(chan struct{})
		n.services.background(t.Context(), "stuck", func(context.Context) error {
			<-stuck
			return nil
		})
		began := time.Now()
		if err := n.Close(); err == nil || !strings.Contains(err.Error(), "not all services ended") || time.Since(began) != restLast {
			t.Errorf("closed with %v after %v", err, time.Since(began))
		}
		close(stuck)
	})
}

// TestNegativeOptions: negative options are rejected with a remedy.
func TestNegativeOptions(t *testing.T) {
	for _, o := range []*Options{{Slots: -1}, {Drain: -time.Second}} {
		o.Store, o.NATS.Level = t.TempDir(), string(streams.Lazy)
		if n, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "neither may be negative") {
			t.Errorf("%+v: %v, %v", o, n, err)
		}
	}
}

// TestServeToolEndsWithItsClient: closing a client does not wait forever for the
// function that serves a tool on it.
func TestServeToolEndsWithItsClient(t *testing.T) {
	t.Parallel()
	n := must.Get(Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: string(streams.Lazy), Port: -1}}))(t)
	defer func() { must.Report(t, n.Close()) }()
	user, password := n.link.server.Tool()
	c := must.Get(client.Connect(t.Context(), n.URL(), &client.Options{User: user, Password: password}))(t)
	mine := must.Get(n.Client(t.Context()))(t)
	defer mine.Close()
	served := make(chan error, 1)
	go func() {
		served <- toolserver.Serve(t.Context(), c, tool.Func("weather", "Weather.", func(context.Context, struct{}) (string, error) {
			return "sunny", nil
		}, nil), 0)
	}()
	announced(t, mine, "weather")
	must.Do(t, c.Close())
	select {
	case err := <-served:
		if !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on serving without a connection")
	}
}
