package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// MaxReaders bounds the streams of a tenant at one server.
	MaxReaders = 4096
	// linger is how long a topic outlives its last reader, which may be about to connect
	// again.
	linger = 10 * time.Second
	// maxAsking bounds the queries of readers that open at the same time, such as after a
	// restart, and askWithin how long a reader waits for its turn.
	maxAsking = 16
	askWithin = 30 * time.Second
	// endsBefore is how long before the end of the access a stream ends.
	endsBefore = time.Second
)

// Streams serves streams of events. It is safe for concurrent use.
type Streams struct {
	log    *slog.Logger
	refuse func(http.ResponseWriter, *http.Request, error)
	asking chan struct{} // holds a value for each query of a reader

	mu      sync.Mutex
	closed  bool
	topics  map[events.Scope]*running
	readers map[session.Tenant]int
	work    sync.WaitGroup
}

// running is a topic at work.
type running struct {
	*topic
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// New returns Streams that answer requests which they cannot serve with refuse. Its errors
// are those of packages client, run and session, and events.ErrToken, ErrForeign and
// ErrFuture for a position.
func New(log *slog.Logger, refuse func(http.ResponseWriter, *http.Request, error)) *Streams {
	return &Streams{log: log, refuse: refuse, asking: make(chan struct{}, maxAsking), topics: map[events.Scope]*running{}, readers: map[session.Tenant]int{}}
}

// Close ends all streams, and waits for the topics. Their readers connect to another server.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.topics {
		t.cancel(errStops)
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Serve answers a request of an authenticated caller with the selected events, until the
// request ends, the selected run has ended or the caller's access ends. A caller whose
// access has ended, and one who has all events of a run that has ended, get no content, so
// that a browser does not connect again.
func (s *Streams) Serve(w http.ResponseWriter, req *http.Request, sel Selection) {
	caller := access.From(req.Context())
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	if ended(caller) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !caller.Expires.IsZero() {
		stop := time.AfterFunc(time.Until(caller.Expires)-endsBefore, func() { cancel(errAccess) })
		defer stop.Stop()
	}
	if err := s.enter(caller.Tenant); err != nil {
		s.refuse(w, req, err)
		return
	}
	defer s.leave(caller.Tenant)
	r := &reader{streams: s, ctx: ctx, cancel: cancel, out: w, con: http.NewResponseController(w), moved: true}
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-caller.Ended():
			cancel(errAccess)
		case <-ctx.Done():
		}
	})
	after := req.Header.Get("Last-Event-ID")
	r.again = after != ""
	err := s.serve(r, caller, sel, after)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errEnded) {
		err = cause
	}
	switch {
	case r.begun || errors.Is(err, context.Canceled):
		r.last(err)
	case errors.Is(err, errAccess):
		w.WriteHeader(http.StatusNoContent)
	default:
		s.refuse(w, req, err)
	}
	s.log.Debug("stream ended", "tenant", caller.Tenant, "user", caller.User, "why", err)
}

// ask makes a query of a reader, when it is its turn.
func (s *Streams) ask(ctx context.Context, query func() error) error {
	wait := time.NewTimer(askWithin)
	defer wait.Stop()
	select {
	case s.asking <- struct{}{}:
	case <-wait.C:
		return fmt.Errorf("stream: %w: too many streams begin at once; try again later", run.ErrBusy)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.asking }()
	return query()
}

// ended reports whether the access of a caller has ended, or is about to.
func ended(c *access.Caller) bool {
	select {
	case <-c.Ended():
		return true
	default:
		return !c.Expires.IsZero() && time.Until(c.Expires) <= endsBefore
	}
}

