package actors_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stuck is a log that does not answer reads of one session, until it is freed
// or, if it heeds contexts, until the reader gives up.
type stuck struct {
	*faults
	key   session.Key
	heeds bool
	free  chan struct{}
}

func (s *stuck) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	if k != s.key {
		return s.faults.Read(ctx, k, after)
	}
	return func(yield func(commitlog.Entry, error) bool) {
		done := ctx.Done()
		if !s.heeds {
			done = nil
		}
		select {
		case <-s.free:
			yield(commitlog.Entry{}, session.ErrUnavailable)
		case <-done:
			yield(commitlog.Entry{}, ctx.Err())
		}
	}
}

// TestDrainEndsTakingUp drains a System that lost the execution of a run and is about
// to resume it; the drain prevents that.
func TestDrainEndsTakingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{append: func(n int, _ commitlog.Commit) error {
			if n == 2 {
				return fmt.Errorf("the log is away: %w", session.ErrUnavailable)
			}
			return nil
		}}
		sys := host(t, log, &work{}, actors.Options{})
		accepted(t, sys, task("r1", key("s1")))
		time.Sleep(100 * time.Millisecond) // it is taken up after a pause
		began := time.Now()
		if err := sys.Drain(t.Context()); err != nil || time.Since(began) > 0 || log.count() > 2 {
			t.Errorf("the drain ended with %v after %v and %d commits", err, time.Since(began), log.count())
		}
	})
}

// TestDrainEndsClaims: a claim that waits for a silent log delays a drain for as long
// as the drain's limit, and no longer.
func TestDrainEndsClaims(t *testing.T) {
	for _, c := range []struct {
		name  string
		heeds bool
		takes time.Duration
		fails string
	}{
		{"a log that heeds contexts", true, 15 * time.Second, ""},
		{"a log that does not", false, 70 * time.Second, "1 runs do not end though they were cut off: r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &stuck{&faults{}, key("base"), c.heeds, make(chan struct{})}
				o := (&work{}).hosted(t, log, actors.Options{})
				sys := actors.New(&o)
				fork := task("r1", key("s1"))
				fork.ForkOf = &session.Ref{Key: log.key, Version: 1}
				accepted := make(chan error, 1)
				go func() {
					_, err := sys.Accept(context.Background(), fork)
					accepted <- err
				}()
				synctest.Wait()
				patience, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				before := time.Now()
				drained := make(chan error, 1)
				go func() { drained <- sys.Drain(patience) }()
				var err error
				select {
				case err = <-drained:
				case <-time.After(time.Hour):
					t.Error("the drain does not end")
				}
				if took := time.Since(before); took != c.takes {
					t.Errorf("it took %s, want %s", took, c.takes)
				}
				if err == nil && c.fails != "" || err != nil && (c.fails == "" || !strings.Contains(err.Error(), c.fails)) {
					t.Errorf("drain: %v, want %q", err, c.fails)
				}
				close(log.free)
				if err := <-accepted; !errors.Is(err, run.ErrShutdown) {
					t.Errorf("the claim: %v", err)
				}
				if n := log.count(); n != 0 {
					t.Errorf("%d commits", n)
				}
				if c.fails != "" {
					synctest.Wait() // for leftover goroutines to end
				}
			})
		})
	}
}

// unsaving is a log that is absent whenever a snapshot is to be saved.
type unsaving struct{ *faults }

func (unsaving) Save(ctx context.Context, _ session.Key, _ commitlog.Position, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestDrainWithoutSnapshots: sessions whose snapshots cannot be saved delay a stop for
// a moment in total, and not for as long as the log may take otherwise.
func TestDrainWithoutSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := start(t, unsaving{&faults{}}, actors.Options{})
		for _, id := range []string{"1", "2", "3"} {
			k := key("s" + id)
			g := claim(t, sys.Store(), task("r"+id, k))
			for i := range actors.LongTail {
				must.Get(sys.Store().Commit(t.Context(), step(g, k, fmt.Sprint(i), session.Version(i), "done")))(t)
			}
		}
		before := time.Now()
		stop(t, sys)
		if took := time.Since(before); took < actors.LastSave || took > actors.LastSave+time.Second {
			t.Errorf("it took %v, want %v", took, actors.LastSave)
		}
	})
}
