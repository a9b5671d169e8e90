package openai_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
)

// scriptedTrips answers the nth request with the nth function; it works
// inside a synctest bubble because it needs no socket.
type trips struct {
	t     *testing.T
	steps []func(*http.Request) (*http.Response, error)
	at    []time.Duration // times of requests, since start
	start time.Time
}

func (tr *trips) RoundTrip(r *http.Request) (*http.Response, error) {
	if tr.start.IsZero() {
		tr.start = time.Now()
	}
	n := len(tr.at)
	tr.at = append(tr.at, time.Since(tr.start))
	if n >= len(tr.steps) {
		tr.t.Errorf("request %d was not expected", n+1)
		return nil, io.ErrUnexpectedEOF
	}
	return tr.steps[n](r)
}

func answer(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"text/event-stream"}}
		if status != 200 {
			h.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

// silent sends body and then waits until the request is cancelled.
func silent(body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		pr, pw := io.Pipe()
		context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
		src := io.MultiReader(strings.NewReader(body), pr)
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(src), Request: r}, nil
	}
}

// slowly sends pieces with pauses before each, and leaves the stream open.
func slowly(pause time.Duration, pieces ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		pr, pw := io.Pipe()
		context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
		go func() {
			for _, p := range pieces {
				select {
				case <-time.After(pause):
				case <-r.Context().Done():
					return
				}
				if _, err := io.WriteString(pw, p); err != nil {
					return
				}
			}
		}()
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: pr, Request: r}, nil
	}
}

// endless sends the beginning of a failing answer, and then waits.
func endless(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := silent(body)(r)
		resp.StatusCode = status
		return resp, err
	}
}

func timeouts(t llm.Timeouts) llm.ServerOptions { return llm.ServerOptions{Timeouts: t} }

var hello = data(say("Hello"), fin("stop"), "[DONE]")

func complete(t *testing.T, ctx context.Context, tr *trips, o llm.ServerOptions, sink func(llm.Delta)) (*llm.Response, error) {
	t.Helper()
	o.Transport = tr
	p := llm.Provider{Model: "m1", BaseURL: "http://model.test/v1"}
	client := must.Get(openai.New(&o).Client(ctx, p))(t)
	return client.Complete(ctx, &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}, sink)
}

