package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
)

// Tools offers tools of this program to the tenant's agents, and lists the offered
// ones.
type Tools struct{ c *Client }

// toolLast bounds the calls in flight when Serve ends.
const toolLast = 10 * time.Second

// List returns the tools that programs have announced, sorted by name. The programs may
// have ended: only a call shows that.
func (ts *Tools) List(ctx context.Context) ([]messages.Tool, error) {
	data, err := ts.c.requests.Query(ctx, ts.c.tenant, messages.QueryTools, wire.Query{})
	if err != nil {
		return nil, err
	}
	all, err := messages.Decode[wire.Tools]("tools", data)
	return all.Tools, err
}

// Serve offers a tool of this program to the agents of the tenant, and answers their
// calls until ctx ends. It then accepts no more calls, gives calls in flight a moment
// to finish, and returns. Closing the client ends it as well, with ErrUnreachable.
// Several programs may serve one tool; each call goes to one of them. The tool stays
// announced when no program serves it; see Withdraw. Package toolserver serves a tool
// that is written in Go with package tool.
//
// A call may take as long as the tool's timeout, at most 10 minutes (0 is a minute),
// after which its context ends. A call whose program dies may be redelivered, with the
// same ID and the next attempt, if the tool's effect allows that. Calls have no sandbox
// and no session. The credentials must permit announcing the tool and subscribing to
// its calls, see FORMAT.md of package messages.
func (ts *Tools) Serve(ctx context.Context, v messages.Tool, handle func(ctx context.Context, call messages.ToolCall) messages.ToolAnswer) error {
	if err := v.Check(v.Name); err != nil {
		return err
	}
	timeout := time.Duration(cmp.Or(v.TimeoutMS, messages.ToolTimeoutMS)) * time.Millisecond
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// The tool answers calls before the registry names it.
	s, err := ts.c.requests.ServeTool(working, ts.c.tenant, v.Name, func(ctx context.Context, call messages.ToolCall) messages.ToolAnswer {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return handle(ctx, call)
	})
	if err != nil {
		return err
	}
	if err = ts.c.requests.AnnounceTool(ctx, ts.c.tenant, v); err != nil {
		err = fmt.Errorf("tool %s was not announced: %w", v.Name, err)
	} else {
		select {
		case <-ctx.Done():
		case <-ts.c.conn.Closed():
			err = fmt.Errorf("tool %s is served no more: %w: the client was closed", v.Name, ErrUnreachable)
		}
	}
	last := time.AfterFunc(toolLast, stop)
	defer last.Stop()
	return errors.Join(err, s.Stop())
}

// Withdraw removes a tool; an unknown tool is no error. Runs that started with the tool
// continue to call it.
func (ts *Tools) Withdraw(ctx context.Context, name string) error {
	return ts.c.requests.WithdrawTool(ctx, ts.c.tenant, name)
}
