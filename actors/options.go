package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
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
	DefaultAnswerTimeout = 3 * time.Second
	DefaultSnapshotEvery = 256
)

// Options configure a System. Log is required.
type Options struct {
	// Log stores the sessions. If it stores snapshots too, sessions that leave memory
	// after many commits leave one.
	Log commitlog.Log
	// Spills reports that Log keeps large events elsewhere, so that only Log can decide
	// whether a commit is too large.
	Spills bool
	// Values is the cache of session values, best shared with everything else
	// that reads the log; nil makes one.
	Values *journal.Values
	// Incarnation names this start of this process: no other start, of this
	// or another process, may have the same. "" is for tests.
	Incarnation string
	// Durability is the level that Log promises, which the logs keep with the
	// Incarnation; "" is "fsync".
	Durability string
	// Now returns the time for records; nil is time.Now.
	Now func() time.Time
	// Logger gets errors and events that no caller receives; nil discards them.
	Logger *slog.Logger

	// Runtime executes runs; nil leaves a System that only keeps sessions. Without a
	// Store or Values of its own it gets this System's.
	Runtime *engine.Runtime
	// Workflows are the workflows offered here.
	Workflows *engine.Registry
	// Slots bounds the runs that execute at once; 0 is DefaultSlots.
	Slots int
	// Drain is how long Run lets runs continue after its context has ended, before it
	// cuts them off; 0 is DefaultDrain.
	Drain time.Duration

	// Alive reports whether an incarnation is a live member, without blocking; with nil
	// every incarnation is asked.
	Alive func(incarnation string) bool
	// Changed returns a channel that is closed when the results of Alive may have
	// changed. A request soon times out when its incarnation is reported dead. nil:
	// changes are not seen.
	Changed func() <-chan struct{}
	// Deliver hands work to the incarnation that holds a session; nil on a single node.
	// It returns an error if the incarnation does not answer.
	Deliver func(ctx context.Context, incarnation string, w journal.Work) (journal.Answer, error)
	// LastWords returns how an incarnation ended, by the process that started it; ""
	// without such a process. With nil no process is asked.
	LastWords func(ctx context.Context, incarnation string) string
	// AnswerTimeout is how long an incarnation may take to answer before the session
	// is activated here; 0 is DefaultAnswerTimeout.
	AnswerTimeout time.Duration

	// SnapshotEvery is the number of commits after which a session that stays in memory
	// is saved, so that it is read quickly after a crash; 0 is DefaultSnapshotEvery. A
	// session that leaves memory is saved if LongTail commits follow its last snapshot;
	// an open fork also if it has no snapshot.
	SnapshotEvery int
	// Passivate is how long an idle session stays in memory; 0 is DefaultPassivate.
	// With IdleMost sessions or more it is at most a quarter of a second.
	Passivate time.Duration
	// MaxPending bounds the requests that wait for one session. As many steps of the
	// run that holds it may wait in addition. Further requests fail with run.ErrBusy. 0
	// is DefaultMaxPending.
	MaxPending int
	// BatchBytes and BatchMax bound the requests that share one commit; 0 is
	// DefaultBatchBytes and DefaultBatchMax.
	BatchBytes int
	BatchMax   int
	// OnAppend, if set, is called after each append with its commit, its duration and
	// its error. It is called from many goroutines, must not block, and must not change
	// the commit.
	OnAppend func(c commitlog.Commit, took time.Duration, err error)
	// AppendTimeout bounds one operation on the log; 0 is
	// DefaultAppendTimeout.
	AppendTimeout time.Duration
}

// throughput is the number of messages after which an actor yields to other goroutines.
const throughput = 300

func (o *Options) defaults() {
	setDefault(&o.Passivate, DefaultPassivate)
	setDefault(&o.MaxPending, DefaultMaxPending)
	setDefault(&o.BatchBytes, DefaultBatchBytes)
	setDefault(&o.BatchMax, DefaultBatchMax)
	setDefault(&o.AppendTimeout, DefaultAppendTimeout)
	setDefault(&o.Slots, DefaultSlots)
	setDefault(&o.Drain, DefaultDrain)
	setDefault(&o.AnswerTimeout, DefaultAnswerTimeout)
	setDefault(&o.SnapshotEvery, DefaultSnapshotEvery)
	setDefault(&o.Incarnation, "local")
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

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
