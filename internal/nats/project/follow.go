package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Follower reads the commits of one event stream in order, from its checkpoint on. Without
// a checkpoint it begins at the present end of the stream, see MarkStart. After a crash it reads the
// commits since its last checkpoint again.
type Follower struct {
	C                     *Projections
	Name                  string // of its checkpoints
	Generation, Partition uint32
	// Kinds are the kinds of events to which Take gives the facts of their commits.
	Kinds []string
	// Take returns once the facts of a commit, at a sequence of the stream, need not be
	// read again. An error ends the follower.
	Take func(ctx context.Context, k session.Key, at string, seq uint64, facts []journal.Fact) error
}

const (
	// followSave is how often a follower saves a changed position.
	followSave = time.Second
	// followKeep is how often it saves its position again: the stream of checkpoints
	// forgets its oldest messages.
	followKeep = 10 * time.Minute
)

// MarkStart saves the present ends of all event streams, and of the stream of dead letters,
// as the positions of the followers of a name that have none.
func (c *Projections) MarkStart(ctx context.Context, name string) error {
	for p := range c.streams.Partitions() {
		if err := c.mark(name, p).load(ctx, streams.EventStream(c.streams.Generation(), p)); err != nil {
			return err
		}
	}
	return c.mark(name+lettersOf, 0).load(ctx, streams.StreamDLQ)
}

// lettersOf ends the name of the checkpoint of dead letters.
const lettersOf = "-letters"

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	stream := streams.EventStream(f.Generation, f.Partition)
	m := f.C.mark(f.Name, f.Partition)
	if err := m.load(ctx, stream); err != nil {
		return err
	}
	in := make(chan conn.Message, conn.FollowAhead)
	return conn.Following(ctx, func(ctx context.Context) error {
		return f.C.messages.Follow(ctx, stream, fmt.Sprintf("%s%d.%d.>", streams.PrefixEvent, f.Generation, f.Partition), m.Seq+1, in)
	}, func(ctx context.Context) error { return f.pump(ctx, stream, m, in) })
}

func (f *Follower) pump(ctx context.Context, stream string, at *mark, in <-chan conn.Message) error {
	h := eventlog.NewChain(f.C.logs, f.Generation, f.Partition)
	defer h.Rest.Stop()
	defer at.last(ctx)
	tick := time.NewTicker(followSave)
	defer tick.Stop()
	for {
		select {
		case m := <-in:
			if err := f.take(ctx, h, stream, m); err != nil {
				return err
			}
			at.Seq = m.Seq
		case <-tick.C:
			at.save(ctx)
		case <-h.Rest.C:
			h.Forget()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take gives a commit with an event of the kinds to Take.
func (f *Follower) take(ctx context.Context, h *eventlog.Chain, stream string, m conn.Message) error {
	e, ok, err := h.PatientlyNext(ctx, m)
	if errors.Is(err, session.ErrTooOld) {
		return nil // the relay of lineage logs it
	}
	if err != nil || !ok || !slices.ContainsFunc(e.Commit.Events, func(v session.Event) bool { return slices.Contains(f.Kinds, v.Kind) }) {
		return err
	}
	if err := h.FillThere(ctx, &e); err != nil {
		return err
	}
	return f.Take(ctx, e.Commit.Key, stream, m.Seq, h.Facts(e))
}

// mark is a position in a stream, with its checkpoint.
type mark struct {
	Seq uint64 `json:"seq"`

	c       *Projections
	subject string
	saved   uint64
	when    time.Time
}

func (c *Projections) mark(name string, partition uint32) *mark {
	return &mark{c: c, subject: eventlog.CheckpointSubject(name, c.streams.Generation(), partition)}
}

// load reads the position. Without a checkpoint it is the present end, which is saved: a
// follower that starts later reads from there.
func (m *mark) load(ctx context.Context, stream string) error {
	end, err := conn.Retry(ctx, func(ctx context.Context) (uint64, error) {
		revision, err := m.c.logs.LoadCheckpoint(ctx, m.subject, m)
		if err != nil {
			return 0, err
		}
		end, err := m.c.messages.LastSequence(ctx, stream)
		if err == nil && revision == 0 {
			m.Seq = end
			err = m.c.logs.SaveCheckpoint(ctx, m.subject, m)
		}
		return end, err
	})
	m.Seq = min(m.Seq, end) // a server that stores late may have lost its last messages
	m.saved, m.when = m.Seq, time.Now()
	return err
}

func (m *mark) save(ctx context.Context) {
	if m.Seq == m.saved && time.Since(m.when) < followKeep {
		return
	}
	if err := m.c.logs.SaveCheckpoint(ctx, m.subject, m); err != nil {
		m.c.conn.Logger.Warn("a position was not saved; events after the last one are read again after a restart", "subject", m.subject, "err", err)
		return
	}
	m.saved, m.when = m.Seq, time.Now()
}

// last saves the position when the follower ends.
func (m *mark) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventlog.CheckpointLast)
	defer cancel()
	m.save(ctx)
}

// lettersEvery is how often dead letters are looked for: nodes may not follow their stream.
const lettersEvery = 5 * time.Second

// FollowDeadLetters gives the dead letters of all tenants to take, in their order and from
// a checkpoint of the name on, as a Follower does. It returns when ctx ends or take fails.
func (c *Projections) FollowDeadLetters(ctx context.Context, name string, take func(ctx context.Context, t session.Tenant, workflow string, at uint64, l *messages.DeadLetter) error) error {
	at := c.mark(name+lettersOf, 0)
	if err := at.load(ctx, streams.StreamDLQ); err != nil {
		return err
	}
	defer at.last(ctx)
	tick := time.NewTicker(lettersEvery)
	defer tick.Stop()
	for last := ""; ; {
		end, err := c.messages.LastSequence(ctx, streams.StreamDLQ)
		for m, next := range c.messages.UpTo(ctx, streams.StreamDLQ, streams.PrefixDLQ+">", at.Seq, end) {
			if err = next; err != nil {
				break
			}
			t, workflow, ok := messages.ParseDeadLetterSubject(m.Subject)
			l, decodeErr := messages.DecodeDeadLetter(m.Data)
			if ok && decodeErr == nil && m.Subject != last { // neither the end of one, nor one that is stored again
				if err := take(ctx, t, workflow, m.Seq, &l); err != nil {
					return err
				}
				last = m.Subject
			}
			at.Seq = m.Seq
		}
		if err != nil && ctx.Err() == nil {
			c.conn.Logger.Warn("dead letters were not read; they are read again in a moment", "err", err)
		}
		at.save(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
