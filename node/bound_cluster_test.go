package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestBoundNodeInCluster has a node for all tenants, a node that is bound to acme and
// its client at three servers of a cluster, so that all messages cross accounts and
// servers: the run ends on the bound node, and the end of a bound node is noticed at
// once.
func TestBoundNodeInCluster(t *testing.T) {
	t.Parallel()
	var options []*natsserver.Options
	var routes []string
	for i := range 3 {
		o := &natsserver.Options{
			Name: fmt.Sprint("s", i), Port: natstest.FreePort(t), NodePassword: "n", OperatorPassword: "o", Lazy: true, Grant: granted(nil),
			Cluster: &natsserver.Cluster{Name: "c", Port: natstest.FreePort(t), Handover: 100 * time.Millisecond},
			Users: []permission.User{
				{Role: permission.RoleClient, Tenant: "acme", Name: "ann", Secret: "ann"},
				{Role: permission.RoleHost, Tenant: "acme", Name: "host-acme", Secret: "host"},
			},
		}
		options, routes = append(options, o), append(routes, fmt.Sprint("127.0.0.1:", o.Cluster.Port))
	}
	var servers []*natsserver.Server
	for _, o := range options {
		o.Cluster.Routes = routes
		servers = append(servers, natstest.Start(t, o))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	op := operator(t, servers[0])
	for {
		plan, err := op.Streams.Plan(ctx, &streams.Provisioning{Replicas: 3})
		if err == nil {
			err = op.Streams.Apply(ctx, plan)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // the servers may not have gossiped yet
	}
	member(t, servers[0], Options{Fleet: Fleet{Pool: "shared"}, NATS: NATS{Replicas: 3}})
	host := boundMember(t, servers[1], Options{Workflows: []flow.Registration{named("own", "acme-1")}})
	ann := clientWith(t, &client.Options{Tenant: "acme", Dialer: servers[2].Dial, User: "ann", Password: "ann"})
	if r, err := ann.Do(ctx, "own", messages.Task{ID: "one"}, nil); err != nil || r.State != run.Succeeded || r.Output != "acme-1" {
		t.Errorf("acme's run: %+v, %v", r, err)
	}
	user, password := servers[2].Node()
	other := must.Get(api.Connect(ctx, &streams.Options{Client: true, Options: conn.Options{Dialer: servers[2].Dial, User: user, Password: password, Inbox: conn.NodeInbox}}))(t)
	defer func() { must.Report(t, other.Conn.Close()) }()
	if !other.Dispatch.Delivery.Ping(ctx, host.Incarnation()) {
		t.Error("the bound node does not answer whether it lives")
	}
	gone := must.Get(messages.BoundIncarnation("acme", "AAAAAAAAAAAA"))(t)
	least := time.Hour // the machine's other work slows down single ones
	for range 5 {
		began := time.Now()
		if other.Dispatch.Delivery.Ping(ctx, gone) {
			t.Error("a bound node that is not there answers")
		}
		least = min(least, time.Since(began))
	}
	if least > 500*time.Millisecond {
		t.Errorf("one that is not there was asked for %v at least", least)
	}
}
