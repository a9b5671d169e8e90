package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/client/toolserver"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/webtest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// granted grants users exactly the permissions of permission.GrantOf, except those that
// take removes.
func granted(take func(r permission.Role, g *permission.Grant)) func(permission.Role, permission.Place) *permission.Grant {
	return func(r permission.Role, at permission.Place) *permission.Grant {
		at.Partitions = streams.DefaultPartitions
		g := permission.GrantOf(r, at)
		if take != nil {
			take(r, &g)
		}
		return &g
	}
}

// without removes one permission of a role.
func without(role permission.Role, p permission.Permission) func(permission.Role, permission.Place) *permission.Grant {
	return granted(func(r permission.Role, g *permission.Grant) {
		if r == role {
			g.Allow = slices.DeleteFunc(g.Allow, func(o permission.Permission) bool { return o == p })
		}
	})
}

// refusedLog collects a server's rejections.
type refusedLog struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write takes a line of the server's log.
func (l *refusedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(line, []byte("Violation")) {
		l.all.Write(line)
	}
	return len(line), nil
}

func (l *refusedLog) lines() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// operator connects with the rights of an operator.
func operator(t *testing.T, srv *natsserver.Server) *api.Conn {
	t.Helper()
	user, password := srv.Operator()
	return connection(t, &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password, Inbox: conn.NodeInbox}, Client: true})
}

// clientWith connects a client with such rights.
func clientWith(t *testing.T, o *client.Options) *client.Client {
	t.Helper()
	c := must.Get(client.Connect(t.Context(), "", o))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c
}

func connection(t *testing.T, o *streams.Options) *api.Conn {
	t.Helper()
	c := must.Get(api.Connect(t.Context(), o))(t)
	t.Cleanup(func() { must.Report(t, c.Conn.Close()) })
	return c
}

// byTools answers requests with tools by one script and others by another: any
// node may take an agent.
type byTools struct{ with, without *scripted.Model }

// Client implements llm.Models.
func (m *byTools) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

// Complete implements llm.Client.
func (m *byTools) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	if len(r.Tools) > 0 {
		return m.with.Complete(ctx, r, sink)
	}
	return m.without.Complete(ctx, r, sink)
}

// TestExactPermissions has nodes, a router, a client, a program with tools and an
// operator do their work with exactly the permissions that are listed for them: the
// server rejects no request.
func TestExactPermissions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	refused := &refusedLog{}
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Grant: granted(nil), Logger: slog.New(slog.NewTextHandler(refused, nil))})
	op := operator(t, srv)
	plan, err := op.Streams.Plan(ctx, &streams.Provisioning{Replicas: 1})
	if err == nil {
		err = op.Streams.Apply(ctx, plan)
	}
	must.Do(t, err)

	model := &byTools{with: scriptOf(t, "tools.txtar", nil), without: scriptOf(t, "auto.txtar", nil)}
	worker := member(t, srv, Options{Fleet: Fleet{Pool: "writing", Routing: RouteElsewhere}, Models: Models{Source: model}, Workflows: writers()})
	member(t, srv, Options{Fleet: Fleet{Pool: "writing", Routing: RouteElsewhere}, Models: Models{Source: model}, Workflows: writers()})
	member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}, Models: Models{Source: model}})
	told := webtest.StartReceiver(t)
	targets, env := targetsOf(t, told)
	member(t, srv, Options{Fleet: Fleet{Routing: RouteElsewhere}, Models: Models{Source: model}, Targets: targets, Env: env})

	c, err := client.Connect(ctx, srv.URL(), nil)
	must.Do(t, err)
	defer c.Close()
	heard := 0
	r, err := c.Do(ctx, "auto", messages.Task{ID: "auto-1", Input: json.RawMessage(autoInput), Model: "big"}, func(client.Update) { heard++ })
	if err != nil || r.State != run.Succeeded || r.Output != "The draft is fine." || heard == 0 {
		t.Fatalf("auto: %+v, %v, heard %d", r, err, heard)
	}
	if all := records(t, c, string(r.Session), 3); !slices.ContainsFunc(all, func(r messages.Record) bool { return r.Kind == messages.KindMerged || r.Kind == messages.KindSelected }) {
		t.Errorf("lineage of %d records without a choice", len(all))
	}
	if err := c.Runs.Cancel(ctx, "auto-1", messages.Control{}); !errors.Is(err, run.ErrState) {
		t.Errorf("a cancel of what has ended: %v", err)
	}
	if _, err := c.Runs.Rerun(ctx, "auto-1", messages.Control{}); err != nil {
		t.Errorf("rerun: %v", err)
	}
	if rep, err := c.Runs.Replay(ctx, "auto-1"); err != nil {
		t.Errorf("replay: %+v, %v", rep, err)
	}
	if r, err := c.Do(ctx, "nobody", messages.Task{ID: "lost"}, nil); err != nil || r.Code != dispatch.CodeUnknownWorkflow {
		t.Errorf("an unknown workflow: %+v, %v", r, err)
	}
	if l, err := c.Fleet.DeadLetters(ctx, 0); err != nil || len(l) != 1 {
		t.Errorf("dead letters %v, %v", l, err)
	}

	eventually(t, "a dead letter is told", func() bool { return len(told.With(`"run":"lost"`, "task.rejected")) == 1 })

	user, password := srv.Tool()
	p := clientWith(t, &client.Options{Dialer: srv.Dial, User: user, Password: password})
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	type where struct {
		City string `json:"city"`
	}
	go func() {
		served <- toolserver.Serve(serving, p, tool.Func("weather", "Current weather of a city.", func(context.Context, where) (string, error) {
			return "sunny", nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly}), 0)
	}()
	for {
		if ts, err := c.Tools.List(ctx); err != nil {
			t.Fatal(err)
		} else if len(ts) == 1 {
			break
		}
	}
	r, err = c.Do(ctx, "agent", messages.Task{Input: json.RawMessage(`"weather"`), Tools: []string{"weather"}}, nil)
	if err != nil || r.Output != "It is sunny in Rome." {
		t.Errorf("a tool of another program: %+v, %v", r, err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}

	// The operations of an operator.
	if _, err := op.Streams.Lag(ctx); err != nil {
		t.Error(err)
	}
	dumped := 0
	if err := op.Logs.Dump(ctx, func(eventlog.Stored) error { dumped++; return nil }); err != nil || dumped < 20 {
		t.Errorf("dumped %d messages, %v", dumped, err)
	}
	if plan, err = op.Streams.Plan(ctx, &streams.Provisioning{}); err != nil || len(plan.Pending()) != 0 {
		t.Errorf("provisioned, and there is still %+v to do, %v", plan.Pending(), err)
	}
	user, password = srv.Operator()
	oc := clientWith(t, &client.Options{Dialer: srv.Dial, User: user, Password: password, Inbox: conn.NodeInbox})
	if err := oc.Fleet.Drain(ctx, worker.Incarnation()); err != nil {
		t.Errorf("drain: %v", err)
	}
	if all := refused.lines(); all != "" {
		t.Errorf("the server refused\n%s", all)
	}
}

