package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// resumeFirst is the first pause between the offers of a run whose holder
	// is dead: one may have come into the hands of another dead node.
	resumeFirst = 500 * time.Millisecond
	// sweepMost is how long the pauses become between the attempts to tell a
	// parent how its branch ended, or a branch that it is over.
	sweepMost = time.Hour
	// closeMost bounds the attempts to tell a branch: with the pauses between
	// them more than a day.
	closeMost = 32
)

// sweep looks through what is open and does again what may have been lost: it
// offers the runs that nobody executes, unless the queue holds their offers,
// and branches that no log knows; it tells parents how branches ended, and
// branches that they are over. It returns when to look again for runs whose
// holder is dead, the zero time if there are none.
func (b *outbox) sweep(ctx context.Context) time.Time {
	return b.pass(ctx, (*sweeping).run)
}

// pass is one of those that look through what is open.
func (b *outbox) pass(ctx context.Context, look func(*sweeping, context.Context) error) time.Time {
	began := time.Now()
	s := sweeping{outbox: b, now: began, asked: map[string]bool{}}
	if err := look(&s, ctx); err != nil && ctx.Err() == nil {
		b.c.o.Logger.Warn("a sweep was cut short; the next one goes on", "stream", b.stream, "err", err)
	}
	if ctx.Err() != nil {
		return time.Time{}
	}
	if s.offered > 0 {
		b.c.o.Logger.Info("offered open runs again", "stream", b.stream, "open", b.open.len(), "offered", s.offered, "took", time.Since(began))
	}
	if b.o.Swept != nil {
		b.o.Swept(b.partition, b.open.len(), s.offered)
	}
	return s.next
}

// sweeping is one pass.
type sweeping struct {
	*outbox
	now     time.Time
	asked   map[string]bool   // incarnations: do they live
	waiting map[string]uint64 // subjects with messages in WORK; nil before it was asked
	offered int
	next    time.Time // when to offer the runs of dead holders again; zero is never
}

