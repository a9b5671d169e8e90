package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// untilNextDay are the tries of a notification, an hour apart at most.
var untilNextDay = tool.Retry{Times: 100, First: 5 * time.Second, Most: time.Hour, Total: 24 * time.Hour}

// Open reports whether the question of a run at a step has no answer yet. An error that
// run.IsControl reports ends this attempt of a notification alone.
type Open func(ctx context.Context, t session.Tenant, id run.ID, step run.Path) (bool, error)

// Registration offers the workflow. env looks up the variables that the list names. world
// is the network; the zero value is the real one.
func Registration(list *List, env func(string) string, open Open, world egress.Options) flow.Registration {
	return flow.Registration{
		Name: Workflow, Revision: "1", Description: "Sends a notification to a target of the operator's list.", Input: json.RawMessage(`{"type":"object","required":["kind","to"]}`),
		NewFor: func(info flow.Info) (flow.Workflow, error) {
			m := message{id: string(info.Run), tenant: info.Tenant}
			if err := json.Unmarshal(info.Input, &m.input); err != nil || kinds[m.Kind].text == "" {
				return nil, fmt.Errorf("%s: input: %w: the nodes write it", Workflow, run.ErrMalformed)
			}
			if list.Link != "" {
				m.link = list.Link + m.path(info.Tenant)
			}
			return &notification{sender{list, env, world}, open, m}, nil
		},
	}
}

// notification sends one message.
type notification struct {
	sender  sender
	open    Open
	message message
}

// Forward implements flow.Workflow. A reminder first waits, and is sent only if the question
// is still open.
func (n *notification) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	m := &n.message
	if m.AfterMS > 0 {
		if err := flow.Sleep(ctx, time.Duration(m.AfterMS)*time.Millisecond); err != nil {
			return s, err
		}
		open, err := flow.Do(ctx, "open", func(ctx context.Context) (bool, error) { return n.open(ctx, m.tenant, m.Run, m.Step) }, tool.ReadOnly)
		if err != nil || !open {
			return s, err
		}
	}
	_, err := flow.Do(ctx, "send", func(ctx context.Context) (struct{}, error) {
		got := n.sender.send(ctx, m)
		switch err := errors.New(got.Why); {
		case ctx.Err() != nil: // the node stops, or the run
			return struct{}{}, context.Cause(ctx)
		case got.Sent:
			return struct{}{}, nil
		case got.Final:
			return struct{}{}, flow.Permanent(err)
		default:
			return struct{}{}, err
		}
	}, tool.Idempotent, untilNextDay)
	if err != nil && !run.IsControl(err) {
		err = errors.New("target " + m.To + " got no notification: " + err.Error())
	}
	return s, err
}