// TestMissingPermission takes away each permission that a node and a router need: they
// do not start, and name the permission. They do not need the permissions for repairs:
// without these they stop because nothing is provisioned.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	at := permission.Place{Partitions: streams.DefaultPartitions}
	for role, routing := range map[permission.Role]Routing{permission.RoleNode: RouteElsewhere, permission.RoleRouter: RouteOnly} {
		for _, p := range permission.GrantOf(role, at).Allow {
			if strings.HasPrefix(p.Subject, "$KV."+messages.BucketAccess+".") {
				continue // of a router that serves the web, at the login of a person
			}
			t.Run(string(role)+" without "+p.String(), func(t *testing.T) {
				t.Parallel()
				srv := natstest.Start(t, &natsserver.Options{Port: -1, Grant: without(permission.RoleNode, p)})
				o := Options{NATS: NATS{URL: srv.URL(), Level: "lazy"}, Store: t.TempDir(), Fleet: Fleet{Routing: routing}, HTTP: HTTP{Health: "127.0.0.1:0"}}
				o.NATS.User, o.NATS.Password = srv.Node()
				n, err := Start(t.Context(), &o)
				if err == nil {
					t.Fatalf("it started; %v", n.Close())
				}
				if p.Repair {
					if errors.Is(err, conn.ErrDenied) || !strings.Contains(err.Error(), "EV_1_0: stream is missing") {
						t.Errorf("it says %v", err)
					}
					return
				}
				if !errors.Is(err, conn.ErrDenied) || !strings.Contains(err.Error(), p.Op) || !strings.Contains(err.Error(), p.Subject) || !strings.Contains(err.Error(), "--print-permissions") {
					t.Errorf("it says %v", err)
				}
			})
		}
	}
}

// TestNotProvisioned starts a node that may not make streams: its error names the
// missing streams, the reason and the remedy.
func TestNotProvisioned(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Grant: granted(nil)})
	start := func(pool string) error {
		o := Options{NATS: NATS{URL: srv.URL(), Level: "lazy"}, Store: t.TempDir(), Fleet: Fleet{Pool: pool}, HTTP: HTTP{Health: "127.0.0.1:0"}}
		o.NATS.User, o.NATS.Password = srv.Node()
		n, err := Start(t.Context(), &o)
		if err == nil {
			err = n.Close()
		}
		return err
	}
	says := func(err error, all ...string) {
		t.Helper()
		for _, want := range all {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it says %v, want %q", err, want)
			}
		}
	}
	says(start("review"), "stream EV_1_0: stream is missing", "stream KV_ALIAS", "these credentials may not make it", "as operator run: rath cluster provision --replicas 1")
	op := operator(t, srv)
	plan, err := op.Streams.Plan(t.Context(), &streams.Provisioning{Replicas: 1})
	if err == nil {
		err = op.Streams.Apply(t.Context(), plan)
	}
	must.Do(t, err)
	for _, pool := range []string{dispatch.DefaultPool, "review"} { // pools need no permissions of their own
		must.Report(t, start(pool))
	}
}

