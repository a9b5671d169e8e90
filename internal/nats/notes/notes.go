package notes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
)

// Options configure Open. The zero Options are the defaults.
type Options struct {
	// MaxNotes is the maximum number of notes in the store; 0 is notebook.DefaultMaxNotes.
	// Processes that write concurrently may exceed it by the notes of their concurrent
	// writes.
	MaxNotes int
	// Embedder makes the vectors of notes and queries, and Model is the name under which
	// they are stored. Nil makes none: notes are found by keyword.
	Embedder llm.Embedder
	Model    string
	// Logger logs why a note has no vector; nil is slog.Default.
	Logger *slog.Logger
}

// Store is a memory.Store and memory.Archiver over the stream MEMORY.
type Store struct {
	s      *streams.Streams
	of     string // its subjects without their last two tokens
	tenant session.Tenant
	name   string
	m      *notebook.InMemory
	e      embedding

	turn chan struct{} // held by the one that reads the stream

	folds atomic.Uint64 // how often m began or ended to change: odd while it does

	// Of the one that has the turn.
	at      uint64 // sequence up to which m is complete
	pending *pending

	mu     sync.Mutex
	next   *round // that callers may still join; nil is none
	parts  map[string]int
	closed bool
}

var (
	_ memory.Store    = (*Store)(nil)
	_ memory.Archiver = (*Store)(nil)
)

// Open returns a tenant's memory of a name. It does not read the stream yet. Nil Options
// are the defaults.
func Open(s *streams.Streams, t session.Tenant, name string, o *Options) (*Store, error) {
	if err := errors.Join(session.ValidID("tenant", string(t)), session.ValidID("memory", name)); err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	return &Store{
		e: embedding{Embedder: o.Embedder, model: o.Model, log: cmp.Or(o.Logger, slog.Default()).With("tenant", string(t), "memory", name)},
		s: s, of: streams.PrefixMemory + string(t) + "." + name + ".", tenant: t, name: name,
		m: notebook.New(&notebook.Options{MaxNotes: o.MaxNotes}), turn: make(chan struct{}, 1), parts: map[string]int{},
	}, nil
}

// Write implements memory.Store.
func (s *Store) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := notebook.NewNote(uri, text, from)
	if err != nil {
		return err
	}
	if err := s.current(ctx); err != nil {
		return err
	}
	n.Vector = s.m.Known(n)
	if c, err := s.m.Put(n); err != nil || len(c.Puts) == 0 && !s.e.wants(n) {
		return err
	}
	if s.e.wants(n) {
		bytes, _ := s.m.Vectors(s.e.model)
		v := s.e.ofNote(ctx, n, bytes)
		if v == (notebook.Vector{}) && n.Vector != v {
			return ctx.Err() // the existing vector is better than none
		}
		n.Vector = v
	}
	if c, err := s.m.Put(n); err != nil || len(c.Puts) == 0 {
		return err
	}
	return s.publish(ctx, change{Note: &n})
}

// Archive implements memory.Archiver.
func (s *Store) Archive(ctx context.Context, session, key string, messages []memory.Message, from memory.Origin) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	dir, err := notebook.ArchiveURI(session, key)
	if err != nil {
		return "", err
	}
	notes, err := notebook.Transcript(dir, messages, from)
	if err != nil {
		return "", err
	}
	if err := s.current(ctx); err != nil {
		return "", err
	}
	c, err := s.m.Replace(dir, notes)
	if err != nil || len(c.Puts) == 0 && len(c.Deletes) == 0 {
		return dir.String(), err
	}
	return dir.String(), s.publish(ctx, change{Archive: archiveOf(dir, messages, from)})
}

// Delete implements memory.Store. The deleted notes leave the stream unless ctx ends;
// otherwise they stay there unseen.
func (s *Store) Delete(ctx context.Context, uri string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := notebook.ParseDir(uri)
	if err != nil {
		return err
	}
	if err := s.current(ctx); err != nil {
		return err
	}
	gone, err := s.m.List(ctx, dir.String())
	if err != nil || len(gone) == 0 {
		return err
	}
	err = s.publish(ctx, change{Delete: dir.String()})
	if errors.Is(err, memory.ErrFull) && s.makeRoom(ctx, dir.String(), gone) == nil {
		err = s.publish(ctx, change{Delete: dir.String()})
	}
	if err != nil {
		return err
	}
	s.clear(ctx, dir.String(), gone)
	return nil
}

// Read implements memory.Store.
func (s *Store) Read(ctx context.Context, uri string) (string, error) {
	if _, err := notebook.ParseURI(uri); err != nil {
		return "", errors.Join(ctx.Err(), err)
	}
	if err := s.current(ctx); err != nil {
		return "", err
	}
	return s.m.Read(ctx, uri)
}

