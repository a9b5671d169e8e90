package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

const (
	// retryFirst and retryMost bound the time between two attempts, which doubles, and
	// retryAll the sum of these times.
	retryFirst = 5 * time.Second
	retryMost  = time.Hour
	retryAll   = 24 * time.Hour
)

// Options configure the workflow.
type Options struct {
	List *List
	// Env looks up the variables that the list names.
	Env func(string) string
	// Open reports whether the question of a run at a step has no answer yet. An error that
	// run.IsControl reports ends this attempt of the run alone.
	Open func(ctx context.Context, t session.Tenant, id run.ID, step run.Path) (bool, error)
	// World is the network, without private addresses; the zero value is the real one.
	World egress.Options
}

const schema = `{"type":"object","required":["kind","time_ms","to"],"additionalProperties":false,"properties":{` +
	`"kind":{"enum":["question","failed","stuck","budget","deadletter"]},"run":{"type":"string"},"workflow":{"type":"string"},"step":{"type":"string"},` +
	`"sequence":{"type":"integer"},"time_ms":{"type":"integer"},"to":{"type":"string"},"after_ms":{"type":"integer"}}}`

// Registration offers the workflow.
func Registration(o Options) flow.Registration {
	s := &sender{o.List, o.Env, o.World}
	return flow.Registration{
		Name: Workflow, Revision: "1", Input: json.RawMessage(schema), Description: "Sends a notification to a target of the operator's list.",
		NewFor: func(info flow.Info) (flow.Workflow, error) {
			var in input
			d := json.NewDecoder(strings.NewReader(string(info.Input)))
			d.DisallowUnknownFields()
			if err := d.Decode(&in); err != nil {
				return nil, fmt.Errorf("%s: input: %w", Workflow, err)
			}
			if err := in.check(); err != nil {
				return nil, err
			}
			m := message{input: in, id: string(info.Run), tenant: info.Tenant}
			if o.List.Link != "" {
				m.link = o.List.Link + in.path(info.Tenant)
			}
			return &notification{s, o.Open, m}, nil
		},
	}
}

// check rejects an input that could put text into a message.
func (in *input) check() error {
	bad := func(field string) error {
		return fmt.Errorf("%s: %s is not valid: %w", Workflow, field, run.ErrMalformed)
	}
	switch {
	case indexOf(in.Kind) < 0:
		return bad("kind")
	case in.Run != "" && session.ValidID("run", string(in.Run)) != nil, in.Run == "" && in.Kind != DeadLetter:
		return bad("run")
	case in.Workflow != "" && session.ValidID("workflow", in.Workflow) != nil:
		return bad("workflow")
	case in.AfterMS < 0 || in.AfterMS > maxAfter.Milliseconds():
		return bad("after_ms")
	}
	return nil
}

// notification sends one message.
type notification struct {
	sender  *sender
	open    func(context.Context, session.Tenant, run.ID, run.Path) (bool, error)
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
	for wait, waited := retryFirst, time.Duration(0); ; wait = min(2*wait, retryMost) {
		got, err := flow.Do(ctx, "send", func(ctx context.Context) (outcome, error) {
			got := n.sender.send(ctx, m)
			return got, context.Cause(ctx) // the node stops, or the run
		}, tool.Idempotent)
		switch {
		case err != nil:
			return s, err
		case got.Sent:
			return s, nil
		case got.Final || waited >= retryAll:
			return s, errors.New("target " + m.To + " got no notification: " + got.Why)
		}
		if err := flow.Sleep(ctx, wait); err != nil {
			return s, err
		}
		waited += wait
	}
}
