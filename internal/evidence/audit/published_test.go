package audit_test

import (
	"context"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// subscriber waits for events one after the other, and at the same time, and in vain.
func subscriber(ctx context.Context, s session.Session) (session.Session, error) {
	for range 2 {
		if _, err := flow.AwaitEvent(ctx, "paid", "k", nil); err != nil {
			return s, err
		}
	}
	shipped := func(ctx context.Context) error {
		_, err := flow.AwaitEvent(ctx, "shipped", "k", nil)
		return err
	}
	if err := flow.Gather(ctx, nil, shipped, shipped); err != nil {
		return s, err
	}
	_, err := flow.Select(ctx, flow.OnEvent("paid", "never", nil), flow.OnTimer(time.Minute))
	return s.With(session.AssistantText("done")), err
}

// TestRecordedEvents: the auditor accepts a run that waits for events and whose process dies
// at each append, and finds forged events, waits and deliveries.
func TestRecordedEvents(t *testing.T) {
	lives{
		begin: fresh(subscriber),
		ends:  run.Succeeded,
		forgeries: []forgery{
			{`"id":"1","key":"k","name":"paid","seq":2`, `"id":"1","key":"k","name":"paid","seq":3`, "event 2 of this time"},
			{`"id":"1","key":"k","name":"paid","seq":2,"value":"1"},"to"`, `"id":"1","key":"k","name":"paid","seq":2,"value":"9"},"to"`, "the delivery of an event as it was published"},
			{`"to":[{"path":"1",`, `"to":[{"path":"7",`, "a wait at step 7 for event"},
			{`"seq":2,"value":"1"},"kind":"event","n":2`, `"seq":1,"value":"1"},"kind":"event","n":2`, "an event after 1 at step 1"},
			{`"kind":"event","n":1,"path":"0"`, `"kind":"event","n":1,"path":"1"`, "an event for a wait at step 1"},
			{`"open":1,"run":"r","session":"home-1-0"}`, `"open":1,"run":"q","session":"home-1-0"}`, "run.waiting for it at step"},
			{`"kind":"event.delivered"`, `"kind":"vendor.note"`, "an event.delivered of event 1"},
			{`\"key\":\"k\",\"id\":\"0\",\"seq\":1`, `\"key\":\"k\",\"id\":\"0\",\"seq\":5`, "step 0 to take event 1 that came"},
		},
	}.audited(t)
}
