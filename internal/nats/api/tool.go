package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// A tool of another process is an entry in the registry and a process that answers requests
// on its subject. The entry stays when no process answers: its calls then fail, and the
// model gets the error.

// maxTools is how many tools a tenant may have.
const maxTools = 1024

// Tools returns the tools that processes have announced to a tenant, sorted by name. It
// reads any replica, which may lag behind; it reads the named ones from the registry's
// leader.
func (c *Conn) Tools(ctx context.Context, t session.Tenant, named ...string) ([]messages.Tool, error) {
	var all []messages.Tool
	for m, err := range c.Streams.Values(ctx, streams.BucketRegistry, wire.ToolKey(t, "*")) {
		if err != nil {
			return nil, fmt.Errorf("nats/api: tools of %s: %w", t, err)
		}
		if v, err := wire.DecodeTool(m.Data); err == nil {
			all = append(all, v)
		}
	}
	for _, name := range named {
		if session.ValidID("tool", name) != nil {
			continue
		}
		all = slices.DeleteFunc(all, func(v messages.Tool) bool { return v.Name == name })
		m, err := c.Messages.LeaderLast(ctx, "KV_"+streams.BucketRegistry, streams.KeySubject(streams.BucketRegistry, wire.ToolKey(t, name)))
		if err != nil && !errors.Is(err, conn.ErrNoMessage) {
			return nil, fmt.Errorf("nats/api: tool %s: %w", name, err)
		}
		if v, decodeErr := wire.DecodeTool(m.Data); err == nil && decodeErr == nil && m.Header.Get("KV-Operation") == "" {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b messages.Tool) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// tools answers a query for the tools of a tenant.
func (a answerer) tools(ctx context.Context, t session.Tenant, _ wire.Query) (any, error) {
	all, err := a.c.Tools(ctx, t)
	return wire.Tools{Tools: append([]messages.Tool{}, all...)}, err
}

// controlTool announces or withdraws a tool.
func (c *controls) controlTool(ctx context.Context, t session.Tenant, name, verb string, data []byte) error {
	switch verb {
	case messages.VerbToolAnnounce:
		return c.announceTool(ctx, t, name, data)
	case messages.VerbToolWithdraw:
		return c.all.Dispatch.Registry.Unregister(ctx, wire.ToolKey(t, name))
	}
	return fmt.Errorf("tool %q: verb %q: %w: %s or %s", name, verb, run.ErrMalformed, messages.VerbAnnounce, messages.VerbWithdraw)
}

func (c *controls) announceTool(ctx context.Context, t session.Tenant, name string, data []byte) error {
	v, err := wire.DecodeTool(data)
	if err == nil {
		err = v.Check(name)
	}
	if err != nil {
		return err
	}
	if _, builtin := tool.ByName(name); builtin { // agents get the builtin tool, and not this one
		return &strict.Error{Message: "tool", Field: "name", Problem: "the tool " + name + " is built into every node", Remedy: "choose another name"}
	}
	if err := c.all.ToolOf(t, v).Spec().Check(); err != nil {
		return &strict.Error{Message: "tool", Field: "input", Problem: strict.Problem(err), Remedy: "send the JSON Schema of an object"}
	}
	all, err := c.all.Tools(ctx, t)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(all, func(o messages.Tool) bool { return o.Name == name })
	if !known && len(all) >= maxTools {
		return fmt.Errorf("tool %s: %w: there are %d already; withdraw some", name, run.ErrBusy, len(all))
	}
	entry, err := messages.Encode(v)
	if err != nil {
		return err
	}
	if err := c.all.Dispatch.Registry.Enter(ctx, wire.ToolKey(t, name), entry); err != nil {
		return fmt.Errorf("nats/api: announce tool %s: %w", name, err)
	}
	return nil
}

// ToolOf returns a tool that a process announced, for an agent: its calls are
// requests on its subject. Arguments are checked here before.
func (c *Conn) ToolOf(t session.Tenant, v messages.Tool) tool.Tool { return &remoteTool{c.Conn, t, v} }

// remoteTool calls a tool of another process.
type remoteTool struct {
	conn   *conn.Conn
	tenant session.Tenant
	v      messages.Tool
}

// Spec implements tool.Tool.
func (r *remoteTool) Spec() tool.Spec {
	var e tool.Effect
	if e.UnmarshalText([]byte(r.v.Effect)) != nil || e == tool.Sandboxed {
		e = tool.NonIdempotent
	}
	return tool.Spec{Name: r.v.Name, Description: r.v.Description, Schema: r.v.Input, Effect: e}
}

// toolAbsence is how long a call waits for a process that answers: one process may be about
// to replace another.
const toolAbsence = 5 * time.Second

// lateAnswer is how long after the time of a call its answer is kept as evidence.
const lateAnswer = time.Minute

// Call implements tool.Tool. It briefly retries a request that no process received, or that
// could not be sent. It does not retry a request that a process may have received, because
// the outcome is unknown: the attempt ends, and the next one records how to proceed, such
// as by a call under the same id.
func (r *remoteTool) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	limit := time.Duration(r.v.TimeoutMS) * time.Millisecond
	if limit <= 0 {
		limit = messages.ToolTimeoutMS * time.Millisecond
	}
	body, err := messages.Encode(messages.ToolCall{ID: call.ID, Attempt: call.Attempt, Args: call.Args})
	if err != nil {
		return tool.Result{}, &tool.Failure{Kind: tool.TooLarge, Message: "the arguments are too large to be sent; pass large data by reference", Err: err}
	}
	inside, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	for wait := conn.NewBackoff(); ; {
		m, err := r.await(inside, call, limit, body)
		absent, unsent := errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrReconnectBufExceeded)
		switch {
		case err == nil:
			return r.answer(m.Data)
		case ctx.Err() != nil:
			return tool.Result{}, context.Cause(ctx)
		case absent || unsent:
		case inside.Err() != nil:
			return tool.Result{}, r.silent(limit)
		case errors.Is(err, nats.ErrMaxPayload):
			return tool.Result{}, &tool.Failure{Kind: tool.TooLarge, Message: "the arguments are too large to be sent; pass large data by reference", Err: err}
		default:
			return tool.Result{}, r.away(err)
		}
		if wait.Sleep(inside) != nil && ctx.Err() != nil {
			return tool.Result{}, context.Cause(ctx)
		}
		switch over := inside.Err() != nil || time.Since(began) > toolAbsence; {
		case over && absent:
			return tool.Result{}, &tool.Failure{
				Kind: tool.Unavailable, Detail: r.v.Name, Err: err,
				Message: fmt.Sprintf("no program answers the tool %s: the one that announced it does not run; do without it", r.v.Name),
			}
		case over:
			return tool.Result{}, r.away(err)
		}
	}
}

