package api_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// release writes notes, asks a person and publishes. The part after the question differs by
// revision; revision other asks for other notes.
func release(revision string, notes, published *atomic.Int32) flow.Registration {
	name := "notes"
	if revision == "other" {
		name = "other notes"
	}
	return flow.Registration{Name: "release", Description: "publishes", Revision: revision, New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			text, err := flow.Do(ctx, name, func(context.Context) (string, error) {
				notes.Add(1)
				return "the notes", nil
			}, tool.Idempotent)
			if err != nil {
				return s, err
			}
			a, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Detail: text})
			if err != nil {
				return s, err
			}
			if _, err := flow.Do(ctx, "publish", func(context.Context) (int, error) { published.Add(1); return 1, nil }, tool.NonIdempotent); err != nil {
				return s, err
			}
			return s.With(session.UserText(text + " by revision " + revision + ", approved by " + a.By)), nil
		})
	}}
}

// TestAWeekAcrossACodeChange: a run waits a week for an approval, with every process down
// meanwhile, and resumes under code of another revision with the same steps.
func TestAWeekAcrossACodeChange(t *testing.T) {
	for _, after := range []string{"2", "other"} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { week(t, after) })
		})
	}
}

func week(t *testing.T, after string) {
	opts := &natsserver.Options{StoreDir: t.TempDir()}
	srv := natstest.Start(t, opts)
	var notes, published atomic.Int32
	n := startNodeWith(t, srv, "before", &spec{only: []flow.Registration{release("1", &notes, &published)}})
	c, _ := visitor(t, srv)
	must.Get(c.Submit(t.Context(), "release", messages.Task{ID: "r1"}))(t)
	waiting := func() messages.RunInfo {
		t.Helper()
		for range 200 {
			if r, err := c.Runs.Get(t.Context(), "r1"); err == nil && r.State == run.Waiting {
				return r
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatal("the run does not wait")
		return messages.RunInfo{}
	}
	if r := waiting(); len(r.Waits) != 1 || r.Waits[0].Title != "Publish?" {
		t.Fatalf("it waits for %+v", r.Waits)
	} else if left := time.Until(time.UnixMilli(r.Waits[0].Due)); left > journal.DefaultExpiry || left < journal.DefaultExpiry-time.Minute {
		t.Errorf("the question stands for another %s", left)
	}
	if got := n.sys.Running(); got != 0 {
		t.Errorf("%d runs execute while it waits", got)
	}
	n.stop()
	must.Report(t, c.Close())
	must.Do(t, srv.Shutdown(t.Context()))

	time.Sleep(7 * 24 * time.Hour)

	srv = natstest.Start(t, opts)
	n = startNodeWith(t, srv, "after", &spec{only: []flow.Registration{release(after, &notes, &published)}})
	c, _ = visitor(t, srv)
	waiting()
	must.Do(t, c.Questions.Approve(t.Context(), "r1", messages.Control{Step: "1", By: "ana"}))
	if after == "other" {
		for range 200 {
			r, err := c.Runs.Get(t.Context(), "r1")
			if err == nil && r.State == run.NeedsReview {
				if r.Review == nil || !strings.Contains(r.Review.Reason, `"notes"`) || r.Review.Code != run.CodeMismatch {
					t.Errorf("the review says %+v", r.Review)
				}
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		must.Do(t, c.Runs.Resolve(t.Context(), "r1", messages.Control{Decision: run.Pin, Reason: "finish it as it began"}))
		time.Sleep(time.Minute) // no node here may go on with it
		if r, err := c.Runs.Get(t.Context(), "r1"); err != nil || r.State != run.Queued {
			t.Errorf("pinned, the run is %s: %v", r.State, err)
		}
		old := startNodeWith(t, srv, "again", &spec{only: []flow.Registration{release("1", &notes, &published)}})
		defer old.stop()
	}
	bounded, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := c.Wait(bounded, "r1")
	if err != nil || r.State != run.Succeeded {
		t.Fatalf("the run ended as %+v: %v", r, err)
	}
	s, err := c.Sessions.Get(t.Context(), string(r.Session))
	must.Do(t, err)
	revision := after
	if after == "other" {
		revision = "1"
	}
	if got, want := s.Chunks[len(s.Chunks)-1].Text, "the notes by revision "+revision+", approved by anonymous"; got != want {
		t.Errorf("the session says %q, want %q", got, want)
	}
	if notes.Load() != 1 || published.Load() != 1 {
		t.Errorf("notes were written %d times, published %d times", notes.Load(), published.Load())
	}
	n.stop()
}
