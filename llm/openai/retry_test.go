package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
)

// scriptedTrips answers the nth request with the nth function; it works
// inside a synctest bubble because it needs no socket.
type trips struct {
	t     *testing.T
	steps []func(*http.Request) (*http.Response, error)
	at    []time.Duration // when requests came, since start
	tries []string
	start time.Time
}

func (tr *trips) RoundTrip(r *http.Request) (*http.Response, error) {
	if tr.start.IsZero() {
		tr.start = time.Now()
	}
	n := len(tr.at)
	tr.at = append(tr.at, time.Since(tr.start))
	tr.tries = append(tr.tries, r.Header.Get(llm.TryHeader))
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

// silent sends body and then nothing until the request is cancelled.
func silent(body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		pr, pw := io.Pipe()
		context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
		src := io.MultiReader(strings.NewReader(body), pr)
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(src), Request: r}, nil
	}
}

var hello = data(say("Hello"), fin("stop"), "[DONE]")

func complete(t *testing.T, ctx context.Context, tr *trips, o openai.Options, sink func(llm.Delta)) (*llm.Response, error) {
	t.Helper()
	o.Transport = tr
	p := llm.Provider{Model: "m1", BaseURL: "http://model.test/v1"}
	client, err := openai.New(&o).Client(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	return client.Complete(ctx, &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}, sink)
}

func TestRetries(t *testing.T) {
	type steps = []func(*http.Request) (*http.Response, error)
	between := func(d, lo, hi time.Duration) bool { return d >= lo && d < hi }
	bad := answer(500, `{"error":{"message":"x"}}`)
	refused := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
	for _, c := range []struct {
		name  string
		o     openai.Options
		steps steps
		sink  bool
		code  llm.Code
		after []time.Duration // the least pause before each request; the most is half a second more
		says  string
	}{
		{name: "backoff doubles", steps: steps{bad, refused, answer(503, ""), answer(200, hello)}, after: []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}},
		{name: "gives up", steps: steps{bad, bad, bad, bad}, code: llm.CodeUnavailable, after: []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}, says: "(tried 4 times)"},
		{name: "one attempt", o: openai.Options{Attempts: 1}, steps: steps{bad}, code: llm.CodeUnavailable, after: []time.Duration{0}},
		{name: "not for what stays wrong", steps: steps{answer(400, `{"error":{"message":"no"}}`)}, code: llm.CodeInvalidRequest, after: []time.Duration{0}},
		{name: "not without credit", steps: steps{answer(429, `{"error":{"code":"insufficient_quota"}}`)}, code: llm.CodeQuota, after: []time.Duration{0}},
		{name: "x-should-retry", steps: steps{answer(500, "", "X-Should-Retry", "false")}, code: llm.CodeUnavailable, after: []time.Duration{0}},
		{name: "retry-after in seconds", steps: steps{answer(429, "", "Retry-After", "20"), answer(200, hello)}, after: []time.Duration{0, 20 * time.Second}},
		{name: "retry-after in milliseconds", steps: steps{answer(429, "", "Retry-After", "20", "Retry-After-Ms", "1500"), answer(200, hello)}, after: []time.Duration{0, 1500 * time.Millisecond}},
		{name: "retry-after as a date", steps: steps{func(r *http.Request) (*http.Response, error) {
			return answer(503, "", "Retry-After", time.Now().UTC().Add(10*time.Second).Format(http.TimeFormat))(r)
		}, answer(200, hello)}, after: []time.Duration{0, 9500 * time.Millisecond}},
		{name: "retry-after too long", steps: steps{answer(429, "", "Retry-After", "61")}, code: llm.CodeRateLimited, after: []time.Duration{0}},
		{name: "before anything was delivered", sink: true, steps: steps{answer(200, data(delta(`"role":"assistant"`))), answer(200, hello)}, after: []time.Duration{0, 500 * time.Millisecond}},
		{name: "not after a delta", sink: true, steps: steps{answer(200, data(say("Hel")))}, code: llm.CodeTruncated, after: []time.Duration{0}},
		{name: "after a delta without a sink", steps: steps{answer(200, data(say("Hel"))), answer(200, hello)}, after: []time.Duration{0, 500 * time.Millisecond}},
		{name: "first token", o: openai.Options{FirstToken: 7 * time.Second}, steps: steps{silent(": ping\n\n" + data(delta(`"role":"assistant"`))), answer(200, hello)}, after: []time.Duration{0, 7500 * time.Millisecond}},
		{name: "idle", sink: true, o: openai.Options{Idle: 3 * time.Second}, steps: steps{silent(data(say("Hel")))}, code: llm.CodeIdleTimeout, after: []time.Duration{0}},
		{name: "total", o: openai.Options{Total: 10 * time.Second}, steps: steps{silent("")}, code: llm.CodeTimeout, after: []time.Duration{0}, says: "no answer within 10s"},
		{name: "no pause beyond the total", o: openai.Options{Total: 10 * time.Second}, steps: steps{answer(429, "", "Retry-After", "30")}, code: llm.CodeRateLimited, after: []time.Duration{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &trips{t: t, steps: c.steps}
				var sink func(llm.Delta)
				if c.sink {
					sink = func(llm.Delta) {}
				}
				resp, err := complete(t, t.Context(), tr, c.o, sink)
				if c.code == "" && (err != nil || resp.Text != "Hello") || c.code != "" && (!errors.Is(err, c.code) || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("got %+v, %v", resp, err)
				}
				if len(tr.at) != len(c.after) {
					t.Fatalf("%d requests, want %d", len(tr.at), len(c.after))
				}
				for i := range tr.at {
					pause := tr.at[i]
					if i > 0 {
						pause -= tr.at[i-1]
					}
					if !between(pause, c.after[i], c.after[i]+510*time.Millisecond) {
						t.Errorf("request %d came after %v, want %v", i+1, pause, c.after[i])
					}
					if want := []string{"", "2", "3", "4"}[i]; tr.tries[i] != want {
						t.Errorf("request %d says it is try %q", i+1, tr.tries[i])
					}
				}
			})
		})
	}
}

