package api

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// refusedLetter has a task refused, and returns the number of its letter.
func refusedLetter(t *testing.T, c *Conn) string {
	t.Helper()
	must.Get(c.Conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(`{"id":"r1","input":"hi"}`)))(t)
	pullWhile(t, c, time.Second, dispatch.Intake{Offers: func(string) (string, bool) { return "", false }})
	all := listedLetters(t, c)
	if len(all) != 1 {
		t.Fatalf("letters %+v", all)
	}
	return strconv.FormatUint(all[0].At, 10)
}

// listedLetters are those without an end.
func listedLetters(t *testing.T, c *Conn) []messages.StoredLetter {
	t.Helper()
	page := must.Get(answerer{c: c}.letters(t.Context(), session.DefaultTenant, wire.Query{}))(t)
	return page.(wire.DeadLetters).Letters
}

// TestLetterEndsOnce has two operators handle one letter at the same time: the node of the
// first freezes after it has found the letter open, before it records its decision. The
// first operator gets the decision of the other, and the task is submitted once, or not at
// all if the other dropped it.
func TestLetterEndsOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		late, early string
		refused     bool
		tasks       uint64
	}{
		"a retry after a drop":  {messages.VerbLetterRetry, messages.VerbLetterDrop, true, 0},
		"a drop after a retry":  {messages.VerbLetterDrop, messages.VerbLetterRetry, true, 1},
		"a drop after a drop":   {messages.VerbLetterDrop, messages.VerbLetterDrop, true, 0},
		"a retry after a retry": {messages.VerbLetterRetry, messages.VerbLetterRetry, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
				at := refusedLetter(t, c)
				other := layer.Dial(t, &c.Streams.O)
				var early, late string
				var earlyErr error
				hook, fired := natstest.Once(`"end":"`, func([]byte) bool {
					w.Set(nil, nil)
					early, earlyErr = other.controls.controlDead(t.Context(), ofLetter(at, tc.early), messages.Control{By: "ann"})
					return true
				})
				w.Set(nil, hook)
				late, err := c.controls.controlDead(t.Context(), ofLetter(at, tc.late), messages.Control{By: "bob"})
				if !fired() || earlyErr != nil || errors.Is(err, run.ErrState) != tc.refused || err == nil && early != late {
					t.Errorf("stood still: %v; the first is told %q, %v, and the second %q, %v", fired(), early, earlyErr, late, err)
				}
				if _, tasks := streamstest.LettersAndTasks(t, c.Streams); tasks != tc.tasks || len(listedLetters(t, c)) != 0 {
					t.Errorf("%d tasks, letters %+v", tasks, listedLetters(t, c))
				}
			})
		})
	}
}

// TestLetterHalfRetried has a node end after it has recorded a retry, before it submits the
// task. The letter stays on the list, it cannot be dropped, and a further retry gets the
// same run.
func TestLetterHalfRetried(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		at := refusedLetter(t, c)
		ending, end := context.WithCancel(t.Context())
		hook, fired := natstest.Once("PUB rath.task.", func(b []byte) bool {
			end()
			return natstest.Replace("PUB rath.task.", "PUB rath.tusk.")(b) // without a listener
		})
		w.Set(nil, hook)
		if id, err := c.controls.controlDead(ending, ofLetter(at, messages.VerbLetterRetry), messages.Control{}); err == nil || !fired() {
			t.Fatalf("run %s, about to be submitted: %v", id, fired())
		}
		if _, tasks := streamstest.LettersAndTasks(t, c.Streams); tasks != 0 || len(listedLetters(t, c)) != 1 {
			t.Errorf("%d tasks, letters %+v", tasks, listedLetters(t, c))
		}
		if _, err := c.controls.controlDead(t.Context(), ofLetter(at, messages.VerbLetterDrop), messages.Control{}); !errors.Is(err, run.ErrState) {
			t.Errorf("dropped: %v", err)
		}
		for range 2 {
			id, err := c.controls.controlDead(t.Context(), ofLetter(at, messages.VerbLetterRetry), messages.Control{})
			if _, tasks := streamstest.LettersAndTasks(t, c.Streams); err != nil || id != "r1-r"+at || tasks != 1 || len(listedLetters(t, c)) != 0 {
				t.Errorf("run %s, %v; %d tasks, letters %+v", id, err, tasks, listedLetters(t, c))
			}
		}
	})
}

// ofLetter is a request about a letter.
func ofLetter(at, verb string) wire.Controlled {
	return wire.Controlled{Tenant: session.DefaultTenant, User: messages.UserAnonymous, ID: at, Verb: verb}
}
