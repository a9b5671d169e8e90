// Package inprocess runs workflows in the process of the caller, without a server:
// for programs that use workflows as a library. Nodes run the same workflows.
//
//	r := &inprocess.Runner{Models: models}
//	s, err := r.Run(ctx, agent, session.New(session.UserText("Say hello.")))
package inprocess

import (
	"context"
	"os"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Runner runs workflows. The zero Runner keeps everything in memory, and has no models,
// memories and sandboxes. It must not be copied or changed after first use, and is then
// safe for concurrent use.
type Runner struct {
	// Models answers model calls; nil fails them.
	Models llm.Models
	// Model is the default for agents that name no model.
	Model string
	// Memory opens the memory of a name that agents use; nil keeps the notes of each tenant
	// and name apart, as long as the Runner lives.
	Memory func(ctx context.Context, t session.Tenant, name string) (memory.Store, error)
	// Workflows are the workflows that a flow.Remote and a flow.Task can name; nil has
	// none. A started run that still waits when its starter ends does not go on.
	Workflows []flow.Registration

	// Blobs stores the files and the large values of sessions; nil keeps them in memory.
	Blobs blob.Store

	// MCPList is the file that lists the MCP servers that agents can name; "" has none. It
	// is read by the first call. A server reads its secrets from the variables of this
	// process.
	MCPList string

	// Sandboxes are the backends that Session.To can name. The working directories of
	// sessions are below Dir.
	Sandboxes map[string]sandbox.Backend
	Dir       string
	// Unsafe also accepts sandboxes that the kernel does not confine.
	Unsafe bool

	// Answer, if set, answers the questions of a run. It returns a flow.Approval for an
	// approval, a string for a message, and any JSON-encodable value for a response; nil
	// leaves the question open, for Control or until it expires. An error ends Run, while
	// the run keeps waiting. If the question rejects the answer, Answer is called again,
	// at most 8 times in all. It is called in a goroutine of its own, which should end
	// with ctx, for one question of a run at a time.
	Answer func(ctx context.Context, q run.Question) (any, error)
	// OnWarning, if set, gets warnings for the author of a workflow, such as an implicit
	// fork. The same text is recorded in the run.
	OnWarning func(run.ID, string)

	mu       sync.Mutex
	memories map[memoryName]memory.Store

	once    sync.Once
	rt      *inprocess.Runtime
	log     commitlog.Log
	servers *mcp.List // nil has none
	err     error
}

func (r *Runner) runtime() (*inprocess.Runtime, error) {
	r.once.Do(func() {
		rt := &inprocess.Runtime{Answer: r.Answer, Runtime: engine.Runtime{
			Models: r.Models, Model: r.Model, Memory: r.Memory, OnWarning: r.OnWarning, Servers: r.toolServer,
			Workspaces: lease.Workspaces{Dir: r.Dir, Backends: r.Sandboxes},
		}}
		if rt.Runtime.Memory == nil {
			rt.Runtime.Memory = r.notes
		}
		if r.Unsafe {
			rt.Runtime.Workspaces.MinIsolation = sandbox.IsolationProcess
		}
		blobs := r.Blobs
		if blobs == nil {
			blobs = blob.NewMemory()
		}
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
		log := offload.New(&commitlog.Memory{}, rt.Runtime.Blobs, nil)
		rt.Runtime.Values = journal.NewValues(log)
		rt.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: rt.Runtime.Values, OnCommit: rt.Committed})
		r.rt, r.log = rt, log
		if rt.Runtime.Workflows, r.err = engine.NewRegistry(r.Workflows); r.err == nil && r.MCPList != "" {
			r.servers, r.err = mcp.Read(r.MCPList)
		}
	})
	return r.rt, r.err
}

// memoryName names one of a Runner's memories.
type memoryName struct {
	tenant session.Tenant
	name   string
}

// notes is the default of Runner.Memory.
func (r *Runner) notes(_ context.Context, t session.Tenant, name string) (memory.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := memoryName{t, name}
	if r.memories[k] == nil {
		if r.memories == nil {
			r.memories = map[memoryName]memory.Store{}
		}
		r.memories[k] = notebook.New(nil)
	}
	return r.memories[k], nil
}

// Run runs w on s to its end and returns the resulting session, in the caller's
// goroutine. A session that is not stored yet is begun; a stored one continues from its
// newest version. If another run holds the session the error is run.ErrBusy.
func (r *Runner) Run(ctx context.Context, w flow.Workflow, s session.Session) (session.Session, error) {
	rt, err := r.runtime()
	if err != nil {
		return s, err
	}
	return rt.Run(ctx, w, s)
}

// Control sends a request from outside to a run of a session: an answer, a message, a
// cancel. verb is one of the constants of package messages, such as
// messages.VerbMessage. Control returns once the request is recorded.
func (r *Runner) Control(ctx context.Context, s session.Key, id run.ID, verb string, d messages.Control) error {
	rt, err := r.runtime()
	if err != nil {
		return err
	}
	signal, err := translate.Signal(d, s, "", id, verb)
	if err != nil {
		return err
	}
	return rt.Signal(ctx, signal)
}

// Lineage returns the records of a session's log, the oldest first: its steps and their
// cost, and the sessions that it came from and led to. They are those that a fleet
// publishes. A session without a log has none.
func (r *Runner) Lineage(ctx context.Context, s session.Key) ([]messages.Record, error) {
	if _, err := r.runtime(); err != nil {
		return nil, err
	}
	var out []messages.Record
	for e, err := range r.log.Read(ctx, s, commitlog.Position{}) {
		if err != nil {
			return out, err
		}
		records, err := lineage.Derive(e)
		if err != nil {
			return out, err
		}
		out = append(out, records...)
	}
	return out, nil
}

// toolServer returns the MCP server of a name.
func (r *Runner) toolServer(name string) (toolserver.Server, error) {
	s, err := r.servers.Lookup(name)
	if err != nil {
		return nil, err
	}
	return toolServer{s}, nil
}

type toolServer struct{ s *mcp.Server }

func (t toolServer) Sandboxed() bool { return t.s.Where == mcp.InSandbox }

func (t toolServer) Connect(ctx context.Context, box sandbox.Sandbox) (toolserver.Conn, error) {
	c, err := t.s.Connect(ctx, os.Getenv, box)
	if err != nil {
		return nil, err
	}
	return c, nil
}
