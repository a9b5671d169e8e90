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
	at      commitlog.Position // of the last entry that it received
	behind  bool               // the log may hold commits that it did not receive
	reading context.CancelFunc // cancels the goroutine that reads them; nil without one
	ended   bool
}

// followPoll is the interval of log reads for followers that are behind the known
// position of the log, and for followers of sessions that are not active here.
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

// look starts a read of the log for a follower, unless the follower has the actor's
// position.
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

// unfollow removes a follower, which then receives no more entries.
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

// end stops a follower, and does not wait for an absent log.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended = true; f.reading != nil {
		f.reading()
	}
}

// endFeeds ends all followers.
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

// lookBehind reads the log for the followers that may have missed entries. It repeats
// as long as there are followers.
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

// catchUp starts a read of the log for a follower that is behind. f.mu is held.
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

// read passes on the new entries of the log, and reports whether the follower is behind
// again. After an error the follower stays behind, and lookBehind retries.
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

// pass gives a commit to a follower, unless the follower has it or misses earlier ones.
// f.mu is held.
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
