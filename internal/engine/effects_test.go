package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

// kinds returns the events of the home session's log that are about steps.
func (w *world) kinds(t *testing.T) string {
	t.Helper()
	var kinds []string
	for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range e.Commit.Events {
			if strings.HasPrefix(ev.Kind, "step.") || ev.Kind == journal.KindEnded {
				kinds = append(kinds, ev.Kind)
			}
		}
	}
	return strings.Join(kinds, " ")
}

// TestCutOffThenOtherCode: the call that was cut off is not the one in the changed code,
// so the wrong one cannot be resolved.
func TestCutOffThenOtherCode(t *testing.T) {
	var w world
	inside := make(chan struct{})
	ex := start(t, w.runtime(nil), func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "pay", func(context.Context) (int, error) {
			close(inside)
			select {} // the process is killed here
		}, tool.NonIdempotent)
		return s, err
	})
	go func() { _, _ = ex.Forward(t.Context()) }() // never returns
	<-inside
	for _, changed := range []flow.Func{
		func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "mail", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
			return s, err
		},
		func(_ context.Context, s session.Session) (session.Session, error) { return s, nil },
	} {
		state, err := start(t, w.runtime(nil), changed, resume).Forward(t.Context())
		if state != run.NeedsReview || !errors.Is(err, run.ErrMismatch) || !strings.Contains(err.Error(), "pay") {
			t.Fatalf("state %s, error %v", state, err)
		}
		again := journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, Reason: "next code"}}
		check(t, w.runtime(nil).Runtime.Store.Apply(t.Context(), again))
	}
}

// TestStepRemoved: code that ends without a recorded step does not match the journal.
func TestStepRemoved(t *testing.T) {
	var w world
	one := func(context.Context) (int, error) { return 1, nil }
	ctx, cancel := context.WithCancelCause(t.Context())
	ex := start(t, w.runtime(nil), func(c context.Context, s session.Session) (session.Session, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := flow.Do(c, name, one, tool.NonIdempotent); err != nil {
				return s, err
			}
		}
		cancel(run.ErrShutdown)
		_, err := flow.Do(c, "c", one, tool.NonIdempotent)
		return s, err
	})
	forward(t, ctx, ex, run.Queued)
	state, err := start(t, w.runtime(nil), func(c context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(c, "a", one, tool.NonIdempotent)
		return s, err
	}, resume).Forward(t.Context())
	if state != run.NeedsReview || !errors.Is(err, run.ErrMismatch) || !strings.Contains(err.Error(), "do b") {
		t.Fatalf("state %s, error %v", state, err)
	}
}

// TestLastWord: the outcome of a call that must not happen twice is recorded, although
// the run is cancelled or its time is up.
func TestLastWord(t *testing.T) {
	pay := func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "pay", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, errors.New("paid, but the receipt was cut off")
		}, tool.NonIdempotent)
		return s, err
	}
	for _, why := range []string{"cancel", "deadline"} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				rt := w.runtime(nil)
				ex := start(t, rt, pay, func(task *journal.Task) {
					if why == "deadline" {
						task.Deadline = time.Now().Add(time.Minute)
					}
				})
				done := make(chan error, 1)
				go func() {
					_, err := ex.Forward(t.Context())
					done <- err
				}()
				time.Sleep(time.Second)
				if why == "cancel" {
					check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "stop"}}))
				}
				<-done
				if got, want := w.kinds(t), "step.intent step.done run.ended"; got != want {
					t.Errorf("%s: the log holds %s, want %s", ex.State(), got, want)
				}
			})
		})
	}
}

// TestOutcomeIsAlwaysRecorded: however a function ends, its outcome is recorded before
// the workflow gets it.
func TestOutcomeIsAlwaysRecorded(t *testing.T) {
	for name, fn := range map[string]func(context.Context) (any, error){
		"panic":    func(context.Context) (any, error) { panic("after the money left") },
		"not JSON": func(context.Context) (any, error) { return func() {}, nil },
	} {
		var w world
		ex := start(t, w.runtime(nil), func(ctx context.Context, s session.Session) (session.Session, error) {
			if _, err := flow.Do(ctx, "pay", fn, tool.NonIdempotent); err == nil {
				t.Errorf("%s: no error", name)
			}
			return s.With(session.UserText("goes on")), nil
		})
		if state, err := ex.Forward(t.Context()); state != run.Succeeded {
			t.Errorf("%s: state %s, error %v", name, state, err)
		}
		if got, want := w.kinds(t), "step.intent step.done run.ended"; got != want {
			t.Errorf("%s: the log holds %s, want %s", name, got, want)
		}
	}
}