// TestAgain: the client announces each try that it repeats by itself, and the
// caller may forbid it.
func TestAgain(t *testing.T) {
	slow := silent(": ping\n\n")
	lost := func(r *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(r.Context()).WroteRequest(httptrace.WroteRequestInfo{})
		return nil, os.ErrDeadlineExceeded
	}
	steps := []func(*http.Request) (*http.Response, error){slow, answer(504, ""), lost, answer(200, hello)}
	ask := func(ctx context.Context, tr *trips, again func(*llm.Error) error) (*llm.Response, error) {
		p := llm.Provider{Model: "m1", BaseURL: "http://model.test/v1"}
		client, err := openai.New(&openai.Options{Transport: tr, FirstToken: 7 * time.Second}).Client(ctx, p)
		if err != nil {
			return nil, err
		}
		return client.Complete(ctx, &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}, Again: again}, func(llm.Delta) {})
	}
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		tr := &trips{t: t, steps: steps}
		resp, err := ask(t.Context(), tr, func(failed *llm.Error) error {
			heard = append(heard, fmt.Sprintf("%d %s", len(tr.at), failed.Code))
			return nil
		})
		if err != nil || resp.Text != "Hello" {
			t.Errorf("%+v, %v", resp, err)
		}
		if got, want := strings.Join(heard, ", "), "1 llm: timeout, 2 llm: timeout, 3 llm: timeout"; got != want {
			t.Errorf("heard of %s; want %s", got, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no money left")
		tr := &trips{t: t, steps: steps}
		if _, err := ask(t.Context(), tr, func(*llm.Error) error { return no }); !errors.Is(err, no) || len(tr.at) != 1 {
			t.Errorf("%v after %d requests; want %v after one", err, len(tr.at), no)
		}
	})
}

// A caller that gives up gets its own reason, at once, wherever the call is.
func TestCancel(t *testing.T) {
	type steps = []func(*http.Request) (*http.Response, error)
	for name, s := range map[string]steps{
		"connecting": {silent("")},
		"streaming":  {silent(data(say("Hel")))},
		"pausing":    {answer(429, "", "Retry-After", "30")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause := errors.New("cut at the drain timeout")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(5*time.Second, func() { cancel(cause) })
				start := time.Now()
				_, err := complete(t, ctx, &trips{t: t, steps: s}, openai.Options{}, func(llm.Delta) {})
				if !errors.Is(err, cause) || llm.CodeOf(err) != "" || time.Since(start) != 5*time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := complete(t, ctx, &trips{t: t, steps: s}, openai.Options{}, func(llm.Delta) {})
				// A pause that the deadline leaves no room for is not begun.
				if name == "pausing" {
					if !errors.Is(err, llm.CodeRateLimited) {
						t.Error(err)
					}
				} else if !errors.Is(err, context.DeadlineExceeded) || llm.CodeOf(err) != "" {
					t.Error(err)
				}
			})
		})
	}
}
