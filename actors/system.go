// Package actors hosts the sessions and the runs of one process.
//
// Each session that is in use has an actor: the one writer of its log in this
// process. The actor folds the log, lets a journal.StateMachine decide what requests
// append, makes one commit at a time durable and only then answers. Requests
// that wait meanwhile share the next commit. A session that nobody uses is
// passivated: its actor ends and costs nothing until somebody asks again.
//
// Each run that executes here has a workflow actor. It has no state of its
// own: what a run did is in the logs of its sessions, and a run that is cut
// off goes on wherever its task is accepted next.
//
//	sys := actors.New(&actors.Options{Log: log, Runtime: rt, Workflows: offered})
//	go sys.Run(ctx)                     // drains when ctx ends
//	answer, err := sys.Accept(ctx, task) // a log holds the task now
//
// Nothing here decides who may write; the log does, by compare-and-set. An
// actor that lost its session learns so from the log and ends, with what its
// run was doing. Between processes a task or a signal goes to the incarnation
// that wrote the session last, through Options.Deliver, because appending to a
// log that another process holds would end that process's run.
//
// The package knows no network: it is tested, several systems over one log in
// memory, without any.
package actors

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/session"
)

// The defaults of Options.
const (
	DefaultPassivate     = time.Minute
	DefaultMaxPending    = 256
	DefaultBatchBytes    = 512 << 10
	DefaultBatchMax      = 128
	DefaultAppendTimeout = 30 * time.Second
	DefaultSlots         = 64
	DefaultDrain         = 20 * time.Second
	DefaultSilence       = 3 * time.Second
	DefaultSnapshotEvery = 256
)

// Options say what a System works with. Log is required.
type Options struct {
	// Log is where sessions are kept. If it is a session.Snapshotter too,
	// passivated sessions leave a snapshot.
	Log session.Log
	// Spills reports that Log keeps large events elsewhere, so that it alone
	// can say whether a commit is too large.
	Spills bool
	// Values is the cache of session values, best shared with everything else
	// that reads the log; nil makes one.
	Values *journal.Values
	// Incarnation names this start of this process: no other start, of this
	// or another process, may have the same. "" is for tests.
	Incarnation string
	// Durability is the level that Log promises, which the logs keep with the
	// Incarnation; "" is journal.DefaultDurability.
	Durability string
	// Now gives the time that is recorded; nil is time.Now.
	Now func() time.Time
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger

	// Runtime executes runs; nil leaves a System that only keeps sessions.
	// If it has no Store it gets this System's.
	Runtime *engine.Runtime
	// Workflows are the ones offered here.
	Workflows *flow.Registry
	// Slots bounds the runs that execute at once; 0 is DefaultSlots.
	Slots int
	// Drain is how long Run lets runs go on once its context ended, before it
	// cuts them off; 0 is DefaultDrain.
	Drain time.Duration

	// Alive reports whether an incarnation is a live member, without waiting;
	// nil does not know, so that every one is asked.
	Alive func(incarnation string) bool
	// Changed returns a channel that is closed when what Alive says may have
	// changed; nil does not tell. Who is called dead while it is asked is not
	// waited for much longer.
	Changed func() <-chan struct{}
	// Deliver hands work to the incarnation that holds a session; nil on a
	// single node. It returns an error when nobody answers.
	Deliver func(ctx context.Context, incarnation string, w journal.Work) (Answer, error)
	// Silence is how long an incarnation may take to answer before the session
	// is activated here; 0 is DefaultSilence.
	Silence time.Duration

	// SnapshotEvery is after how many commits a session that stays in memory is
	// saved, so that it is read quickly after a crash; 0 is
	// DefaultSnapshotEvery. Passivated sessions are saved, but for those with a short
	// log and no open run.
	SnapshotEvery int
	// Passivate is how long an idle session stays in memory; 0 is
	// DefaultPassivate. With more than IdleMost sessions it is a second at most.
	Passivate time.Duration
	// MaxPending bounds the requests that wait for one session; as many steps
	// of the run that holds it may wait besides. Over it requests are answered
	// with run.ErrBusy. 0 is DefaultMaxPending.
	MaxPending int
	// BatchBytes and BatchMax bound the requests that share one commit; 0 is
	// DefaultBatchBytes and DefaultBatchMax.
	BatchBytes int
	BatchMax   int
	// AppendTimeout bounds one operation on the log; 0 is
	// DefaultAppendTimeout.
	AppendTimeout time.Duration
}

