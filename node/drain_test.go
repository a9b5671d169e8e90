package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestOperateDrains has a user with the role operate and exactly its permissions rerun a
// run and drain nodes: those bound to its tenant, and the others as long as no other
// tenant has sessions. Others may not.
func TestOperateDrains(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	refused := &refusedLog{}
	srv := natstest.Start(t, &natsserver.Options{
		Port: -1, Grant: granted(nil), Logger: slog.New(slog.NewTextHandler(refused, nil)),
		Users: []permission.User{
			{Role: permission.RoleOperate, Tenant: "acme", Name: "eve", Secret: "eve"},
			{Role: permission.RoleSubmit, Tenant: "acme", Name: "sue", Secret: "sue"},
			{Role: permission.RoleHost, Tenant: "acme", Name: "host-acme", Secret: "host"},
			{Role: permission.RoleClient, Tenant: "bolt", Name: "bob", Secret: "bob"},
		},
	})
	op := operator(t, srv)
	plan, err := op.Streams.Plan(ctx, &streams.Provisioning{Replicas: 1})
	if err == nil {
		err = op.Streams.Apply(ctx, plan)
	}
	must.Do(t, err)
	member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}}) // answers after the others have ended
	own := boundMember(t, srv, Options{Name: "acme-1", Workflows: []flow.Registration{named("own", "acme-1")}})
	first := member(t, srv, Options{Fleet: Fleet{Pool: "shared"}, Workflows: []flow.Registration{named("both", "shared")}})
	second := member(t, srv, Options{Fleet: Fleet{Pool: "shared"}, Workflows: []flow.Registration{named("both", "shared")}})
	eve, sue, bob := clientOf(t, srv, "acme", "eve"), clientOf(t, srv, "acme", "sue"), clientOf(t, srv, "bolt", "bob")

	must.Get(sue.Do(ctx, "both", messages.Task{ID: "one"}, nil))(t)
	if id, err := eve.Runs.Rerun(ctx, "one", messages.Control{}); err != nil || id != "one-r1" {
		t.Errorf("rerun: %q, %v", id, err)
	} else if r, err := eve.Wait(ctx, id); err != nil || r.State != run.Succeeded {
		t.Errorf("the run of the rerun: %+v, %v", r, err)
	}
	drained := func(n *Instance) {
		t.Helper()
		if err := eve.Fleet.Drain(ctx, n.Incarnation()); err != nil {
			t.Errorf("drain of %s: %v", n.Incarnation(), err)
			return
		}
		select {
		case <-n.Drained():
		case <-ctx.Done():
			t.Fatalf("node %s was not asked to drain", n.Incarnation())
		}
		must.Report(t, n.Close())
		if err := eve.Fleet.Drain(ctx, n.Incarnation()); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("drain of a node that has ended: %v", err)
		}
	}
	drained(first) // acme is alone
	if err := bob.Fleet.Drain(ctx, own.Incarnation()); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("another tenant drains acme's own node: %v", err)
	}
	must.Get(bob.Do(ctx, "both", messages.Task{ID: "two"}, nil))(t)
	for who, c := range map[string]*client.Client{"eve": eve, "bob": bob} {
		if err := c.Fleet.Drain(ctx, second.Incarnation()); !errors.Is(err, session.ErrTenant) || !strings.Contains(err.Error(), "ask an operator of the fleet") {
			t.Errorf("%s drains a node that two tenants use: %v", who, err)
		}
	}
	drained(own)
	if all := refused.lines(); all != "" {
		t.Errorf("the server refused\n%s", all)
	}
	if err := sue.Fleet.Drain(ctx, second.Incarnation()); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "the role operate") {
		t.Errorf("a submitter drains: %v", err)
	}
	select {
	case <-second.Drained():
		t.Error("the shared node was asked to drain")
	default:
	}
	if err := op.Requests.Drain(ctx, second.Incarnation()); err != nil {
		t.Errorf("the operator of the fleet drains: %v", err)
	}
}

// TestAnonymousDrains checks that a client without credentials cannot end a node.
func TestAnonymousDrains(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	n := member(t, srv, Options{Workflows: []flow.Registration{asks()}})
	c := clientWith(t, &client.Options{Dialer: srv.Dial})
	if err := c.Fleet.Drain(t.Context(), n.Incarnation()); !errors.Is(err, run.ErrNotSupported) || !strings.Contains(err.Error(), "without credentials") {
		t.Errorf("drain: %v", err)
	}
	select {
	case <-n.Drained():
		t.Error("the node was asked to drain")
	default:
	}
}
