package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/llm"
)

// client completes requests at one endpoint.
type client struct {
	o   *Options
	e   endpoint
	api *api.Client
}

var _ llm.Client = (*client)(nil)

func newClient(m *Models, e endpoint) *client {
	cfg := api.DefaultConfig(e.key)
	cfg.BaseURL = e.base
	cfg.HTTPClient = doer{http: m.http}
	return &client{o: &m.o, e: e, api: api.NewClientWithConfig(cfg)}
}

// String names the endpoint. A client that is printed must not print its key.
func (c *client) String() string { return fmt.Sprintf("model %q at %s", c.e.model, c.e.host) }

// GoString is String.
func (c *client) GoString() string { return c.String() }

// Complete implements [llm.Client].
func (c *client) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	e := c.e
	if r.Provider.Model != "" {
		e.model = r.Provider.Model
	}
	body, err := encode(r, e)
	if err != nil {
		return nil, err
	}
	caller := ctx
	ctx, cancel := context.WithTimeoutCause(caller, c.o.Total, e.fail(llm.CodeTimeout, 0, "no answer within %v", c.o.Total))
	defer cancel()
	if r.Waits != nil {
		r.Waits(time.Now().Add(c.o.FirstToken))
	}
	x := &exchange{e: e, body: body, step: r.StepKey, try: r.Try, maxFrame: c.o.MaxFrame, maxResponse: c.o.MaxResponse}
	resp, err := c.exchange(ctx, x, sink)
	if err == nil {
		return resp, nil
	}
	if cause := context.Cause(caller); cause != nil {
		return nil, e.ended(cause)
	}
	if failed, ok := errors.AsType[*llm.Error](err); ok {
		failed.Final = x.noRetry
	}
	return nil, err
}

// ended is the error of a call whose caller gave up.
func (e endpoint) ended(cause error) error {
	return fmt.Errorf("model %q at %s: %w", e.model, e.host, cause)
}

// drainTimeout is how long to wait for the end of a connection's answer after
// its last event, so that the connection can be used again.
const drainTimeout = 50 * time.Millisecond

// exchange sends the request and reads the answer.
func (c *client) exchange(ctx context.Context, x *exchange, sink func(llm.Delta)) (*llm.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watchdog{cancel: cancel}
	defer w.stop()
	w.watch(c.o.FirstToken, x.e.fail(llm.CodeTimeout, 0, "no first token within %v", c.o.FirstToken))
	idle := x.e.fail(llm.CodeIdleTimeout, 0, "the answer stalled for %v", c.o.Idle)

	// The model's name is in our own body: go-openai would check it against
	// rules for OpenAI's models, which deployments elsewhere need not follow.
	stream, err := c.api.CreateChatCompletionStream(context.WithValue(ctx, exchangeKey{}, x), api.ChatCompletionRequest{Model: "rath"})
	if err != nil {
		return nil, x.explain(ctx, err)
	}
	defer stream.Close()

	a := x.assembler(sink)
	for {
		raw, err := stream.RecvRaw()
		if err == nil {
			if err := a.add(raw); err != nil {
				return nil, err
			}
			switch {
			case a.finished:
				w.watch(c.o.Tail, errTail)
			case a.begun:
				w.watch(c.o.Idle, idle)
			}
			continue
		}
		switch {
		case a.finished:
			// The completion was whole before the stream ended.
			if err == io.EOF {
				w.watch(drainTimeout, errTail)
				_, _ = io.CopyN(io.Discard, x.rest, 4<<10)
			}
			return a.response(), nil
		case err == io.EOF:
			return nil, x.e.fail(llm.CodeTruncated, 0, "the answer ended without a finish reason after %d bytes of text", a.text.Len())
		default:
			return nil, x.explain(ctx, err)
		}
	}
}

// errTail ends the wait for what may come after a finish reason.
var errTail = errors.New("openai: nothing more came")

func (x *exchange) assembler(sink func(llm.Delta)) *assembler {
	return &assembler{
		host: x.e.host, sink: sink, max: x.maxResponse, model: x.e.model,
		failure:   func(raw []byte) *llm.Error { return x.e.serverError(0, nil, raw) },
		malformed: func(what string) *llm.Error { return x.e.fail(llm.CodeMalformed, 0, "%s", what) },
		interrupted: func(what string) *llm.Error {
			return x.e.fail(llm.CodeUnavailable, 0, "%s", llm.Clip(what, maxMessage))
		},
	}
}

// watchdog cancels a call that makes no progress.
type watchdog struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	cause  error
}

// watch replaces what was watched for: if it is not called again within d,
// the call ends with cause.
func (w *watchdog) watch(d time.Duration, cause error) {
	if w.timer != nil && w.cause == cause {
		w.timer.Reset(d)
		return
	}
	w.stop()
	w.cause, w.timer = cause, time.AfterFunc(d, func() { w.cancel(cause) })
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
