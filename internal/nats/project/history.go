package project

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// history answers queries about a tenant's runs and sessions from LINEAGE, at the time of
// the query: nodes cache none of it. A tree of sessions has subjects of its own. Lists are
// read from the end of the stream backwards, as far as a page needs.
type history struct {
	c           *Projections
	tenant      session.Tenant
	first, last uint64 // sequences of LINEAGE
	messages    uint64 // that LINEAGE holds
}

const (
	// historyWait bounds how long a query waits for relays.
	historyWait = 10 * time.Second
	// window is how many sequences are read at once, backwards; if a tenant has few of them
	// it grows to windowMost.
	window     = conn.PageMessages
	windowMost = 1 << 16
	// A stretch is read whole if at least one message in wholeFrom of the previous stretch
	// belonged to the tenant.
	wholeFrom = 2
	// scanMost is the approximate number of records that one answer reads for a list: the
	// runs found by then are a page.
	scanMost = 8 << 10
	// treesMost bounds the trees read for one answer: the requested tree, and the trees
	// that it refers to.
	treesMost = 32
	// lastAmong is the number of last messages among which the last run is searched:
	// partitions publish concurrently.
	lastAmong = 32
)

// CaughtUp waits, with relays in this process or in others, until the lineage of all
// that was committed is published.
func (c *Projections) CaughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	return c.WaitCaughtUp(ctx)
}

// History returns the current history, once LINEAGE has caught up with the logs. It does
// not wait for a page that follows another one: none of it is newer than the first page,
// which waited.
func (c *Projections) History(ctx context.Context, t session.Tenant, after uint64) (*history, error) {
	if after == 0 {
		if err := c.CaughtUp(ctx); err != nil {
			return nil, err
		}
	}
	info, err := conn.Retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return c.messages.StreamInfo(ctx, streams.StreamLineage)
	})
	if err != nil {
		return nil, fmt.Errorf("nats/project: look at stream %s: %w", streams.StreamLineage, conn.StreamError(err))
	}
	return &history{c, t, max(info.State.FirstSeq, 1), info.State.LastSeq, info.State.Msgs}, nil
}

// Tree reads the tree of sessions of a root and the trees that it refers to, because a run
// may continue in a session of another root.
func (h *history) Tree(ctx context.Context, root session.ID) (*lineage.Graph, error) {
	t, err := h.tree(ctx, root)
	return t.graph, err
}

// tree are the records that LINEAGE holds of a tree of sessions.
type tree struct {
	graph    *lineage.Graph
	places   map[run.ID]uint64   // of the messages by which its runs were submitted
	sessions map[session.ID]bool // of that root
}

func (h *history) tree(ctx context.Context, root session.ID) (tree, error) {
	g, places, own := lineage.NewGraph(), map[run.ID]uint64{}, map[session.ID]bool{}
	known := map[session.ID]bool{}
	roots := []session.ID{root}
	for i := 0; i < len(roots) && i < treesMost; i++ {
		var refs []session.ID
		filter, end, err := h.placeOf(ctx, roots[i])
		if err != nil {
			return tree{}, err
		}
		for r, err := range h.records(ctx, filter, h.first, end) {
			if err != nil {
				return tree{}, err
			}
			g.Add(*r.Record)
			if submits(r.Record) {
				places[r.Run] = r.at
			}
			known[r.Session] = true
			if r.Root == root {
				own[r.Session] = true
			}
			for _, p := range r.Parents {
				refs = append(refs, p.Session)
			}
			if r.Result != nil {
				refs = append(refs, r.Result.Session)
			}
		}
		for _, id := range refs {
			if known[id] {
				continue
			}
			known[id] = true
			other, err := h.c.RootOf(ctx, session.Key{Tenant: h.tenant, ID: id})
			if err != nil && !errors.Is(err, session.ErrNotFound) {
				return tree{}, err
			}
			if err == nil && !slices.Contains(roots, other) {
				roots = append(roots, other)
			}
		}
	}
	return tree{g, places, own}, nil
}

// placeOf returns the filter that matches the records of a tree, and their end. The filter
// is the tree's one subject, unless the tree has others: a server finds the messages of a
// subject directly, but passes all messages in between for a wildcard.
func (h *history) placeOf(ctx context.Context, root session.ID) (filter string, end uint64, err error) {
	filter = LineageFilter(h.tenant, root)
	lasts, upTo, err := h.c.messages.LastsNow(ctx, streams.StreamLineage, []string{filter})
	if ctx.Err() != nil {
		return "", 0, fmt.Errorf("nats/project: read lineage: %w", err)
	}
	if err != nil { // such as for more subjects than a server reports
		return filter, h.last, nil
	}
	one := lineage.TreeSubject(h.tenant, root)
	if last, ok := lasts[one]; ok && len(lasts) == 1 && upTo >= h.last { // otherwise a lagging replica answered
		return one, min(last.Seq, h.last), nil
	}
	return filter, h.last, nil
}

