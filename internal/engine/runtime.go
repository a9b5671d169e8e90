package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/internal/models/tokens"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Runtime has the external dependencies of a run. Models, sandboxes and memories may be
// missing. It must not be copied or changed after first use, and is safe for concurrent
// use.
type Runtime struct {
	// Store claims runs and commits their events.
	Store journal.Store
	// Values reads sessions that a run refers to. A Store needs the Values of its own
	// log.
	Values *journal.Values
	// Models answers model calls; nil fails them.
	Models llm.Models
	// Choices returns the models that a call for p may ask, the first choice first and
	// its substitutes after it; nil allows p alone, at an unknown price.
	Choices func(p llm.Provider) ([]chain.Choice, error)
	// Quota keeps the model calls of tenants within their quotas; nil has none.
	Quota Quota
	// Servers returns the tool server of a name that agents use, or the reason why there
	// is none; nil has none.
	Servers func(name string) (toolserver.Server, error)
	// Rules decide which calls of models run, which need an approval, and which are refused;
	// nil allows all.
	Rules *rules.List
	// Memory opens the memory of a name that agents use; nil fails.
	Memory func(ctx context.Context, t session.Tenant, name string) (memory.Store, error)
	// Blobs stores large outputs and workspaces; nil keeps them in memory.
	Blobs func(session.Tenant) blob.Store
	// Workspaces has the backends of sandboxes and their directories; the zero value has
	// no backends, so tools that need a sandbox fail.
	Workspaces lease.Workspaces
	// Leases keep the sandboxes of sessions open between runs; nil ends them with each
	// execution.
	Leases *lease.Kept
	// Mint generates the ids of the sessions that runs make.
	Mint commitlog.IDGenerator
	// Clock is the clock of the runs, and must be that of Store; nil is the machine's.
	Clock *Clock
	// Node is recorded as the place of work.
	Node string
	// Model is the default where neither agent nor task names a model.
	Model string
	// Workflows has the workflows of remote branches and started runs that run in this
	// process, or are replayed; nil has none. Nodes use the workflows that the fleet offers.
	Workflows *Registry
	// Offered reports whether a node offers a workflow in a revision; nil always reports
	// false. A run that does not match this node's code moves to such a node.
	Offered func(ctx context.Context, workflow, revision string) bool
	// OnDelta, if set, gets the pieces of model output as they arrive. They are
	// provisional. It is called concurrently and must not block.
	OnDelta func(Delta)
	// OnStart, if set, gets each step that begins and is not recorded yet. It is called
	// concurrently and must not block.
	OnStart func(Start)
	// OnRequest, if set, gets the outcome of each request to a model: its error code, or
	// "" for an answer. Requests that the run itself cut off are not reported. It is
	// called concurrently and must not block.
	OnRequest func(code llm.Code)
	// OnTool, if set, is called before each tool call; an error replaces the result of
	// the call. It is for tests.
	OnTool func(ctx context.Context) error
	// OnStep, if set, gets each step that the code of a workflow reaches, recorded or
	// not, with the file and line of the call. It is for tests, and called concurrently.
	OnStep func(r run.ID, at run.Path, call string)
	// Isolates is set by a caller of Begin that isolates the execution of suspects, see
	// [journal.SuspectError], and sets the task's Suspect. Without it a suspect is claimed
	// at once, because this process has no other scheduler.
	Isolates bool
	// OnFirstStep, if set, is called when an execution has recorded its first new step,
	// in any log, with the home and the id of its run. It must not block.
	OnFirstStep func(home session.Key, id run.ID)
	// OnWarning, if set, gets warnings for the author of a workflow, such as an implicit
	// fork. The same text is recorded in the run.
	OnWarning func(run.ID, string)

	// OnLeak, if set, gets the result of Leaked after each change. It is called
	// concurrently and must not block.
	OnLeak func(n int)

	leaked   atomic.Int64
	once     sync.Once
	breakers chain.Breakers
	tokens   tokens.Counter
	stored   transcript.StoredBlobs
}

// Delta is a piece of streamed model output.
type Delta struct {
	Session session.Key
	Run     run.ID
	Path    run.Path
	Attempt uint64
	// Try counts the requests for the answer in the attempt, N the pieces of one try,
	// both from one. Void, in a separate piece, means that the try broke off: the reader
	// must discard its pieces.
	Try   int
	N     uint64
	Void  bool
	Agent string
	llm.Delta
}

// Start is a step that begins.
type Start struct {
	Session session.Key // where it is recorded
	Run     run.ID
	Path    run.Path
	Attempt uint64
	Kind    string // such as journal.StepModel
	Name    string // of the agent, the tool or the function
	Did     string // a summary of a tool call; "" for other steps
}

func (rt *Runtime) init() {
	rt.once.Do(func() {
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

// secrets returns the credentials of this process that no blob may contain.
func (rt *Runtime) secrets() []string {
	var out []string
	for i := range rt.Workspaces.Egress.Secrets {
		out = append(out, rt.Workspaces.Egress.Secrets[i].Hidden()...)
	}
	return out
}

func (rt *Runtime) client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	if rt.Models == nil {
		return nil, errors.New("flow: no models: set inprocess.Runner.Models")
	}
	return rt.Models.Client(ctx, p)
}

// choices returns the models that a call may ask, in their order.
func (rt *Runtime) choices(p llm.Provider) ([]chain.Choice, error) {
	if rt.Choices == nil {
		return []chain.Choice{{Provider: p}}, nil
	}
	all, err := rt.Choices(p)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Embedder returns an embedder for a tenant with a model of the node's list. Requests
// wait for the model's limits, are retried like requests for answers, and have their cost
// in their usage. While the model's server is known to fail, no request is sent: the
// caller has another way to search.
func (rt *Runtime) Embedder(ctx context.Context, t session.Tenant, model string) (llm.Embedder, error) {
	if rt.Models == nil {
		return nil, errors.New("flow: no models: set inprocess.Runner.Models")
	}
	all, err := rt.choices(llm.Provider{Model: model})
	if err != nil {
		return nil, err
	}
	if c := all[0]; c.Name != "" && !c.Embeds {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s makes no vectors of texts; name one with \"can: [embeddings]\" in the node's list", c.Name)}
	}
	return &chain.Embedder{
		Tenant: t, Choices: all, Models: rt.Models, Breakers: &rt.breakers, Tokens: &rt.tokens, Ended: rt.OnRequest, Unpaused: rt.Clock != nil,
	}, nil
}
