package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// deafLog rejects the commits that fails selects.
type deafLog struct {
	commitlog.Log
	fails func(c commitlog.Commit) bool
}

func (l *deafLog) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if l.fails(c) {
		return commitlog.Position{}, session.ErrUnavailable
	}
	return l.Log.Append(ctx, at, c)
}

// TestCancelledBeforeItsBranchIsClosed: a run decides the end of a branch in one log and
// closes it in another. If its node dies in between, and the run ends before another node
// resumes it, the branch ends anyway.
func TestCancelledBeforeItsBranchIsClosed(t *testing.T) {
	for name, end := range map[string]flow.Func{
		"rejected": func(ctx context.Context, s session.Session) (session.Session, error) {
			branch, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return s, flow.Reject(ctx, branch, "not needed")
		},
		"adopted": func(ctx context.Context, s session.Session) (session.Session, error) {
			branch, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return flow.Adopt(ctx, s, branch, "it is good")
		},
		"returned": func(ctx context.Context, s session.Session) (session.Session, error) { return flow.Fork(ctx, s) },
	} {
		for _, deadline := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " deadline ", deadline), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var w world
					var branch session.Key
					log := &deafLog{&w.Memory, func(c commitlog.Commit) bool {
						closes := slices.ContainsFunc(c.Events, func(e session.Event) bool { return e.Kind == session.KindClosed })
						if closes && c.Key != home {
							branch = c.Key
						}
						return closes && c.Key != home
					}}
					values := journal.NewValues(log)
					rt := &inprocess.Runtime{Runtime: engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Values: values}}
					ex := start(t, rt, end, func(task *journal.Task) { task.Deadline = time.Now().Add(time.Hour) })
					if state, err := ex.Forward(t.Context()); state != run.Running || branch.ID == "" {
						t.Fatalf("without the log of the branch: state %s: %v", state, err)
					}
					rt = w.runtime(nil)
					if deadline { // the next attempt comes too late to do anything
						time.Sleep(time.Hour)
						forward(t, t.Context(), start(t, rt, end, resume), run.TimedOut)
					} else if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough"}}); err != nil {
						t.Fatal(err)
					}
					last, err := w.Last(t.Context(), home)
					if err != nil {
						t.Fatal(err)
					}
					follows, err := journal.Followups(last, journal.Facts(last.Commit))
					if err != nil {
						t.Fatal(err)
					}
					for range 2 { // once more is harmless
						for _, f := range follows {
							if err := rt.Runtime.Store.Apply(t.Context(), *f.Signal); err != nil && !errors.Is(err, run.ErrState) {
								t.Fatal(err)
							}
						}
					}
					s, err := journal.NewValues(&w.Memory).At(t.Context(), session.Ref{Key: branch})
					if err != nil || s.Closing().State == "" {
						t.Errorf("the branch is open: %v", err)
					}
				})
			})
		}
	}
}

// slowLog delays the first commit of each session other than home.
type slowLog struct {
	commitlog.Log
	wait func()
}

func (l *slowLog) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if c.Key != home && c.Seq == 1 {
		l.wait()
	}
	return l.Log.Append(ctx, at, c)
}

// TestBranchOfAnEndedRun: the run ends while a node pauses before it makes a branch. The
// commit that ended the run found no branch; the node closes it.
func TestBranchOfAnEndedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var branch session.Key
		log := &slowLog{&w.Memory, func() {
			time.Sleep(time.Second)
			other := w.runtime(nil).Runtime.Store
			if err := other.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough"}}); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Second)
		}}
		values := journal.NewValues(log)
		rt := &inprocess.Runtime{Runtime: engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Values: values}}
		ran := false
		state, err := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			b, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			ran = true
			return s, flow.Reject(ctx, b, "not needed")
		}).Forward(t.Context())
		if state != run.Running || !run.IsControl(err) || ran {
			t.Errorf("state %s, it went on: %v: %v", state, ran, err)
		}
		for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range e.Commit.Events {
				if d, err := journal.Decode[journal.StepCompleted](ev); ev.Kind == journal.KindStepCompleted && err == nil {
					branch = session.Key{Tenant: home.Tenant, ID: d.Links[0].ID}
				}
			}
		}
		s, err := journal.NewValues(&w.Memory).At(t.Context(), session.Ref{Key: branch})
		if err != nil || s.Closing().State != session.ClosedCancelled {
			t.Errorf("the branch is %+v: %v", s.Closing(), err)
		}
	})
}

// TestLogAwayAtTheEnd: a run that returns a branch whose log is unavailable when the run
// ends resumes once the log is available. It has not failed.
func TestLogAwayAtTheEnd(t *testing.T) {
	var w world
	away := true
	log := &deafLog{&w.Memory, func(c commitlog.Commit) bool {
		closes := slices.ContainsFunc(c.Events, func(e session.Event) bool { return e.Kind == session.KindClosed })
		return away && closes && c.Key != home
	}}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Values: values}}
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		branch, err := flow.Fork(ctx, s)
		return branch.With(session.UserText("done")), err
	}
	if state, err := start(t, rt, work).Forward(t.Context()); state != run.Running {
		t.Errorf("without the branch's log: state %s: %v", state, err)
	}
	away = false
	rt = &inprocess.Runtime{Runtime: engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Incarnation: "next", Values: values}), Values: values}}
	ex := start(t, rt, work, resume)
	forward(t, t.Context(), ex, run.Succeeded)
	if got := texts(ex.Result()); !slices.Equal(got, []string{"done"}) {
		t.Errorf("the session says %q", got)
	}
}

// TestReturnsPendingThatWasForked: a workflow may return the value that it forked,
// although the fork committed its pending edits, and add to it.
func TestReturnsPendingThatWasForked(t *testing.T) {
	for _, more := range [][]session.Chunk{nil, {session.UserText("more")}} {
		rt := &inprocess.Runtime{}
		s, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s = s.With(session.UserText("pending"))
			try, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return s.With(more...), flow.Reject(ctx, try, "no good")
		}), session.New(session.UserText("go")))
		if err != nil || s.Len() != 2+len(more) {
			t.Errorf("it ends with %d rows: %v", s.Len(), err)
		}
	}
}
