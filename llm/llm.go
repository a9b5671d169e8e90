// Package llm is the vocabulary of model calls: what is asked of a language
// model, what comes back, and how it fails.
//
// A [Provider] is pure data that names a model and its settings; it holds no
// key, only the name of one, and no connection. [Models] turns it into a
// [Client], whose one method completes one [Request], and [EmbedderOf] to an
// [Embedder], which makes vectors of texts. The subpackages are the
// ways to do that: openai and anthropic speak the protocols of real servers, scripted
// answers from a file.
//
//	client, err := models.Client(ctx, llm.Provider{Model: "gpt-5.5"})
//	...
//	resp, err := client.Complete(ctx, &llm.Request{
//		Provider: llm.Provider{Model: "gpt-5.5"},
//		Messages: []llm.Message{{Role: llm.User, Text: "Say hello."}},
//	}, func(d llm.Delta) { fmt.Print(d.Text) })
//
// Errors are a closed list of codes, so that an outcome which was written to
// a journal reads back as the same outcome: see [Code], [Error] and [Rebuild].
//
// The package does not keep transcripts, run tools, count budgets or decide
// whether a failed call is made again; sessions and flows do.
package llm

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/session"
)

// Role says who speaks a [Message].
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one entry of the transcript that a model is shown.
type Message struct {
	Role Role   `json:"role"`
	Text string `json:"text,omitempty"`
	// Images are shown with the text of a user's or tool's message, after it.
	Images []Image `json:"images,omitempty"`
	// Calls are the tool calls of an assistant message.
	Calls []session.ToolCall `json:"calls,omitempty"`
	// CallID names the call that a tool message answers.
	CallID string `json:"call_id,omitempty"`
	// Name is the tool's name in a tool message, and elsewhere the author's
	// where the protocol has a place for it.
	Name string `json:"name,omitempty"`
	// Failed reports that the call which a tool message answers ended in an error. A wire
	// that has a flag for it sends the flag; elsewhere the text reports the error.
	Failed bool `json:"failed,omitempty"`
	// Opaque is what a client returned in [Response.Opaque] for this
	// assistant message: signatures and the like that a provider wants back
	// unchanged. A client ignores what it did not write itself.
	Opaque string `json:"opaque,omitempty"`
}

// Image is a picture of a message. As JSON it is its name alone.
type Image struct {
	Type   string `json:"type"` // its media type, such as "image/png"
	Size   int64  `json:"size"` // bytes
	Digest string `json:"digest"`
	Data   []byte `json:"-"`
}

// DataURL returns the image as a URL that holds it.
func (i *Image) DataURL() string {
	return "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}

// ToolSpec tells a model about a tool.
type ToolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Schema is the JSON Schema of the arguments; "" means an empty object.
	Schema string `json:"schema,omitempty"`
}

// The values of [Request.ToolChoice] that are not the name of a tool.
const (
	ToolsAuto     = "auto"
	ToolsNone     = "none"
	ToolsRequired = "required"
)

// Request is one model call. A client neither changes nor keeps it.
type Request struct {
	Provider Provider   `json:"provider"`
	Messages []Message  `json:"messages"`
	Tools    []ToolSpec `json:"tools,omitempty"`
	// ToolChoice is "" (the provider's default), "auto", "none", "required",
	// or the name of the tool that must be called.
	ToolChoice string `json:"tool_choice,omitempty"`
	// N is how many answers are asked for, at most MaxAnswers; 0 is one. Agents ask for
	// one: which of many a session goes on with is their author's to say.
	N int `json:"n,omitempty"`
	// Logprobs asks how probable each token of the answer was, with so many others
	// that could have stood there, 0 to MaxLogprobs; nil does not ask.
	Logprobs *int `json:"logprobs,omitempty"`
	// CacheKey is a hint: requests with the same key share a long prefix.
	CacheKey string `json:"cache_key,omitempty"`
	// Shared is a hint, too: other sessions, which forked there, have so many of the
	// first messages.
	Shared int `json:"shared,omitempty"`
	// ThoughtsFrom is the first message whose thoughts go back to their server. Those of
	// the messages before stay away: a server refused them, see [Error.Thoughts].
	ThoughtsFrom int `json:"thoughts_from,omitempty"`
	// StepKey names the durable step on whose behalf the call is made, as
	// run/path/attempt, with ".2", ".3" and so on after it when an attempt asks
	// again. It travels as the header [StepHeader] and changes
	// nothing about the answer.
	StepKey string `json:"step_key,omitempty"`
	// Try counts the requests for one answer, from 1; 0 is 1. It travels as the header
	// [TryHeader].
	Try int `json:"try,omitempty"`
	// Waits, if it is not nil, is told until when a client waits at the most for the
	// first piece of the answer, from the goroutine of Complete.
	Waits func(until time.Time) `json:"-"`
}

// The limits of what a request may ask for.
const (
	MaxAnswers  = 16
	MaxLogprobs = 20
	MaxBiased   = 1024
)

// The HTTP headers that say which step a request belongs to, and which try of its
// answer it is (from 2 on).
const (
	StepHeader = "Rath-Step"
	TryHeader  = "Rath-Try"
)

