package project

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// LineageRelay publishes the lineage records of one event stream: into the stream LINEAGE,
// one message per commit and in order, and then to the clients that watch the run. Its
// position is the last record of the partition in LINEAGE, which it reads again after each
// loss of the connection. A server that stores LINEAGE later than it acknowledges (one
// replica) loses the end of it when it stops at once, and may restart in place behind the
// same connection. So the relay publishes again exactly the records that LINEAGE lost.
type LineageRelay struct {
	C                     *Projections
	Generation, Partition uint32
	Stream                string
	at                    lineagePoint
	life                  uint64 // the connection, by its incarnation, over which at was read
	pace                  *eventlog.Pacer
	LeaseValid            func() bool
	batches               batches
	took                  time.Duration // by a message that was given alone, on average, and less after each batch

	records []messages.Record // of the processed commits; reused for each
	text    []byte            // of the record that is published
	mute    bool              // it notifies nobody: they were notified before

	asks chan chan repairAnswer // for a repair
}

// lineagePoint is a message of the partition in LINEAGE, by its last record.
type lineagePoint struct {
	At  uint64 `json:"at"`  // sequence in LINEAGE
	Seq uint64 `json:"seq"` // of the commit in the event stream
	K   int    `json:"k"`
}

// after reports whether a point is after another.
func (at lineagePoint) after(other lineagePoint) bool {
	return at.Seq > other.Seq || at.Seq == other.Seq && at.K > other.K
}

// covers reports whether a record is not after the point.
func (at lineagePoint) covers(r *messages.Record) bool {
	return r.Seq < at.Seq || r.Seq == at.Seq && r.K <= at.K
}

func (p *LineageRelay) subject() string {
	return eventlog.CheckpointSubject("lineage", p.Generation, p.Partition)
}

// Run publishes until ctx ends.
func (p *LineageRelay) Run(ctx context.Context) error {
	p.pace = eventlog.NewPacer()
	defer p.pace.Stop()
	service, err := p.C.serveWatermark(context.WithoutCancel(ctx), p.Stream)
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }() // a process that still waits asks again
	defer p.C.setGap(p.Stream, false)     // the next relay of the stream looks
	p.asks = make(chan chan repairAnswer)
	repairs, err := p.serveRepair(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer func() { _ = repairs.Stop() }() // the next relay answers those who still wait
	for {
		if err := p.follow(ctx); !errors.Is(err, errReconnected) {
			return err
		}
	}
}

// errReconnected is returned when the position has to be read again.
var errReconnected = errors.New("nats/project: the connection over which the position was read is lost")

// follow publishes until ctx ends or the connection is lost.
func (p *LineageRelay) follow(ctx context.Context) (err error) {
	linked := p.C.conn.Linked()
	p.life = p.C.conn.Incarnation()
	if p.batches, err = p.batchesOf(ctx); err != nil {
		return err
	}
	if err := p.locate(ctx); err != nil {
		return err
	}
	if p.C.conn.Incarnation() != p.life { // it was read while the next connection was made
		return errReconnected
	}
	in := make(chan conn.Message, conn.FollowAhead)
	return conn.Following(ctx, func(ctx context.Context) error {
		return p.C.messages.Follow(ctx, p.Stream, p.prefix()+">", max(p.at.Seq, 1), in)
	}, func(ctx context.Context) error { return p.pump(ctx, linked, in) })
}

// locate reads the position. Where LINEAGE has lost the last position, and has records
// after it all the same, those between are missing: they are derived again.
func (p *LineageRelay) locate(ctx context.Context) error {
	before := p.at
	at, err := p.Cursor(ctx)
	if err != nil {
		return err
	}
	if p.at = at; at.after(before) && !p.stands(ctx, before) {
		did, err := p.repair(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			p.C.setGap(p.Stream, false)
		case errors.Is(err, errReconnected), conn.IsTransient(err), p.C.conn.Incarnation() != p.life:
			p.at = before // the gap is looked for again
			return errReconnected
		default:
			p.at = at // the gap stays, and the relay stores later records
			p.C.setGap(p.Stream, true)
			p.C.conn.Logger.Error("lineage has a gap; derive it again with rath cluster repair", "stream", p.Stream, "err", err)
		}
		if did.Published > 0 && err == nil {
			p.C.conn.Logger.Warn("lineage had a gap, and is derived again from there", "stream", p.Stream, "from", did.From, "messages", did.Published)
		}
	}
	return nil
}

// stands reports whether LINEAGE still holds a position.
func (p *LineageRelay) stands(ctx context.Context, at lineagePoint) bool {
	if at.At == 0 {
		return true
	}
	m, err := p.C.messages.LeaderAt(ctx, streams.StreamLineage, at.At)
	have, mine := p.point(m)
	return err == nil && mine && have == at
}

func (p *LineageRelay) prefix() string {
	return fmt.Sprintf("%s%d.%d.", streams.PrefixEvent, p.Generation, p.Partition)
}

