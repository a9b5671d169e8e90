package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	// tailPage is how many records a tail reads at once.
	tailPage = 500
	// tailRest is how long a tail waits for more before it reads.
	tailRest = 2 * time.Millisecond
)

// Tail yields the lineage of the tree that a session, by id or name, is part
// of, or of everything in the tenant for "": from after a sequence of the
// lineage stream on (zero for the beginning), what is there and then what
// comes. Each record comes once and in order, also over the loss of the
// connection, the restart of nodes and servers, and a repair of lineage: what is
// published live only means that there is something to read. A caller that keeps the
// At of the last record can continue after it later; a repair in between gives it
// records again, which it drops by partition, sequence and number.
//
// The sequence ends with ctx, whose error it yields, or with an error that
// asking again would not change.
func (c *Client) Tail(ctx context.Context, name string, after uint64) iter.Seq2[wire.LineageRecord, error] {
	return func(yield func(wire.LineageRecord, error) bool) {
		fail := func(err error) { yield(wire.LineageRecord{}, err) }
		var root session.ID
		if name != "" {
			g, err := c.Graph(ctx, name, "")
			if err != nil {
				fail(fmt.Errorf("tail: %w", err))
				return
			}
			root = g.Root
		}
		w, err := c.conn.Watch(ctx, messages.TailSubject(c.tenant, root, "", ""))
		if err != nil {
			fail(fmt.Errorf("tail: %w", err))
			return
		}
		defer w.Close()
		t := tail{c: c, w: w, root: root, at: after}
		for {
			more, err := t.page(ctx, yield)
			if err != nil && !errors.Is(err, errStop) {
				fail(fmt.Errorf("tail: %w", err))
			}
			if err != nil {
				return
			}
			if more {
				continue
			}
			if err := t.wait(ctx); err != nil {
				fail(err)
				return
			}
		}
	}
}

// errStop is returned when the reader wants no more.
var errStop = errors.New("client: stop")

type tail struct {
	c       *Client
	w       *api.Watch
	root    session.ID
	at      uint64
	place   string // of the message at at
	ordered project.Ordered
}

// page reads what is there; more says that there is more.
func (t *tail) page(ctx context.Context, yield func(wire.LineageRecord, error) bool) (more bool, err error) {
	q := wire.Query{Session: string(t.root), After: t.at, Place: t.place, Limit: tailPage}
	p, err := query[wire.Lineage](ctx, t.c, messages.QueryLineage, q)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && passes(err):
		return true, t.c.again(ctx)
	case err != nil:
		return false, err
	}
	for _, r := range p.Records {
		if t.ordered.Pass(&r.Record) && !yield(r, nil) {
			return false, errStop
		}
	}
	t.at, t.place = p.Next, p.Place // a page ends with a message
	return t.at < p.Last, nil
}

// wait returns when there may be something to read: something was published,
// or may have been, or nothing was for a while.
func (t *tail) wait(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	_, err := t.w.Next(waiting)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	// What comes right behind it is read with it.
	rest, cancelRest := context.WithTimeout(ctx, tailRest)
	defer cancelRest()
	for err == nil {
		_, err = t.w.Next(rest)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

// again pauses before a question is asked again.
func (c *Client) again(ctx context.Context) error {
	conn.Pause(ctx, lookAgain)
	return ctx.Err()
}
