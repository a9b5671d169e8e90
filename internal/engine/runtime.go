package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/protection"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Runtime is everything that a run needs from outside. The zero Runtime runs
// in memory, without models, sandboxes and memory. It must not be copied or
// changed once it was used, and is then safe for concurrent use.
type Runtime struct {
	// Store gives the right to write; nil writes to a log in memory.
	Store journal.Store
	// Values reads sessions that a run refers to; nil shares Store's when the
	// Store is the in-memory one.
	Values *journal.Values
	// Models answers model calls; nil fails them.
	Models llm.Models
	// Limiter, if set, is asked before each model call.
	Limiter llm.Limiter
	// Memory opens the memory of a name that agents use; nil fails.
	Memory func(ctx context.Context, t session.Tenant, name string) (memory.Store, error)
	// Blobs keeps large outputs and workspaces; nil keeps them in memory.
	Blobs func(session.Tenant) blob.Store
	// Workspaces says where sandboxes get their directories; the zero value
	// has no backends, so tools that need a sandbox fail.
	Workspaces Workspaces
	// Mint places the sessions that runs make.
	Mint session.Minter
	// Node is recorded as the place of work.
	Node string
	// Model is taken where neither agent nor task names one.
	Model string
	// Workflows are what remote branches name when Run runs them in this
	// process; nil has none. Nodes take what the fleet offers.
	Workflows *flow.Registry
	// Offered reports whether some node offers a workflow in a revision; nil
	// knows of none. A run that does not match the code of this node goes there.
	Offered func(ctx context.Context, workflow, revision string) bool
	// OnDelta, if set, gets the pieces of model output as they come. They are
	// provisional. It is called from many goroutines and must not block.
	OnDelta func(Delta)
	// OnWait, if set, is told by Run when a run begins to wait: for whom wants to
	// answer in the same process, with Signal. It is called in a goroutine of its
	// own, which should end with ctx.
	OnWait func(ctx context.Context, k session.Key, w journal.RunWaiting)
	// OnWarning, if set, gets what the author of a workflow should know, such
	// as an implicit fork. The same text is recorded in the run.
	OnWarning func(run.ID, string)

	once   sync.Once
	mem    *session.MemoryLog
	driver Driver
}

// Workspaces is where the directories of sandboxes are made.
type Workspaces struct {
	// Dir is the host directory below which each lease gets one of its own.
	Dir string
	// Backends are the sandboxes that Session.To can name.
	Backends map[string]sandbox.Backend
	// Limits bound each workspace; zero fields are the defaults.
	Limits workspace.Limits
	// MinIsolation is the weakest isolation accepted; "" is the kernel's.
	MinIsolation sandbox.Isolation
}

// Delta is a piece of model output on its way.
type Delta struct {
	Session session.Key
	Run     run.ID
	Path    run.Path
	Attempt uint64
	Agent   string
	llm.Delta
}

func (rt *Runtime) init() {
	rt.once.Do(func() {
		rt.driver.Workflows = rt.Workflows
		if rt.Store == nil {
			rt.mem = &session.MemoryLog{}
			if rt.Values == nil {
				rt.Values = journal.NewValues(rt.mem)
			}
			rt.Store = journal.Direct(rt.mem, &journal.DirectOptions{Values: rt.Values, OnCommit: rt.driver.Committed})
		}
		if rt.Blobs == nil {
			mem := map[session.Tenant]blob.Store{}
			var mu sync.Mutex
			rt.Blobs = func(t session.Tenant) blob.Store {
				mu.Lock()
				defer mu.Unlock()
				if mem[t] == nil {
					mem[t] = blob.NewMemory()
				}
				return mem[t]
			}
		}
	})
}

// Run runs w on s to its end and returns the resulting session, in the
// caller's goroutine. An unborn session is born; one that exists goes on from
// its newest version. It is the way to use workflows as a library; nodes use
// Begin.
func (rt *Runtime) Run(ctx context.Context, w flow.Workflow, s session.Session) (session.Session, error) {
	t := rt.plant(w, s)
	ex, state, err := t.run(ctx, nil)
	switch {
	case ex == nil:
		return s, err
	case state == run.Queued && err == nil:
		return s, fmt.Errorf("flow: session %s is held by another run: %w", t.task.Session, run.ErrBusy)
	}
	return ex.result, err
}

// plant makes the tree of a new run of w on s.
func (rt *Runtime) plant(w flow.Workflow, s session.Session) *tree {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	body := hex.EncodeToString(id[:])
	k, root := s.Key(), s.Root()
	edits := slices.Collect(s.Pending())
	var opening []session.Event
	if s.Unborn() {
		k = session.Key{Tenant: session.DefaultTenant, ID: rt.Mint.Mint(body)}
		root = k.ID
		opening, edits = firstBatch(edits)
	}
	// What the first commit does not hold is pending when Forward begins, for
	// the branches of the run as for itself.
	forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return w.Forward(ctx, s.Edited(edits...))
	})
	return newTree(&rt.driver, rt, flow.Registration{Name: "run", New: func() flow.Workflow { return forward }}, journal.Task{
		ID: run.ID("r" + body), Workflow: "run", Session: k,
	}, root, opening)
}

// Begin claims a run: the task's if no log holds it, else the one that the log
// holds. The returned Execution says in State whether it was claimed; if not,
// it stands as State says and there is nothing to do here. A run behind
// another one on its session is Queued.
func (rt *Runtime) Begin(ctx context.Context, g flow.Registration, t journal.Task) (*Execution, error) {
	return rt.begin(ctx, g, t, nil)
}

