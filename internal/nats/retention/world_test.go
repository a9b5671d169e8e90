package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// keep is how long trees are kept here. Virtual time is not free while a node and its
// server exchange pings every second.
const keep = 2 * time.Minute

// world is a store with a node at work and an operator beside it.
type world struct {
	t        testing.TB
	srv      *natsserver.Server
	conn     *api.Conn // of the node
	op       *api.Conn // of the operator
	client   *client.Client
	values   *journal.Values
	sys      *actors.System
	dir      string // of archives
	hold     chan struct{}
	end      context.CancelFunc
	services []*conn.Service
	work     sync.WaitGroup
}

// connect connects with the rights of a node or of the operator.
func connect(t testing.TB, srv *natsserver.Server, user, password string) *api.Conn {
	t.Helper()
	c := must.Get(api.Connect(t.Context(), &streams.Options{
		Options: conn.Options{
			Dialer:   srv.Dial,
			User:     user,
			Password: password,
			Inbox:    conn.NodeInbox,
			Logger:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		}, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			always, interval, err := srv.Sync()
			return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
		},
	}))(t)
	return c
}

// newWorld starts a node, which ends with the test.
func newWorld(t testing.TB) *world {
	t.Helper()
	ctx := t.Context()
	// Every user has the permissions of its role, and no others.
	srv := natstest.Start(t, &natsserver.Options{Grant: func(r permission.Role, at permission.Place) *permission.Grant {
		at.Partitions = 2
		g := permission.GrantOf(r, at)
		return &g
	}})
	w := &world{t: t, srv: srv, dir: t.TempDir(), hold: make(chan struct{})}
	user, password := srv.Operator()
	w.op = connect(t, srv, user, password)
	must.Do(t, w.op.Streams.Provision(ctx))
	user, password = srv.Node()
	w.conn = connect(t, srv, user, password)
	var err error
	// A client without credentials.
	if w.client, err = client.Connect(ctx, "", &client.Options{Dialer: srv.Dial}); err != nil {
		t.Fatal(err)
	}
	w.start("node-1")
	t.Cleanup(w.close)
	return w
}

// start starts the node's services as an incarnation.
func (w *world) start(incarnation string) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	model := must.Get(scripted.New(scripted.Echo(), nil))(t)
	registry := &engine.Registry{}
	var offers []messages.Workflow
	for name, f := range map[string]func(context.Context, flow.Info, session.Session) (session.Session, error){
		"agent": answer, "await": await, limited: answer, "tree": w.tree, "fan": fan, "ask": ask, "fail": fail, "copy": func(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
			return flow.Detach(ctx, s)
		},
		"prompted": func(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "answerer", Prompt: keptPrompt}).Forward(ctx, s.With(session.UserText("well?")))
		},
		"aside": aside, "both": w.borrow(flow.Concatenate), "fork": w.borrow(func(ctx context.Context, _, other session.Session) (session.Session, error) {
			return flow.Fork(ctx, other)
		}),
		"hold": func(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
			select {
			case <-w.hold:
				return s.With(session.UserText("held")), nil
			case <-ctx.Done():
				return s, context.Cause(ctx)
			}
		},
	} {
		g := flow.Registration{Name: name, Revision: "1", NewFor: func(set flow.Info) (flow.Workflow, error) {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return f(ctx, set, s) }), nil
		}}
		must.Do(t, registry.Register(g))
		offers = append(offers, messages.Workflow{Name: name, Revision: "1"})
		if name == limited {
			offers[len(offers)-1].Limit = &oneAtATime
		}
	}
	must.Do(t, w.conn.Dispatch.Registry.Register(ctx, dispatch.DefaultPool, offers))
	log := w.conn.Logs.Log()
	w.values = journal.NewValues(log)
	w.sys = actors.New(&actors.Options{
		Log: log, Spills: true, Values: w.values, Incarnation: incarnation, Workflows: registry, Drain: 50 * time.Millisecond,
		Runtime: &engine.Runtime{Values: w.values, Models: model, Mint: w.conn.Logs.Minter(), Node: incarnation, Blobs: func(t session.Tenant) blob.Store { return w.conn.Logs.Blobs(t) }},
	})
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	control := must.Get(w.conn.ServeControl(serving, w.sys.Signal, nil, nil))(t)
	relay := w.conn.Dispatch.StartRelay(serving, &dispatch.RelayOptions{Incarnation: incarnation, Signal: w.sys.Signal})
	queries := must.Get(w.conn.ServeQueries(serving, &api.Queries{Values: w.values}))(t)
	w.services = []*conn.Service{control, queries}
	sys := w.sys
	w.work.Go(func() {
		if err := relay.Wait(); err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	w.work.Go(func() {
		_ = w.conn.Dispatch.PullTasks(serving, &dispatch.Intake{
			Signal: sys.Signal, Enqueue: sys.Enqueue,
			Offers: func(name string) (string, bool) { g, ok := registry.Lookup(name); return g.Revision, ok },
			Accept: sys.Accept,
		})
	})
	w.work.Go(func() {
		_ = w.conn.Dispatch.ServeRuns(serving, &dispatch.Host{
			Incarnation: incarnation, Pool: dispatch.DefaultPool, Free: sys.Free, Freed: sys.Freed(),
			Take: sys.Dispatched,
		})
	})
}

// stop ends the node's services.
func (w *world) stop() {
	w.t.Helper()
	drain, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 50*time.Millisecond)
	defer cancel()
	must.Report(w.t, w.sys.Drain(drain))
	w.end()
	w.work.Wait()
	for _, s := range w.services {
		must.Report(w.t, s.Stop())
	}
}

