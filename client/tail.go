package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TailEnd is the cursor of a reader that wants only the records of later commits.
const TailEnd = messages.LineageEnd

const (
	// tailPage is how many records a tail reads at once.
	tailPage = 500
	// tailRest is how long a tail waits for more before it reads.
	tailRest = 2 * time.Millisecond
)

// Tail yields the lineage of the tree that a session, by id or name, is part
// of, or of everything in the tenant for "": the records after a cursor that are there, and
// then those that come. The cursor is that of a record, the Next of a page, "" for the
// beginning, or TailEnd for records of later commits alone. Each record comes once, those of
// a tree in the order in which they were committed, also over the loss of the connection, the
// restart of nodes and servers, and a repair of lineage: also where one process takes the
// cursor and another one continues. Lineage that was lost before the reader had it, and that
// a repair derives behind a later record of the reader's, is the exception: only a reader
// from the beginning has it.
//
// The sequence ends with ctx, whose error it yields, or with an error that
// asking again would not change.
func (c *Client) Tail(ctx context.Context, name, after string) iter.Seq2[messages.LineageRecord, error] {
	return func(yield func(messages.LineageRecord, error) bool) {
		fail := func(err error) { yield(messages.LineageRecord{}, err) }
		var root session.ID
		if name != "" {
			g, err := c.Graph(ctx, name, "")
			if err != nil {
				fail(fmt.Errorf("tail: %w", err))
				return
			}
			root = g.Root
		}
		w, err := c.requests.Watch(ctx, messages.TailSubject(c.tenant, root, "", ""))
		if err != nil {
			fail(fmt.Errorf("tail: %w", err))
			return
		}
		defer w.Close()
		t := tail{c: c, w: w, root: root, after: after}
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
	c     *Client
	w     *requests.Watch
	root  session.ID
	after string // a cursor
}

// page reads what is there; more says that there is more.
func (t *tail) page(ctx context.Context, yield func(messages.LineageRecord, error) bool) (more bool, err error) {
	q := wire.Query{Session: string(t.root), Cursor: t.after, Limit: tailPage}
	p, err := query[messages.LineagePage](ctx, t.c, messages.QueryLineage, q)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && passes(err):
		return true, t.c.again(ctx)
	case err != nil:
		return false, err
	}
	for _, r := range p.Records {
		if !yield(r, nil) {
			return false, errStop
		}
	}
	t.after = p.Next
	return p.More, nil
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
