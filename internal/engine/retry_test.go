package engine_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// server answers requests of a client of OpenAI's protocol, without a socket, so that it
// works in a bubble: the nth request gets the nth answer, and each further one the last.
type server struct {
	answers []string // whole answers of a stream; one that begins with a digit is "status retry-after"
	began   time.Time
	at      []time.Duration // when requests came
	said    []string        // the headers that name step and try
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	text := s.answers[min(len(s.at), len(s.answers)-1)]
	s.at = append(s.at, time.Since(s.began))
	s.said = append(s.said, strings.TrimSpace(r.Header.Get(llm.StepHeader)+" "+r.Header.Get(llm.TryHeader)))
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r}
	if text != "" && text[0] >= '0' && text[0] <= '9' {
		status, after, _ := strings.Cut(text, " ")
		resp.StatusCode = map[string]int{"429": 429, "500": 500, "401": 401}[status]
		if after == "never" {
			resp.Header.Set("X-Should-Retry", "false")
		} else if after != "" {
			resp.Header.Set("Retry-After", after)
		}
		text = ""
	}
	resp.Body = io.NopCloser(strings.NewReader(text))
	return resp, nil
}

func (s *server) models() llm.Models {
	return openai.New(&llm.ServerOptions{BaseURL: "http://model.test/v1", DefaultModel: "m1", Transport: s})
}

const (
	begins = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n"
	whole  = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
)

// TestRetries: one policy decides the number of tries of a call, however it fails.
func TestRetries(t *testing.T) {
	doubles := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}
	once := doubles[:1]
	for name, tt := range map[string]struct {
		answers []string
		code    llm.Code
		pauses  []time.Duration // the least before each request; the most is half a second more
		says    string
	}{
		"the stream ends at once":      {[]string{""}, llm.CodeTruncated, doubles, "(tried 4 times)"},
		"the stream breaks off":        {[]string{begins}, llm.CodeTruncated, doubles, "(tried 4 times)"},
		"in turn":                      {[]string{"", begins, "500", whole}, "", doubles, ""},
		"the server says when":         {[]string{"429 20", whole}, "", []time.Duration{0, 20 * time.Second}, ""},
		"the server says too late":     {[]string{"429 61"}, llm.CodeRateLimited, once, "429"},
		"the server says never":        {[]string{"500 never"}, llm.CodeUnavailable, once, "500"},
		"what stays wrong":             {[]string{"401"}, llm.CodeAuth, once, "401"},
		"what stays wrong after a try": {[]string{"500", "401"}, llm.CodeAuth, doubles[:2], "(tried 2 times)"},
		"what is right at once":        {[]string{whole}, "", once, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				s := &server{answers: tt.answers}
				ex := start(t, w.runtime(s.models()), agentOnce)
				_, err := ex.Forward(t.Context())
				if llm.CodeOf(err) != tt.code || err != nil && (!strings.Contains(err.Error(), tt.says) || strings.Count(err.Error(), "tried") > 1) {
					t.Errorf("%v; want %s and %q", err, tt.code, tt.says)
				}
				if len(s.at) != len(tt.pauses) {
					t.Fatalf("%d requests, want %d", len(s.at), len(tt.pauses))
				}
				for i, at := range s.at {
					if i > 0 {
						at -= s.at[i-1]
					}
					if least := tt.pauses[i]; at < least || at >= least+510*time.Millisecond {
						t.Errorf("request %d came after %v, want %v", i+1, at, least)
					}
					if want := []string{"r/0/1", "r/0/1.2 2", "r/0/1.3 3", "r/0/1.4 4"}[i]; s.said[i] != want {
						t.Errorf("request %d says %q, want %q", i+1, s.said[i], want)
					}
				}
			})
		})
	}
}

// TestRetriesOfAModel: a model of the list has its own number of requests, pause and time
// limit.
func TestRetriesOfAModel(t *testing.T) {
	for name, tt := range map[string]struct {
		retries chain.Retries
		want    int           // requests
		least   time.Duration // that they take
	}{
		"one":            {chain.Retries{Attempts: 1}, 1, 0},
		"six":            {chain.Retries{Attempts: 6, Pause: 100 * time.Millisecond}, 6, 3100 * time.Millisecond},
		"within seconds": {chain.Retries{Attempts: 20, Within: 10 * time.Second}, 5, 7500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				s := &server{answers: []string{"500"}}
				rt := w.runtime(s.models())
				rt.Runtime.Choices = func(p llm.Provider) ([]chain.Choice, error) {
					return []chain.Choice{{Name: "m", Provider: p, Cost: "free", Retries: tt.retries}}, nil
				}
				ex := start(t, rt, agentOnce)
				if _, err := ex.Forward(t.Context()); !errors.Is(err, llm.CodeUnavailable) || len(s.at) != tt.want || s.at[len(s.at)-1] < tt.least {
					t.Errorf("%v, requests at %v; want %d, the last after %v", err, s.at, tt.want, tt.least)
				}
			})
		})
	}
}

// TestRetryEndsWithTheCaller: a pause does not outlast the call, and does not begin if
// it would outlast the context of the workflow's own code.
func TestRetryEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		s := &server{answers: []string{"429 30"}}
		rt := w.runtime(s.models())
		ex := start(t, rt, agentOnce)
		go cancelled(t, rt)
		began := time.Now()
		forward(t, t.Context(), ex, run.Cancelled)
		if took := time.Since(began); took != time.Second || len(s.at) != 1 {
			t.Errorf("it took %v and %d requests", took, len(s.at))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var w world
		s := &server{answers: []string{"429 30"}}
		ex := start(t, w.runtime(s.models()), func(ctx context.Context, v session.Session) (session.Session, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			v, err := (&flow.Agent{Name: "a"}).Forward(ctx, v.With(session.UserText("hello")))
			if !errors.Is(err, llm.CodeRateLimited) {
				t.Errorf("%v; want that the server limits the rate", err)
			}
			return v, nil
		})
		began := time.Now()
		forward(t, t.Context(), ex, run.Succeeded)
		if took := time.Since(began); took != 0 || len(facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)) == 0 {
			t.Errorf("it took %v", took)
		}
	})
}
