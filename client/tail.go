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
	// tailPage is the number of records that a tail reads in one request.
	tailPage = 500
	// tailRest is how long a tail waits for further messages before it reads.
	tailRest = 2 * time.Millisecond
)

// Tail yields the lineage of the tree of a session, by id or name, or of the whole
// tenant for "": first the existing records after a cursor, then new ones. The cursor
// is that of a record, the Next of a page, "" for the beginning, or TailEnd for records
// of later commits alone. Each record is yielded once, and the records of a tree in the
// order of their commits. This holds across lost connections, restarts of nodes and
// servers, and repairs of lineage, and also if another process continues with the
// cursor. There is one exception: if lineage was lost before the reader had it, and a
// repair derives it after a later record of the reader, only a reader from the
// beginning gets it.
//
// The sequence ends with ctx, whose error it yields, or with an error that a retry
// would not change.
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

// errStop is returned when the consumer stops.
var errStop = errors.New("client: stop")

type tail struct {
	c     *Client
	w     *requests.Watch
	root  session.ID
	after string // a cursor
}

// page reads the available records; more reports that there are others.
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

// wait returns when there may be new records: after a message, after a gap in the
// messages, or after a while without messages.
func (t *tail) wait(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	_, err := t.w.Next(waiting)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	// Read the messages that follow immediately together with the first.
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

// again pauses before a retry.
func (c *Client) again(ctx context.Context) error {
	conn.Pause(ctx, lookAgain)
	return ctx.Err()
}
