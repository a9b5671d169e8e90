package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// tenants starts a server with two tenants, each with a client; acme also has the
// credentials of nodes that are bound to it. All have exactly the permissions that are
// listed for them.
func tenants(t *testing.T) (srv *natsserver.Server, refused *refusedLog) {
	t.Helper()
	refused = &refusedLog{}
	srv = natstest.Start(t, &natsserver.Options{
		Port: -1, Grant: granted(nil), Logger: slog.New(slog.NewTextHandler(refused, nil)),
		Users: []permission.User{
			{Role: permission.RoleClient, Tenant: "acme", Name: "ann", Secret: "ann"},
			{Role: permission.RoleHost, Tenant: "acme", Name: "host-acme", Secret: "host"},
			{Role: permission.RoleClient, Tenant: "bolt", Name: "bob", Secret: "bob"},
		},
	})
	op := operator(t, srv)
	plan, err := op.Streams.Plan(t.Context(), &streams.Provisioning{Replicas: 1})
	if err == nil {
		err = op.Streams.Apply(t.Context(), plan)
	}
	must.Do(t, err)
	return srv, refused
}

// boundMember starts a node that is bound to acme.
func boundMember(t *testing.T, srv *natsserver.Server, o Options) *Instance {
	t.Helper()
	o.NATS.URL, o.Store, o.NATS.User, o.NATS.Password = srv.URL(), t.TempDir(), "host-acme", "host"
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return begin(t, &o).started(t)
}

// clientOf connects a client of a tenant.
func clientOf(t *testing.T, srv *natsserver.Server, tenant session.Tenant, user string) *client.Client {
	t.Helper()
	return clientWith(t, &client.Options{Tenant: tenant, Dialer: srv.Dial, User: user, Password: user})
}

// large is the size of a value of named, in bytes: two parts of a blob. Under the race
// detector each reader of a larger one takes seconds.
const large = wire.MaxBlobPart + wire.MaxBlobPart/4

// named is a workflow that answers with a name and the input, from a fan-out of two, and
// keeps a large value.
func named(workflow, name string) flow.Registration {
	return flow.Registration{Name: workflow, Description: "Says who runs it.", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			value, err := flow.Do(ctx, "large", func(context.Context) (string, error) { return strings.Repeat("x", large), nil }, tool.ReadOnly)
			if err != nil {
				return s, err
			}
			say := func(text string) flow.Workflow {
				return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
					return s.With(session.AssistantText(text)), nil
				})
			}
			_, err = flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say(name)}, {Name: "b", Workflow: say("b")}}, nil)
			if err != nil {
				return s, err
			}
			if len(value) != large {
				return s, run.ErrMismatch
			}
			return s.With(session.AssistantText(name)), nil
		})
	}}
}

// heldBy names the environment variable of the file that keeps runs of interrupted waiting.
const heldBy = "RATH_TEST_HELD_BY"

// interrupted is a workflow whose answer names the processes that executed its first
// and its last step. It waits between them while a file exists.
func interrupted() flow.Registration {
	pid := func(context.Context) (string, error) { return fmt.Sprint(os.Getpid()), nil }
	o := tool.ReadOnly
	return flow.Registration{Name: "held", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			first, err := flow.Do(ctx, "first", pid, o)
			if err != nil {
				return s, err
			}
			last, err := flow.Do(ctx, "last", func(ctx context.Context) (string, error) {
				for {
					if _, err := os.Stat(os.Getenv(heldBy)); err != nil {
						return pid(ctx)
					}
					select {
					case <-time.After(10 * time.Millisecond):
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}
			}, o)
			if err != nil {
				return s, err
			}
			return s.With(session.AssistantText(first + " " + last)), nil
		})
	}}
}

