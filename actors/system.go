package actors

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/platform/workers"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// System hosts session and workflow actors. It is safe for concurrent use.
// The caller of New must Run or Drain it.
type System struct {
	o          Options
	log        *slog.Logger
	protoactor *actor.ActorSystem
	top        *actor.PID
	executor   executor // executes runs; nil without a Runtime
	leases     *lease.Kept
	snapshots  bool // the log keeps them

	held     held
	feeds    feeds
	requests requestPool
	ticks    atomic.Uint64

	work       *workers.Pool
	executions executions
	drain      drain
	stopped    chan struct{} // closed when the last actor has stopped
}

// processes is how many buckets a registry of processes has. Each has 32 locks.
const processes = 8

// shrink leaves so few of the 1,024 buckets that a registry begins with: empty, they
// take 2.9 MB in 66,000 pieces, which each garbage collection would scan.
func shrink(registry *actor.SliceMap) {
	all := registry.LocalPIDs
	registry.LocalPIDs = slices.Clone(all[:processes])
	for _, bucket := range all[processes:] {
		bucket.IterCb(func(id string, process any) { registry.GetBucket(id).Set(id, process) })
	}
}

// New returns a System at work. It panics without a Log.
func New(o *Options) *System {
	s := &System{o: *o, work: workers.New(), stopped: make(chan struct{})}
	if s.o.Log == nil {
		panic("actors: Options.Log is nil")
	}
	s.o.defaults()
	s.log = s.o.Logger
	_, s.snapshots = s.o.Log.(commitlog.Snapshotter)
	s.protoactor = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(quietHandler{s.log.Handler()})
	}))
	shrink(s.protoactor.ProcessRegistry.LocalPIDs)
	props := []actor.PropsOption{
		actor.WithReceiverMiddleware(s.recovering),
		// No actor here blocks in Receive, so the goroutine that sends a message also
		// handles it, unless the actor is at work already. That saves two of four
		// changes of goroutine per commit.
		actor.WithDispatcher(actor.NewSynchronizedDispatcher(throughput)),
	}
	s.executions.init(s.o.Slots)
	s.drain.init()
	if s.o.Runtime != nil {
		if s.o.Runtime.Store == nil {
			s.o.Runtime.Store = s.Store()
		}
		if s.o.Runtime.Leases == nil {
			s.o.Runtime.Leases = &lease.Kept{}
		}
		s.leases = s.o.Runtime.Leases
		if s.o.Runtime.Values == nil {
			s.o.Runtime.Values = s.o.Values
		}
		s.o.Runtime.Isolates = true
		s.o.Runtime.OnFirstStep = func(home session.Key, id run.ID) { s.executions.prove(runKey{home.Tenant, id}) }
		s.executor = runtimeExecutor{s.o.Runtime, s.o.Workflows}
	}
	top := &supervisor{sys: s, sessions: map[session.Key]*child{}, keys: map[string]session.Key{}, flows: map[string]*actor.PID{}}
	top.props = actor.PropsFromProducer(func() actor.Actor { return top.next }, props...)
	s.top = s.protoactor.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return top },
		append(props[:2:2], actor.WithSupervisor(stopFailed()))...))
	return s
}

// Incarnation returns the name that this System writes under.
func (s *System) Incarnation() string { return s.o.Incarnation }

// Store returns the store that writes to sessions through their actors. It activates a
// session here even if another incarnation holds it; Accept and Signal ask the holder
// first.
func (s *System) Store() journal.Store { return &store{s} }

// Active returns how many sessions are in memory.
func (s *System) Active() int { return s.held.len() }

func (s *System) tick() uint64 { return s.ticks.Add(1) }

// quietHandler passes on the warnings of protoactor, without its messages about every
// start and restart.
type quietHandler struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (h quietHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(a)}
}

// WithGroup implements slog.Handler.
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}

// Free returns the number of runs that could begin to execute now.
func (s *System) Free() int { return s.executions.free() }

// Freed yields a value if slots were given back since the last receive. It is for one
// receiver.
func (s *System) Freed() <-chan struct{} { return s.executions.freed }

// Live returns the progress of a run's execution here. ok is false if the run does not
// execute here.
func (s *System) Live(t session.Tenant, id run.ID) (l live.Report, ok bool) {
	s.executions.mu.Lock()
	one := s.executions.running[runKey{t, id}]
	s.executions.mu.Unlock()
	if one == nil {
		return l, false
	}
	return one.ex.Live(), true
}

// Running returns how many runs execute here.
func (s *System) Running() int {
	s.executions.mu.Lock()
	defer s.executions.mu.Unlock()
	return len(s.executions.running)
}

// drain is the end of a System.
type drain struct {
	begun  chan struct{}
	done   chan struct{}
	once   sync.Once
	begins sync.WaitGroup // claims on their way
	claims context.Context
	cut    context.CancelFunc // ends claims
	err    error              // of the drain, set before done is closed
}

func (d *drain) init() {
	d.begun, d.done = make(chan struct{}), make(chan struct{})
	d.claims, d.cut = context.WithCancel(context.Background())
}