// orphans offers the runs whose holder is dead, and nothing else.
func (s *sweeping) orphans(ctx context.Context) error {
	for _, o := range s.open.sessions {
		if r := o.next(s.now, func(incarnation string) bool { return s.alive(ctx, incarnation) }); r != nil && r.State == run.Running {
			if err := s.resume(ctx, o, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sweeping) run(ctx context.Context) error {
	for _, o := range s.open.sessions {
		if err := s.skip(ctx, s.session(ctx, o)); err != nil {
			return err
		}
	}
	for token, a := range s.open.closings {
		if !a.again(s.now, s.o.Sweep, sweepMost) {
			continue
		}
		if err := s.skip(ctx, s.close(ctx, token, a.n >= closeMost)); err != nil {
			return err
		}
	}
	return nil
}

// skip drops an error that concerns one session only, so that the others do
// not wait for it.
func (s *sweeping) skip(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || passing(err) {
		return err
	}
	s.c.o.Logger.Warn("a sweep leaves something out", "stream", s.stream, "err", err)
	return nil
}

func (s *sweeping) session(ctx context.Context, o *openSession) error {
	if r := o.next(s.now, func(incarnation string) bool { return s.alive(ctx, incarnation) }); r != nil {
		if err := s.resume(ctx, o, r); err != nil {
			return err
		}
	}
	for _, r := range o.Runs {
		for _, f := range r.FanOuts {
			if err := s.branches(ctx, f); err != nil {
				return err
			}
		}
	}
	if o.Warmed != 0 && o.warmed.again(s.now, s.o.Sweep, sweepMost) {
		return s.report(ctx, o.Warmed)
	}
	if o.Ended != 0 && o.told.again(s.now, s.o.Sweep, sweepMost) {
		return s.report(ctx, o.Ended)
	}
	return nil
}

// alive reports whether an incarnation answers, asked once per pass. One that
// is silent may be frozen; its runs are offered, and whoever takes them asks it
// again.
func (s *sweeping) alive(ctx context.Context, incarnation string) bool {
	alive, known := s.asked[incarnation]
	if !known {
		switch {
		case incarnation == s.o.Incarnation:
			alive = true
		case s.o.Alive != nil:
			alive = s.o.Alive(incarnation)
		default:
			alive = s.c.Ping(ctx, incarnation)
		}
		s.asked[incarnation] = alive
	}
	return alive
}

// resume offers a run that nobody executes. The offer that the queue holds for
// one whose holder died may be in the hands of the dead too, so that there may
// be two.
func (s *sweeping) resume(ctx context.Context, o *openSession, r *openRun) error {
	t := o.offer(r)
	if r.State != run.Running {
		return s.again(ctx, t, 1)
	}
	due := r.offered.again(s.now, resumeFirst, s.o.Sweep)
	if s.next.IsZero() || r.offered.next.Before(s.next) {
		s.next = r.offered.next
	}
	if !due {
		return nil
	}
	return s.again(ctx, t, 2)
}

// again offers a run unless so many offers of it wait in the queue.
func (s *sweeping) again(ctx context.Context, t run.Task, most uint64) error {
	if s.waiting == nil {
		var err error
		if s.waiting, err = s.c.subjects(ctx, StreamWork, prefixWork+">"); err != nil {
			return err
		}
	}
	pool, class := s.o.Pool(ctx, t.Workflow, t.Revision)
	if s.waiting[messages.WorkSubject(pool, class, t.Session)] >= most {
		return nil
	}
	s.offered++
	return s.offer(ctx, run.Work{Task: &t})
}

// subjects returns how many messages a stream holds under each subject that
// matches a filter.
func (c *Conn) subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("natsbus: look at stream %s: %w", stream, streamError(err))
	}
	if s.CachedInfo().State.Msgs == 0 {
		return map[string]uint64{}, nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, fmt.Errorf("natsbus: look at stream %s: %w", stream, err)
	}
	if info.State.Subjects == nil {
		return map[string]uint64{}, nil
	}
	return info.State.Subjects, nil
}

// work derives again what follows from a commit of the stream.
func (s *sweeping) work(ctx context.Context, token uint64) ([]run.Work, error) {
	m, err := s.c.at(ctx, s.stream, token)
	if errors.Is(err, errNoMessage) {
		return nil, nil // archived
	}
	if err != nil {
		return nil, err
	}
	c, err := session.Decode(m.Data)
	if err == nil {
		err = (&eventLog{s.c}).fill(ctx, &c)
	}
	var work []run.Work
	if err == nil {
		work, err = run.Derive(session.Entry{Commit: c, At: session.Position{Seq: c.Seq, Token: token, Hash: session.HashOf(m.Data)}})
	}
	if err != nil {
		return nil, fmt.Errorf("natsbus: commit %d of stream %s: %w", token, s.stream, err)
	}
	return work, nil
}

// branches offers the branches of a fan-out that no log knows.
func (s *sweeping) branches(ctx context.Context, f openFanOut) error {
	work, err := s.work(ctx, f.Token)
	if err != nil {
		return err
	}
	for _, w := range work {
		if w.Task == nil || w.Task.Resume {
			continue
		}
		last, err := s.last(ctx, w.Task.Session)
		if err == nil && last == nil {
			err = s.again(ctx, *w.Task, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// last returns the last commit of a session, nil if it has none.
func (s *sweeping) last(ctx context.Context, k session.Key) (*session.Commit, error) {
	stream, subject, err := EventSubject(k)
	if err != nil {
		return nil, err
	}
	m, err := s.c.last(ctx, stream, subject)
	if errors.Is(err, errNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := session.Decode(m.Data)
	if err != nil {
		return nil, fmt.Errorf("natsbus: %s: %w", k, err)
	}
	return &c, nil
}

// report tells the parent of a branch again what a commit of the branch says:
// how it ended, or that it has its first answer. A parent that went on without
// it has a branch that ended closed.
func (s *sweeping) report(ctx context.Context, token uint64) error {
	work, err := s.work(ctx, token)
	if err != nil {
		return err
	}
	for _, w := range work {
		if w.Signal == nil || w.Signal.Received == nil {
			continue
		}
		if err := s.offer(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// close tells the branches again that a commit disposed of, until all of them
// are closed, or enough was tried. One without a log finds out when it begins.
func (s *sweeping) close(ctx context.Context, token uint64, enough bool) error {
	work, err := s.work(ctx, token)
	if err != nil {
		return err
	}
	left := 0
	for _, w := range work {
		if w.Signal == nil || w.Signal.Close == nil && w.Signal.Cancel == nil {
			continue
		}
		last, err := s.last(ctx, w.Signal.To)
		if err != nil {
			return err
		}
		if last == nil || closes(last, w.Signal) {
			continue
		}
		left++
		if err := s.offer(ctx, w); err != nil {
			return err
		}
	}
	if left == 0 || enough {
		delete(s.open.closings, token)
		s.pace.changed()
	}
	return nil
}

// closes reports whether a session needs a signal no more after its last
// commit: that closes it or, where the signal only cancels a run, lets it go.
func closes(last *session.Commit, sig *run.Signal) bool {
	for _, ev := range last.Events {
		if ev.Kind == session.KindClosed || ev.Kind == session.KindArchived || sig.Cancel != nil && ev.Kind == run.KindEnded {
			return true
		}
	}
	return false
}

// tell does what is due by the clock: it offers runs whose time has come, and
// has sessions look at theirs. A run that somebody executes ends at its deadline by
// itself.
func (b *outbox) tell(ctx context.Context) error {
	told := map[session.Key]bool{}
	s := sweeping{outbox: b, asked: map[string]bool{}}
	lives := func(incarnation string) bool { return s.alive(ctx, incarnation) }
	for {
		now := time.Now()
		o, r := b.timers.pop(b.open, now)
		if o == nil {
			return nil
		}
		if err := b.tellRun(ctx, o, r, now, told, lives); err != nil {
			return err
		}
		b.timers.arm(o.key(), r, now)
	}
}

func (b *outbox) tellRun(ctx context.Context, s *openSession, r *openRun, now time.Time, told map[session.Key]bool, lives func(string) bool) error {
	if r.State == run.Queued && r.NotBefore != 0 && r.NotBefore <= now.UnixMilli() {
		r.NotBefore = 0
		if s.Active != "" || s.Apart {
			return nil // what ends that offers the next one
		}
		t := s.offer(r)
		return b.offer(ctx, run.Work{Task: &t})
	}
	for at := range r.times {
		if at > now.UnixMilli() || !r.due.again(now, dueFirst, dueMost) {
			continue
		}
		if told[s.key()] || s.executes(r, lives) {
			break
		}
		told[s.key()] = true
		return b.offer(ctx, run.Work{Signal: &run.Signal{To: s.key(), Run: r.ID, Tick: true}})
	}
	return nil
}
