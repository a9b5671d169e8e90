package requests

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
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
// processes that do share them. It does not announce the tool.
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
	sub, err := c.conn.NC.QueueSubscribe(subject, toolQueue, func(m *nats.Msg) {
		if m.Reply == "" {
			return
		}
		call, err := wire.DecodeToolCall(m.Data)
		if err != nil {
			answer(m, failedAnswer(err))
			return
		}
		s.Go(conn.RequestOf(m), func(ctx context.Context) { answer(m, handle(ctx, call)) }, func(err error) { answer(m, failedAnswer(err)) })
	})
	return s.Begun(ctx, c.conn, subject, sub, err)
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
