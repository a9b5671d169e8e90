package api

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestControlNotBegun sends requests that need a run in a log. A task may be claimed
// between the look into the log and the look for a waiting task: then the run is found. For
// a run that will never begin the answer has the reason, and only an unused id is unknown.
func TestControlNotBegun(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		for id, a := range map[run.ID]translate.Alias{
			"taken":     {Digest: "d", Session: c.Logs.HomeOf("default", "taken")},
			"apart":     {Digest: "d", Session: c.Logs.HomeOf("default", "apart")},
			"refused":   {Digest: "d", Refused: run.CodeMalformed},
			"cancelled": {Cancelled: &journal.CancelRequested{Run: "cancelled"}},
		} {
			if _, _, _, err := eventlog.CreateAlias(t.Context(), c.Logs, eventlog.RunAliasSubject("default", id), a); err != nil {
				t.Fatal(err)
			}
		}
		tries := map[run.ID]int{}
		s := must.Get(c.ServeControl(t.Context(), func(_ context.Context, s journal.Signal) error {
			switch tries[s.Run]++; {
			case tries[s.Run] > 1:
				return nil
			case s.Quarantine != nil: // it is about a session, which is not there yet
				return fmt.Errorf("session %s: %w", s.To, session.ErrNotFound)
			}
			return fmt.Errorf("run %s: %w", s.Run, run.ErrUnknownRun)
		}, nil, nil))(t)
		for id, want := range map[run.ID]run.Code{
			"taken": "", "apart": "", "refused": run.CodeState, "cancelled": run.CodeState, "nobody": run.CodeUnknownRun,
		} {
			verb, body := messages.VerbMessage, `{"text":"hello"}`
			if id == "apart" {
				verb, body = messages.VerbQuarantine, `{"reason":"odd"}`
			}
			m, err := c.Conn.NC.Request(messages.ControlSubject("default", messages.UserAnonymous, id, verb), []byte(body), time.Minute)
			must.Do(t, err)
			a, err := wire.DecodeAnswer(m.Data)
			if err != nil || a.Done != (want == "") || a.Error != nil && a.Error.Code != want {
				t.Errorf("%s %s: %s, %v; want code %q", verb, id, m.Data, err, want)
			}
		}
		must.Report(t, s.Stop())
	})
}

// TestControlOfATaskOnItsWay asks for something that needs a run in a log, while a node
// that was given its task has not come to make its entry: the id is not unknown.
func TestControlOfATaskOnItsWay(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		s := must.Get(c.ServeControl(t.Context(), func(_ context.Context, s journal.Signal) error {
			return fmt.Errorf("run %s: %w", s.Run, run.ErrUnknownRun)
		}, nil, nil))(t)
		must.Get(c.Conn.NC.Request("rath.task.default.anonymous.agent", []byte(`{"id":"given"}`), time.Minute))(t)
		var e streams.Lookup
		consumer := must.Get(c.Streams.Reconciler.OpenQueue(t.Context(), &e, streams.TasksQueue()))(t)
		if m, err := consumer.Next(); err != nil || string(m.Data()) != `{"id":"given"}` {
			t.Fatalf("%v, %v", m, err)
		}
		for id, want := range map[run.ID]run.Code{"given": run.CodeState, "nobody": run.CodeUnknownRun} {
			m := must.Get(c.Conn.NC.Request(messages.ControlSubject("default", messages.UserAnonymous, id, messages.VerbMessage), []byte(`{"text":"hello"}`), time.Minute))(t)
			if a, err := wire.DecodeAnswer(m.Data); err != nil || a.Error == nil || a.Error.Code != want {
				t.Errorf("a message to %s: %s, %v; want code %q", id, m.Data, err, want)
			}
		}
		must.Report(t, s.Stop())
	})
}

// TestCancelMeanwhile cancels a run whose task is on its way to a log. The process that
// brings it there reads the note and ends the run, perhaps before the cancel is
// tried there again: it was done, whether it came with an id or not.
func TestCancelMeanwhile(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		ids := map[run.ID]string{"r1": "", "r2": "its own"}
		tries := map[run.ID]int{}
		s, err := c.ServeControl(t.Context(), func(ctx context.Context, s journal.Signal) error {
			if tries[s.Run]++; tries[s.Run] == 1 {
				return fmt.Errorf("run %s: %w", s.Run, run.ErrUnknownRun)
			}
			// The intake has applied the alias's cancel, and a log again has the run of the
			// id.
			a, _, err := eventlog.ReadAlias(ctx, c.Logs, eventlog.RunAliasSubject("default", s.Run))
			if err != nil || a.Cancelled == nil {
				return fmt.Errorf("the note is %+v: %w", a, err)
			}
			if a.Cancelled.ID == "" || a.Cancelled.ID != s.Cancel.ID {
				return fmt.Errorf("run %s was cancelled already: %w", s.Run, run.ErrState)
			}
			return nil
		}, nil, nil)
		must.Do(t, err)
		for r, id := range ids {
			if _, _, _, err := eventlog.CreateAlias(t.Context(), c.Logs, eventlog.RunAliasSubject("default", r), translate.Alias{Digest: "d", Session: c.Logs.HomeOf("default", r)}); err != nil {
				t.Fatal(err)
			}
			m := must.Get(c.Conn.NC.Request(messages.ControlSubject("default", messages.UserAnonymous, r, messages.VerbCancel), fmt.Appendf(nil, `{"id":%q}`, id), time.Minute))(t)
			if a, err := wire.DecodeAnswer(m.Data); err != nil || !a.Done || tries[r] != 2 {
				t.Errorf("a cancel of %s with the id %q: %s, %v, after %d tries", r, id, m.Data, err, tries[r])
			}
		}
		must.Report(t, s.Stop())
	})
}

