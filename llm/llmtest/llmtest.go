// Package llmtest is the suite that each client of a model's protocol must pass: one
// table of answers as servers and proxies really give them, over raw sockets. A wire
// only has to render them.
//
//	func TestAnswers(t *testing.T) { llmtest.Run(t, wire, nil) }
//
// A [StrictServer] rejects the requests that real servers reject. RunSessions checks
// that a client builds an accepted request from any session, whichever models wrote it:
//
//	llmtest.RunSessions(t, 1, 100, []llmtest.StrictClient{{llmtest.OpenAIChat, provider, models}})
//
// Files, the lowest first: llmtest, server, table, embed, fuzz, strict, strict_chat,
// strict_responses, strict_messages, sessions_read, sessions.
package llmtest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Secrets that no error may contain.
const (
	CanaryKey    = "sk-canary-0123456789"
	CanaryPrompt = "the-canary-prompt-sings"
)

// Model is the model of all answers.
const Model = "m1"

// Part is a part of an answer. Its texts are the contents of JSON strings, so that they
// can contain bytes and escapes that no encoder writes.
type Part struct {
	Text, Reasoning string
	// Call is a piece of the tool call Index, with ID and Name in the first.
	Call  *session.ToolCall
	Index int
	// Finish ends the answer, with the tokens that it used.
	Finish llm.Finish
	Usage  session.Usage
}

// Say, Think, Call and Finish are parts.
func Say(raw string) Part   { return Part{Text: raw} }
func Think(raw string) Part { return Part{Reasoning: raw} }

// Call is a piece of the call at index; id and name are "" in all but the first.
func Call(index int, id, name, args string) Part {
	return Part{Index: index, Call: &session.ToolCall{ID: id, Name: name, Args: args}}
}

// Finish ends an answer.
func Finish(f llm.Finish) Part { return Part{Finish: f} }

// Limits are the limits of a client under test; zero is the client's own.
type Limits struct {
	FirstToken, Silence, Tail time.Duration
	MaxFrame, MaxResponse     int
	Key                       func(ref string) (string, error)
	Transport                 http.RoundTripper
}

// Wire renders answers in a protocol.
type Wire struct {
	Models func(Limits) llm.Models
	Kind   string // of the provider
	// Events are the data of the events of a streamed answer, from its beginning up to
	// the end of the parts. For a finished answer they omit Last.
	Events func(parts ...Part) []string
	// Document is an answer that is sent whole.
	Document func(parts ...Part) string
	// Last is the end marker of a stream, which no client needs: [DONE].
	Last string
}

// Outcome is the outcome of a request.
type Outcome struct {
	Text, Reasoning string
	Calls           []session.ToolCall
	Finish          llm.Finish
	Word            string // of the server, where it is none of the list
	Usage           session.Usage
	Code            llm.Code
	Says            string // a part of the error's text
	RetryAfter      time.Duration
	// Used is the failed call's usage according to the error.
	Used session.Usage
}

// Row is an answer, byte for byte, and the expected outcome of a request for it. Each
// piece is a separate write, and Pause waits until the client has disconnected.
type Row struct {
	Name   string
	Pieces []string
	Want   Outcome
}

// Run requests each answer of the table, and of the wire's own rows.
func Run(t *testing.T, w Wire, more []Row) {
	for _, row := range append(table(w), more...) {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			play(t, w, row)
		})
	}
}

func play(t *testing.T, w Wire, row Row) {
	served(t, row.Pieces, func(t *testing.T, url string, way http.RoundTripper) {
		ask(t, w, row, url, limits(way))
	})
}

// limits returns a client's limits. Rows without a pause have no short timeouts, so that
// they pass on a slow machine. Rows with a pause run in a bubble, where way is set.
func limits(way http.RoundTripper) Limits {
	l := Limits{
		MaxFrame: 64 << 10, MaxResponse: 256 << 10, Tail: time.Minute, Transport: way,
		Key: func(ref string) (string, error) { return map[string]string{"MY_KEY": CanaryKey}[ref], nil },
	}
	if way != nil {
		l.FirstToken, l.Silence, l.Tail = time.Second, 200*time.Millisecond, 50*time.Millisecond
	}
	return l
}