// Finish is the reason why a completion ended. A client maps the words of a closed list, those of
// the protocols and their imitators, to these. Another word becomes stop where the protocol's
// own end proves the answer whole, and proves nothing by itself: see [Response.Word].
type Finish string

// The ends of a completion.
const (
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
	// FinishTools: the response has calls, and was neither cut, paused, refused nor
	// filtered; or its server announced calls and sent none.
	FinishTools Finish = "tool_calls"
	// FinishFilter: a filter of the server withheld the answer or its rest.
	FinishFilter Finish = "content_filter"
	// FinishRefused: the model refused; the text, if any, has its reason.
	FinishRefused Finish = "refusal"
	// FinishPause: the server paused a long answer; the client asks again with the
	// answer so far as the last message.
	FinishPause Finish = "pause"
)

// Response is a finished completion. All its text is valid UTF-8.
type Response struct {
	Text      string             `json:"text,omitempty"`
	Reasoning string             `json:"reasoning,omitempty"`
	Calls     []session.ToolCall `json:"calls,omitempty"`
	Finish    Finish             `json:"finish"`
	// Word is the server's own finish word, verbatim and at most 64 bytes, where it is
	// none of the list. Finish is then FinishStop (or FinishTools), and the protocol's own
	// clean end has proved that the answer is whole; or FinishLength, for an answer of the
	// Responses protocol that is incomplete for that reason.
	Word  string        `json:"finish_word,omitempty"`
	Usage session.Usage `json:"usage"`
	// Uncounted reports that the server states no tokens, or a number that cannot be.
	// Usage has none then.
	Uncounted bool `json:"uncounted,omitempty"`
	// Model is the model that answered, in the server's words.
	Model string `json:"model,omitempty"`
	// Opaque belongs into the [Message] that replays this response.
	Opaque string `json:"opaque,omitempty"`
	// Logprobs are of the tokens of Text, if the request asked for them and the server
	// has them.
	Logprobs []Logprob `json:"logprobs,omitempty"`
	// Others are the answers after the first, one less than Request.N. The usage of all
	// is in the first.
	Others []Response `json:"others,omitempty"`
}

// Logprob is how probable a token was, as the natural logarithm.
type Logprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	// Top are the most probable tokens at that place, the token among them or not.
	Top []Logprob `json:"top,omitempty"`
}

// Message returns the assistant message that stands for r in a transcript.
// It shares r's calls.
func (r *Response) Message() Message {
	return Message{Role: Assistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque}
}

// Delta is a piece of a completion on its way. Deltas are provisional: if Complete
// fails, what they said never happened. Joined in order they are the response's text,
// reasoning and calls. Of many answers only the first comes in pieces.
type Delta struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	// Call is a piece of the tool call Index: its ID and Name come once, its Args are
	// appended to those before. Index is not the call's place in [Response.Calls].
	Call  *session.ToolCall `json:"call,omitempty"`
	Index int               `json:"index,omitempty"`
}

// Client completes requests. Its method may be called concurrently.
type Client interface {
	// Complete sends one request and returns when it ended. It never sends it again:
	// the caller decides that, by Retryable, and is the only one who does.
	//
	// It returns a Response only if the provider proved that the completion is
	// whole: a stream that merely stops is CodeTruncated. The caller owns the
	// Response. Complete reads r until it returns, and neither changes nor keeps
	// it.
	//
	// sink gets the deltas in order, on the calling goroutine, and none after
	// Complete returned; it may be nil. A slow sink slows the call down.
	//
	// The error is an *Error; or, if ctx ended, an error that wraps
	// context.Cause(ctx). A client bounds the time that it waits for a server, so
	// Complete returns without a deadline in ctx, too.
	Complete(ctx context.Context, r *Request, sink func(Delta)) (*Response, error)
}

// Models resolves provider data to clients. Its method may be called
// concurrently.
type Models interface {
	// Client returns the client for p. Keys and addresses that p does not name
	// come from the configuration of the process. The caller may keep the
	// client and does not close it. A provider that cannot be resolved is an
	// *Error with CodeNoKey, CodeNoModel or CodeInvalidRequest. No request is
	// sent.
	Client(ctx context.Context, p Provider) (Client, error)
}

// ByKind returns the Models that sends a provider to the entry of its Kind. The
// entry "" serves providers without a kind. The map must not change afterwards.
func ByKind(kinds map[string]Models) Models { return byKind(kinds) }

type byKind map[string]Models

func (b byKind) of(p Provider) (Models, error) {
	m, ok := b[p.Kind]
	if !ok {
		kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(b)), func(k string) bool { return k == "" })
		return nil, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf(
			"provider kind %q is not configured; use one of: %s", p.Kind, strings.Join(kinds, ", "))}
	}
	return m, nil
}

func (b byKind) Client(ctx context.Context, p Provider) (Client, error) {
	m, err := b.of(p)
	if err != nil {
		return nil, err
	}
	return m.Client(ctx, p)
}

// Embedder is for [EmbedderOf].
func (b byKind) Embedder(ctx context.Context, p Provider) (Embedder, error) {
	m, err := b.of(p)
	if err != nil {
		return nil, err
	}
	return EmbedderOf(ctx, m, p)
}
