package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// beatEvery is the longest silence of a stream: proxies end silent connections.
	beatEvery = 15 * time.Second
	// writeWithin is the deadline of each write.
	writeWithin = 10 * time.Second
	// pageRecords is the number of records that a reader catches up with at a time, and
	// catchUps the number of times that it may fall behind meanwhile.
	pageRecords = 500
	catchUps    = 8
	// maxBuffer is the size from which collected events are written.
	maxBuffer = 64 << 10
	// retryLeast and retryMost bound the pause before a reader connects again, in
	// milliseconds. It differs from reader to reader.
	retryLeast, retryMost = 500, 2500
)

// Reasons for the end of a stream.
var (
	errEnded  = errors.New("stream: the run has ended")
	errAccess = errors.New("stream: the access has ended")
	errStops  = fmt.Errorf("%w: this server stops; connect again", session.ErrUnavailable)
	errBroken = errors.New("stream: the connection broke")
)

// reader is a request that reads a stream.
type reader struct {
	*chosen
	streams *Streams
	ctx     context.Context
	cancel  context.CancelCauseFunc
	topic   *topic
	out     http.ResponseWriter
	con     *http.ResponseController
	at      *events.Position
	again   bool   // it continues a stream
	drawn   run.ID // the run whose drafts it follows
	all     bool   // it follows those of all runs

	buf    []byte
	begun  bool // the header is written
	wrote  bool // since the last beat
	moved  bool // since the last id
	closes bool // the end of the run is written
}

// read writes the stream until it ends. It returns the reason.
func (r *reader) read() error {
	for range catchUps {
		from, ok := r.topic.after(r.at.Cursor.At())
		if !ok {
			from = r.topic.end()
			if err := r.catchUp(); err != nil {
				return err
			}
		}
		if r.closes {
			return r.finish()
		}
		from, err := r.open(from)
		if err == nil {
			return r.live(from)
		}
		if !errors.Is(err, errLagged) {
			return err
		}
	}
	return errLagged
}

// catchUp writes the events of the records that are stored. It begins after the reader got
// its place in the topic, so that it has all records that the topic has not.
func (r *reader) catchUp() error {
	for more := true; more; {
		page, err := r.page(r.at.Cursor.String(), pageRecords)
		if err != nil {
			return err
		}
		for i := range page.Records {
			it, err := recordItem(&page.Records[i], events.Of(&page.Records[i].Record))
			if err != nil {
				return err
			}
			if err := r.item(it); err != nil {
				return err
			}
		}
		next, err := lineage.ParseCursor(page.Next)
		if err != nil {
			return err
		}
		r.at.Cursor.Move(next.At())
		r.moved, more = true, page.More
	}
	return nil
}

// page reads records of the tree or the tenant.
func (r *reader) page(after string, limit int) (page messages.LineagePage, err error) {
	err = r.streams.ask(r.ctx, func() error {
		page, err = r.caller.Client.Lineage.Page(r.ctx, string(r.scope.Root), after, limit)
		return err
	})
	return page, err
}

// open writes the records of the topic from an item on, and the drafts behind them. It
// returns the number of the next item.
func (r *reader) open(from uint64) (uint64, error) {
	items, drafts, err := r.topic.opening(from)
	if err != nil {
		return 0, err
	}
	for _, it := range items {
		if it.record == nil {
			continue // the drafts have it
		}
		if err := r.item(it); err != nil {
			return 0, err
		}
	}
	if r.again {
		drafts = append([]events.Event{{Kind: messages.EventTextVoid}}, drafts...)
	}
	frames, err := encode(drafts)
	if err != nil {
		return 0, err
	}
	for i := range frames {
		if f := &frames[i]; f.event.Step == "" {
			r.buf = append(append(r.buf, f.text...), '\n')
		} else if err := r.draft(f); err != nil {
			return 0, err
		}
	}
	if r.moved { // also for a reader whose connection breaks before the first event
		r.id(r.at)
		r.buf = append(r.buf, '\n')
	}
	return from + uint64(len(items)), r.flush()
}