func ask(t *testing.T, w Wire, row Row, url string, l Limits) {
	p := llm.Provider{Kind: w.Kind, Model: Model, BaseURL: url, KeyRef: "MY_KEY"}
	client, err := w.Models(l).Client(t.Context(), p)
	must.Do(t, err)
	if s := fmt.Sprintf("%v %+v %#v %s", client, client, client, client); strings.Contains(s, CanaryKey) {
		t.Errorf("a client prints its key: %s", s)
	}
	var heard Heard
	resp, err := client.Complete(t.Context(), &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: CanaryPrompt}}}, heard.Hear)
	if row.Want.Code != "" {
		failed(t, row.Want, resp, err)
		return
	}
	must.Do(t, err)
	got := Outcome{Text: resp.Text, Reasoning: resp.Reasoning, Calls: resp.Calls, Finish: resp.Finish, Word: resp.Word, Usage: resp.Usage}
	if diff := cmp.Diff(row.Want, got); diff != "" {
		t.Error(diff)
	}
	if resp.Uncounted != (resp.Usage.Tokens() == 0) {
		t.Errorf("uncounted: %v, with %+v", resp.Uncounted, resp.Usage)
	}
	if resp.Model != Model {
		t.Errorf("model %q", resp.Model)
	}
	must.Report(t, heard.Agrees(resp))
}

func failed(t *testing.T, want Outcome, resp *llm.Response, err error) {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Code != want.Code || !strings.Contains(err.Error(), want.Says) || resp != nil {
		t.Fatalf("got %+v, %v\nwant %s, %q", resp, err, string(want.Code), want.Says)
	}
	for _, secret := range []string{CanaryKey, "canary-0123", CanaryPrompt} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells %q: %v", secret, err)
		}
	}
	if !strings.Contains(err.Error(), `model "m1" at 127.0.0.1`) || len(err.Error()) > 700 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
	if e.RetryAfter != want.RetryAfter || e.Used != want.Used {
		t.Errorf("retry after %v, used %+v; want %v, %+v", e.RetryAfter, e.Used, want.RetryAfter, want.Used)
	}
}

// Heard is the combined text of the pieces of an answer.
type Heard struct {
	text, reasoning strings.Builder
	args            map[int]string
	odd             error
}

// Hear adds a piece.
func (h *Heard) Hear(d llm.Delta) {
	h.text.WriteString(d.Text)
	h.reasoning.WriteString(d.Reasoning)
	said := d.Text + d.Reasoning
	if d.Call != nil {
		if h.args == nil {
			h.args = map[int]string{}
		}
		h.args[d.Index] += d.Call.Args
		said += d.Call.ID + d.Call.Name + d.Call.Args
	}
	if !utf8.ValidString(said) {
		h.odd = fmt.Errorf("a piece is not UTF-8: %+v", d)
	}
}

// Agrees checks that the pieces and the answer agree, that its calls have unique ids
// and that its counts are possible.
func (h *Heard) Agrees(r *llm.Response) error {
	joined := 0
	ids := map[string]bool{}
	for _, c := range r.Calls {
		if ids[c.ID] {
			return fmt.Errorf("two calls have the id %q", c.ID)
		}
		ids[c.ID] = true
		joined += len(c.Args)
	}
	for _, a := range h.args {
		joined -= len(a)
	}
	u := r.Usage
	switch {
	case h.odd != nil:
		return h.odd
	case h.text.String() != r.Text || h.reasoning.String() != r.Reasoning || joined != 0:
		return fmt.Errorf("the pieces say %q, %q, %v; the answer %+v", h.text.String(), h.reasoning.String(), h.args, r)
	case min(u.Input, u.Output, u.CacheRead, u.CacheWrite, u.MicroUSD) < 0 || u.CacheRead+u.CacheWrite > u.Input:
		return fmt.Errorf("usage %+v", u)
	}
	return nil
}

// Pictured are messages with images: of a user, with and without text, and of the
// results of two calls.
func Pictured() []llm.Message {
	image := func(kind, bytes string) llm.Image {
		return llm.Image{Type: "image/" + kind, Size: int64(len(bytes)), Data: []byte(bytes)}
	}
	return []llm.Message{
		{Role: llm.User, Text: "What is this?", Images: []llm.Image{image("png", "first"), image("gif", "second")}},
		{Role: llm.Assistant, Text: "I look.", Calls: []session.ToolCall{{ID: "1", Name: "view", Args: "{}"}, {ID: "2", Name: "view", Args: "{}"}}},
		{Role: llm.Tool, CallID: "1", Name: "view", Text: `{"path":"a"}`, Images: []llm.Image{image("jpeg", "third")}},
		{Role: llm.Tool, CallID: "2", Name: "view", Text: `{"path":"b"}`},
		{Role: llm.User, Images: []llm.Image{image("webp", "fourth")}},
	}
}
