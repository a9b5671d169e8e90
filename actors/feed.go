package actors

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
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
	reading context.CancelFunc // ends what a goroutine reads of them; nil while none does
	ended   bool
}

// followPoll is how often the log is looked at for followers that are behind what is known
// of it, and for those of sessions that are not active here.
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
	s.look(f)
}

// look has the log read for a follower, unless the actor says that it holds nothing else.
func (s *System) look(f *follower) {
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
	f.end()
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if rest := slices.DeleteFunc(s.feeds.m[f.key], func(o *follower) bool { return o == f }); len(rest) > 0 {
		s.feeds.m[f.key] = rest
	} else {
		delete(s.feeds.m, f.key)
	}
}

// end has a follower take nothing more, and does not wait for a log that is away.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended = true; f.reading != nil {
		f.reading()
	}
}

// endFeeds lets go of all followers.
func (s *System) endFeeds() {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for _, all := range s.feeds.m {
		for _, f := range all {
			f.end()
		}
	}
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
	for _, all := range s.feeds.m {
		for _, f := range all {
			s.look(f)
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
	if !f.behind || f.reading != nil || f.ended {
		return
	}
	var ctx context.Context
	ctx, f.reading = context.WithCancel(context.Background())
	s.work.Run(func() {
		for s.read(ctx, f) {
		}
	})
}

// read passes on what the log holds, and reports whether the follower is behind again.
// After an error it stays so, and lookBehind comes back to it.
func (s *System) read(ctx context.Context, f *follower) (again bool) {
	bounded, cancel := context.WithTimeout(ctx, s.o.AppendTimeout)
	defer cancel()
	f.mu.Lock()
	f.behind = false
	at := f.at
	f.mu.Unlock()
	var failed error
	for e, err := range s.o.Log.Read(bounded, f.key, at) {
		if failed = err; err != nil {
			break
		}
		f.mu.Lock()
		f.pass(&e)
		f.mu.Unlock()
		if ctx.Err() != nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = f.behind || failed != nil
	if again = f.behind && failed == nil && !f.ended; !again {
		f.reading()
		f.reading = nil
	}
	return again
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
