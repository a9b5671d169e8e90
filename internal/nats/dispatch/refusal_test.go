package dispatch

import (
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestOneLetter refuses one task twice: the acknowledgement is lost after the first time,
// or a node freezes before it records the refusal, or before it stores the letter, while
// another one refuses it. There is one letter.
func TestOneLetter(t *testing.T) {
	const ok = `{"id":"r1","input":"hi"}`
	nobody := Intake{Offers: func(string) (string, bool) { return "", false }}
	for name, body := range map[string]string{"unknown workflow": ok, "id of another task": `{"id":"r1","input":"other"}`, "no JSON": "hello"} {
		for fault, mark := range map[string]string{"lost ack": "PUB $JS.ACK." + streams.StreamTasks, "stands still before the note": `"refused":"`, "stands still before the letter": "PUB rath.dlq."} {
			t.Run(name+", "+fault, func(t *testing.T) {
				layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
					if body != ok {
						a := aliasOf(t, c, session.DefaultTenant, []byte(ok))
						if _, _, _, err := eventlog.CreateAlias(t.Context(), c.logs, eventlog.RunAliasSubject(session.DefaultTenant, "r1"), a); err != nil {
							t.Fatal(err)
						}
					}
					must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(body)))(t)
					if fault == "lost ack" {
						hook, fired := natstest.Once(mark, natstest.Replace("PUB $JS.ACK.", "PUB $JS.ICK."))
						w.Set(nil, hook)
						pullWhile(t, c, time.Minute, nobody)
						if letters, tasks := streamstest.LettersAndTasks(t, c.streams); !fired() || letters != 1 || tasks != 0 {
							t.Errorf("an acknowledgement was lost: %v; %d letters, %d tasks wait", fired(), letters, tasks)
						}
						return
					}
					consumer := must.Get(c.streams.Reconciler.OpenQueue(t.Context(), &streams.Lookup{}, streams.TasksQueue()))(t)
					batch := must.Get(consumer.Fetch(1))(t)
					m := <-batch.Messages()
					other := layer.Dial(t, &c.streams.O)
					second := disposition(nakDelayed)
					hook, fired := natstest.Once(mark, func([]byte) bool {
						w.Set(nil, nil)
						second = (&intake{c: other, Intake: nobody, offers: other.Registry.newCatalog()}).handle(t.Context(), m)
						return true
					})
					w.Set(nil, hook)
					first := (&intake{c: c, Intake: nobody, offers: c.Registry.newCatalog()}).handle(t.Context(), m)
					noted := body != "hello" || mark != `"refused":"` // one without an id is not
					if letters, _ := streamstest.LettersAndTasks(t, c.streams); first != ack || fired() != noted || noted && second != ack || letters != 1 {
						t.Errorf("stood still: %v; it was refused: %v and %v; %d letters", fired(), first == ack, second == ack, letters)
					}
				})
			})
		}
	}
}

// TestRefusedIsToldAgain submits a task again that was refused, or cancelled before it was
// submitted: the client gets the outcome, as for a task that a log held.
func TestRefusedIsToldAgain(t *testing.T) {
	for name, cancelled := range map[string]bool{"refused": false, "cancelled before": true} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
				in := Intake{Offers: func(string) (string, bool) { return "1", cancelled }}
				if cancelled {
					var a translate.Alias
					a.Cancelled = &journal.CancelRequested{Run: "r1"}
					if _, _, _, err := eventlog.CreateAlias(t.Context(), c.logs, eventlog.RunAliasSubject(session.DefaultTenant, "r1"), a); err != nil {
						t.Fatal(err)
					}
					must.Do(t, c.PutCancelled(t.Context(), session.DefaultTenant, "r1"))
				}
				for i := range 3 {
					sub := must.Get(c.conn.NC.SubscribeSync(messages.RunSubject(session.DefaultTenant, "r1", messages.OnResult)))(t)
					must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(`{"id":"r1","input":"hi"}`)))(t)
					pullWhile(t, c, time.Minute, in)
					if n, _, err := sub.Pending(); n != 1 || err != nil {
						t.Errorf("submission %d: %d results, %v; want one", i, n, err)
					}
					must.Do(t, sub.Unsubscribe())
				}
			})
		})
	}
}