// Enqueue records a task in its session's log without claiming it: somebody
// who offers its workflow does. One that was cancelled before ends with that. A task
// that a log holds already is left alone.
func (rt *Runtime) Enqueue(ctx context.Context, t journal.Task, cancel *journal.CancelRequested) error {
	rt.init()
	c, err := rt.claimOf(ctx, flow.Registration{}, t, nil)
	if err != nil {
		return err
	}
	c.Enqueue, c.Cancel = true, cancel
	_, err = rt.Store.Claim(ctx, c)
	return err
}

// claimOf is the claim of a task, with the opening of its session and what that
// starts with.
func (rt *Runtime) claimOf(ctx context.Context, g flow.Registration, t journal.Task, opening []session.Event) (journal.Claim, error) {
	if err := t.Valid(); err != nil {
		return journal.Claim{}, err
	}
	c := journal.Claim{
		Session: t.Session, Home: t.Session, Run: t.ID, Revision: g.Revision, Seen: t.Seen,
		Open: session.Opening{Kind: session.OpenLeaf, Run: string(t.ID)}, Events: slices.Clip(opening),
	}
	if !t.Resume {
		c.Task = &t
	}
	if t.ForkOf != nil {
		base, err := rt.value(ctx, *t.ForkOf)
		if err != nil {
			return c, err
		}
		l, ok := base.Link()
		if !ok || base.Key().Tenant != t.Session.Tenant {
			return c, fmt.Errorf("flow: fork of %s: %w", t.ForkOf, session.ErrTenant)
		}
		if err := rt.Values.Archived(ctx, base.Key()); err != nil {
			return c, fmt.Errorf("flow: fork of %s: %w", t.ForkOf, err)
		}
		c.Open = session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}, Run: string(t.ID)}
		c.Root = base.Root()
	}
	if b := t.Branch; b != nil {
		c.Open = session.Opening{
			Kind: session.OpenFork, Name: b.Name, Parents: []session.Link{b.Base}, Run: string(b.Ancestors[len(b.Ancestors)-1].Run), Step: string(b.Path),
		}
		c.Root = b.Root
	}
	if !t.Workspace.IsZero() && !t.Resume {
		files, err := workspace.Load(ctx, rt.Blobs(t.Session.Tenant), t.Workspace)
		switch {
		case errors.Is(err, blob.ErrNotFound), errors.Is(err, blob.ErrCorrupt), errors.Is(err, workspace.ErrMalformed):
			return c, fmt.Errorf("flow: workspace %s of task %s is not stored here, upload it first: %w: %w", t.Workspace.Short(), t.ID, session.ErrNotFound, err)
		case err != nil: // whether it is there is not known
			return c, fmt.Errorf("flow: look at workspace %s of task %s: %w", t.Workspace.Short(), t.ID, err)
		}
		// Any stored bytes that read as a manifest can be named here, also those
		// that a command wrote.
		if err := files.Fits(rt.Workspaces.Limits); err != nil {
			return c, run.CodeTooLarge.Err(fmt.Sprintf("flow: workspace %s of task %s: %s", t.Workspace.Short(), t.ID, err))
		}
		c.Events = append(c.Events, session.PlacedEvent(session.Placement{Backend: "local", Head: t.Workspace, Spec: ""}))
	}
	return c, nil
}

func (rt *Runtime) begin(ctx context.Context, g flow.Registration, t journal.Task, opening []session.Event) (*Execution, error) {
	rt.init()
	c, err := rt.claimOf(ctx, g, t, opening)
	if err != nil {
		return nil, err
	}
	var before *journal.ClaimResult
	if !protection.ClaimBeforeRead {
		before, _ = rt.Values.Recorded(ctx, c.Session, t.ID)
	}
	granted, err := rt.Store.Claim(ctx, c)
	if err != nil {
		return nil, err
	}
	if before != nil && before.Attempt > 0 {
		granted.Journal = before.Journal
	}
	ex := &Execution{
		rt: rt, reg: g, id: t.ID, home: t.Session, granted: granted, state: granted.State, task: &granted.Task,
		attempt: granted.Attempt, pos: position{journal: granted.Journal, last: granted.Started},
		account: newAccount(granted.Record, granted.Task.Budget), inbox: inbox{signals: granted.Record.Inbox()},
		levels: levels{all: []level{{run: t.ID, home: t.Session}}},
	}
	ex.charge(ex.pos.journal)
	ex.levels.warms = ex.task.Branch != nil && ex.task.Branch.Warm
	if granted.State == run.Running {
		ex.input = granted.Base
		ex.sessions.hold(ex.home, &heldSession{}, granted.Base, granted.Session, false)
		if ex.task.Branch != nil {
			if err := ex.enclose(ctx); err != nil {
				return nil, err
			}
		}
	}
	return ex, nil
}

func (rt *Runtime) value(ctx context.Context, r session.Ref) (session.Session, error) {
	if rt.Values == nil {
		return session.Session{}, fmt.Errorf("flow: read %s: the runtime has no Values: %w", r, session.ErrNotFound)
	}
	return rt.Values.At(ctx, r)
}

func (rt *Runtime) client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	if rt.Models == nil {
		return nil, errors.New("flow: no models: set inprocess.Runner.Models")
	}
	return rt.Models.Client(ctx, p)
}
