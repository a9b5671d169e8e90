package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rathcluster/rath/llm"
)

// Complete sends the request r with the given body to the path below the base URL, and
// passes the events of the answer to d. It implements [llm.Client]'s Complete, except
// for the pieces of the answer, which the decoder handles.
func (e *Endpoint) Complete(ctx context.Context, r *llm.Request, path string, body []byte, d Decoder) (*llm.Response, error) {
	caller, o := ctx, &e.server.o
	ctx, cancel := context.WithTimeoutCause(caller, e.timeouts.Whole, e.Fail(llm.CodeTimeout, 0, "no whole answer within %v", e.timeouts.Whole))
	defer cancel()
	x := &exchange{e: e, o: o, body: body, step: r.StepKey, try: r.Try, waits: r.Waits}
	resp, err := x.run(ctx, path, d)
	if err == nil {
		return resp, nil
	}
	if cause := context.Cause(caller); cause != nil {
		return nil, e.ended(cause)
	}
	if failed, ok := errors.AsType[*llm.Error](err); ok {
		failed.Final, failed.Used = x.noRetry, d.State().Used
	}
	return nil, err
}

// ended is the error of a call whose context ended.
func (e *Endpoint) ended(cause error) error {
	return fmt.Errorf("model %q at %s: %w", e.Model, e.Host, cause)
}

// For returns the endpoint of the model that r names.
func (e *Endpoint) For(r *llm.Request) *Endpoint {
	if r.Provider.Model == "" || r.Provider.Model == e.Model {
		return e
	}
	other := *e
	other.Model = r.Provider.Model
	return &other
}

// MaxResponse bounds an answer in bytes.
func (e *Endpoint) MaxResponse() int { return e.server.o.MaxResponse }

// Malformed is the error for an answer that violates the protocol.
func (e *Endpoint) Malformed(format string, args ...any) *llm.Error {
	return e.Fail(llm.CodeMalformed, 0, format, args...)
}

// BrokenOff is the error for an answer that the server reports as incomplete.
func (e *Endpoint) BrokenOff(reason string) *llm.Error {
	return e.Fail(llm.CodeUnavailable, 0, "%s", llm.Clip(fmt.Sprintf("the server broke off: %q", reason), maxMessage))
}

// maxEvents bounds the events of an answer. No model writes so many tokens.
const maxEvents = 1 << 19

// drainTimeout is how long to wait for the end of an answer after its last event, so
// that the connection can be reused.
const drainTimeout = 50 * time.Millisecond

// run sends the request and reads the answer.
func (x *exchange) run(ctx context.Context, path string, d Decoder) (*llm.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watchdog{cancel: cancel}
	defer w.stop()
	x.life = &life{w: w, left: x.e.timeouts.FirstToken, cause: x.e.Fail(llm.CodeTimeout, 0, "no first token within %v, nor another sign of life", x.e.timeouts.FirstToken), waits: x.waits}
	x.life.sign()
	silent := x.e.Fail(llm.CodeIdleTimeout, 0, "the answer stalled for %v", x.e.timeouts.Silence)

	stream, closer, err := x.send(ctx, path)
	if err != nil {
		return nil, x.explain(ctx, err)
	}
	defer closer.Close()
	tail := -1 // the size of a complete answer: only its growth renews the wait for the rest
	for events := 0; ; events++ {
		raw, err := stream.Next()
		if events == maxEvents {
			return nil, x.e.Malformed("the answer has more than %d events", maxEvents)
		}
		if err == nil && bytes.Equal(raw, done) {
			d.Done()
			err = io.EOF
		}
		if err == nil {
			if err := d.Add(raw); err != nil {
				return nil, err
			}
			s := d.State()
			x.alive.size = s.Size
			switch {
			case s.Whole && s.Size != tail:
				tail = s.Size
				x.life.end()
				w.watch(x.o.Tail, errTail)
			case s.Begun && !s.Whole:
				x.life.begun(x.e.timeouts.Silence, silent)
			}
			continue
		}
		switch s := d.State(); {
		case s.Whole:
			// The answer was complete before the stream ended.
			if err == io.EOF {
				w.watch(drainTimeout, errTail)
				_, _ = io.CopyN(io.Discard, x.rest, 4<<10)
			}
			return d.Response(), nil
		case err == io.EOF:
			return nil, x.e.Fail(llm.CodeTruncated, 0, "the answer ended without a finish reason after %d bytes of text", s.Text)
		default:
			return nil, x.explain(ctx, err)
		}
	}
}

// errTail ends the wait for data after a finish reason.
var errTail = errors.New("model: the server stopped sending")
