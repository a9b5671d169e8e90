package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/internal/release"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// resultsAtOnce bounds the results of a partition that are being stored:
	// each waits for a sync, the offers behind it shall not.
	resultsAtOnce = 32
	// offersAtOnce bounds the offers and signals of a partition that are being
	// stored: a fan-out has hundreds.
	offersAtOnce = 64
	// laterAtOnce bounds what nobody waits for, see outbox.later: the results of
	// all partitions are synced one after another. laterMost of them may wait, as
	// many as follow from the largest fan-out.
	laterAtOnce, laterMost = 4, 2 * run.MaxBranches
	// herePatience is how long a signal may take in this process before it goes
	// the way that all others go: nothing behind it shall wait.
	herePatience = time.Second
	// resultPatience bounds the storing of one result.
	resultPatience = 30 * time.Second
)

// outbox publishes what a partition's commits ask for elsewhere, and sweeps
// its open runs.
type outbox struct {
	c                     *Conn
	o                     RelayOptions
	generation, partition uint32
	stream                string
	poke                  <-chan struct{} // look through the open runs now
	onDuty                func() bool
	last                  *lastNodes

	open    *openRuns
	timers  timers
	at      session.Position // of the last commit taken; Seq is not used
	pace    *pacer
	results *lane
	offers  *lane
	// later is for what nobody waits for, so that it does not go before what
	// somebody does: the results of branches, of which their parents have reports,
	// and the closing of branches that were disposed of. Where a fan-out ends,
	// there are hundreds of both before the result of its run.
	later *lane
	// incomplete is set when a result was not stored, or an offer because this
	// relay ended: no checkpoint goes past it, so that the next relay tries again.
	incomplete atomic.Bool
}

// outboxFold numbers what a checkpoint of the outbox holds. One of another
// number is ignored: in a fleet that is upgraded node by node, a relay may go on
// where one of another release stopped, which gathers something else.
const outboxFold = 2 + release.Ahead

// outboxCheckpoint is the open runs as of a message of the event stream.
type outboxCheckpoint struct {
	Fold     int            `json:"fold"`
	Token    uint64         `json:"token"`
	Hash     session.Hash   `json:"hash"`
	Sessions []*openSession `json:"sessions"`
	Closings []uint64       `json:"closings,omitempty"`
}

func (b *outbox) subject() string { return checkpointSubject("outbox", b.generation, b.partition) }

// run pumps until ctx ends.
func (b *outbox) run(ctx context.Context) error {
	b.results, b.offers, b.later = newLane(resultsAtOnce, 0), newLane(offersAtOnce, 0), newLane(laterAtOnce, laterMost)
	b.pace = newPacer()
	defer b.pace.stop()
	if err := b.load(ctx); err != nil {
		return err
	}
	end, err := b.c.lastSequence(ctx, b.stream)
	if err != nil {
		return err
	}
	in := make(chan followed, followAhead)
	return following(ctx, func(ctx context.Context) error {
		return b.c.follow(ctx, b.stream, ">", b.at.Token+1, in)
	}, func(ctx context.Context) error { return b.pump(ctx, in, end) })
}

// load starts from the last checkpoint, if the event stream still says the
// same at its position.
func (b *outbox) load(ctx context.Context) error {
	b.open, b.at, b.timers = newOpenRuns(nil, nil), session.Position{}, nil
	var cp outboxCheckpoint
	ok, err := b.c.loadCheckpoint(ctx, b.subject(), &cp)
	if err != nil || !ok || cp.Fold != outboxFold || cp.Token == 0 {
		return err
	}
	m, err := b.c.leaderGet(ctx, b.stream, getRequest{Seq: cp.Token})
	switch {
	case errors.Is(err, errNoMessage):
		return nil
	case err != nil:
		return fmt.Errorf("natsbus: outbox of %s: %w", b.stream, err)
	case session.HashOf(m.Data) != cp.Hash:
		return nil
	}
	b.open, b.at = newOpenRuns(cp.Sessions, cp.Closings), session.Position{Token: cp.Token, Hash: cp.Hash}
	for _, s := range b.open.sessions {
		b.arm(s)
	}
	return nil
}

