package bench

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
)

const (
	limitedCalls, limitedRounds = 64, 5
	// limitedBar is the part of an instant call that its limits may cost.
	limitedBar = 0.05
)

// BenchmarkLimiter compares the cost of a key's and a model's limits, shared through a NATS
// server, with a call to a model server that answers at once, both with 64 concurrent
// calls. It fails if the cost exceeds 5 % of the call.
func BenchmarkLimiter(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"yes\"},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	p := llm.Provider{Model: "m", BaseURL: server.URL + "/v1"}
	client := must.Get(openai.New(nil).Client(b.Context(), p))(b)
	c := streamstest.Layer[*api.Conn](api.Over).Open(b)
	set := limiter.NewSet(c.Dispatch.Ledgers(), "node", nil)
	defer set.Close()
	const many = 100_000_000
	limits := limiter.All(set.Limit("key k", limiter.Amount{Requests: many, Tokens: 500 * many}), set.Limit("model m", limiter.Amount{Requests: many}))
	call := func() error {
		_, err := client.Complete(b.Context(), &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "Do you hear me?"}}}, nil)
		return err
	}
	limit := func() error {
		settle, err := limits.Acquire(b.Context(), "acme", 5000)
		if err == nil {
			settle(101)
		}
		return err
	}
	// each is the CPU time of one, with 64 at a time.
	each := func(n int, do func() error) time.Duration {
		var work sync.WaitGroup
		began := cpuTime()
		for range limitedCalls {
			work.Go(func() {
				for range n / limitedCalls {
					if err := do(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		return (cpuTime() - began) / time.Duration(n)
	}
	for b.Loop() {
		var parts []float64
		var calls, limiteds time.Duration
		for range limitedRounds {
			one := each(64*40, call)
			two := each(64*4000, limit)
			parts = append(parts, float64(two)/float64(one))
			calls, limiteds = calls+one, limiteds+two
		}
		slices.Sort(parts)
		part := parts[limitedRounds/2]
		b.ReportMetric(float64(calls.Nanoseconds())/limitedRounds, "ns/call")
		b.ReportMetric(float64(limiteds.Nanoseconds())/limitedRounds, "ns/limits")
		b.ReportMetric(100*part, "%_of_a_call")
		if part > limitedBar {
			b.Errorf("limits cost %.1f %% of a call, at most %.0f %% are to be", 100*part, 100*limitedBar)
		}
	}
}
