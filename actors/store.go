package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// store is the journal.Store of a System.
type store struct{ sys *System }

var _ journal.Store = (*store)(nil)

// maxTries bounds how often one request goes to another activation because
// the one before ended.
const maxTries = 5

// Claim implements journal.Store. Another writer of a run's home session is
// session.ErrConflict, because the caller must then ask for the holder again; on other
// sessions the run takes precedence.
func (s *store) Claim(ctx context.Context, c journal.Claim) (*journal.ClaimResult, error) {
	if c.Incarnation == "" {
		c.Incarnation = s.sys.o.Incarnation
	}
	size := eventsSize(c.Events) + 512
	if c.Task != nil {
		size += len(c.Task.Input) + 512
	}
	if err := s.fits(c.Session, size, c.Events); err != nil {
		return nil, err
	}
	if err := s.resolve(ctx, c.Open.Parents, c.Events); err != nil {
		return nil, err
	}
	r := s.sys.requests.get(ctx, askClaim, c.Session)
	r.claim, r.size = c, size
	back, err := s.sys.ask(r, c.Home != c.Session)
	if err != nil {
		return nil, err
	}
	g := back.granted
	s.sys.requests.put(back)
	return g, nil
}

// Commit implements journal.Store.
func (s *store) Commit(ctx context.Context, b journal.Batch) (journal.Ack, error) {
	size := eventsSize(b.Events)
	if err := s.fits(b.Session, size, b.Events); err != nil {
		return journal.Ack{}, err
	}
	if err := s.resolve(ctx, nil, b.Events); err != nil {
		return journal.Ack{}, err
	}
	r := s.sys.requests.get(ctx, askCommit, b.Session)
	r.batch, r.size = b, size
	back, err := s.sys.ask(r, false)
	if err != nil {
		if errors.Is(err, errTaken) || errors.Is(err, session.ErrConflict) {
			s.sys.keepLate(ctx, b)
		}
		return journal.Ack{}, err
	}
	a := back.ack
	s.sys.requests.put(back)
	return a, nil
}

// Apply implements journal.Store.
func (s *store) Apply(ctx context.Context, sig journal.Signal) error {
	return s.sys.apply(ctx, sig, true)
}

// apply asks the session actor. With again it asks the next activation after a conflict
// with another writer.
func (s *System) apply(ctx context.Context, sig journal.Signal, again bool) error {
	r := s.requests.get(ctx, askApply, sig.To)
	r.signal, r.size = sig, 1024
	back, err := s.ask(r, again)
	if err == nil {
		s.requests.put(back)
	}
	return err
}

// ask sends a request to the actor of its session, which it activates if need be, and
// waits for the answer or the end of the request's context. If the activation ends
// before it decides, the next one is asked; with again also after a conflict with
// another writer. The returned request holds the answer, and the caller may recycle it.
func (s *System) ask(r *request, again bool) (*request, error) {
	for try := 1; ; try++ {
		r.tick = s.tick()
		if err := s.post(r); err != nil {
			s.requests.put(r)
			return nil, err
		}
		select {
		case <-r.done:
		case <-r.ctx.Done():
			return nil, context.Cause(r.ctx) // the actor may still look at r
		}
		err := r.err
		if err == nil {
			return r, nil
		}
		if try < maxTries && (errors.Is(err, errAgain) || again && errors.Is(err, session.ErrConflict)) {
			r.granted, r.ack, r.err, r.staged = nil, journal.Ack{}, nil, false
			continue
		}
		if errors.Is(err, errAgain) {
			err = fmt.Errorf("actors: %s: %d activations ended before they answered: %w", r.key, try, session.ErrUnavailable)
		}
		s.requests.put(r)
		return nil, err
	}
}

// post puts a request into the mailbox of its session's actor.
func (s *System) post(r *request) error {
	for {
		box := s.held.get(r.key)
		if box == nil || box.isClosed() {
			var err error
			if box, err = s.activate(r.ctx, r.key, false); err != nil {
				return err
			}
		}
		switch box.push(r) {
		case admitted:
			return nil
		case full:
			return fmt.Errorf("%w: %d requests wait for session %s; retry in a second", run.ErrBusy, s.o.MaxPending, r.key)
		}
	}
}

func (s *System) activate(ctx context.Context, k session.Key, unborn bool) (*mailbox, error) {
	m := &activate{key: k, unborn: unborn, reply: make(chan *mailbox, 1)}
	s.protoactor.Root.Send(s.top, m)
	select {
	case box := <-m.reply:
		if box != nil {
			return box, nil
		}
	case <-s.stopped:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("actors: session %s: %w", k, run.ErrShutdown)
}

func eventsSize(events []session.Event) int {
	n := 0
	for i := range events {
		n += len(events[i].Data) + 160
	}
	return n
}

// fits rejects events that no commit can hold before the writer stages them: an
// activation whose commit is rejected as too large has to end, and with it the attempt
// that executes on it.
func (s *store) fits(k session.Key, size int, events []session.Event) error {
	if s.sys.o.Spills || size < commitlog.MaxCommit*3/4 {
		return nil
	}
	room := commitlog.MaxCommit - 4<<10 // for the writer's additions
	probe := commitlog.Commit{Key: k, Root: k.ID, Events: events}
	raw, err := commitlog.Encode(probe)
	if err == nil && len(raw) > room {
		err = fmt.Errorf("actors: %d bytes for one commit of %s, %d fit: %w", len(raw), k, room, session.ErrTooLarge)
	}
	return err
}

// resolve reads the values that events refer to into the cache, here in the
// caller's goroutine, so that the actor finds them without waiting.
func (s *store) resolve(ctx context.Context, links []session.Link, events []session.Event) error {
	for _, l := range links {
		if _, err := s.sys.o.Values.Link(ctx, l); err != nil {
			return err
		}
	}
	for _, e := range events {
		if e.Kind != session.KindJoined {
			continue
		}
		j, err := session.DecodeJoin(e)
		if err != nil {
			return err
		}
		for _, p := range j.Parents {
			if _, err := s.sys.o.Values.Link(ctx, p.Link); err != nil {
				return err
			}
		}
	}
	return nil
}

// Follow implements journal.Store. Commits that are made here during the call have no
// stored bytes (Raw is empty); commits that it reads from the log have them.
func (s *store) Follow(k session.Key, after commitlog.Position, take func(*commitlog.Entry)) (stop func()) {
	f := &follower{key: k, at: after, take: take}
	s.sys.follow(f)
	return func() { s.sys.unfollow(f) }
}
