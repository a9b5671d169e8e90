package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/tool"
)

// underway is a call that waits for its result.
type underway struct {
	call  tool.Call
	token string // of its progress
	// ask ends the call with the error of a question that has no answer yet.
	ask context.CancelCauseFunc
	// done is closed when the call waits no more.
	done chan struct{}
}

// callKey is the key of the call in the context of its requests.
type callKey struct{}

// begin registers a call, adds a progress token to its request if needed, and returns the
// context of the request. The caller calls end.
func (c *Conn) begin(ctx context.Context, call tool.Call, params *sdk.CallToolParams) (inside context.Context, end func()) {
	u := &underway{call: call, done: make(chan struct{})}
	inside, u.ask = context.WithCancelCause(context.WithValue(ctx, callKey{}, u))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[*underway]bool{}
	}
	c.calls[u] = true
	if call.Progress != nil {
		c.token++
		u.token = strconv.Itoa(c.token)
		params.SetProgressToken(u.token)
	}
	return inside, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.calls, u)
		close(u.done)
		u.ask(nil)
	}
}

// asker returns the call that a question belongs to. A server with a protocol before
// 2026-07-28 does not identify it, so the call must be the only one.
func (c *Conn) asker(ctx context.Context) (*underway, error) {
	if u, ok := ctx.Value(callKey{}).(*underway); ok {
		return u, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) > 1 {
		return nil, fmt.Errorf("%d calls are running, and the question does not name its call: make calls with questions one after the other", len(c.calls))
	}
	for u := range c.calls {
		return u, nil
	}
	return nil, errors.New("no call is under way that could ask")
}

// maxTold is the maximum length of a forwarded progress message, in bytes: reading one
// takes no longer than receiving it.
const maxTold = 64 << 10

// progress forwards a progress report to its call. It drops reports of ended calls, which
// some servers send.
func (c *Conn) progress(params json.RawMessage) {
	var p sdk.ProgressNotificationParams
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	var show func(string)
	for u := range c.calls {
		if token, ok := p.ProgressToken.(string); ok && token == u.token && token != "" {
			show = u.call.Progress
		}
	}
	c.mu.Unlock()
	if show == nil {
		return
	}
	text := strconv.FormatFloat(p.Progress, 'g', 6, 64)
	if p.Total > 0 {
		text += " of " + strconv.FormatFloat(p.Total, 'g', 6, 64)
	}
	if m := p.Message; m != "" && len(m) <= maxTold {
		text += ": " + clip(c.s.redact(c.env, m), 500)
	}
	show(text)
}

// elicit answers a question of the server.
func (c *Conn) elicit(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	refuse := func(err error) (*sdk.ElicitResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	if r.Params.URL != "" || r.Params.Mode == "url" {
		return refuse(errors.New("this client opens no pages for its user; ask in a form, or have the user sign in beforehand"))
	}
	u, err := c.asker(ctx)
	if err != nil {
		return refuse(err)
	}
	if u.call.Ask == nil {
		return refuse(errors.New("there is no user to ask"))
	}
	var schema json.RawMessage
	if r.Params.RequestedSchema != nil {
		if schema, err = json.Marshal(r.Params.RequestedSchema); err != nil {
			return refuse(err)
		}
	}
	if err := c.s.refusesSecret(r.Params.Message, schema); err != nil {
		return refuse(err)
	}
	action, content, err := u.call.Ask(ctx, c.s.redact(c.env, r.Params.Message), schema)
	if err != nil {
		// End the call before the server reads the refusal, which it might take for the
		// user's answer.
		u.ask(asked{err})
		if ctx.Value(callKey{}) == nil {
			select {
			case <-u.done:
			case <-ctx.Done():
			}
		}
		return refuse(err)
	}
	res := &sdk.ElicitResult{Action: action}
	if len(content) > 0 {
		if err := json.Unmarshal(content, &res.Content); err != nil {
			return refuse(err)
		}
	}
	return res, nil
}

// asked is why a call ends that asked.
type asked struct{ error }

func (a asked) Unwrap() error { return a.error }
