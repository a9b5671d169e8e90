package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// slowLog is a slow log that counts the commits read.
type slowLog struct {
	commitlog.Memory
	reads, commits atomic.Int64
	fail           atomic.Bool
}

func (l *slowLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		l.reads.Add(1)
		if l.fail.Load() {
			yield(commitlog.Entry{}, session.ErrUnavailable)
			return
		}
		for e, err := range l.Memory.Read(ctx, k, after) {
			l.commits.Add(1)
			if !yield(e, err) {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRecorded: concurrent callers share reads, no commit is read twice, and each
// caller gets at least the log's contents at its call.
func TestRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{}
		store := NewStore(log, &StoreOptions{Incarnation: "n1"})
		k := session.Key{Tenant: "t", ID: "s1"}
		g := must.Get(store.Claim(t.Context(), Claim{
			Session: k, Home: k, Run: "r1", Task: &Task{ID: "r1", Workflow: "w", Session: k}, Open: session.Opening{Kind: session.OpenLeaf},
		}))(t)
		values := NewValues(log)
		if _, err := values.Recorded(t.Context(), k, "r2"); !errors.Is(err, run.ErrUnknownRun) {
			t.Errorf("a run that the log does not hold: %v", err)
		}
		log.reads.Store(0)
		var recorded atomic.Int64
		var wg sync.WaitGroup
		const steps, readers = 50, 20
		wg.Go(func() {
			at := g.Session
			for i := range steps {
				path := run.Path(fmt.Sprint(i))
				done, err := NewEvent(KindStepCompleted, StepCompleted{Attempt: 1, Kind: StepDo, Name: "step", Path: path, Run: "r1", Value: "1"})
				must.Report(t, err)
				a, err := store.Commit(t.Context(), Batch{Session: k, Run: "r1", Attempt: 1, Path: path, Base: at.Ref().Version, Events: []session.Event{done}})
				if err != nil {
					t.Error(err)
					return
				}
				at = a.Session
				recorded.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
		for range readers {
			wg.Go(func() {
				for recorded.Load() < steps {
					least := int(recorded.Load())
					time.Sleep(100 * time.Microsecond)
					g, err := values.Recorded(t.Context(), k, "r1")
					if err != nil {
						t.Error(err)
						return
					}
					if g.Journal.Len() < least {
						t.Errorf("told of %d steps, %d were recorded before", g.Journal.Len(), least)
					}
				}
			})
		}
		wg.Wait()
		// The store read the log too, in its claim.
		if n := log.commits.Load(); n > 2*steps {
			t.Errorf("%d commits were read of a log of %d", n, steps+1)
		}
		if n := log.reads.Load(); n > 3*steps {
			t.Errorf("%d readers read %d times in %d ms", readers, n, 2*steps)
		}

		log.fail.Store(true)
		if _, err := values.Recorded(t.Context(), k, "r1"); !errors.Is(err, session.ErrUnavailable) {
			t.Errorf("while the log is away: %v", err)
		}
		log.fail.Store(false)
		if g, err := values.Recorded(t.Context(), k, "r1"); err != nil || g.Journal.Len() != steps {
			t.Errorf("once it is back: %v", err)
		}
	})
}
