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

// Follower reads the event streams and the stream of dead letters in order, each from a
// checkpoint of its name on. After a crash it reads again from the last checkpoint. Its
// functions return once their argument need not be read again.
type Follower struct {
	Name string
	// Kinds are the kinds of events that Take gets, with the other facts of their commits.
	Kinds  []string
	Take   func(ctx context.Context, k session.Key, stream string, seq uint64, facts []journal.Fact) error
	Letter func(ctx context.Context, t session.Tenant, workflow string, at uint64, l *messages.DeadLetter) error
}

const (
	// followSave is how often a changed position is saved, and followKeep how often an
	// unchanged one: the stream of checkpoints forgets its oldest messages.
	followSave = time.Second
	followKeep = 10 * time.Minute
	// lettersEvery is how often dead letters are looked for: nodes may not follow them.
	lettersEvery = 5 * time.Second
)

// MarkStart saves the present ends of the streams as the checkpoints that do not exist. A
// follower that starts later reads from there.
func (c *Projections) MarkStart(ctx context.Context, name string) error {
	_, err := c.position(ctx, name+"-letters", 0, streams.StreamDLQ)
	for p := uint32(0); p < c.streams.Partitions() && err == nil; p++ {
		_, err = c.position(ctx, name, p, streams.EventStream(c.streams.Generation(), p))
	}
	return err
}

type followed struct {
	Seq uint64 `json:"seq"`
}

// position reads a checkpoint, or saves the end of the stream as the first one.
func (c *Projections) position(ctx context.Context, name string, partition uint32, stream string) (at followed, err error) {
	subject := eventlog.CheckpointSubject(name, c.streams.Generation(), partition)
	return conn.Retry(ctx, func(ctx context.Context) (followed, error) {
		revision, err := c.logs.LoadCheckpoint(ctx, subject, &at)
		if err != nil {
			return at, err
		}
		end, err := c.messages.LastSequence(ctx, stream)
		if err != nil || revision > 0 {
			return followed{min(at.Seq, end)}, err // a server that stores late may have lost the end
		}
		return followed{end}, c.logs.SaveCheckpoint(ctx, subject, followed{end})
	})
}

// FollowEvents follows the event stream of a partition until ctx ends or Take fails.
func (c *Projections) FollowEvents(ctx context.Context, f *Follower, partition uint32) error {
	g := c.streams.Generation()
	stream := streams.EventStream(g, partition)
	h := eventlog.NewChain(c.logs, g, partition)
	defer h.Rest.Stop()
	return c.follow(ctx, f.Name, partition, stream, func(ctx context.Context, from uint64, in chan<- conn.Message) error {
		return c.messages.Follow(ctx, stream, fmt.Sprintf("%s%d.%d.>", streams.PrefixEvent, g, partition), from+1, in)
	}, func(ctx context.Context, m conn.Message) error {
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
	})
}

// FollowLetters follows the dead letters of all tenants until ctx ends or Letter fails.
func (c *Projections) FollowLetters(ctx context.Context, f *Follower) error {
	last := ""
	return c.follow(ctx, f.Name+"-letters", 0, streams.StreamDLQ, func(ctx context.Context, at uint64, in chan<- conn.Message) error {
		for ; ctx.Err() == nil; conn.Pause(ctx, lettersEvery) {
			end, err := c.messages.LastSequence(ctx, streams.StreamDLQ)
			for m, next := range c.messages.UpTo(ctx, streams.StreamDLQ, streams.PrefixDLQ+">", at, end) {
				if err = next; err != nil {
					break
				}
				select {
				case in <- m:
					at = m.Seq
				case <-ctx.Done():
				}
			}
			if err != nil && ctx.Err() == nil {
				c.conn.Logger.Warn("dead letters were not read; they are read again in a moment", "err", err)
			}
		}
		return ctx.Err()
	}, func(ctx context.Context, m conn.Message) error {
		t, workflow, ok := messages.ParseDeadLetterSubject(m.Subject)
		l, err := messages.DecodeDeadLetter(m.Data)
		if !ok || err != nil || m.Subject == last { // the end of one, or stored again
			return nil
		}
		last = m.Subject
		return f.Letter(ctx, t, workflow, m.Seq, &l)
	})
}

// follow takes the messages of read from the checkpoint on, and saves the position.
func (c *Projections) follow(ctx context.Context, name string, partition uint32, stream string, read func(ctx context.Context, from uint64, in chan<- conn.Message) error, take func(context.Context, conn.Message) error) error {
	at, err := c.position(ctx, name, partition, stream)
	if err != nil {
		return err
	}
	saved, when := at, time.Now()
	save := func(ctx context.Context) {
		if at == saved && time.Since(when) < followKeep {
			return
		}
		if err := c.logs.SaveCheckpoint(ctx, eventlog.CheckpointSubject(name, c.streams.Generation(), partition), at); err != nil {
			c.conn.Logger.Warn("a position was not saved; messages since the last one are read again after a restart", "stream", stream, "err", err)
			return
		}
		saved, when = at, time.Now()
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventlog.CheckpointLast)
		defer cancel()
		save(ctx)
	}()
	in := make(chan conn.Message, conn.FollowAhead)
	from := at.Seq
	return conn.Following(ctx, func(ctx context.Context) error { return read(ctx, from, in) }, func(ctx context.Context) error {
		tick := time.NewTicker(followSave)
		defer tick.Stop()
		for {
			select {
			case m := <-in:
				if err := take(ctx, m); err != nil {
					return err
				}
				at.Seq = m.Seq
			case <-tick.C:
				save(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}