// TestOneRequest: a client sends a request once, and its error states whether and when
// to repeat it.
func TestOneRequest(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     llm.ServerOptions
		step  func(*http.Request) (*http.Response, error)
		code  llm.Code
		final bool
		after time.Duration // the wait that the server requests
		took  time.Duration
		says  string
	}{
		{name: "an answer", step: answer(200, hello)},
		{name: "null as a word, slowly", step: slowly(3*time.Second, data(fin("null")), data(say("Hel"), fin("null")), data(say("lo"), fin("null")), data(fin("stop"), "[DONE]")), took: 12050 * time.Millisecond},
		{name: "a stop on each piece, slowly", o: llm.ServerOptions{Tail: 4 * time.Second}, step: slowly(3*time.Second, data(say("H"), fin("stop")), data(say("e"), fin("stop")), data(say("llo"), fin("stop"))), took: 13 * time.Second},
		{name: "a word of tomorrow, slowly", step: slowly(30*time.Second, data(say("Hel"), fin("satisfied")), data(say("lo"), fin("satisfied")), data("[DONE]")), took: 90050 * time.Millisecond},
		{name: "a failure", step: answer(500, `{"error":{"message":"x"}}`), code: llm.CodeUnavailable},
		{name: "no connection", step: func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, code: llm.CodeUnavailable, says: "connection refused"},
		{name: "what stays wrong", step: answer(400, `{"error":{"message":"no"}}`), code: llm.CodeInvalidRequest},
		{name: "no credit", step: answer(429, `{"error":{"code":"insufficient_quota"}}`), code: llm.CodeQuota},
		{name: "x-should-retry", step: answer(500, "", "X-Should-Retry", "false"), code: llm.CodeUnavailable, final: true},
		{name: "retry-after in seconds", step: answer(429, "", "Retry-After", "20"), code: llm.CodeRateLimited, after: 20 * time.Second},
		{name: "retry-after in milliseconds", step: answer(429, "", "Retry-After", "20", "Retry-After-Ms", "1500"), code: llm.CodeRateLimited, after: 1500 * time.Millisecond},
		{name: "retry-after as a date", step: func(r *http.Request) (*http.Response, error) {
			return answer(503, "", "Retry-After", time.Now().UTC().Add(10*time.Second).Format(http.TimeFormat))(r)
		}, code: llm.CodeOverloaded, after: 10 * time.Second},
		{name: "nothing came", step: answer(200, data(delta(`"role":"assistant"`))), code: llm.CodeTruncated},
		{name: "a part came", step: answer(200, data(say("Hel"))), code: llm.CodeTruncated},
		{name: "first token", o: timeouts(llm.Timeouts{FirstToken: 7 * time.Second}), step: silent(": ping\n\n" + data(delta(`"role":"assistant"`))), code: llm.CodeTimeout, took: 7 * time.Second},
		{name: "silence", o: timeouts(llm.Timeouts{Silence: 3 * time.Second}), step: silent(data(say("Hel"))), code: llm.CodeIdleTimeout, took: 3 * time.Second},
		{name: "whole", o: timeouts(llm.Timeouts{Whole: 10 * time.Second}), step: silent(""), code: llm.CodeTimeout, took: 10 * time.Second, says: "no whole answer within 10s"},
		{name: "comments before the first piece", o: timeouts(llm.Timeouts{FirstToken: 7 * time.Second}), step: slowly(5*time.Second, append(slices.Repeat([]string{": processing the prompt\n\n"}, 63), hello)...), took: 320050 * time.Millisecond},
		{name: "comments in the middle", o: timeouts(llm.Timeouts{Silence: 7 * time.Second}), step: slowly(5*time.Second, append(append([]string{data(say("Hel"))}, slices.Repeat([]string{": keep-alive\n\n"}, 30)...), data(say("lo"), fin("stop"), "[DONE]"))...), took: 160050 * time.Millisecond},
		{name: "pings and empty pieces", o: timeouts(llm.Timeouts{FirstToken: 7 * time.Second}), step: slowly(5*time.Second, data(`{"type":"ping"}`), data(delta(`"role":"assistant","content":""`)), data(delta(``)), hello), took: 20050 * time.Millisecond},
		{name: "comments and then silence", o: timeouts(llm.Timeouts{FirstToken: 7 * time.Second}), step: slowly(5*time.Second, ": a\n\n", ": b\n\n"), code: llm.CodeTimeout, took: 17 * time.Second, says: "no first token within 7s"},
		{name: "comments without an end", o: timeouts(llm.Timeouts{Whole: time.Minute}), step: slowly(5*time.Second, slices.Repeat([]string{": a\n\n"}, 1000)...), code: llm.CodeTimeout, took: time.Minute, says: "no whole answer within 1m0s"},
		{name: "comments after the answer", o: llm.ServerOptions{Tail: 7 * time.Second}, step: slowly(5*time.Second, append([]string{data(say("Hello"), fin("stop"))}, slices.Repeat([]string{": a\n\n"}, 1000)...)...), took: 12 * time.Second},
		{name: "a refusal without an end", step: endless(503, `{"error":{"message":"overloaded"}}`), code: llm.CodeOverloaded, took: 10 * time.Second, says: "HTTP 503: overloaded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &trips{t: t, steps: []func(*http.Request) (*http.Response, error){c.step}}
				began := time.Now()
				resp, err := complete(t, t.Context(), tr, c.o, func(llm.Delta) {})
				if c.code == "" && (err != nil || resp.Text != "Hello") || c.code != "" && (!errors.Is(err, c.code) || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("got %+v, %v", resp, err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if failed, ok := errors.AsType[*llm.Error](err); ok {
					if failed.Final != c.final || failed.RetryAfter.Round(time.Second/2) != c.after || llm.Retryable(err) != (c.code.Retryable() && !c.final) {
						t.Errorf("%+v; want final %v, after %v", failed, c.final, c.after)
					}
				}
			})
		})
	}
}

// A caller that cancels gets its own reason immediately, in every phase of the call.
func TestCancel(t *testing.T) {
	type steps = []func(*http.Request) (*http.Response, error)
	for name, s := range map[string]steps{
		"connecting": {silent("")},
		"streaming":  {silent(data(say("Hel")))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause := errors.New("cut at the drain timeout")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(5*time.Second, func() { cancel(cause) })
				start := time.Now()
				_, err := complete(t, ctx, &trips{t: t, steps: s}, llm.ServerOptions{}, func(llm.Delta) {})
				if !errors.Is(err, cause) || llm.CodeOf(err) != "" || time.Since(start) != 5*time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := complete(t, ctx, &trips{t: t, steps: s}, llm.ServerOptions{}, func(llm.Delta) {})
				if !errors.Is(err, context.DeadlineExceeded) || llm.CodeOf(err) != "" {
					t.Error(err)
				}
			})
		})
	}
}

// TestConnect: the connection to a server has a bound of its own; the provider's takes
// precedence over that of the options.
func TestConnect(t *testing.T) {
	for _, own := range []time.Duration{0, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			way := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			defer way.CloseIdleConnections()
			p := llm.Provider{Model: "m1", BaseURL: "http://model.test/v1", Timeouts: llm.Timeouts{Connect: own}}
			client, err := openai.New(&llm.ServerOptions{Transport: way, Timeouts: llm.Timeouts{Connect: 3 * time.Second}}).Client(t.Context(), p)
			must.Do(t, err)
			want, began := cmp.Or(own, 3*time.Second), time.Now()
			_, err = client.Complete(t.Context(), &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}, nil)
			if !errors.Is(err, llm.CodeUnavailable) || !strings.Contains(err.Error(), "no connection within "+want.String()) || time.Since(began) != want {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
}
