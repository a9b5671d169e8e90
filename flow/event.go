package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
)

// Event is a published event.
type Event struct {
	Name string    `json:"name"`
	Key  string    `json:"key"`
	ID   string    `json:"id"`  // of its publisher
	Seq  uint64    `json:"seq"` // its place among the events of its name and key, from one
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"`   // the NATS user, whose credentials the server checked
	Says string    `json:"says,omitempty"` // the claimed publisher, not verified
	// Value is JSON; nil if the event has none.
	Value json.RawMessage `json:"value,omitempty"`
}

// Decode decodes the value of the event.
func (e *Event) Decode(into any) error {
	if err := json.Unmarshal(e.Value, into); err != nil {
		return fmt.Errorf("flow: value of event %s: %w", e.Name, err)
	}
	return nil
}

// AwaitEvent waits for the next event of a name and a key in the tenant, as [Await] does:
//
//	paid, err := flow.AwaitEvent(ctx, "invoice.paid", order.Invoice, &flow.AwaitOptions{Timeout: 72 * time.Hour})
//
// Events come from `rath event publish`, client.Client.Publish, POST /api/v1/events, or a
// request on rath.ctl. All waiting runs get an event. A run gets the events of a name and a
// key in their order, each once: the first wait begins with the oldest event that is kept,
// and a later one after the event that the run got last. Functions of a [Gather] do not see
// each other's. Events are kept for 7 days, the newest 256 of a name and a key.
func AwaitEvent(ctx context.Context, name, key string, o *AwaitOptions) (Event, error) {
	if err := run.ValidEvent(name, key); err != nil {
		return Event{}, err
	}
	w, timeout := awaits(name, key, o)
	return await[Event](ctx, w, timeout)
}

// awaits returns the wait for an event.
func awaits(name, key string, o *AwaitOptions) (journal.Wait, time.Duration) {
	w, timeout := o.wait(run.WaitEvent, name)
	w.Key = key
	return w, timeout
}

// OnEvent waits for an event, as [AwaitEvent] does. An event that comes after another case
// has won is the next one of a later wait.
func OnEvent(name, key string, o *AwaitOptions) *On[Event] {
	w, timeout := awaits(name, key, o)
	return &On[Event]{on: stepper.Case{Wait: w, Timeout: timeout}, take: func(ctx context.Context) (Event, error) { return AwaitEvent(ctx, name, key, o) }}
}