// live writes the items of the topic from one on, as they come.
func (r *reader) live(from uint64) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		items, more, err := r.topic.from(from)
		if err != nil {
			return err
		}
		from += uint64(len(items))
		for _, it := range items {
			if err := r.item(it); err != nil {
				return err
			}
		}
		if err := r.flush(); err != nil {
			return err
		}
		if r.closes {
			return r.finish()
		}
		if len(items) > 0 {
			continue // others may have come meanwhile
		}
		select {
		case <-more:
		case <-beat.C:
			if err := r.beat(); err != nil {
				return err
			}
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// item adds the events of an item that the stream has, and counts the item as read.
func (r *reader) item(it *item) error {
	if it.record == nil {
		for i := range it.frames {
			if err := r.draft(&it.frames[i]); err != nil {
				return err
			}
		}
		return nil
	}
	var before *events.Position
	if len(it.frames) > 1 {
		before = r.at.Clone()
	}
	sent := r.at.Pass(it.record)
	if sent >= len(it.frames) {
		return nil
	}
	r.at.Cursor.Move(it.at)
	r.moved = true
	for i := sent; i < len(it.frames); i++ {
		f := &it.frames[i]
		has, err := r.has(r.ctx, &f.event)
		if err != nil {
			return err
		}
		if !has {
			continue
		}
		r.buf = append(r.buf, f.text...)
		at := r.at
		if i < len(it.frames)-1 {
			at = before.Before(it.record, i+1)
		}
		if at != nil {
			r.id(at)
		}
		r.buf = append(r.buf, '\n')
		r.closes = r.closes || r.Run != "" && f.event.Kind == messages.EventRunEnded
		if len(r.buf) >= maxBuffer {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// id adds the id of the event in the buffer.
func (r *reader) id(at *events.Position) {
	r.buf = append(append(append(r.buf, "id: "...), at.Token(r.scope)...), '\n')
	r.moved = at != r.at
}

// draft adds a draft, if the stream has it.
func (r *reader) draft(f *frame) error {
	has, err := r.has(r.ctx, &f.event)
	if err != nil || !has {
		return err
	}
	r.buf = append(append(r.buf, f.text...), '\n')
	if len(r.buf) >= maxBuffer {
		return r.flush()
	}
	return nil
}

// beat shows after a silence that the stream lives. If the position has moved by records
// that the stream does not have, it sends the new one, without an event.
func (r *reader) beat() error {
	switch {
	case r.wrote:
	case r.moved:
		r.id(r.at)
		r.buf = append(r.buf, '\n')
	default:
		r.buf = append(r.buf, ":\n\n"...)
	}
	err := r.flush()
	r.wrote = false
	return err
}

// flush writes the buffer within a deadline. The first time it writes the header as well.
func (r *reader) flush() error {
	if len(r.buf) == 0 && r.begun {
		return nil
	}
	if !r.begun {
		r.begun = true
		h := r.out.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // of nginx, which would hold events back
		if err := r.con.SetReadDeadline(time.Time{}); err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		r.out.WriteHeader(http.StatusOK)
		r.buf = append(fmt.Appendf(nil, "retry: %d\n\n", retryLeast+rand.IntN(retryMost-retryLeast)), r.buf...) //nolint:gosec // no secret
	}
	if err := r.con.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	_, err := r.out.Write(r.buf)
	if err == nil {
		err = r.con.Flush()
	}
	if r.buf, r.wrote = r.buf[:0], true; cap(r.buf) > 2*maxBuffer {
		r.buf = nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// finish ends the stream of a run that has ended. A reader that has all of it gets no
// content, so that it does not connect again.
func (r *reader) finish() error {
	if !r.begun && len(r.buf) == 0 {
		r.out.WriteHeader(http.StatusNoContent)
		r.begun = true
		return errEnded
	}
	if err := r.flush(); err != nil {
		return err
	}
	return errEnded
}

// last writes the reason for the end of a stream, if the reader needs it.
func (r *reader) last(why error) {
	e := events.Event{Kind: messages.EventStreamCut}
	switch {
	case errors.Is(why, errEnded), errors.Is(why, errBroken), errors.Is(why, context.Canceled):
		return
	case errors.Is(why, errAccess):
		e.Kind, e.Text = messages.EventSessionEnded, "the access has ended; sign in again"
	case errors.Is(why, errLagged):
		e.Code, e.Text = "slow", "the reader is slower than the events; connect again with the id of the last event"
	case errors.Is(why, errStops):
		e.Code, e.Text = "stops", "this server stops; connect again with the id of the last event"
	case passes(why):
		e.Code, e.Text = "unavailable", "no node answers; connect again with the id of the last event"
	default:
		e.Code, e.Text = "error", messages.Text(why)
	}
	frames, err := encode([]events.Event{e})
	if err != nil {
		return
	}
	r.buf = append(append(r.buf, frames[0].text...), '\n')
	_ = r.flush() // the connection may have broken meanwhile
}
