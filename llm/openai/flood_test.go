package openai_test

import (
	"errors"
	"flag"
	"io"
	"net"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
)

var floodFor = flag.Duration("flood", 0, "how long each server floods in TestFlood; 0 is one answer")

// mostHeap bounds the heap, with its garbage, while a server floods.
const mostHeap = 250 << 20

// TestFlood: endless output of a server ends the call with a reason, and takes no more
// memory than the bounds of an answer.
func TestFlood(t *testing.T) {
	chunked := llmtest.Head(200, "text/event-stream", "Transfer-Encoding: chunked\r\n")
	piece := func(s string, n int) string { return strings.Repeat(data(s), n) }
	long := strings.Repeat("y", 1000)
	for name, f := range map[string]struct {
		begin, rest string
		want        llm.Code
		says        string
	}{
		"headers":             {"HTTP/1.1 200 OK\r\n", strings.Repeat("X-A: "+long+"\r\n", 64), llm.CodeUnavailable, "headers exceeded"},
		"heads of status 1xx": {"", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 500), llm.CodeUnavailable, "headers exceeded"},
		"trailers":            {chunked + "3\r\n: a\r\n0\r\n", strings.Repeat("X-T: "+long+"\r\n", 64), llm.CodeTruncated, "trailer"},
		"tiny chunks":         {chunked, strings.Repeat("1;aaaaaaaaaaaaaaaaaaaaaa\r\n:\r\n", 2000), llm.CodeTruncated, "non-data"},
		"comments":            {llmtest.SSE, strings.Repeat(": keep-alive\n\n", 4000), llm.CodeMalformed, "floods"},
		"blank lines":         {llmtest.SSE + ":\n", strings.Repeat("\n", 64<<10), llm.CodeMalformed, "floods"},
		"space":               {llmtest.SSE, strings.Repeat(" ", 64<<10), llm.CodeMalformed, "floods"},
		"empty pieces":        {llmtest.SSE, piece(delta(`"role":"assistant","content":""`), 500), llm.CodeMalformed, "floods"},
		"calls of nothing":    {llmtest.SSE, piece(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`), 500), llm.CodeMalformed, "floods"},
		"models":              {llmtest.SSE, piece(`{"model":"`+long+`","choices":[]}`, 60), llm.CodeMalformed, "floods"},
		"a line":              {llmtest.SSE + "data: ", strings.Repeat("x", 64<<10), llm.CodeMalformed, "limit 8388608 bytes"},
		"text":                {llmtest.SSE, piece(say(long), 60), llm.CodeMalformed, "larger than 33554432 bytes"},
		"thoughts":            {llmtest.SSE, piece(delta(`"reasoning_content":"`+long+`"`), 60), llm.CodeMalformed, "larger than 33554432 bytes"},
		"arguments":           {llmtest.SSE, piece(calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"`+long+`"}}`), 60), llm.CodeMalformed, "larger than 33554432 bytes"},
		"single letters":      {llmtest.SSE, piece(say("z"), 500), llm.CodeMalformed, "more than 524288 events"},
		"a refusal":           {llmtest.Head(500, "application/json"), strings.Repeat("e", 64<<10), llm.CodeUnavailable, "HTTP 500"},
		"a document":          {llmtest.Head(200, "application/json") + `{"x":"`, strings.Repeat("d", 64<<10), llm.CodeMalformed, "floods"},
		"compressed":          {llmtest.Head(200, "text/event-stream", "Content-Encoding: gzip\r\n"), strings.Repeat("\x1f\x8b", 32<<10), llm.CodeMalformed, `compressed ("gzip")`},
	} {
		t.Run(name, func(t *testing.T) {
			url := flood(t, f.begin, f.rest)
			p := llm.Provider{Model: "m1", BaseURL: url}
			client := must.Get(openai.New(nil).Client(t.Context(), p))(t)
			peak := heap(t)
			for began := time.Now(); ; {
				_, err := client.Complete(t.Context(), &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}, func(llm.Delta) {})
				// A server that does not read the request may be noticed while it is written.
				if !errors.Is(err, f.want) && !errors.Is(err, llm.CodeUnavailable) || errors.Is(err, f.want) && !strings.Contains(err.Error(), f.says) {
					t.Errorf("it ends with %v, want %s: %q", err, f.want, f.says)
				}
				if time.Since(began) >= *floodFor || t.Failed() {
					break
				}
			}
			if most := peak(); most > mostHeap {
				t.Errorf("the heap had %d MiB", most>>20)
			}
		})
	}
}

// flood serves answers that do not end.
func flood(t *testing.T, begin, rest string) (url string) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 4<<10)); err != nil {
					return
				}
				serving.Go(func() { _, _ = io.Copy(io.Discard, conn) })
				_, err := io.WriteString(conn, begin)
				for err == nil {
					_, err = io.WriteString(conn, rest)
				}
			})
		}
	})
	return "http://" + l.Addr().String() + "/v1"
}

// heap measures the heap until the returned function is called, which returns its peak.
func heap(t *testing.T) (peak func() uint64) {
	var most uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		t.Logf("heap at most %d MiB", most>>20)
		return most
	}
}
