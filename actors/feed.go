package actors

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/session"
)

// feeds hands the commits that are made here to the followers of a session, so that
// following costs no read of the log per commit, and no goroutine.
type feeds struct {
	mu    sync.RWMutex
	m     map[session.Key][]*follower
	poll  *time.Timer // nil while there are no followers
	ended bool
}

// follower follows one session.
type follower struct {
	key  session.Key
	take func(*commitlog.Entry)

	mu      sync.Mutex
	at      commitlog.Position // of what it took
	behind  bool               // the log may hold commits that it did not take
	reading bool               // a goroutine reads them
	ended   bool
}

// followPoll is how often the log is looked at for followers that are behind, and for
// those of sessions that are not active here.
const followPoll = 2 * time.Second

// follow adds a follower.
func (s *System) follow(f *follower) {
	s.feeds.mu.Lock()
	if s.feeds.ended {
		s.feeds.mu.Unlock()
		return
	}
	if s.feeds.m == nil {
		s.feeds.m = map[session.Key][]*follower{}
	}
	s.feeds.m[f.key] = append(s.feeds.m[f.key], f)
	if s.feeds.poll == nil {
		s.feeds.poll = time.AfterFunc(followPoll, s.lookBehind)
	}
	s.feeds.mu.Unlock()
	// What came before has to be read, unless the actor says that there is nothing.
	var at commitlog.Position
	known := false
	if box := s.held.get(f.key); box != nil {
		at, known = box.position()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = f.behind || !known || at.Seq != f.at.Seq
	s.catchUp(f)
}

// unfollow removes a follower, which takes nothing from then on.
func (s *System) unfollow(f *follower) {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if s.feeds.m[f.key] = slices.DeleteFunc(s.feeds.m[f.key], func(o *follower) bool { return o == f }); len(s.feeds.m[f.key]) == 0 {
		delete(s.feeds.m, f.key)
	}
}

// endFeeds lets go of all followers.
func (s *System) endFeeds() {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	s.feeds.ended, s.feeds.m = true, nil
	if s.feeds.poll != nil {
		s.feeds.poll.Stop()
	}
}

// publish passes on a commit that was made here.
func (s *System) publish(e *commitlog.Entry) {
	s.feeds.mu.RLock()
	defer s.feeds.mu.RUnlock()
	for _, f := range s.feeds.m[e.Commit.Key] {
		f.mu.Lock()
		f.pass(e)
		s.catchUp(f)
		f.mu.Unlock()
	}
}

// lookBehind reads the log for the followers that may have missed something. It comes
// again as long as there are followers.
func (s *System) lookBehind() {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for k, all := range s.feeds.m {
		away := s.held.get(k) == nil
		for _, f := range all {
			f.mu.Lock()
			f.behind = f.behind || away
			s.catchUp(f)
			f.mu.Unlock()
		}
	}
	if len(s.feeds.m) == 0 {
		s.feeds.poll = nil
		return
	}
	s.feeds.poll.Reset(followPoll)
}

// catchUp has the log read for a follower that is behind. f.mu is held.
func (s *System) catchUp(f *follower) {
	if !f.behind || f.reading || f.ended {
		return
	}
	f.reading = true
	s.work.Run(func() {
		for s.read(f) {
		}
	})
}

// read passes on what the log holds, and reports whether the follower is behind again.
// After an error it stays so, and lookBehind comes back to it.
func (s *System) read(f *follower) (again bool) {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.AppendTimeout)
	defer cancel()
	f.mu.Lock()
	f.behind = false
	at := f.at
	f.mu.Unlock()
	var failed error
	for e, err := range s.o.Log.Read(ctx, f.key, at) {
		if failed = err; err != nil {
			break
		}
		f.mu.Lock()
		f.pass(&e)
		ended := f.ended
		f.mu.Unlock()
		if ended {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = f.behind || failed != nil
	f.reading = f.behind && failed == nil && !f.ended
	return f.reading
}

// pass has a follower take a commit, unless it took it before or others come first. f.mu
// is held.
func (f *follower) pass(e *commitlog.Entry) {
	switch {
	case f.ended || e.At.Seq <= f.at.Seq:
	case e.At.Seq == f.at.Seq+1:
		f.at = e.At
		f.take(e)
	default:
		f.behind = true
	}
}
