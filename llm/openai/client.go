package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// Complete implements [llm.Client]. It is the only place that tries again.
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
	for try := 1; ; try++ {
		x := &exchange{e: e, body: body, step: r.StepKey, try: try, maxFrame: c.o.MaxFrame, maxResponse: c.o.MaxResponse}
		if r.Waits != nil {
			r.Waits(nil, time.Now().Add(c.o.FirstToken))
		}
		resp, published, err := c.attempt(ctx, x, sink)
		if err == nil {
			return resp, nil
		}
		if cause := context.Cause(caller); cause != nil {
			return nil, e.ended(cause)
		}
		failed, ok := errors.AsType[*llm.Error](err)
		switch {
		case !ok:
			return nil, err
		case !failed.Retryable(), published, x.noRetry, try >= c.o.Attempts, context.Cause(ctx) != nil:
			return nil, tried(failed, try)
		}
		pause := c.pause(try)
		if failed.RetryAfter > 0 {
			if failed.RetryAfter > c.o.MaxRetryAfter {
				return nil, tried(failed, try)
			}
			pause = failed.RetryAfter
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
			return nil, tried(failed, try)
		}
		if r.Waits != nil {
			r.Waits(failed, time.Now().Add(pause))
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, x.explain(ctx, err)
		}
		if r.Again != nil {
			if err := r.Again(failed); err != nil {
				return nil, err
			}
		}
	}
}

// ended is the error of a call whose caller gave up.
func (e endpoint) ended(cause error) error {
	return fmt.Errorf("model %q at %s: %w", e.model, e.host, cause)
}

// tried tells how often, which a reader of the error wants to know.
func tried(e *llm.Error, n int) error {
	if n > 1 {
		e.Message += fmt.Sprintf(" (tried %d times)", n)
	}
	return e
}

// pause is the time to wait after the given try.
func (c *client) pause(try int) time.Duration {
	d := c.o.Backoff << min(try-1, 20)
	if d <= 0 || d > MaxBackoff {
		d = MaxBackoff
	}
	return d + rand.N(c.o.Backoff)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drainTimeout is how long to wait for the end of a connection's answer after
// its last event, so that the connection can be used again.
const drainTimeout = 50 * time.Millisecond

// attempt sends the request once. published tells that the sink was called.
func (c *client) attempt(ctx context.Context, x *exchange, sink func(llm.Delta)) (resp *llm.Response, published bool, err error) {
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
		return nil, false, x.explain(ctx, err)
	}
	defer stream.Close()

	a := x.assembler(sink)
	for {
		raw, err := stream.RecvRaw()
		if err == nil {
			if err := a.add(raw); err != nil {
				return nil, a.published, err
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
			return a.response(), a.published, nil
		case err == io.EOF:
			return nil, a.published, x.e.fail(llm.CodeTruncated, 0, "the answer ended without a finish reason after %d bytes of text", a.text.Len())
		default:
			return nil, a.published, x.explain(ctx, err)
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

// watchdog cancels a try that makes no progress.
type watchdog struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	cause  error
}

// watch replaces what was watched for: if it is not called again within d,
// the try ends with cause.
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