// TestCancelOfUnknownEffect: a run that is cancelled while the effect of a call is
// unknown ends with that as its reason.
func TestCancelOfUnknownEffect(t *testing.T) {
	var w world
	inside := make(chan struct{})
	pay := func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "pay", func(context.Context) (int, error) {
			close(inside)
			select {} // the process is killed here
		}, tool.NonIdempotent)
		return s, err
	}
	ex := start(t, w.runtime(nil), pay)
	go func() { _, _ = ex.Forward(t.Context()) }() // never returns
	<-inside
	rt := w.runtime(nil)
	forward(t, t.Context(), start(t, rt, pay, resume), run.NeedsReview)
	check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "no more"}}))
	text := ""
	for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range e.Commit.Events {
			if v, err := journal.Decode[journal.Ended](ev); err == nil && ev.Kind == journal.KindEnded {
				text = v.Error
			}
		}
	}
	if want := `no more; nobody knows whether "pay" at step 0 took effect`; text != want {
		t.Errorf("the run ended with %q, want %q", text, want)
	}
}

// TestWorkspaceNotStored: a task cannot start from files that are not stored.
func TestWorkspaceNotStored(t *testing.T) {
	var w world
	task := journal.Task{ID: "r", Workflow: "w", Session: home, Workspace: blob.Sum([]byte("nothing"))}
	_, err := w.runtime(nil).Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return flow.EmptyWorkflow{} }}, task)
	if !errors.Is(err, session.ErrNotFound) || !strings.Contains(err.Error(), "upload it first") {
		t.Errorf("error %v", err)
	}
	if keys := w.Keys(); len(keys) > 0 {
		t.Errorf("the refused task left %v", keys)
	}
}

// TestWorkspaceTooLarge: a manifest that lists one file many times, as any client with
// the right to store bytes can write it, fills no disk.
func TestWorkspaceTooLarge(t *testing.T) {
	for name, limits := range map[string]workspace.Limits{"more than 9 bytes": {Bytes: 9}, "more than 1 files": {Files: 1}} {
		var w world
		rt := w.runtime(nil)
		rt.Runtime.Workspaces.Limits = limits
		file := []byte("hello")
		files, err := manifest.NewTree([]manifest.Entry{
			{Path: "a", Kind: manifest.File, Size: 5, Digest: blob.Sum(file)}, {Path: "b", Kind: manifest.File, Size: 5, Digest: blob.Sum(file)},
		})
		if err != nil {
			t.Fatal(err)
		}
		store := blob.NewMemory()
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return store }
		for _, data := range [][]byte{file, files.Encode()} {
			if _, err := store.Put(t.Context(), bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
		}
		task := journal.Task{ID: "r", Workflow: "w", Session: home, Workspace: blob.Sum(files.Encode())}
		_, err = rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return flow.EmptyWorkflow{} }}, task)
		if run.CodeOf(err) != run.CodeTooLarge || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v (%s), want one of %s", err, run.CodeOf(err), name)
		}
		if keys := w.Keys(); len(keys) > 0 {
			t.Errorf("the refused task left %v", keys)
		}
	}
}

// away is a store of blobs that does not answer.
type away struct{ blob.Store }

var errAway = errors.New("no answer")

func (away) Get(context.Context, blob.Digest) (io.ReadCloser, error) { return nil, errAway }

// TestWorkspaceAway: a task whose files cannot be checked now is not invalid, and may be
// retried.
func TestWorkspaceAway(t *testing.T) {
	var w world
	rt := w.runtime(nil)
	rt.Runtime.Blobs = func(session.Tenant) blob.Store { return away{} }
	task := journal.Task{ID: "r", Workflow: "w", Session: home, Workspace: blob.Sum([]byte("something"))}
	err := rt.Runtime.Enqueue(t.Context(), task, nil)
	if !errors.Is(err, errAway) || errors.Is(err, session.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}
