package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestReusedIdIsTold submits two bodies under one id, both of which are acknowledged, while
// the node that handles them is disturbed. Whichever of them a log gets, the other one is a
// dead letter, and its sender is notified.
func TestReusedIdIsTold(t *testing.T) {
	const subject = "rath.run.default.r1.event"
	for name, tc := range map[string]struct {
		mark   string // in the bytes that the node writes when its connection breaks, once
		bodies [2]string
		broken int // how many times in a row the first one gets into no log
	}{
		"in peace":                            {},
		"as the id is noted":                  {mark: "$KV.ALIAS.default.run.r1"},
		"as the other one is put away":        {mark: "rath.dlq."},
		"as it is told":                       {mark: subject},
		"as it is acknowledged":               {mark: "$JS.ACK.TASKS"},
		"the first one comes again":           {broken: 1},
		"the first one comes again and again": {broken: 5},
		"the other one is malformed too":      {bodies: [2]string{`{"id":"r1","input":"one"}`, `{"id":"r1","inptu":"two"}`}},
		"the first one is malformed":          {bodies: [2]string{`{"id":"r1","inptu":"one"}`, `{"id":"r1","input":"two"}`}},
	} {
		for _, swapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, swapped=%v", name, swapped), func(t *testing.T) {
				layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
					bodies := tc.bodies
					if bodies[0] == "" {
						bodies = [2]string{`{"id":"r1","input":"one"}`, `{"id":"r1","input":"two"}`}
					}
					if swapped {
						bodies[0], bodies[1] = bodies[1], bodies[0]
					}
					sender := layer.Dial(t, &c.Streams.O) // through the wire too: only the node's writes break it
					heard := make(chan *nats.Msg, 100)
					must.Get(sender.Conn.NC.ChanSubscribe(subject, heard))(t)
					for _, body := range bodies {
						must.Get(sender.Conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(body)))(t)
					}
					fired := func() bool { return true }
					if tc.mark != "" {
						var hook func([]byte) bool
						hook, fired = natstest.Once(tc.mark, natstest.Drop)
						w.Set(nil, hook)
					}
					taken, broken := map[string]int{}, tc.broken
					pullWhile(t, c, 10*time.Minute, dispatch.Intake{Accept: func(_ context.Context, task journal.Task) (journal.Answer, error) {
						if broken > 0 {
							broken--
							return "", errors.New("the log is away")
						}
						taken[string(task.Input)]++
						return journal.AnswerCommitted, nil
					}})
					w.Set(nil, nil)
					synctest.Wait()
					letters := listedLetters(t, c)
					if !fired() || len(taken) > 1 || len(letters) != 2-len(taken) {
						t.Fatalf("the connection was lost: %v; %v were taken, dead letters %+v", fired(), taken, letters)
					}
					reused := 0
					for _, l := range letters {
						if l.Letter.Run != "r1" {
							t.Errorf("dead letter of %q", l.Letter.Run)
						}
						if l.Letter.Code == run.CodeKeyReused {
							reused++
						}
					}
					told := 0
					for range len(heard) {
						e := must.Get(messages.DecodeEvent((<-heard).Data))(t)
						if e.Kind == messages.KindRefused && e.Code == run.CodeKeyReused {
							told++
						}
					}
					if reused != 1 || told == 0 {
						t.Errorf("%v were taken; of the other one there are %d dead letters, and %d events", taken, reused, told)
					}
				})
			})
		}
	}
}

// TestRefusalIsTold loses the connection while a refusal is published: a listening client
// receives it all the same.
func TestRefusalIsTold(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		const subject = "rath.run.default.r1.event"
		sender := layer.Dial(t, &c.Streams.O) // through the wire too: only the node's writes break it
		heard := make(chan *nats.Msg, 100)
		must.Get(sender.Conn.NC.ChanSubscribe(subject, heard))(t)
		must.Get(sender.Conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(`{"id":"r1","inptu":"one"}`)))(t)
		hook, fired := natstest.Once(subject, natstest.Drop)
		w.Set(nil, hook)
		pullWhile(t, c, 10*time.Minute, dispatch.Intake{Accept: func(context.Context, journal.Task) (journal.Answer, error) {
			t.Error("a malformed task was accepted")
			return journal.AnswerCommitted, nil
		}})
		w.Set(nil, nil)
		synctest.Wait()
		if !fired() || len(heard) == 0 {
			t.Fatalf("the connection was lost: %v; %d events were heard", fired(), len(heard))
		}
		if e, err := messages.DecodeEvent((<-heard).Data); err != nil || e.Kind != messages.KindRefused || e.Code != run.CodeMalformed {
			t.Errorf("the event is %+v, %v", e, err)
		}
	})
}
