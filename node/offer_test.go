package node

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
)

// TestRoutersPool: a node beside routers may not join their pool, whose offer it would
// withdraw. If the pool has another name, the node leaves the routers' offer alone, and
// an offer that was withdrawn nevertheless is restored.
func TestRoutersPool(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	user, password := srv.Node()
	for _, routing := range []Routing{RouteElsewhere, RouteHere} {
		n, err := Start(ctx, &Options{NATS: NATS{URL: srv.URL(), User: user, Password: password, Level: "lazy"}, Store: t.TempDir(), Fleet: Fleet{Pool: RouterPool, Routing: routing}})
		if err == nil {
			_ = n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "pool router is the routers'") {
			t.Errorf("a node of the routers' pool: %v", err)
		}
	}
	routed := func(n *Instance) []string {
		t.Helper()
		all := must.Get(n.link.conn.Dispatch.Registry.Workflows(ctx))(t)
		var names []string
		for _, w := range all {
			if w.Pool == "front" && (w.Name == "auto" || w.Name == "fanout") {
				names = append(names, w.Name)
			}
		}
		return names
	}
	both := []string{"auto", "fanout"}
	r := member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly, Pool: "front"}})
	member(t, srv, Options{Fleet: Fleet{Routing: RouteElsewhere, Pool: "front"}})
	if got := routed(r); !slices.Equal(got, both) {
		t.Errorf("a node of their pool leaves routers with %v", got)
	}
	must.Do(t, r.link.conn.Dispatch.Registry.Withdraw(ctx, "front", both...))
	must.Do(t, r.offer.repair(ctx))
	if got := routed(r); !slices.Equal(got, both) {
		t.Errorf("half a minute later the routers offer %v", got)
	}
}

// TestEntry: the entry of a node has its default model, or the reason why it cannot be
// asked, and the programs that commands find.
func TestEntry(t *testing.T) {
	t.Parallel()
	_, err := os.Stat("/bin/sh")
	shell := err == nil
	model, err := scripted.New(nil, nil)
	must.Do(t, err)
	for _, tt := range []struct {
		o           Options
		name, words string
	}{
		{Options{Models: Models{Source: model, Default: "large"}}, "large", ""},
		{Options{}, "", "no key"},
	} {
		tt.o.Store, tt.o.NATS.Level, tt.o.NATS.Port = t.TempDir(), "lazy", -1
		n := begin(t, &tt.o).started(t)
		var about messages.Node = n.about()
		if about.Model != tt.name || (about.ModelError == "") != (tt.words == "") || !strings.Contains(about.ModelError, tt.words) {
			t.Errorf("model %q, %q; want %q, %q", about.Model, about.ModelError, tt.name, tt.words)
		}
		if slices.Contains(about.Programs, "sh") != shell {
			t.Errorf("commands find %v", about.Programs)
		}
	}
}
