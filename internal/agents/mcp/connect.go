package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Conn is a connection to a server, and the process that was started for it. Its methods
// may be called concurrently.
type Conn struct {
	s   *Server
	env func(string) string
	g   *gate
	p   *process // nil of a server with a URL
	cs  *sdk.ClientSession
	end func() error

	mu    sync.Mutex
	names map[string]string // of the server's tools, by ours; nil before Tools
	calls map[*underway]bool
	token int // of the newest call; progress messages carry it
}

// Connect starts the server in box, or on the host if its entry says so, and initialises
// the session within s.Start. env looks up variables of the node. The caller closes the
// Conn.
func (s *Server) Connect(ctx context.Context, env func(string) string, box sandbox.Sandbox) (*Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Start, errSilent)
	defer cancel()
	c := &Conn{s: s, env: env}
	c.g = newGate(c.progress)
	end := func() {}
	var t sdk.Transport
	switch {
	case s.URL != "":
		var life context.Context
		life, end = context.WithCancel(context.Background())
		t = overHTTP(life, s, env, c.g)
	case s.Where == InSandbox && box == nil:
		return nil, s.unavailable(errors.New("it runs in a sandbox, and there is none"), "send the session to one, or write where: host")
	case s.Where == InSandbox:
		c.p = inSandbox(s, env, box)
	default:
		var err error
		if c.p, err = onHost(s, env, c.g); err != nil {
			return nil, s.unavailable(plain(err), "correct its command")
		}
	}
	if c.p != nil {
		t = c.p.lines(c.g)
	}
	// Do not wait for a server that reads nothing or writes without end.
	stop := context.AfterFunc(ctx, func() {
		if c.p != nil {
			c.p.kill()
		}
	})
	client := sdk.NewClient(&sdk.Implementation{Name: "rath", Version: "1"}, &sdk.ClientOptions{
		Capabilities:       &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}}},
		ElicitationHandler: c.elicit,
	})
	client.AddReceivingMiddleware(recovered)
	client.AddSendingMiddleware(recovered)
	var err error
	c.cs, err = client.Connect(ctx, t, nil)
	if !stop() && err == nil {
		err = errSilent
	}
	if err != nil {
		end()
		err = c.why(ctx, err)
		if c.cs != nil {
			_ = c.cs.Close()
		} else if c.p != nil {
			_ = c.p.close()
		}
		return nil, s.unavailable(err, tryIt)
	}
	c.end = sync.OnceValue(func() error {
		// The SDK waits until each request of the server is answered. Do not wait for a server
		// that does not read the answers.
		end()
		if c.p != nil {
			_ = c.p.close()
		}
		return c.cs.Close()
	})
	return c, nil
}

// recovered converts a panic on a message that the SDK did not expect, such as one without
// parameters, to an error of the message.
func recovered(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				res, err = nil, fmt.Errorf("its message for %s cannot be read: %v", method, v)
			}
		}()
		return next(ctx, method, r)
	}
}

const tryIt = "correct its entry until \"rath mcp test\" succeeds"

// rejected is the code of the SDK's error for a request that failed on its way.
const rejected = -32005

var errSilent = errors.New("it did not answer in time")

// unavailable returns the failure of a server that cannot be reached, for the model.
func (s *Server) unavailable(err error, remedy string) error {
	return &tool.Failure{Kind: tool.Unavailable, Detail: s.Name, Err: err, Message: fmt.Sprintf("MCP server %s: %v; %s", s.Name, err, remedy)}
}

// why returns the readable cause of an error of the connection.
func (c *Conn) why(ctx context.Context, err error) error {
	cause := c.cause(ctx, err)
	if text := c.s.redact(c.env, cause.Error()); text != cause.Error() {
		return errors.New(text)
	}
	return cause
}

func (c *Conn) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if why := c.g.failure(); why != nil {
		return why
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && c.p != nil {
		return fmt.Errorf("it answered %q (%d)", clip(c.s.redact(c.env, wire.Message), 300), wire.Code)
	}
	if c.p != nil && c.p.broke(err) {
		return errors.New(c.p.ended())
	}
	if errors.Is(err, errForgot) {
		return errForgot
	}
	if u, ok := errors.AsType[unsent](err); ok {
		return u.error
	}
	return errors.New(clip(c.s.redact(c.env, err.Error()), 400))
}

// Close ends the connection and waits until the process has ended.
func (c *Conn) Close() error { return c.end() }

// Call calls a tool by its name from Tools, within the entry's time limit. An error that
// wraps session.ErrUnavailable means that the connection broke or the time limit passed:
// the effects of the call are unknown, and the Conn is closed. An error that also wraps
// tool.ErrNotMade means that the server rejected the call unread. Call passes questions of
// the server to call.Ask, and its progress to call.Progress.
func (c *Conn) Call(ctx context.Context, name string, call tool.Call) (tool.Result, error) {
	c.mu.Lock()
	known := c.names
	c.mu.Unlock()
	if known == nil {
		listing, cancel := context.WithTimeoutCause(ctx, c.s.Start, errSilent)
		_, _, err := c.Tools(listing)
		cancel()
		if err != nil {
			return tool.Result{}, err
		}
		c.mu.Lock()
		known = c.names
		c.mu.Unlock()
	}
	theirs, ok := known[name]
	if !ok {
		return tool.Result{}, &tool.Failure{
			Kind: tool.Unavailable, Detail: name,
			Message: fmt.Sprintf("MCP server %s does not have the tool %s any more; do without it", c.s.Name, name),
		}
	}
	inside, cancel := context.WithTimeoutCause(ctx, c.s.Call, errSilent)
	defer cancel()
	args := call.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	params := &sdk.CallToolParams{Name: theirs, Arguments: args}
	underway, end := c.begin(inside, call, params)
	res, err := c.cs.CallTool(underway, params)
	ended := context.Cause(underway)
	end()
	if err == nil {
		return result(ctx, c.s, res, call.Blobs)
	}
	if a, ok := errors.AsType[asked](ended); ok {
		return tool.Result{}, a.error
	}
	gone, forgotten := c.g.failure() != nil, errors.Is(err, errForgot)
	if _, ok := errors.AsType[unsent](err); ok && !gone {
		return tool.Result{}, c.s.unavailable(c.why(inside, err), "do without it, or try again later")
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code != rejected && !gone {
		text := fmt.Sprintf("MCP server %s rejected the call: %s (%d)", c.s.Name, clip(c.s.redact(c.env, wire.Message), 1000), wire.Code)
		return tool.Result{}, &tool.Failure{Kind: tool.Exception, Detail: name, Err: errors.New(text), Message: text}
	}
	cause := c.why(inside, err)
	_ = c.Close() // the rest of the call ends with the server
	switch {
	case ctx.Err() != nil:
		return tool.Result{}, context.Cause(ctx)
	case errors.Is(cause, errSilent):
		cause = fmt.Errorf("it gave no answer within %v", c.s.Call)
	}
	err = fmt.Errorf("%w: MCP server %s during %s: %w", session.ErrUnavailable, c.s.Name, name, cause)
	if forgotten {
		err = fmt.Errorf("%w (%w)", err, tool.ErrNotMade)
	}
	return tool.Result{}, err
}

// clip returns at most n bytes of an untrusted text, without control characters.
func clip(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) > n {
		return strings.ToValidUTF8(text[:n], "") + "..."
	}
	return text
}
