package inprocess

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Runtime runs workflows to their ends in the caller's process. Without a Store it writes
// to a log in memory. It must not be copied or changed after first use, and is safe for
// concurrent use.
type Runtime struct {
	// Runtime has the settings, like those of a node. Its Store and Values may be nil.
	Runtime engine.Runtime
	// Answer, if set, answers the questions of runs. It returns a flow.Approval for an
	// approval, a string for a message, and any JSON-encodable value for a response; nil
	// leaves the question open, for Signal or until it expires. An error ends Run, while
	// the run keeps waiting. If the question rejects the answer, Answer is called again,
	// at most 8 times in all. It is called once for each question that a process finds
	// open, one question at a time and in a goroutine of its own, which should end with
	// ctx.
	Answer func(ctx context.Context, q run.Question) (any, error)

	once   sync.Once
	driver Driver
}

func (rt *Runtime) init() {
	rt.once.Do(func() {
		rt.driver.Workflows, rt.driver.Answer = rt.Runtime.Workflows, rt.Answer
		if rt.Runtime.Store != nil {
			return
		}
		log := &commitlog.Memory{}
		if rt.Runtime.Values == nil {
			rt.Runtime.Values = journal.NewValues(log)
		}
		rt.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: rt.Runtime.Values, Now: rt.Runtime.Clock.Now, OnCommit: rt.driver.Committed})
	})
}

// Committed processes a commit of the runtime's Store, so that Run can run branches and
// resume runs that waited:
//
//	rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values}}
//	rt.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: rt.Committed})
//
// A runtime without a Store of its own does not need it.
func (rt *Runtime) Committed(e commitlog.Entry) { rt.driver.Committed(e) }

// Signal sends a signal from outside to a run of this runtime: an answer, a message, a
// cancel.
func (rt *Runtime) Signal(ctx context.Context, s journal.Signal) error {
	rt.init()
	return rt.Runtime.Store.Apply(ctx, s)
}

// Run runs w on s to its end and returns the resulting session, in the caller's
// goroutine. An unborn session is begun; an existing one continues from its newest
// version. Use it to embed workflows as a library; nodes use Begin.
func (rt *Runtime) Run(ctx context.Context, w flow.Workflow, s session.Session) (session.Session, error) {
	rt.init()
	t := rt.newRun(w, s)
	ex, state, err := t.runAll(ctx, nil)
	switch {
	case ex == nil:
		return s, err
	case state == run.Queued && err == nil:
		return s, fmt.Errorf("flow: session %s is held by another run: %w", t.task.Session, run.ErrBusy)
	}
	return ex.Result(), err
}

// newRun makes the tree of a new run of w on s.
func (rt *Runtime) newRun(w flow.Workflow, s session.Session) *tree {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	body := hex.EncodeToString(id[:])
	k, root := s.Key(), s.Root()
	edits := slices.Collect(s.Pending())
	var opening []session.Event
	if s.Unborn() {
		k = session.Key{Tenant: session.DefaultTenant, ID: rt.Runtime.Mint.ID(body)}
		root = k.ID
		for opening = range commitlog.Batches(edits) {
			edits = edits[len(opening):]
			break
		}
	}
	// Edits that do not fit into the first commit are pending when Forward begins, for
	// the run and for its branches.
	forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return w.Forward(ctx, s.Edited(edits...))
	})
	return newTree(&rt.driver, &rt.Runtime, flow.Registration{Name: "run", New: func() flow.Workflow { return forward }}, journal.Task{
		ID: run.ID("r" + body), Workflow: "run", Session: k,
	}, root, opening)
}