func (w *world) close() {
	w.t.Helper()
	w.stop()
	must.Report(w.t, errors.Join(w.client.Close(), w.op.Conn.Close(), w.conn.Conn.Close()))
}

// answer has a model answer the input.
func answer(ctx context.Context, set flow.Info, s session.Session) (session.Session, error) {
	var text string
	if err := json.Unmarshal(set.Input, &text); err != nil {
		return s, err
	}
	return (&flow.Agent{Name: "answerer"}).Forward(ctx, s.With(session.UserText(text)))
}

// aside copies its session and continues without the copy, which is younger.
func aside(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
	time.Sleep(time.Second)
	if _, err := flow.Detach(ctx, s); err != nil {
		return s, err
	}
	return s.With(session.UserText("the copy is elsewhere")), nil
}

// borrow reads another session, waits while its input has hold set, and continues with it.
func (w *world) borrow(with func(ctx context.Context, s, other session.Session) (session.Session, error)) func(context.Context, flow.Info, session.Session) (session.Session, error) {
	return func(ctx context.Context, set flow.Info, s session.Session) (session.Session, error) {
		var in struct {
			Session session.ID
			Hold    bool
		}
		if err := json.Unmarshal(set.Input, &in); err != nil {
			return s, err
		}
		other, err := flow.ReadSession(ctx, session.Ref{Key: key(in.Session), Version: 2})
		if err != nil {
			return s, err
		}
		if in.Hold {
			<-w.hold
		}
		return with(ctx, s, other)
	}
}

// tree makes two branches, of which it picks one, and stores a long text in a blob.
func (w *world) tree(ctx context.Context, set flow.Info, s session.Session) (session.Session, error) {
	s, err := answer(ctx, set, s.With(session.UserText(strings.Repeat("long ", 10<<10))))
	if err != nil {
		return s, err
	}
	a, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	b, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	agent := &flow.Agent{Name: "branch"}
	if a, err = agent.Forward(ctx, a.With(session.UserText("left"))); err != nil {
		return s, err
	}
	if b, err = agent.Forward(ctx, b.With(session.UserText("right"))); err != nil {
		return s, err
	}
	if err := flow.Reject(ctx, b, "the other is better"); err != nil {
		return s, err
	}
	return flow.Adopt(ctx, s, a, "it is good")
}

// begin submits a run.
func (w *world) begin(workflow string, task messages.Task) {
	w.t.Helper()
	if task.Input == nil {
		task.Input = json.RawMessage(`"hello"`)
	}
	must.Get(w.client.Submit(w.t.Context(), workflow, task))(w.t)
}

// done submits a run, waits for its end and returns its session.
func (w *world) done(workflow string, task messages.Task) session.ID {
	w.t.Helper()
	w.begin(workflow, task)
	r := w.result(task.ID)
	if r.State != run.Succeeded {
		w.t.Fatalf("run %s %s: %s", task.ID, r.State, r.Error)
	}
	return r.Session
}