func (p *LineageRelay) pump(ctx, linked context.Context, in <-chan conn.Message) error {
	h := eventlog.NewChain(p.C.logs, p.Generation, p.Partition)
	h.Copies = eventlog.FreshCopies
	defer func() {
		if !p.pace.Dirty() {
			return
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventlog.CheckpointLast)
		defer cancel()
		p.save(last)
	}()
	var ms []conn.Message
	for {
		select {
		case m := <-in:
			ms = append(ms[:0], m)
			if p.several(m.Behind) {
				for len(in) > 0 && len(ms) < batchMost/2 {
					ms = append(ms, <-in)
				}
			}
			if err := p.take(ctx, h, ms...); err != nil {
				return err
			}
		case <-p.pace.Timer.C:
			p.save(ctx)
		case <-h.Rest.C:
			h.Forget()
		case answer := <-p.asks:
			p.repaired(ctx, answer)
			return errReconnected // its position is another one
		case <-linked.Done():
			p.pace.Saved() // LINEAGE may have lost the record at p.at
			return errReconnected
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *LineageRelay) save(ctx context.Context) {
	p.pace.Saved()
	if err := p.C.logs.SaveCheckpoint(ctx, p.subject(), p.at); err != nil {
		p.C.conn.Logger.Warn("lineage will be looked for from further back after a restart", "stream", p.Stream, "err", err)
	}
}

// take publishes the records of messages of the event stream.
func (p *LineageRelay) take(ctx context.Context, h *eventlog.Chain, ms ...conn.Message) error {
	all := make([][]messages.Record, 0, len(ms))
	for _, m := range ms {
		records, err := p.derive(ctx, h, m)
		if err != nil {
			return err
		}
		all = append(all, records)
	}
	if err := p.publish(ctx, all); err != nil {
		return err
	}
	p.C.Watermarks.Pass(p.Stream, p.life, ms[len(ms)-1].Seq)
	clear(p.records)
	if p.records = p.records[:0]; cap(p.records) > recordsKept {
		p.records = nil
	}
	return nil
}

// recordsKept bounds the memory for records that is reused for the next commits.
const recordsKept = 64

// derive returns the records of a message, which are valid until take returns.
func (p *LineageRelay) derive(ctx context.Context, h *eventlog.Chain, m conn.Message) ([]messages.Record, error) {
	e, ok, err := h.PatientlyNext(ctx, m)
	if err != nil && !errors.Is(err, session.ErrTooOld) {
		return nil, err
	}
	if err != nil {
		p.C.conn.Logger.Error("a session was written by a later release; its lineage ends here", "stream", p.Stream, "seq", m.Seq, "err", err)
	}
	if !ok {
		return nil, nil
	}
	// An event whose data is gone has no record, which Derive reports.
	if err := h.FillThere(ctx, &e); err != nil {
		return nil, err
	}
	taken := len(p.records)
	p.records, err = lineage.Derived(p.records, e, h.Facts(e))
	records := p.records[taken:]
	if err != nil {
		p.C.conn.Logger.Error("a commit has events without lineage", "stream", p.Stream, "seq", m.Seq, "err", err)
	}
	for i := range records {
		records[i].Partition, records[i].Seq = p.Partition, m.Seq
	}
	return records, nil
}

// Cursor finds the last record of the partition in LINEAGE; zero if there is
// none.
func (p *LineageRelay) Cursor(ctx context.Context) (lineagePoint, error) {
	var from lineagePoint
	if _, err := p.C.logs.LoadCheckpoint(ctx, p.subject(), &from); err != nil {
		return from, err
	}
	if from.At > 0 {
		m, err := p.C.messages.LeaderGet(ctx, streams.StreamLineage, conn.GetRequest{Seq: from.At})
		if err != nil && !errors.Is(err, conn.ErrNoMessage) {
			return from, fmt.Errorf("nats/project: lineage of %s: %w", p.Stream, err)
		}
		if have, mine := p.point(m); err == nil && mine && have == from {
			return p.forward(ctx, from)
		}
	}
	return p.backward(ctx)
}

// point reads a message of LINEAGE; mine is false for a message of another partition or
// generation.
func (p *LineageRelay) point(m conn.Message) (at lineagePoint, mine bool) {
	records, err := lineage.DecodeStored(m.Data)
	if err != nil || records[0].Partition != p.Partition {
		return at, false
	}
	r := &records[len(records)-1]
	g, _, ok := r.Session.Locate()
	return lineagePoint{m.Seq, r.Seq, r.K}, ok && g == p.Generation
}

// forward returns the last record of the partition, which is not before a
// point.
func (p *LineageRelay) forward(ctx context.Context, at lineagePoint) (lineagePoint, error) {
	end, err := p.C.messages.LastSequence(ctx, streams.StreamLineage)
	if err != nil {
		return at, err
	}
	found, err := p.lastOf(ctx, at.At, end)
	if found.At == 0 {
		found = at
	}
	return found, err
}

// backward searches LINEAGE from its end for the last record of the partition.
func (p *LineageRelay) backward(ctx context.Context) (lineagePoint, error) {
	end, err := p.C.messages.LastSequence(ctx, streams.StreamLineage)
	if err != nil {
		return lineagePoint{}, err
	}
	began := time.Now()
	for end > 0 {
		after := end - min(end, conn.PageMessages)
		found, err := p.lastOf(ctx, after, end)
		if err != nil || found.At > 0 {
			return found, err
		}
		end = after
	}
	p.C.conn.Logger.Debug("no lineage of a partition yet", "stream", p.Stream, "took", time.Since(began))
	return lineagePoint{}, nil
}

// lastOf returns the last record of the partition above a sequence of LINEAGE and up to
// another; zero if there is none.
func (p *LineageRelay) lastOf(ctx context.Context, after, end uint64) (found lineagePoint, err error) {
	for m, err := range p.C.messages.UpTo(ctx, streams.StreamLineage, streams.PrefixLineage+">", after, end) {
		if err != nil {
			return found, fmt.Errorf("nats/project: lineage of %s: %w", p.Stream, err)
		}
		if have, mine := p.point(m); mine {
			found = have
		}
	}
	return found, nil
}
