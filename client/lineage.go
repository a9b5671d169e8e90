package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Lineage reads the records of the tenant's commits, and the trees of its sessions.
type Lineage struct{ c *Client }

// Page returns one page of the lineage of the tree of a session, by id or name, or of
// the whole tenant for "": the records after a cursor, see Tail, at most limit of them,
// 0 for as many as fit. The page's Next is the cursor of the following page; without
// More the reader is up to date.
func (l *Lineage) Page(ctx context.Context, name, after string, limit int) (messages.LineagePage, error) {
	limit = cmp.Or(limit, wire.MaxLimit) // a page without a number has few records
	p, err := query[messages.LineagePage](ctx, l.c, messages.QueryLineage, wire.Query{Session: name, Cursor: after, Limit: limit})
	if err != nil {
		return p, fmt.Errorf("lineage: %w", err)
	}
	return p, nil
}

// Graph returns the tree of the session with an id or a name. format "text", "mermaid"
// or "svg" adds its picture.
func (l *Lineage) Graph(ctx context.Context, name, format string) (messages.Graph, error) {
	if name == "" {
		return messages.Graph{}, fmt.Errorf("graph: %w: name a session, or list the trees with Sessions.Roots", run.ErrMalformed)
	}
	q := wire.Query{Session: name, Format: format, Limit: wire.MaxLimit}
	var out messages.Graph
	for first := true; ; first = false {
		page, err := query[messages.Graph](ctx, l.c, messages.QueryGraph, q)
		if err != nil {
			return out, err
		}
		if first {
			out = page
		} else {
			out.Tree = append(out.Tree, page.Tree...)
		}
		if q.After, q.Format = page.Next, ""; page.Next == 0 {
			out.Next = 0
			return out, nil
		}
	}
}

// Repair makes the relays search for gaps in the lineage and derive the missing records
// again. It returns the outcome of each partition. It requires the role operate.
// Repeating it is harmless.
func (l *Lineage) Repair(ctx context.Context) ([]messages.Repaired, error) {
	all, err := l.c.requests.Repair(ctx, l.c.tenant)
	if err != nil {
		err = fmt.Errorf("repair lineage: %w", err)
	}
	return all, err
}

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
func (l *Lineage) Tail(ctx context.Context, name, after string) iter.Seq2[messages.LineageRecord, error] {
	return func(yield func(messages.LineageRecord, error) bool) {
		fail := func(err error) { yield(messages.LineageRecord{}, err) }
		var root session.ID
		if name != "" {
			g, err := query[messages.Graph](ctx, l.c, messages.QueryGraph, wire.Query{Session: name, Limit: 1})
			if err != nil {
				fail(fmt.Errorf("tail: %w", err))
				return
			}
			root = g.Root
		}
		w, err := l.c.requests.Watch(ctx, messages.TailSubject(l.c.tenant, root, "", ""))
		if err != nil {
			fail(fmt.Errorf("tail: %w", err))
			return
		}
		defer w.Close()
		t := tail{c: l.c, w: w, root: root, after: after}
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