func (s *Streams) serve(r *reader, caller *access.Caller, sel Selection, after string) (err error) {
	r.chosen, err = choose(caller, sel)
	if err == nil {
		err = r.find(r.ctx, func(query func() error) error { return s.ask(r.ctx, query) })
	}
	if err != nil {
		return err
	}
	if after == "" {
		after = sel.After
	}
	if after == "" && r.scope.Root == "" {
		after = End
	}
	r.at = &events.Position{Cursor: &lineage.Cursor{}}
	if after != "" && after != End {
		if r.at, err = events.ParseToken(after, r.scope); err != nil {
			return err
		}
	}
	if r.ended { // nothing more comes
		if after != "" {
			err = r.check(after)
		}
		if err == nil {
			err = r.catchUp()
		}
		if err == nil {
			err = r.finish()
		}
		return err
	}
	defer s.detach(r)
	if err := s.attach(r); err != nil {
		return err
	}
	if _, known := r.topic.after(r.at.Cursor.At()); after != "" && !known {
		if err := r.check(after); err != nil {
			return err
		}
	}
	return r.read()
}

// check refuses a position that is not one of this store, and replaces End.
func (r *reader) check(after string) error {
	page, err := r.page(client.TailEnd, 1)
	if err != nil {
		return err
	}
	end, err := lineage.ParseCursor(page.Next)
	if err != nil {
		return err
	}
	if after == End {
		r.at.Cursor = end
		return nil
	}
	return r.at.Within(end)
}

// enter counts a reader of a tenant.
func (s *Streams) enter(t session.Tenant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStops
	}
	if s.readers[t] == MaxReaders {
		return fmt.Errorf("stream: %w: the tenant has %d streams at this server; close some of them", run.ErrBusy, MaxReaders)
	}
	s.readers[t]++
	return nil
}

func (s *Streams) leave(t session.Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers[t]--; s.readers[t] == 0 {
		delete(s.readers, t)
	}
}

// attach gives a reader its topic, and waits until the topic is ready.
func (s *Streams) attach(r *reader) error {
	t, err := s.join(r)
	if err != nil {
		return err
	}
	select {
	case <-t.ready:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	id, all := r.drafts()
	var running []run.ID
	if all && t.list() {
		err := s.ask(r.ctx, func() error {
			runs, err := r.caller.Client.Runs.List(r.ctx, &client.RunsOptions{States: []run.State{run.Running}, Where: "under=" + string(r.scope.Root), Limit: maxDrafting})
			for i := range runs {
				running = append(running, runs[i].Run)
			}
			return err
		})
		if err != nil {
			t.unlist()
			return err
		}
	}
	r.drawn, r.all = t.follow(t.ctx, id, all, running), all
	return nil
}

// join adds a reader to the topic of its scope, which it starts if there is none.
func (s *Streams) join(r *reader) (*running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errStops
	}
	t := s.topics[r.scope]
	if t == nil {
		t = s.start(r.scope, r.caller.Client)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers[r] = struct{}{}
	if t.idle != nil {
		t.idle.Stop()
	}
	r.topic = t.topic
	return t, nil
}

// start starts a topic. The caller has the lock.
func (s *Streams) start(scope events.Scope, c *client.Client) *running {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &running{newTopic(scope, c, cancel), ctx, cancel}
	s.topics[scope] = t
	s.work.Go(func() {
		err := t.run(ctx)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(err)
		s.mu.Lock()
		if s.topics[scope] == t {
			delete(s.topics, scope)
		}
		s.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		for r := range t.readers {
			r.cancel(err)
		}
	})
	return t
}

// detach ends attach, also one that failed. The topic ends a while after its last reader.
func (s *Streams) detach(r *reader) {
	t := r.topic
	if t == nil {
		return
	}
	t.unfollow(r.drawn, r.all)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, r)
	if len(t.readers) == 0 {
		t.idle = time.AfterFunc(linger, func() { s.retire(r.scope, t) })
	}
}

// retire ends a topic without readers.
func (s *Streams) retire(scope events.Scope, t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := s.topics[scope]; now != nil && now.topic == t && len(t.readers) == 0 {
		delete(s.topics, scope)
		now.cancel(errStops)
	}
}