// recordAt is a record with the sequence of the message that LINEAGE holds it in.
type recordAt struct {
	*messages.Record // they are large to move
	at               uint64
}

// everything is the filter of all messages.
const everything = ">"

// records yields the tenant's records of the messages that a filter matches, with sequences
// from one to another.
func (h *history) records(ctx context.Context, filter string, from, to uint64) iter.Seq2[recordAt, error] {
	return func(yield func(recordAt, error) bool) {
		own := strings.TrimSuffix(LineageFilter(h.tenant, ""), ">")
		for m, err := range h.c.messages.UpTo(ctx, streams.StreamLineage, filter, max(from, h.first)-1, to) {
			if err != nil {
				yield(recordAt{}, fmt.Errorf("nats/project: read lineage: %w", err))
				return
			}
			if !strings.HasPrefix(m.Subject, own) {
				continue
			}
			for _, r := range h.decode(m) {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// decode returns the records of a message of LINEAGE; none of one that cannot be read.
func (h *history) decode(m conn.Message) []recordAt {
	records, err := lineage.DecodeStored(m.Data)
	if err != nil {
		h.c.conn.Logger.Warn("the lineage of a commit cannot be read", "seq", m.Seq, "err", err)
		return nil
	}
	out := make([]recordAt, len(records))
	for i := range records {
		out[i] = recordAt{&records[i], m.Seq}
	}
	return out
}

// RootOf returns the root of the tree of a session, which each of its commits names;
// session.ErrNotFound if it has no commit.
func (c *Projections) RootOf(ctx context.Context, k session.Key) (session.ID, error) {
	stream, subject, err := c.logs.Place(k)
	if err != nil {
		return "", err
	}
	for from := uint64(1); ; {
		m, err := c.messages.LeaderNext(ctx, stream, subject, from)
		if errors.Is(err, conn.ErrNoMessage) {
			return "", fmt.Errorf("session %s: %w", k.ID, session.ErrNotFound)
		}
		if err != nil {
			return "", fmt.Errorf("nats/project: root of session %s: %w", k.ID, err)
		}
		if commit, err := commitlog.Decode(m.Data); err == nil && commit.Key == k {
			return commit.Root, nil
		}
		from = m.Seq + 1
	}
}

// backwards yields the tenant's records up to a sequence in stretches, the newest one
// first. With the tenant's filter a server goes through the subjects of all its trees for
// each page of messages, to count them: a third of the time of a list of 80,000 runs. So a
// stretch is read whole if the tenant had a good part of the one before.
func (h *history) backwards(ctx context.Context, to uint64) iter.Seq2[stretch, error] {
	return func(yield func(stretch, error) bool) {
		filter := everything
		for size := uint64(window); to >= h.first && to > 0; {
			s := stretch{from: max(h.first, to-min(to, size)+1), to: to}
			messages, last := uint64(0), uint64(0)
			for r, err := range h.records(ctx, filter, s.from, to) {
				if err != nil {
					yield(stretch{}, err)
					return
				}
				s.records = append(s.records, r)
				if r.at != last {
					messages, last = messages+1, r.at
				}
			}
			if filter = everything; messages < (to-s.from+1)/wholeFrom {
				filter = LineageFilter(h.tenant, "")
			}
			switch {
			case len(s.records) < window/4:
				size = min(2*size, windowMost)
			case len(s.records) > window:
				size = window
			}
			if !yield(s, nil) {
				return
			}
			to = s.from - 1
		}
	}
}

// stretch holds the tenant's records in LINEAGE from one sequence to another.
type stretch struct {
	from, to uint64
	records  []recordAt
}

// Roots returns the roots of the tenant's trees that were opened before a sequence, zero
// for all, the newest first, and the sequence before which to continue; zero at the end.
func (h *history) Roots(ctx context.Context, before uint64, limit int) (roots []session.ID, next uint64, err error) {
	read := 0
	for s, err := range h.backwards(ctx, h.until(before)) {
		if err != nil {
			return nil, 0, err
		}
		for _, r := range slices.Backward(s.records) {
			if !lineage.Opens(r.Record) || r.Session != r.Root {
				continue
			}
			if len(roots) == limit {
				return roots, r.at + 1, nil
			}
			roots = append(roots, r.Session)
		}
		if read += len(s.records); read > scanMost && s.from > h.first {
			return roots, s.from, nil
		}
	}
	return roots, 0, nil
}

func (h *history) until(before uint64) uint64 {
	if before == 0 {
		return h.last
	}
	return min(before-1, h.last)
}

// LineageFilter is the subject of the records of a tree; of all for "".
func LineageFilter(t session.Tenant, root session.ID) string {
	filter := streams.PrefixLineage + string(t) + "."
	if root == "" {
		return filter + ">"
	}
	return filter + string(root) + ".>"
}