// TestBoundNode has nodes for all tenants and a node that is bound to acme: it gets the
// runs of its workflow, of acme only, and all its requests go through the others with
// exactly the listed permissions.
func TestBoundNode(t *testing.T) {
	t.Parallel()
	srv, refused := tenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	member(t, srv, Options{Fleet: Fleet{Pool: "shared"}, Workflows: []flow.Registration{named("both", "shared")}})
	member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}})
	host := boundMember(t, srv, Options{Name: "acme-1", Workflows: []flow.Registration{named("own", "acme-1"), named("both", "acme-1")}})
	ann, bob := clientOf(t, srv, "acme", "ann"), clientOf(t, srv, "bolt", "bob")

	if r, err := ann.Do(ctx, "own", messages.Task{ID: "one"}, nil); err != nil || r.State != run.Succeeded || r.Output != "acme-1" {
		t.Errorf("acme's run: %+v, %v", r, err)
	}
	if info, err := ann.Runs.Get(ctx, "one"); err != nil || info.Node != host.Incarnation() {
		t.Errorf("acme's run is of node %q, %v; want %s", info.Node, err, host.Incarnation())
	}
	for _, id := range []run.ID{"a", "b", "c", "d"} { // whichever node takes the task
		if r, err := ann.Do(ctx, "both", messages.Task{ID: id}, nil); err != nil || r.Output != "acme-1" {
			t.Errorf("acme's run %s of a workflow that both offer: %+v, %v", id, r, err)
		}
	}
	if r, err := bob.Do(ctx, "own", messages.Task{ID: "one"}, nil); err != nil || r.Code != dispatch.CodeUnknownWorkflow {
		t.Errorf("another tenant's run of its workflow: %+v, %v", r, err)
	}
	if r, err := bob.Do(ctx, "both", messages.Task{ID: "two"}, nil); err != nil || r.Output != "shared" {
		t.Errorf("another tenant's run of a workflow that both offer: %+v, %v", r, err)
	}
	seen := func(c *client.Client) (names, workflows []string) {
		ns, err := c.Fleet.Nodes(ctx)
		must.Report(t, err)
		for _, n := range ns {
			names = append(names, n.Name)
		}
		ws, err := c.Workflows(ctx)
		must.Report(t, err)
		for _, w := range ws {
			workflows = append(workflows, w.Name)
		}
		return names, workflows
	}
	names, workflows := seen(ann)
	if !slices.Contains(names, "acme-1") || !slices.Contains(workflows, "own") {
		t.Errorf("acme sees the nodes %q and the workflows %q", names, workflows)
	}
	names, workflows = seen(bob)
	if slices.Contains(names, "acme-1") || slices.Contains(workflows, "own") {
		t.Errorf("bolt sees the nodes %q and the workflows %q", names, workflows)
	}
	if rep, err := ann.Runs.Replay(ctx, "one"); err != nil || !rep.Matches {
		t.Errorf("replay: %+v, %v", rep, err)
	}
	if err := operatorDrains(t, srv, host.Incarnation()); err != nil {
		t.Errorf("drain: %v", err)
	}
	select {
	case <-host.Drained():
	case <-ctx.Done():
		t.Error("the node was not told to drain")
	}
	must.Report(t, host.Close())
	later := messages.Task{ID: "late", NotBefore: time.Now().Add(100 * time.Millisecond)} // a relay places it
	if r, err := ann.Do(ctx, "both", later, nil); err != nil || r.Output != "shared" {
		t.Errorf("acme's run while no node of its own lives: %+v, %v", r, err)
	}
	if all := refused.lines(); all != "" {
		t.Errorf("the server refused\n%s", all)
	}
}

// hears is a log that passes its lines to a function.
type hears func(line []byte)

func (h hears) Write(line []byte) (int, error) {
	h(line)
	return len(line), nil
}

// TestBoundNodeHasEntry starts a node that is bound to acme while its entry among the
// nodes is rejected, because acme has as many entries as it may have. The node is up
// once it has the entry: until then it counts as dead, and a node for all tenants with
// the same offer gets the runs.
func TestBoundNodeHasEntry(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	member(t, srv, Options{Fleet: Fleet{Pool: "shared"}, Workflows: []flow.Registration{named("both", "shared")}})
	user, password := srv.Node()
	nc := must.Get(nats.Connect(srv.URL(), nats.UserInfo(user, password), nats.CustomInboxPrefix(conn.NodeInbox)))(t)
	defer nc.Close()
	enter := func(i int, header nats.Header) {
		t.Helper()
		other := fmt.Sprintf("tenant_acme_%012d", i)
		m := &nats.Msg{Subject: streams.KeySubject(streams.BucketNode, other), Header: header, Data: fmt.Appendf(nil, `{"incarnation":%q}`, other)}
		must.Get(nc.RequestMsgWithContext(ctx, m))(t)
	}
	for i := range schedule.MaxBound {
		enter(i, nil)
	}
	refused := make(chan struct{}, 1)
	host := begin(t, &Options{
		Name: "acme-1", NATS: NATS{URL: srv.URL(), User: "host-acme", Password: "host"}, Store: t.TempDir(),
		Workflows: []flow.Registration{named("both", "acme-1")},
		Logger: slog.New(slog.NewTextHandler(hears(func(line []byte) {
			if bytes.Contains(line, []byte("as many as it may")) {
				select {
				case refused <- struct{}{}:
				default:
				}
			}
		}), nil)),
	})
	select {
	case <-refused:
	case <-ctx.Done():
		t.Fatal("its entry is not refused")
	}
	enter(0, nats.Header{"KV-Operation": {"DEL"}})
	host.started(t)
	ann := clientOf(t, srv, "acme", "ann")
	if all, err := ann.Fleet.Nodes(ctx); err != nil || !slices.ContainsFunc(all, func(n messages.Node) bool { return n.Name == "acme-1" }) {
		t.Errorf("it is up and not among the %d nodes that acme sees, %v", len(all), err)
	}
	if r, err := ann.Do(ctx, "both", messages.Task{ID: "one"}, nil); err != nil || r.Output != "acme-1" {
		t.Errorf("acme's run of a workflow that both offer: %+v, %v", r, err)
	}
}

func operatorDrains(t *testing.T, srv *natsserver.Server, incarnation string) error {
	return operator(t, srv).Requests.Drain(t.Context(), incarnation)
}
