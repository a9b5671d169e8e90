package actors_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestFollowerOutlivesSystem: a follower may be stopped after the System, as by an
// execution that ignored its end, and a later follower receives no entries.
func TestFollowerOutlivesSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := actors.New(&actors.Options{Log: &faults{}})
		s, k := sys.Store(), key("s1")
		claim(t, s, task("r1", k))
		take := func(*commitlog.Entry) {}
		unfollow := s.Follow(k, commitlog.Position{}, take)
		stop(t, sys)
		unfollow()
		s.Follow(k, commitlog.Position{}, take)()
	})
}

// silentLog is a log whose reads get no answer while it is absent.
type silentLog struct {
	faults
	away chan struct{} // nil: it answers
}

func (d *silentLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		if d.away != nil {
			<-ctx.Done()
			yield(commitlog.Entry{}, errors.Join(session.ErrUnavailable, context.Cause(ctx)))
			return
		}
		d.faults.Read(ctx, k, after)(yield)
	}
}

// TestFollowerIsNotWaitedFor: a follower's read of an absent log is canceled together
// with the follower, so that a System stops at once.
func TestFollowerIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &silentLog{}
		sys := actors.New(&actors.Options{Log: log})
		s, k := sys.Store(), key("s1")
		claim(t, s, task("r1", k))
		log.away = make(chan struct{})
		unfollow := s.Follow(k, commitlog.Position{}, func(*commitlog.Entry) {})
		synctest.Wait()
		unfollow()
		left := s.Follow(k, commitlog.Position{}, func(*commitlog.Entry) {})
		synctest.Wait()
		began := time.Now()
		stop(t, sys)
		if took := time.Since(began); took > 0 {
			t.Errorf("the System stopped after %s", took)
		}
		left()
	})
}

// TestFollowAcrossActivations: a follower receives the entries of another process also
// if the session was activated here again before the poll for followers of inactive
// sessions.
func TestFollowAcrossActivations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, k := &faults{}, key("s1")
		s := start(t, log, actors.Options{Passivate: time.Hour}).Store()
		other := start(t, log, actors.Options{Incarnation: "n2"}).Store()
		claim(t, s, task("r1", k))
		var last uint64
		unfollow := s.Follow(k, commitlog.Position{}, func(e *commitlog.Entry) { last = e.At.Seq })
		defer unfollow()
		cancel := journal.Signal{To: k, Run: "r1", Cancel: &journal.CancelRequested{ID: "c1"}}
		must.Do(t, other.Apply(t.Context(), cancel))
		_ = s.Apply(t.Context(), cancel) // activates the session again
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := uint64(len(kinds(t, log, k))); last != n {
			t.Errorf("the follower took commits up to %d, the log has %d", last, n)
		}
	})
}