// pump takes the commits. Up to end they are history: what they offer is
// offered by the pass that follows, if it is still to be done.
func (b *outbox) pump(ctx context.Context, in <-chan followed, end uint64) error {
	h := newChain(b.c, b.generation, b.partition)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // what is still being offered is offered by the next relay
		b.finish(ctx)
	}()
	sweep := time.NewTimer(b.o.Sweep)
	defer sweep.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	orphans := time.NewTimer(b.o.Sweep)
	defer orphans.Stop()
	look := func(pass func(context.Context) time.Time) {
		if next := pass(ctx); next.IsZero() {
			orphans.Stop()
		} else {
			orphans.Reset(time.Until(next))
		}
	}
	history := b.at.Token < end
	if !history {
		look(b.sweep)
	}
	for {
		select {
		case m := <-in:
			if err := b.take(ctx, h, m, m.Seq > end); err != nil {
				return err
			}
			if history && (m.Seq >= end || m.pending == 0) {
				history = false
				look(b.sweep)
				sweep.Reset(b.o.Sweep)
			}
			due.Reset(b.timers.wait(time.Now()))
		case <-due.C:
			if !history {
				if err := b.tell(ctx); err != nil {
					return err
				}
				due.Reset(b.timers.wait(time.Now()))
			}
		case <-b.pace.timer.C:
			b.save(ctx)
		case <-sweep.C:
			if !history {
				look(b.sweep)
			}
			sweep.Reset(b.o.Sweep)
		case <-orphans.C:
			if !history {
				look(func(ctx context.Context) time.Time { return b.pass(ctx, (*sweeping).orphans) })
			}
		case <-b.poke:
			if !history {
				look(b.sweep)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *outbox) finish(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkpointLast)
	defer cancel()
	b.offers.wait()
	if b.pace.dirty() {
		b.save(last)
	}
	b.later.wait()
	b.results.wait()
}

// save waits for the results and offers before it, so that none is lost when
// the next relay goes on from there.
func (b *outbox) save(ctx context.Context) {
	b.offers.wait()
	b.later.wait()
	b.results.wait()
	b.pace.saved()
	if b.incomplete.Load() {
		return
	}
	cp := outboxCheckpoint{Fold: outboxFold, Token: b.at.Token, Hash: b.at.Hash}
	cp.Sessions, cp.Closings = b.open.saved()
	if err := b.c.saveCheckpoint(ctx, b.subject(), cp); err != nil {
		b.c.o.Logger.Warn("commits will be read again after a restart", "stream", b.stream, "err", err)
	}
}

// take does what a message of the event stream asks for.
func (b *outbox) take(ctx context.Context, h *chain, m followed, live bool) error {
	e, ok, err := h.patientlyNext(ctx, m.stored)
	if err != nil && !errors.Is(err, session.ErrTooOld) {
		return err
	}
	if err != nil {
		b.c.o.Logger.Error("a session was written by a later release; nothing follows from it here", "stream", b.stream, "seq", m.Seq, "err", err)
	}
	concerns := ok && concernsRuns(e.Commit)
	if concerns {
		// Before it counts as taken: a checkpoint may follow at once.
		if err := b.fill(ctx, h, &e); err != nil {
			return err
		}
	}
	b.at = session.Position{Token: m.Seq, Hash: session.HashOf(m.Data)}
	b.pace.changed()
	if !concerns {
		return nil
	}
	s := b.open.fold(e)
	if s != nil {
		b.arm(s)
	}
	if live {
		b.pause(s, m.Seq)
	}
	if err := b.putResults(ctx, e, live); err != nil {
		return err
	}
	work, err := run.Derive(e)
	if err != nil {
		b.c.o.Logger.Error("a commit asks for work that cannot be read", "stream", b.stream, "seq", m.Seq, "err", err)
	}
	if !live {
		// The pass that follows offers what is still to be done.
		work = slices.DeleteFunc(work, func(w run.Work) bool { return w.Task != nil })
	}
	writer := ""
	if s != nil {
		writer = s.Writer
	}
	return b.offerAll(ctx, work, writer)
}

// offerAll starts to publish what follows from a commit. The order in which it
// is stored is of no meaning, so nothing waits for what came before. writer is
// the incarnation that wrote the session last.
func (b *outbox) offerAll(ctx context.Context, work []run.Work, writer string) error {
	for _, w := range work {
		to := b.offers
		if w.Signal != nil && w.Signal.Close != nil {
			to = b.later
		}
		err := to.take(ctx, func(late bool) {
			if late || !(w.Woken && b.last.take(ctx, writer, w)) && b.offer(ctx, w) != nil {
				b.incomplete.Store(true)
			}
		})
		if err != nil {
			b.incomplete.Store(true)
			return err
		}
	}
	return nil
}

// concernsRuns reports whether a commit has an event of a run or of a writer.
// Most commits have steps and content only.
func concernsRuns(c session.Commit) bool {
	for i := range c.Events {
		switch c.Events[i].Kind {
		case run.KindDone, run.KindIntent, run.KindLate, session.KindChunk, session.KindPlaced, session.KindJoined:
		default:
			return true
		}
	}
	return false
}

// pause leaves time for what a new commit tells, before a sweep does it again.
func (b *outbox) pause(s *openSession, token uint64) {
	next := time.Now().Add(b.o.Sweep)
	if s != nil && s.Ended == token {
		s.told.next = next
	}
	if s != nil && s.Warmed == token {
		s.warmed.next = next
	}
	if a := b.open.closings[token]; a != nil {
		a.next = next
	}
}

// arm sets the timers of a session's runs.
func (b *outbox) arm(s *openSession) {
	now := time.Now()
	for _, r := range s.Runs {
		b.timers.arm(s.key(), r, now)
	}
}

// fill loads spilled data of run events, see fillThere; other events are not looked
// at.
func (b *outbox) fill(ctx context.Context, h *chain, e *session.Entry) error {
	spilled := false
	for i := range e.Commit.Events {
		ev := &e.Commit.Events[i]
		if !ev.Blob.Digest.IsZero() && ev.Data == "" && !strings.HasPrefix(ev.Kind, "run.") {
			ev.Data = "{}" // not needed
			continue
		}
		spilled = spilled || !ev.Blob.Digest.IsZero() && ev.Data == ""
	}
	if !spilled {
		return nil
	}
	return h.fillThere(ctx, e)
}

// putResults stores the results of the runs that a commit ended.
func (b *outbox) putResults(ctx context.Context, e session.Entry, live bool) error {
	results, err := messages.Results(e)
	if err != nil {
		b.c.o.Logger.Error("the end of a run cannot be read", "stream", b.stream, "seq", e.At.Token, "err", err)
	}
	for _, r := range results {
		to := b.results
		if session.ID(r.Run) == e.Commit.ID { // a branch, whose id is that of its session
			to = b.later
		}
		err := to.take(ctx, func(late bool) {
			if late {
				b.incomplete.Store(true)
				return
			}
			// It does not end with the relay, but soon after.
			patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), resultPatience)
			defer cancel()
			defer context.AfterFunc(ctx, func() { time.AfterFunc(checkpointLast, cancel) })()
			if err := b.c.putResult(patient, e.Commit.Tenant, r, !live); err != nil {
				b.incomplete.Store(true)
				b.c.o.Logger.Error("a result was not stored; queries read it from the log", "run", string(r.Run), "err", err)
			}
		})
		if err != nil {
			b.incomplete.Store(true)
			return err
		}
	}
	return nil
}

// offer publishes work for the nodes. What cannot be stored is left to the
// next sweep.
func (b *outbox) offer(ctx context.Context, w run.Work) error {
	if w.Signal != nil && b.here(ctx, *w.Signal) {
		return nil
	}
	var pool, class string
	if w.Task != nil {
		pool, class = b.o.Pool(ctx, w.Task.Workflow, w.Task.Revision)
	}
	err := b.c.PublishWork(ctx, pool, class, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		b.c.o.Logger.Error("work was not offered; the next sweep does", "stream", b.stream, "err", err)
	}
	return nil
}

// here reports whether a signal is settled because its session is in the memory
// of this process: applied, or of no use any more. What it left open is stored,
// and applied once more.
func (b *outbox) here(ctx context.Context, s run.Signal) bool {
	if b.o.Here == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, herePatience)
	defer cancel()
	held, err := b.o.Here(ctx, s)
	return held && (err == nil || messages.Refusal(err) && !errors.Is(err, run.ErrNotSupported))
}