func (w *world) result(id run.ID) messages.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := w.client.Wait(ctx, id)
	if err != nil {
		w.t.Fatalf("run %s: %v", id, err)
	}
	must.Do(w.t, w.conn.Projections.WaitCaughtUp(ctx))
	return r
}

// limited is a workflow with a limit.
const limited = "limited"

var oneAtATime = run.Limit{Concurrency: 1}

// await waits for an event, half a minute at most.
func await(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
	e, err := flow.AwaitEvent(ctx, "paid", "4711", &flow.AwaitOptions{Timeout: 30 * time.Second})
	return s.With(session.AssistantText(string(e.Value))), err
}

// fan has two branches, of which it takes the first.
func fan(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
	j, err := flow.FanOut(ctx, s.With(session.UserText("twice")), flow.Repeat(2, &flow.Agent{Name: "branch"}), nil)
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.Pick(0))
}

// options keep recently used trees.
func (w *world) options() *Options {
	return &Options{Dir: w.dir, Keep: func(session.Tenant) (time.Duration, bool) { return keep, true }, Grace: 5 * time.Second}
}

func (w *world) prune(o *Options) []Outcome {
	w.t.Helper()
	out, err := Prune(w.t.Context(), w.op, o)
	if err != nil {
		w.t.Fatalf("Prune: %v", err)
	}
	return out
}

// states returns the outcomes of the trees, in one line each.
func states(out []Outcome) (lines []string) {
	for _, o := range out {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s", o.State, len(o.Sessions), o.Reason)))
	}
	return lines
}

func key(id session.ID) session.Key { return session.Key{Tenant: session.DefaultTenant, ID: id} }

// texts reads a session again, not from a node's memory.
func (w *world) texts(id session.ID) (string, error) {
	s, err := journal.NewValues(w.conn.Logs.Log()).At(w.t.Context(), session.Ref{Key: key(id)})
	if err != nil {
		return "", err
	}
	var all []string
	for _, c := range s.Chunks() {
		text := c.Text()
		all = append(all, text[:min(len(text), 20)])
	}
	return strings.Join(all, "|"), nil
}

// readSchemas reads the schemas of the audit, once for all tests.
var readSchemas = sync.OnceValues(func() (*audit.Schemas, error) { return audit.ReadSchemas(os.DirFS("../../../messages/schema")) })

// audited demands that the stored bytes keep every promise.
func (w *world) audited() {
	w.t.Helper()
	must.Do(w.t, w.conn.Projections.WaitCaughtUp(w.t.Context()))
	time.Sleep(time.Second) // results are stored beside
	stop := errors.New("stop")
	schemas := must.Get(readSchemas())(w.t)
	r := must.Get(audit.Run(w.t.Context(), func(yield func(audit.Message, error) bool) {
		err := w.op.Logs.Dump(w.t.Context(), func(m eventlog.Stored) error {
			if !yield(audit.Message(m), nil) {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield(audit.Message{}, err)
		}
	}, &audit.Options{Schemas: schemas}))(w.t)
	for _, v := range r.Violations {
		w.t.Error(v)
	}
}

// treeOf is the tree of a root, as it is stored.
func (w *world) treeOf(root session.ID) archive.Tree {
	w.t.Helper()
	trees := must.Get(w.op.Archive.Trees(w.t.Context(), ""))(w.t)
	i := slices.IndexFunc(trees, func(t archive.Tree) bool { return t.Root == root })
	if i < 0 {
		w.t.Fatalf("there is no tree %s", root)
	}
	return trees[i]
}

// fencedFor returns the name of the file to which a tree is being archived.
func (w *world) fencedFor(root session.ID) string {
	w.t.Helper()
	for _, s := range w.treeOf(root).Sessions {
		if s.Archived != nil {
			return s.Archived.File
		}
	}
	w.t.Fatalf("nothing of tree %s is fenced", root)
	return ""
}

// bring verifies an archive and brings it back.
func bring(ctx context.Context, c *api.Conn, doc []byte, by string) ([]Restored, error) {
	t, err := Open(doc)
	if err != nil {
		return nil, err
	}
	return Restore(ctx, c, t, by)
}