// TestMissingPermissionOfPrograms takes away each permission of a client, a program
// with tools and an operator: the call that needs it fails, and names it.
func TestMissingPermissionOfPrograms(t *testing.T) {
	t.Parallel()
	type allowed struct {
		*client.Client
		conn *api.Conn // with the same rights
	}
	type use func(ctx context.Context, c allowed) error
	submit := func(ctx context.Context, c allowed) error {
		_, err := c.Submit(ctx, "agent", messages.Task{ID: "r"})
		return err
	}
	follow := func(ctx context.Context, c allowed) error {
		f, err := c.Follow(ctx, "r")
		if err == nil {
			f.Close()
		}
		return err
	}
	tail := func(ctx context.Context, c allowed) error {
		for _, err := range c.Lineage.Tail(ctx, "", "") {
			return err
		}
		return nil
	}
	ask := func(ctx context.Context, c allowed) error {
		_, err := c.Runs.List(ctx, nil)
		return err
	}
	cancelRun := func(ctx context.Context, c allowed) error { return c.Runs.Cancel(ctx, "r", messages.Control{}) }
	serve := func(ctx context.Context, c allowed) error {
		return toolserver.Serve(ctx, c.Client, tool.Func("t", "A tool.", func(context.Context, struct{}) (string, error) { return "", nil }, nil), 0)
	}
	plan := func(ctx context.Context, c allowed) error {
		p, err := c.conn.Streams.Plan(ctx, &streams.Provisioning{Replicas: 1})
		if err == nil {
			err = c.conn.Streams.Apply(ctx, p)
		}
		return err
	}
	again := func(ctx context.Context, c allowed) error { return errors.Join(plan(ctx, c), plan(ctx, c)) }
	uses := map[permission.Role]map[string]use{
		permission.RoleClient: {
			"rath.task.default.anonymous.*": submit, "rath.ctl.default.anonymous.*.cancel": cancelRun, "rath.query.default.>": ask,
			"rath.run.default.>": follow, "rath.tail.default.>": tail, "_INBOX.>": ask, permission.SubjectUserInfo: cancelRun,
		},
		permission.RoleTool: {
			"rath.task.default.tool.*": submit, "rath.ctl.default.tool.*.cancel": cancelRun, "rath.query.default.>": ask,
			"rath.run.default.>": follow, "rath.tail.default.>": tail, "_INBOX.>": ask, permission.SubjectUserInfo: cancelRun,
			"rath.ctl.default.tool.tool.*.announce": serve,
			"rath.tool.default.*":                   serve,
		},
		permission.RoleOperator: {
			"$JS.API.STREAM.CREATE.*": plan, "$JS.API.CONSUMER.CREATE.>": plan, "$JS.API.STREAM.INFO.*": plan,
			"$JS.API.STREAM.NAMES": func(ctx context.Context, c allowed) error {
				return c.conn.Logs.Dump(ctx, func(eventlog.Stored) error { return nil })
			},
			"$JS.API.CONSUMER.INFO.*.*": again, "_RATH.>": plan,
			"rath.task.*.operator.*": submit, "rath.ctl.*.operator.>": cancelRun, "rath.query.>": ask, "rath.run.>": follow, "rath.tail.>": tail,
			"rath.node.>": func(ctx context.Context, c allowed) error {
				_, err := c.conn.Projections.RepairLineage(ctx, 0)
				return err
			},
		},
	}
	users := map[permission.Role]string{
		permission.RoleClient: messages.UserAnonymous, permission.RoleTool: "tool", permission.RoleOperator: messages.UserOperator,
	}
	for role, all := range uses {
		for _, p := range permission.GrantOf(role, permission.Place{User: users[role]}).Allow {
			use := all[p.Subject]
			if use == nil {
				if role != permission.RoleOperator && !strings.HasPrefix(p.Subject, messages.ControlPrefix) { // TestRoles tries each verb
					t.Errorf("%s: nothing tries %s", role, p)
				}
				continue
			}
			t.Run(string(role)+" without "+p.String(), func(t *testing.T) {
				t.Parallel()
				srv := natstest.Start(t, &natsserver.Options{Port: -1, Grant: without(role, p)})
				o := &streams.Options{Options: conn.Options{Dialer: srv.Dial}, Client: true}
				switch role {
				case permission.RoleTool:
					o.User, o.Password = srv.Tool()
				case permission.RoleOperator:
					o.User, o.Password = srv.Operator()
					o.Inbox = conn.NodeInbox
				}
				c := allowed{clientWith(t, &client.Options{Dialer: o.Dialer, User: o.User, Password: o.Password, Inbox: o.Inbox}), connection(t, o)}
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				err := use(ctx, c)
				if p.Repair {
					if errors.Is(err, conn.ErrDenied) || !strings.Contains(err.Error(), "EV_1_0: stream is missing") {
						t.Errorf("it says %v", err)
					}
					return
				}
				if !errors.Is(err, conn.ErrDenied) || !strings.Contains(err.Error(), p.Op) || !strings.Contains(err.Error(), strings.TrimSuffix(p.Subject, ">")) {
					t.Errorf("it says %v", err)
				}
			})
		}
	}
}