// Find implements memory.Store. With notes that have a vector of its model the query gets
// one, too.
func (s *Store) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	if s.e.Embedder != nil && q.Scores == "" {
		return s.findNear(ctx, q)
	}
	// The index is searched while servers are asked for newer changes. Mostly there are
	// none, and the result is valid.
	var hits []memory.Hit
	var err error
	searched := make(chan struct{})
	at := s.folds.Load()
	go func() {
		defer close(searched)
		if at > 0 {
			hits, err = s.m.Find(ctx, q)
		}
	}()
	asked := s.current(ctx)
	<-searched
	switch {
	case asked != nil:
		return nil, asked
	case at == 0 || at%2 == 1 || s.folds.Load() != at:
		return s.m.Find(ctx, q)
	}
	return hits, err
}

// findNear finds by words and by vectors. Without a vector of the query it finds by words.
func (s *Store) findNear(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	if err := s.current(ctx); err != nil {
		return nil, err
	}
	if _, any := s.m.Vectors(s.e.model); !any || notebook.Embedded(q.Text) == "" {
		return s.m.Find(ctx, q)
	}
	v, err := s.e.ofQuery(ctx, q.Text)
	if err == nil {
		return s.m.FindNear(ctx, q, v)
	}
	hits, failed := s.m.Find(ctx, q)
	if failed != nil {
		return nil, failed
	}
	return hits, fmt.Errorf("%w: model %s: %w", memory.ErrWordsOnly, s.e.model, err)
}

// List implements memory.Store.
func (s *Store) List(ctx context.Context, uri string) ([]string, error) {
	if err := s.current(ctx); err != nil {
		return nil, err
	}
	return s.m.List(ctx, uri)
}

// Page returns the notes at and below a name whose own names come after another one,
// sorted: at most limit, 0 for any number, and about room bytes of JSON. more reports that
// others follow.
func (s *Store) Page(ctx context.Context, under, after string, limit, room int) (page []notebook.Note, more bool, err error) {
	if err := s.current(ctx); err != nil {
		return nil, false, err
	}
	return s.m.Page(under, after, limit, room)
}

// Len returns the number of notes.
func (s *Store) Len(ctx context.Context) (int, error) {
	if err := s.current(ctx); err != nil {
		return 0, err
	}
	return s.m.Len(), nil
}

// Close ends the store: later calls fail. The notes stay.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// round is one reading of the stream, for all that waited for it to begin.
type round struct {
	done chan struct{}
	err  error
}

// current updates the projection to everything that was acknowledged before the call. Calls
// that arrive while the stream is read share the next read.
func (s *Store) current(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return memory.ErrClosed
		}
		r, mine := s.next, s.next == nil
		if mine {
			r = &round{done: make(chan struct{})}
			s.next = r
		}
		s.mu.Unlock()
		if mine {
			s.run(ctx, r)
			return r.err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		// The call that read may have run out of time, while this one has not.
		if !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, context.DeadlineExceeded) {
			return r.err
		}
	}
}

// run reads the stream when its turn comes.
func (s *Store) run(ctx context.Context, r *round) {
	defer close(r.done)
	begin := func() { // from now on callers join the one after
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		begin()
		r.err = s.unavailable(ctx, s.catchUp(ctx))
	case <-ctx.Done():
		begin()
		r.err = ctx.Err()
	}
}

// unavailable marks an error after which the call may be made again, elsewhere too.
func (s *Store) unavailable(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, conn.ErrFull):
		err = fmt.Errorf("%w: %w: forget some notes (rath memory forget), or give the stream a larger MaxBytes with rath cluster provision", memory.ErrFull, err)
	case conn.IsTransient(err), errors.Is(err, conn.ErrUnreachable):
		err = fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return fmt.Errorf("nats/notes: memory %s of tenant %s: %w", s.name, s.tenant, err)
}

// fold makes changes in the order of the stream.
func (s *Store) fold(changes []change) {
	cleared := map[string]int{} // by the last change that clears it
	for i, c := range changes {
		if dir := c.clears(); dir != "" {
			cleared[dir] = i
		}
	}
	var now notebook.Change
	if len(cleared) > 0 {
		now.Deletes = s.m.Matching(func(uri string) bool {
			for dir := range notebook.Ancestors(uri) {
				if _, ok := cleared[dir]; ok {
					return true
				}
			}
			return false
		})
	}
	last := map[string]int{} // by URI, in now.Puts
	for i, c := range changes {
		for _, n := range c.notes {
			gone := slices.ContainsFunc(slices.Collect(notebook.Ancestors(n.URI)), func(dir string) bool {
				by, ok := cleared[dir]
				return ok && by > i
			})
			if gone {
				continue
			}
			if at, ok := last[n.URI]; ok {
				now.Puts[at] = n
				continue
			}
			last[n.URI] = len(now.Puts)
			now.Puts = append(now.Puts, n)
		}
	}
	s.folds.Add(1)
	s.m.Apply(now)
	s.folds.Add(1)
}