// await sends a call and waits for its answer until ctx ends. After a cancel, and at the end
// of the call's time, the programs of the tool get a message; an answer that comes
// nevertheless is late.
func (r *remoteTool) await(ctx context.Context, call tool.Call, limit time.Duration, body []byte) (*nats.Msg, error) {
	type reply struct {
		m   *nats.Msg
		err error
	}
	answered := make(chan reply, 1)
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit+lateAnswer)
	go func() {
		defer cancel()
		m, err := r.conn.Await(asking, messages.ToolSubject(r.tenant, r.v.Name), body)
		answered <- reply{m, err}
	}()
	select {
	case a := <-answered:
		return a.m, a.err
	case <-ctx.Done():
	}
	why := context.Cause(ctx)
	if errors.Is(why, run.ErrCancelled) || errors.Is(why, run.ErrDeadline) || errors.Is(why, context.DeadlineExceeded) {
		data, err := messages.Encode(wire.ToolCancel{ID: call.ID, Attempt: call.Attempt, Reason: messages.Text(why)})
		if err == nil {
			err = r.conn.NC.Publish(messages.ToolCancelSubject(r.tenant, r.v.Name), data)
		}
		if err != nil {
			r.conn.Logger.Warn("the programs of a tool do not hear that a call has ended", "tool", r.v.Name, "call", call.ID, "err", err)
		}
	}
	go func() {
		a := <-answered
		if a.err != nil || call.Late == nil {
			return
		}
		if res, err := r.answer(a.m.Data); err == nil {
			call.Late(res)
		}
	}()
	return nil, ctx.Err()
}

// away is the error that ends the attempt.
func (r *remoteTool) away(err error) error {
	return fmt.Errorf("%w: tool %s: %w", session.ErrUnavailable, r.v.Name, err)
}

func (r *remoteTool) silent(limit time.Duration) error {
	text := fmt.Sprintf("the tool %s gave no answer within %v", r.v.Name, limit)
	if r.Spec().Effect == tool.NonIdempotent {
		text += "; whether it did its work is not known: find out before you call it again"
	}
	return &tool.Failure{Kind: tool.Timeout, Message: text, Detail: r.v.Name}
}

func (r *remoteTool) answer(data []byte) (tool.Result, error) {
	a, err := wire.DecodeToolAnswer(data)
	switch {
	case errors.Is(err, session.ErrTooLarge):
		return tool.Result{}, &tool.Failure{
			Kind: tool.TooLarge, Detail: r.v.Name, Err: err,
			Message: fmt.Sprintf("the answer of %s has %d bytes, at most %d are taken; ask for less", r.v.Name, len(data), messages.MaxReply),
		}
	case err != nil:
		return tool.Result{}, &tool.Failure{
			Kind: tool.Exception, Detail: r.v.Name, Err: err,
			Message: fmt.Sprintf("%s gave an answer that is none (%v); its author has to send {\"body\": …, \"is_error\": false}", r.v.Name, err),
		}
	}
	return tool.Result{Body: json.RawMessage(a.Body), IsError: a.IsError}, nil
}
