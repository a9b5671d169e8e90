package project

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
)

// recordRoom is the approximate number of bytes that a record has more in an answer than in
// LINEAGE, where a commit's records share their common fields. Its cursor, which grows with
// the partitions, is extra.
const recordRoom = 384

// LineagePage reads the records after a cursor, from the messages that a filter matches: at
// most limit records and room bytes, but at least those of one message.
func (c *Projections) LineagePage(ctx context.Context, filter string, from *lineage.Cursor, limit, room int) (messages.LineagePage, error) {
	for wait := conn.NewBackoff(); ; {
		end, err := c.lineageEnd(ctx)
		if err != nil {
			return messages.LineagePage{}, err
		}
		at := from.Clone()
		came, err := c.storedAt(ctx, at.At().Seq)
		if err != nil {
			return messages.LineagePage{}, err
		}
		if came != at.At() { // LINEAGE lost its end, or the message was derived again
			at.Move(lineage.StoredAt{})
		}
		page, err := c.lineagePage(ctx, filter, at, end, limit, room)
		if err != nil {
			return page, err
		}
		// A server that restarted meanwhile may have other messages at these sequences.
		if still, err := c.storedAt(ctx, end.Seq); err != nil || still == end {
			return page, err
		}
		if err := wait.Sleep(ctx); err != nil {
			return messages.LineagePage{}, err
		}
	}
}

// lineagePage reads a page up to a message of LINEAGE, and moves the cursor.
func (c *Projections) lineagePage(ctx context.Context, filter string, at *lineage.Cursor, end lineage.StoredAt, limit, room int) (messages.LineagePage, error) {
	out := messages.LineagePage{Records: []messages.LineageRecord{}}
	began := at.At()
	for m, err := range c.messages.UpTo(ctx, streams.StreamLineage, filter, max(began.Seq, 1)-1, end.Seq) {
		if err != nil {
			return out, fmt.Errorf("nats/project: read lineage: %w", err)
		}
		records, _ := lineage.DecodeStored(m.Data) // empty for a message of a later release
		room -= len(m.Data)
		out.More = at.At() != began && (room < 0 || len(out.Records) > 0 && len(out.Records)+len(records) > limit)
		if out.More {
			break
		}
		at.Move(storedAt(m))
		for i := range records {
			if at.Take(&records[i]) {
				cursor := at.String()
				room -= recordRoom + len(cursor)
				out.Records = append(out.Records, messages.LineageRecord{Cursor: cursor, Record: records[i]})
			}
		}
	}
	if !out.More {
		at.Move(end)
	}
	out.Next = at.String()
	return out, nil
}

func storedAt(m conn.Message) lineage.StoredAt {
	return lineage.StoredAt{Seq: m.Seq, Time: m.Time.UnixNano()}
}

// storedAt reads the message of LINEAGE with a sequence. Its time is zero if it does not
// exist.
func (c *Projections) storedAt(ctx context.Context, seq uint64) (lineage.StoredAt, error) {
	if seq == 0 {
		return lineage.StoredAt{}, nil
	}
	m, err := c.messages.LeaderAt(ctx, streams.StreamLineage, seq)
	if errors.Is(err, conn.ErrNoMessage) {
		return lineage.StoredAt{Seq: seq}, nil
	}
	if err != nil {
		return lineage.StoredAt{}, fmt.Errorf("nats/project: read lineage: %w", err)
	}
	return storedAt(m), nil
}

func (c *Projections) lineageEnd(ctx context.Context) (lineage.StoredAt, error) {
	end, err := c.messages.LastSequence(ctx, streams.StreamLineage)
	if err != nil {
		return lineage.StoredAt{}, err
	}
	return c.storedAt(ctx, end)
}

// LineageEnd returns the cursor behind all records of the existing commits.
func (c *Projections) LineageEnd(ctx context.Context) (*lineage.Cursor, error) {
	at := &lineage.Cursor{}
	end, err := c.lineageEnd(ctx)
	at.Move(end)
	for p := uint32(0); p < c.streams.Partitions() && err == nil; p++ {
		var last uint64
		if last, err = c.messages.LastSequence(ctx, streams.EventStream(c.streams.Generation(), p)); err == nil {
			at.TakeAll(c.streams.Generation(), p, last)
		}
	}
	return at, err
}
