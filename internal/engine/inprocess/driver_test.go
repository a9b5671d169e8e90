package inprocess_test

import (
	"context"
	"errors"
	"fmt"
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

// TestEndsWhereItWaits: Run returns when a waiting run ends, because it is cancelled or
// its deadline passes.
func TestEndsWhereItWaits(t *testing.T) {
	asks := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Approve(ctx, "go on?", nil)
		return s, err
	})
	t.Run("cancel", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &inprocess.Runtime{}
			rt.Answer = func(ctx context.Context, q run.Question) (any, error) {
				time.Sleep(time.Minute)
				return nil, rt.Signal(ctx, journal.Signal{To: q.Session, Run: q.Run, Cancel: &journal.CancelRequested{Reason: "enough"}})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			s, err := rt.Run(ctx, asks, session.New(session.UserText("one")))
			if !errors.Is(err, run.ErrCancelled) {
				t.Errorf("the run ended with %v", err)
			}
			if s.Unborn() {
				t.Error("its session is lost")
			}
		})
	})
	t.Run("deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			log, d := &commitlog.Memory{}, &inprocess.Driver{}
			values := journal.NewValues(log)
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: d.Committed})}}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
			defer cancel()
			home := session.Key{Tenant: session.DefaultTenant, ID: "home"}
			task := journal.Task{ID: "r", Workflow: "w", Session: home, Deadline: time.Now().Add(time.Hour)}
			began := time.Now()
			_, state, err := d.Run(ctx, &rt.Runtime, flow.Registration{Name: "w", New: func() flow.Workflow { return asks }}, task)
			if took := time.Since(began); state != run.TimedOut || !errors.Is(err, run.ErrDeadline) || took != time.Hour {
				t.Errorf("state %s after %s: %v", state, took, err)
			}
		})
	})
}

// TestClockOfAStoppedProcess: a process that stops while its run waits does not move the
// standing clock, which the next process over the same log goes on with.
func TestClockOfAStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "go on?", nil)
			return s, err
		})
		for range 32 { // a select with two channels that are ready takes either
			log, began := &commitlog.Memory{}, time.Now()
			values, clock := journal.NewValues(log), engine.NewClock(began)
			ctx, stop := context.WithCancel(t.Context())
			d := &inprocess.Driver{Answer: func(context.Context, run.Question) (any, error) {
				stop()
				return nil, nil
			}}
			store := journal.NewStore(log, &journal.StoreOptions{Values: values, Now: clock.Now, OnCommit: func(e commitlog.Entry) {
				d.Committed(e)
				synctest.Wait() // for the answer, before the run begins to wait for it
			}})
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Store: store, Clock: clock}}
			home := session.Key{Tenant: session.DefaultTenant, ID: "home"}
			task := journal.Task{ID: "r", Workflow: "w", Session: home, Deadline: began.Add(time.Hour)}
			_, state, err := d.Run(ctx, &rt.Runtime, flow.Registration{Name: "w", New: func() flow.Workflow { return asks }}, task)
			if state != run.Waiting || !errors.Is(err, context.Canceled) || !clock.Now().Equal(began) {
				t.Fatalf("state %s after %s: %v", state, clock.Now().Sub(began), err)
			}
		}
	})
}

// TestAnswerOfAnotherType: an answer that does not match the type in the code is
// requested again, and the code does not get it.
func TestAnswerOfAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []any{"blue", 7}
		work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			n, err := flow.Await[int](ctx, "number", nil)
			return s.With(session.AssistantText(fmt.Sprint(n))), err
		})
		rt := &inprocess.Runtime{Answer: func(context.Context, run.Question) (a any, err error) {
			a, answers = answers[0], answers[1:]
			return a, nil
		}}
		s, err := rt.Run(t.Context(), work, session.New(session.UserText("go")))
		if err != nil || s.Text() != "7" || s.Len() != 2 || len(answers) > 0 {
			t.Fatalf("the run ends with %q: %v", s.Text(), err)
		}
	})
}
