package requests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// toolQueue is the queue group of the processes that answer the calls of one tool.
const toolQueue = "rath.tool"

// AnnounceTool offers a tool to a tenant, and replaces an earlier tool of its name. It
// needs the right to request its ToolControlSubject.
func (c *Requests) AnnounceTool(ctx context.Context, t session.Tenant, v messages.Tool) error {
	body, err := messages.Encode(v)
	if err != nil {
		return err
	}
	return c.controlledTool(ctx, t, v.Name, messages.VerbAnnounce, body)
}

// WithdrawTool removes a tool; a missing tool is no error.
func (c *Requests) WithdrawTool(ctx context.Context, t session.Tenant, name string) error {
	return c.controlledTool(ctx, t, name, messages.VerbWithdraw, nil)
}

func (c *Requests) controlledTool(ctx context.Context, t session.Tenant, name, verb string, body []byte) error {
	user, err := c.user(ctx, t)
	if err != nil {
		return err
	}
	subject := messages.ToolControlSubject(t, user, name, verb)
	_, err = answered(ctx, func(ctx context.Context) ([]byte, error) { return c.conn.Ask(ctx, subject, body) })
	return err
}

// ServeTool answers the calls of a tool until the service is stopped; several
// processes that do share them. The context of a call ends when the node does not wait for
// the answer any more. It does not announce the tool.
func (c *Requests) ServeTool(ctx context.Context, t session.Tenant, name string, handle func(ctx context.Context, call messages.ToolCall) messages.ToolAnswer) (*conn.Service, error) {
	if err := session.ValidID("tool", name); err != nil {
		return nil, err
	}
	subject := messages.ToolSubject(t, name)
	s := c.conn.NewService(ctx)
	s.Limit = messages.MaxToolTimeoutMS * time.Millisecond
	answer := func(m *nats.Msg, a messages.ToolAnswer) {
		data, err := messages.Encode(a)
		if errors.Is(err, session.ErrTooLarge) {
			data, err = messages.Encode(failedAnswer(err))
		}
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.conn.Logger.Warn("a tool call was not answered", "tool", name, "err", err)
		}
	}
	calls := callsInFlight{of: map[wire.ToolCancel]context.CancelCauseFunc{}}
	ends, err := c.conn.NC.Subscribe(messages.ToolCancelSubject(t, name), func(m *nats.Msg) {
		if v, err := wire.DecodeToolCancel(m.Data); err == nil {
			calls.end(v)
		}
	})
	if err != nil {
		return nil, err
	}
	sub, err := c.conn.NC.QueueSubscribe(subject, toolQueue, func(m *nats.Msg) {
		if m.Reply == "" {
			return
		}
		call, err := wire.DecodeToolCall(m.Data)
		if err != nil {
			answer(m, failedAnswer(err))
			return
		}
		s.Go(conn.RequestOf(m), func(ctx context.Context) {
			ctx, leave := calls.enter(ctx, call)
			defer leave()
			answer(m, handle(ctx, call))
		}, func(err error) { answer(m, failedAnswer(err)) })
	})
	s, err = s.Begun(ctx, c.conn, subject, sub, err)
	if err != nil {
		_ = ends.Unsubscribe() // fails only when the connection has ended
		return nil, err
	}
	drain := s.Close
	s.Close = func() error {
		defer func() { _ = ends.Unsubscribe() }() // likewise
		return drain()
	}
	return s, nil
}

// callsInFlight are the calls of a tool that this process answers.
type callsInFlight struct {
	mu sync.Mutex
	of map[wire.ToolCancel]context.CancelCauseFunc // without a reason
}

// enter adds a call, whose context end cancels.
func (c *callsInFlight) enter(ctx context.Context, call messages.ToolCall) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	k := wire.ToolCancel{ID: call.ID, Attempt: call.Attempt}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[k] = cancel
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.of, k)
		cancel(nil)
	}
}

// end cancels a call, if it is in flight here.
func (c *callsInFlight) end(v wire.ToolCancel) {
	why := fmt.Errorf("%w: %s", run.ErrCancelled, v.Reason)
	v.Reason = ""
	c.mu.Lock()
	cancel := c.of[v]
	c.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
}

// failedAnswer is the body of a failure as package tool writes it, for a call that did not
// reach the tool, or whose answer did not fit.
func failedAnswer(err error) messages.ToolAnswer {
	kind := "tool_execution_exception"
	if errors.Is(err, session.ErrTooLarge) {
		kind = "too_large"
	}
	body, encodeErr := messages.Encode(struct {
		OK      bool   `json:"ok"`
		Kind    string `json:"error_kind"`
		Message string `json:"message"`
	}{false, kind, excerpt.Start(messages.Text(err), messages.MaxToolText)})
	if encodeErr != nil { // it holds strings, which always encode
		panic(encodeErr)
	}
	return messages.ToolAnswer{Body: body, IsError: true}
}