// TestCancelUnbornBranch cancels a branch that has not begun, as one would a task that may
// come. The node that handles the branch looks for no alias: none is left, and no caller
// gets the answer that it was cancelled.
func TestCancelUnbornBranch(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		s := must.Get(c.ServeControl(t.Context(), func(_ context.Context, s journal.Signal) error {
			return fmt.Errorf("run %s: %w", s.Run, run.ErrUnknownRun)
		}, nil, nil))(t)
		branch := run.ID(c.Logs.Minter().Child("default", "r1", "0.left"))
		for _, body := range []string{`{}`, `{"submitted":true}`} {
			m := must.Get(c.Conn.NC.Request(messages.ControlSubject("default", messages.UserAnonymous, branch, messages.VerbCancel), []byte(body), time.Minute))(t)
			if a, err := wire.DecodeAnswer(m.Data); err != nil || a.Error == nil || a.Error.Code != run.CodeUnknownRun {
				t.Errorf("cancel with %s: %s, %v", body, m.Data, err)
			}
		}
		if _, revision, err := eventlog.ReadAlias(t.Context(), c.Logs, eventlog.RunAliasSubject("default", branch)); err != nil || revision != 0 {
			t.Errorf("a note was left: revision %d, %v", revision, err)
		}
		if state := streamstest.ResultOf(t, c.Streams, "default", branch); state != "" {
			t.Errorf("its result says %q", state)
		}
		must.Report(t, s.Stop())
	})
}

// TestCancelAmongMany cancels runs while more tasks wait than a cancel searches: the answer
// is busy, even soon from a slow server. A task of the id among them matters only if only
// submitted tasks are meant.
func TestCancelAmongMany(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		const waiting = 150
		for i := range waiting {
			must.Get(c.Conn.NC.Request(messages.TaskSubject("default", messages.UserAnonymous, "agent"), fmt.Appendf(nil, `{"id":"r%d","input":"x"}`, i), time.Minute))(t)
		}
		w.Set(func(b []byte) bool {
			if bytes.Contains(b, []byte(`"subject":"rath.task.default.anonymous.agent"`)) {
				time.Sleep(10 * time.Millisecond) // a slow server
			}
			return true
		}, nil)
		s := must.Get(c.ServeControl(t.Context(), func(_ context.Context, s journal.Signal) error {
			return fmt.Errorf("run %s: %w", s.Run, run.ErrUnknownRun)
		}, nil, nil))(t)
		last := run.ID(fmt.Sprintf("r%d", waiting-1))
		for _, k := range []struct {
			run       run.ID
			submitted bool
			want      run.Code
		}{{last, true, run.CodeBusy}, {"r1", true, ""}, {last, false, ""}, {last, false, ""}, {"nobody", false, ""}, {"nobody", false, ""}} {
			body, err := messages.Encode(messages.Control{ID: string(k.run) + "-cancel", Submitted: k.submitted})
			must.Do(t, err)
			began := time.Now()
			m, err := c.Conn.NC.Request(messages.ControlSubject("default", messages.UserAnonymous, k.run, messages.VerbCancel), body, time.Minute)
			must.Do(t, err)
			a, err := wire.DecodeAnswer(m.Data)
			if err != nil || a.Done != (k.want == "") || a.Error != nil && a.Error.Code != k.want {
				t.Errorf("cancel %s, submitted %v: %s, %v; want code %q", k.run, k.submitted, m.Data, err, k.want)
			}
			note := dispatch.NoteEarly
			if !k.submitted {
				note = dispatch.NoteUnborn
			}
			if d := time.Since(began); k.want == "" && a.Note != note || d > time.Second {
				t.Errorf("cancel %s, submitted %v: %q after %v, want %q at once", k.run, k.submitted, a.Note, d, note)
			}
		}
		must.Report(t, s.Stop())
	})
}
