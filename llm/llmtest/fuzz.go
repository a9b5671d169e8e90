package llmtest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
)

// Read requests an answer that is the given stream, without a socket.
func Read(w Wire, stream string) (*llm.Response, error) {
	resp, _, err := read(w, stream)
	return resp, err
}

func read(w Wire, stream string) (*llm.Response, *Heard, error) {
	p := llm.Provider{Kind: w.Kind, Model: Model, BaseURL: "http://model.test/v1"}
	client, err := w.Models(Limits{
		MaxFrame: 64 << 10, MaxResponse: 256 << 10, FirstToken: time.Minute, Silence: time.Minute, Transport: answered(stream),
	}).Client(context.Background(), p)
	if err != nil {
		return nil, nil, err
	}
	heard := &Heard{}
	resp, err := client.Complete(context.Background(), &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}, heard.Hear)
	return resp, heard, err
}

// answered answers each request with the same stream.
type answered string

func (a answered) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(a))), Request: r,
	}, nil
}

// Fuzz reads any stream. The result is an answer that agrees with its pieces, or an
// error with a code.
func Fuzz(f *testing.F, w Wire) {
	for _, row := range table(w) {
		if len(row.Pieces) > 1 && row.Pieces[0] == SSE && len(row.Pieces[1]) < 2000 {
			f.Add([]byte(row.Pieces[1]))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		resp, heard, err := read(w, string(stream))
		if err != nil {
			if llm.CodeOf(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		must.Do(t, heard.Agrees(resp))
	})
}
