// Package llm defines the requests, the answers and the errors of calls of language
// models.
//
// A [Provider] is pure data that names a model and its settings; it holds no key, only
// the name of one, and no connection. [Models] turns it into a [Client], whose one
// method completes one [Request], and [EmbedderOf] into an [Embedder], which makes
// vectors of texts. The subpackages implement clients: openai and anthropic speak the
// protocols of real servers, and scripted answers from a file.
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
// The package does not keep transcripts, run tools, count budgets or retry failed
// calls; sessions and flows do.
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

// Role is the author of a [Message].
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one entry of the transcript for a model.
type Message struct {
	Role Role   `json:"role"`
	Text string `json:"text,omitempty"`
	// Images are shown with the text of a user's or tool's message, after it.
	Images []Image `json:"images,omitempty"`
	// Calls are the tool calls of an assistant message.
	Calls []session.ToolCall `json:"calls,omitempty"`
	// CallID names the call that a tool message answers.
	CallID string `json:"call_id,omitempty"`
	// Name is the tool's name in a tool message, and elsewhere the author's name if the
	// protocol supports it.
	Name string `json:"name,omitempty"`
	// Failed reports that the call of a tool message ended in an error. A wire with a
	// flag for it sends the flag; elsewhere the text reports the error.
	Failed bool `json:"failed,omitempty"`
	// Opaque is the [Response.Opaque] that a client returned for this assistant
	// message: signatures and the like that a provider needs back unchanged. A client
	// ignores values that it did not write itself.
	Opaque string `json:"opaque,omitempty"`
}

// Image is a picture of a message. Its JSON form is only its name.
type Image struct {
	Type   string `json:"type"` // its media type, such as "image/png"
	Size   int64  `json:"size"` // bytes
	Digest string `json:"digest"`
	Data   []byte `json:"-"`
}

// DataURL returns a data URL with the image.
func (i *Image) DataURL() string {
	return "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}

// ToolSpec describes a tool to a model.
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
	// N is the number of requested answers, at most MaxAnswers; 0 is one. Agents
	// request one, because only their author can decide which of several answers a
	// session continues with.
	N int `json:"n,omitempty"`
	// Logprobs requests the probability of each token of the answer, with this number
	// of alternatives, 0 to MaxLogprobs; nil requests none.
	Logprobs *int `json:"logprobs,omitempty"`
	// CacheKey is a hint: requests with the same key share a long prefix.
	CacheKey string `json:"cache_key,omitempty"`
	// Shared is a hint, too: other sessions, which forked there, share this number of
	// leading messages.
	Shared int `json:"shared,omitempty"`
	// ThoughtsFrom is the first message whose thoughts are sent back to their server.
	// The thoughts of earlier messages are left out: a server rejected them, see
	// [Error.Thoughts].
	ThoughtsFrom int `json:"thoughts_from,omitempty"`
	// StepKey names the durable step on whose behalf the call is made, as
	// run/path/attempt, with ".2", ".3" and so on after it when an attempt asks again.
	// It is sent as the header [StepHeader] and does not affect the answer.
	StepKey string `json:"step_key,omitempty"`
	// Try counts the requests for one answer, from 1; 0 is 1. It travels as the header
	// [TryHeader].
	Try int `json:"try,omitempty"`
	// Waits, if it is not nil, is called with the latest time until which a client
	// waits for the first piece of the answer. It is called from the goroutine of
	// Complete.
	Waits func(until time.Time) `json:"-"`
}

// The limits of a request's parameters.
const (
	MaxAnswers  = 16
	MaxLogprobs = 20
	MaxBiased   = 1024
)

// The HTTP headers with the step of a request, and with the number of its try (from 2
// on).
const (
	StepHeader = "Rath-Step"
	TryHeader  = "Rath-Try"
)

// Finish is the reason why a completion ended. A client maps the words of a closed
// list, those of the protocols and their imitators, to these values. It maps any other
// word to stop if the protocol's own end proves that the answer is complete. The word
// alone proves nothing: see [Response.Word].
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
	// FinishRefused: the model refused to answer; the text, if any, has its reason.
	FinishRefused Finish = "refusal"
	// FinishPause: the server paused a long answer; the client sends another request
	// with the answer so far as the last message.
	FinishPause Finish = "pause"
)

// Response is a finished completion. All its text is valid UTF-8.
type Response struct {
	Text      string             `json:"text,omitempty"`
	Reasoning string             `json:"reasoning,omitempty"`
	Calls     []session.ToolCall `json:"calls,omitempty"`
	Finish    Finish             `json:"finish"`
	// Word is the server's own finish word, verbatim and at most 64 bytes, if the list
	// does not have it. Finish is then FinishStop (or FinishTools), because the
	// protocol's own clean end has proved that the answer is complete; or FinishLength,
	// for an answer of the Responses protocol that is incomplete for that reason.
	Word  string        `json:"finish_word,omitempty"`
	Usage session.Usage `json:"usage"`
	// Uncounted reports that the server states no tokens, or an impossible number.
	// Usage then has none.
	Uncounted bool `json:"uncounted,omitempty"`
	// Model is the server's name of the answering model.
	Model string `json:"model,omitempty"`
	// Opaque must be copied to the [Message] that replays this response.
	Opaque string `json:"opaque,omitempty"`
	// Logprobs are the probabilities of the tokens of Text, if the request asked for
	// them and the server supports them.
	Logprobs []Logprob `json:"logprobs,omitempty"`
	// Others are the answers after the first, one less than Request.N. The usage of all
	// is in the first.
	Others []Response `json:"others,omitempty"`
}

// Logprob is the natural logarithm of a token's probability.
type Logprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	// Top are the most probable tokens at that place; they may include the token
	// itself.
	Top []Logprob `json:"top,omitempty"`
}

// Message returns the assistant message for r in a transcript. It shares r's calls.
func (r *Response) Message() Message {
	return Message{Role: Assistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque}
}

// Delta is a piece of a completion in progress. Deltas are provisional: if Complete
// fails, they are void. Joined in order they are the response's text, reasoning and
// calls. Of several answers only the first is sent in pieces.
type Delta struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	// Call is a piece of the tool call Index: its ID and Name are sent once, and its
	// Args are appended to the earlier ones. Index is not the call's place in
	// [Response.Calls].
	Call  *session.ToolCall `json:"call,omitempty"`
	Index int               `json:"index,omitempty"`
}

// Client completes requests. Its method may be called concurrently.
type Client interface {
	// Complete sends one request and returns when it has ended. It never retries: only
	// the caller does, as Retryable decides.
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

// ByKind returns the Models that forwards a provider to the entry of its Kind. The
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