// throughput is after how many messages an actor lets other goroutines go on.
const throughput = 300

func (o *Options) defaults() {
	orElse(&o.Passivate, DefaultPassivate)
	orElse(&o.MaxPending, DefaultMaxPending)
	orElse(&o.BatchBytes, DefaultBatchBytes)
	orElse(&o.BatchMax, DefaultBatchMax)
	orElse(&o.AppendTimeout, DefaultAppendTimeout)
	orElse(&o.Slots, DefaultSlots)
	orElse(&o.Drain, DefaultDrain)
	orElse(&o.Silence, DefaultSilence)
	orElse(&o.SnapshotEvery, DefaultSnapshotEvery)
	orElse(&o.Incarnation, "local")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Values == nil {
		o.Values = journal.NewValues(o.Log)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// System hosts session and workflow actors. It is safe for concurrent use.
// Whoever makes one must Run or Drain it.
type System struct {
	o          Options
	log        *slog.Logger
	protoactor *actor.ActorSystem
	props      []actor.PropsOption
	top        *actor.PID
	executor   executor // executes runs; nil without a Runtime
	snapshots  bool     // the log keeps them

	held     held
	feeds    feeds
	requests requestPool
	ticks    atomic.Uint64

	work       *workers
	executions executions
	drain      drain
	stopped    chan struct{} // closed when the last actor has stopped
}

// New returns a System at work. It panics without a Log.
func New(o *Options) *System {
	s := &System{o: *o, work: newWorkers(), stopped: make(chan struct{})}
	if s.o.Log == nil {
		panic("actors: Options.Log is nil")
	}
	s.o.defaults()
	s.log = s.o.Logger
	_, s.snapshots = s.o.Log.(session.Snapshotter)
	s.protoactor = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(quietHandler{s.log.Handler()})
	}))
	s.props = []actor.PropsOption{
		actor.WithReceiverMiddleware(s.recovering),
		// No actor here ever waits in Receive, so a message is handled by the
		// goroutine that brings it, unless the actor is at work already. It
		// saves two of four changes of goroutine per commit.
		actor.WithDispatcher(actor.NewSynchronizedDispatcher(throughput)),
	}
	s.executions.init(s.o.Slots)
	s.drain.init()
	if s.o.Runtime != nil {
		if s.o.Runtime.Store == nil {
			s.o.Runtime.Store = s.Store()
		}
		s.executor = runtimeExecutor{s.o.Runtime, s.o.Workflows}
	}
	top := &supervisor{sys: s, sessions: map[session.Key]*child{}, keys: map[string]session.Key{}, flows: map[string]*actor.PID{}}
	s.top = s.protoactor.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return top },
		append(s.props[:2:2], actor.WithSupervisor(stopFailed()))...))
	return s
}

// Incarnation returns the name that this System writes under.
func (s *System) Incarnation() string { return s.o.Incarnation }

// Store returns the right to write to sessions, through their actors. It
// activates a session here whoever wrote it last; Accept and Signal ask first.
func (s *System) Store() journal.Store { return &store{s} }

// Active returns how many sessions are in memory.
func (s *System) Active() int { return s.held.len() }

func (s *System) tick() uint64 { return s.ticks.Add(1) }

// held maps sessions to the mailboxes of their actors. The supervisor writes
// it; everybody reads.
type held struct {
	mu sync.RWMutex
	m  map[session.Key]*mailbox
}

func (h *held) get(k session.Key) *mailbox {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.m[k]
}

func (h *held) set(k session.Key, box *mailbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[session.Key]*mailbox{}
	}
	if box == nil {
		delete(h.m, k)
		return
	}
	h.m[k] = box
}

func (h *held) len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.m)
}

// quietHandler passes on what protoactor warns of, without its news of every
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
