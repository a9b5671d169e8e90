package actors_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// faults is a log in memory that can be made to misbehave.
type faults struct {
	commitlog.Memory

	mu      sync.Mutex
	append  func(n int, c commitlog.Commit) error // before the commit is stored
	after   func(n int, c commitlog.Commit) error // after the commit is stored
	latency time.Duration
	appends int
	lasts   int
	read    func() error // before anything is read
	reads   int          // commits that were read
}

func (f *faults) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	f.mu.Lock()
	f.appends++
	n, before, after, latency := f.appends, f.append, f.after, f.latency
	f.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency)
	}
	if before != nil {
		if err := before(n, c); err != nil {
			return commitlog.Position{}, err
		}
	}
	pos, err := f.Memory.Append(ctx, at, c)
	if err == nil && after != nil {
		err = after(n, c)
	}
	return pos, err
}

func (f *faults) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		f.mu.Lock()
		before := f.read
		f.mu.Unlock()
		if before != nil {
			if err := before(); err != nil {
				yield(commitlog.Entry{}, err)
				return
			}
		}
		for e, err := range f.Memory.Read(ctx, k, after) {
			f.set(func() { f.reads++ })
			if !yield(e, err) {
				return
			}
		}
	}
}

func (f *faults) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	f.mu.Lock()
	f.lasts++
	f.mu.Unlock()
	return f.Memory.Last(ctx, k)
}

func (f *faults) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *faults) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.appends
}

var _ commitlog.Log = (*faults)(nil)

// start returns a System that is drained when the test ends.
func start(t testing.TB, log commitlog.Log, o actors.Options) *actors.System {
	t.Helper()
	o.Log = log
	if o.Incarnation == "" {
		o.Incarnation = "n1"
	}
	sys := actors.New(&o)
	t.Cleanup(func() { stop(t, sys) })
	return sys
}

func stop(t testing.TB, sys *actors.System) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	must.Report(t, sys.Drain(ctx))
}

func key(id string) session.Key { return session.Key{Tenant: "t", ID: session.ID(id)} }

func task(id string, k session.Key) journal.Task {
	return journal.Task{ID: run.ID(id), Workflow: "w", Session: k}
}

// claim claims a run of its own session, or fails the test.
func claim(t testing.TB, s journal.Store, task journal.Task) *journal.ClaimResult {
	t.Helper()
	g := value(s.Claim(context.Background(), journal.Claim{
		Session: task.Session, Home: task.Session, Run: task.ID, Task: &task, Open: session.Opening{Kind: session.OpenLeaf},
	}))
	return g
}

// step is a batch that records one step; text, if any, becomes a chunk.
func step(g *journal.ClaimResult, k session.Key, path string, base session.Version, text string) journal.Batch {
	b := journal.Batch{Session: k, Run: g.Record.Task.ID, Attempt: g.Attempt, Path: run.Path(path), Base: base}
	if text != "" {
		b.Events = append(b.Events, session.ChunkEvent(session.AssistantText(text)))
	}
	e, err := journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{
		Attempt: g.Attempt, Kind: journal.StepDo, Name: "step", Path: run.Path(path), Run: g.Record.Task.ID, Value: `"` + path + `"`,
	})
	if err != nil {
		panic(err)
	}
	b.Events = append(b.Events, e)
	return b
}

func end(g *journal.ClaimResult, k session.Key, base session.Version) journal.Batch {
	e, err := journal.NewEvent(journal.KindEnded, journal.Ended{Attempt: g.Attempt, Run: g.Record.Task.ID, State: run.Succeeded, Workflow: "w"})
	if err != nil {
		panic(err)
	}
	return journal.Batch{Session: k, Run: g.Record.Task.ID, Attempt: g.Attempt, Path: "end", Base: base, Events: []session.Event{e}}
}

// kinds returns the kinds of events in a session's log, one string per commit.
func kinds(t testing.TB, log commitlog.Log, k session.Key) []string {
	t.Helper()
	var all []string
	for e, err := range log.Read(context.Background(), k, commitlog.Position{}) {
		must.Do(t, err)
		line := []string{fmt.Sprint(e.Commit.Epoch)}
		for _, ev := range e.Commit.Events {
			line = append(line, ev.Kind)
		}
		all = append(all, strings.Join(line, " "))
	}
	return all
}

// value returns v; it panics for an error.
func value[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
