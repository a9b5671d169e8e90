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

// toolLast bounds the calls under way when ServeTool ends.
const toolLast = 10 * time.Second

// ServeTool puts a tool of this program on offer to the agents of the tenant,
// and answers their calls until ctx ends: then it takes no more, lets those
// under way go on for a moment and returns. Closing the client ends it as well,
// with ErrUnreachable. Several programs may serve one tool; each call goes to one
// of them. The tool stays announced when no program serves it; see WithdrawTool.
// Package toolserver serves a tool that is written in Go with package tool.
//
// A call may take as long as the tool's timeout, at most 10 minutes, and its context ends
// after it; 0 is a minute. A call whose program dies may come again, with the same ID and the
// next attempt, if the tool's effect allows that. Calls have no sandbox and no session. The
// credentials must allow to announce the tool and to subscribe to its calls, see FORMAT.md of
// package messages.
func (c *Client) ServeTool(ctx context.Context, v messages.Tool, handle func(ctx context.Context, call messages.ToolCall) messages.ToolAnswer) error {
	if err := v.Check(v.Name); err != nil {
		return err
	}
	timeout := time.Duration(cmp.Or(v.TimeoutMS, messages.ToolTimeoutMS)) * time.Millisecond
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// It answers before the registry names it.
	s, err := c.requests.ServeTool(working, c.tenant, v.Name, func(ctx context.Context, call messages.ToolCall) messages.ToolAnswer {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return handle(ctx, call)
	})
	if err != nil {
		return err
	}
	if err = c.requests.AnnounceTool(ctx, c.tenant, v); err != nil {
		err = fmt.Errorf("tool %s was not announced: %w", v.Name, err)
	} else {
		select {
		case <-ctx.Done():
		case <-c.conn.Closed():
			err = fmt.Errorf("tool %s is served no more: %w: the client was closed", v.Name, ErrUnreachable)
		}
	}
	last := time.AfterFunc(toolLast, stop)
	defer last.Stop()
	return errors.Join(err, s.Stop())
}

// Tools returns the tools that programs have announced, sorted by name. The
// programs may have ended: only a call shows that.
func (c *Client) Tools(ctx context.Context) ([]messages.Tool, error) {
	data, err := c.requests.Query(ctx, c.tenant, messages.QueryTools, wire.Query{})
	if err != nil {
		return nil, err
	}
	all, err := messages.Decode[wire.Tools]("tools", data)
	return all.Tools, err
}

// WithdrawTool takes a tool away; one that is not there is no error. Runs that
// have begun with it go on calling it.
func (c *Client) WithdrawTool(ctx context.Context, name string) error {
	return c.requests.WithdrawTool(ctx, c.tenant, name)
}
