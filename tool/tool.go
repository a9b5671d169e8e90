// Package tool lets a model call Go.
//
// A [Tool] is a name, a JSON schema for its arguments, a declared [Effect] and
// a method. [Func] makes one of a function:
//
//	weather := tool.Func("weather", "Current weather of a city.",
//		func(ctx context.Context, in struct {
//			City string `json:"city" jsonschema:"name of the city"`
//		}) (Report, error) {
//			return lookup(ctx, in.City)
//		}, &tool.FuncOptions{Effect: tool.ReadOnly})
//
// A [Table] holds the tools of one agent. It checks names once and each call's
// arguments against the schema before the tool runs, and it turns every
// outcome (a result, an error, a panic, a call of an unknown tool) into the
// JSON body that the model reads. No input of a model makes it fail.
//
// [Builtins] are the tools that work on a session's workspace: commands, code
// and files. They run in the session's sandbox, never in this process.
//
// The package executes one call at a time. Order, retries and recording belong
// to package flow, which runs the calls of a turn by their [Lane] and journals
// each outcome according to its Effect. The result of a tool need not be
// reproducible (the built-ins report elapsed time): a replay uses the recorded
// outcome.
package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Effect determines whether a call that a crash interrupted may be repeated. The zero value
// is the most conservative.
type Effect uint8

// The effects.
const (
	// NonIdempotent calls are never repeated automatically: an interrupted call waits for an
	// operator.
	NonIdempotent Effect = iota
	// Idempotent calls are repeated with the same Call.ID, which the target uses to detect
	// duplicates.
	Idempotent
	// ReadOnly calls have no side effects and may be repeated at any time.
	ReadOnly
	// Sandboxed calls change only the workspace. They are repeated after the workspace is
	// restored. See Effect.In.
	Sandboxed
)

var effects = [...]string{"non_idempotent", "idempotent", "read_only", "sandboxed"}

// String returns the recorded form: "non_idempotent", "idempotent", "read_only" or
// "sandboxed".
func (e Effect) String() string {
	if int(e) < len(effects) {
		return effects[e]
	}
	return fmt.Sprintf("effect(%d)", uint8(e))
}

// MarshalText returns the text of String, or an error for an undefined effect.
func (e Effect) MarshalText() ([]byte, error) {
	if int(e) >= len(effects) {
		return nil, fmt.Errorf("tool: no effect has number %d", uint8(e))
	}
	return []byte(effects[e]), nil
}

// UnmarshalText parses the text of MarshalText.
func (e *Effect) UnmarshalText(text []byte) error {
	for i, word := range effects {
		if word == string(text) {
			*e = Effect(i)
			return nil
		}
	}
	return fmt.Errorf("tool: unknown effect %q, want one of %q", text, effects)
}

// In returns the effect of a tool in a sandbox with the properties i. A Sandboxed tool is
// NonIdempotent in a sandbox whose commands are not confined, or can change state over a
// network or in a service outside the workspace: restoring the workspace does not undo such
// changes.
func (e Effect) In(i sandbox.Info) Effect {
	if e == Sandboxed && (i.Outside || !i.Network.Repeatable() || !i.Isolation.AtLeast(sandbox.IsolationKernel)) {
		return NonIdempotent
	}
	return e
}

// Spec describes a tool. A tool's Spec is constant.
type Spec struct {
	Name        string          // [A-Za-z0-9_-]{1,64}
	Description string          // for the model
	Schema      json.RawMessage // JSON schema of the arguments, an object; empty: any object
	Effect      Effect
	// Outside reports whether calls of a Sandboxed tool also change state outside the
	// workspace. The workspace's files are kept, but restoring them does not undo a call.
	Outside bool
	// Lane returns the name of the resource that the call needs exclusively. Calls of one
	// turn in the same lane run sequentially in call order; calls in different lanes, or in
	// lane "", run concurrently. Nil means one lane for all NonIdempotent tools ("global"),
	// one for all Sandboxed tools ("workspace"), one for each Idempotent tool (its name), and
	// "" for ReadOnly tools.
	Lane func(args json.RawMessage) string
	// Retry is the policy for calls that return an error other than a *Failure, which is an
	// answer for the model, like a result. Nil is three tries, one for a NonIdempotent tool.
	Retry *Retry
}

// The default lanes.
const (
	LaneGlobal    = "global"
	LaneWorkspace = "workspace"
)

// LaneOf returns the lane of one call, whose arguments must be from Table.Bind. If Lane
// panics, LaneOf returns LaneGlobal.
func (s Spec) LaneOf(args json.RawMessage) (lane string) {
	switch {
	case s.Lane != nil:
		defer func() {
			if recover() != nil {
				lane = LaneGlobal
			}
		}()
		return s.Lane(args)
	case s.Effect == ReadOnly:
		return ""
	case s.Effect == Sandboxed:
		return LaneWorkspace
	case s.Effect == Idempotent:
		return s.Name
	}
	return LaneGlobal
}

// Call is one call of a tool, with the resources that the tool may use.
type Call struct {
	// ID is the same on every attempt: pass it on as idempotency key.
	ID      string
	Attempt uint64          // 1 for the first
	Args    json.RawMessage // a JSON object that matches the schema; not to be altered
	Session session.Session // the session as the model saw it when it made the call
	// Sandbox returns the session's sandbox and opens it on first use. A nil Sandbox or an
	// error means that the session has none.
	Sandbox func(context.Context) (sandbox.Sandbox, error)
	// HTTP returns a transport to the hosts that the commands of the session's sandbox may
	// reach, and opens the sandbox on first use. A nil HTTP or a nil transport means that no
	// host is reachable. Redirects are not followed.
	HTTP  func(context.Context) (http.RoundTripper, error)
	Blobs blob.Store // stores outputs that are too long for a transcript; may be nil
	// Ask asks the user to confirm a message and to enter values that match a JSON Schema.
	// Until the answer arrives, Ask returns an error, which the tool must return from Call.
	// The run then waits, as for an approval, and repeats the whole call when the answer
	// arrives, including any work before Ask. The action is "accept", "decline", or "cancel"
	// after a timeout; content holds the values. A nil Ask means that no user can answer.
	Ask func(ctx context.Context, message string, schema json.RawMessage) (action string, content json.RawMessage, err error)
	// Progress publishes the call's progress to observers of its run. Only the last text is
	// kept, until the call ends. It is safe for concurrent use and may be nil.
	Progress func(text string)
	// Late takes the result of a call whose context has ended, from a tool in another
	// process: it is kept as evidence. A nil Late keeps none.
	Late func(Result)
}

// Result is the result of a tool. Body is any value that encodes to JSON, or a
// json.RawMessage. In results of the engine, such as those of flow.CallTool, it is a
// [JSON]. IsError marks a body that reports a failure in the tool's own format; most tools
// return an error instead.
type Result struct {
	Body    any
	IsError bool
	// Images are shown to models with image input; see [KeepImage].
	Images []session.Image
}

// Text returns the body as the model reads it: a string unchanged, any other value as JSON.
func (r Result) Text() string {
	raw, err := schema.Marshal(r.Body)
	if err != nil {
		return fmt.Sprint(r.Body)
	}
	return JSON(raw).String()
}

// Decode sets the value that into points to from the JSON of the body.
func (r Result) Decode(into any) error {
	raw, err := schema.Marshal(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("tool: decode a result: %w", err)
	}
	return nil
}

// JSON is a body that is already JSON text. It prints like [Result.Text].
type JSON string

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

func (j JSON) String() string {
	var text string
	if json.Unmarshal([]byte(j), &text) == nil && strings.HasPrefix(string(j), `"`) {
		return text
	}
	return string(j)
}

// Tool is one tool. It is safe for concurrent use.
//
// The arguments of Call match the schema. Call returns when all its work has ended, and
// soon after ctx is done. The model reads an error as the body: a *Failure with its own
// kind, context.DeadlineExceeded as timeout, and any other error as
// tool_execution_exception with its type and text. Errors must therefore not contain
// secrets.
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, c Call) (Result, error)
}

type callKey struct{}

// Current returns the call of ctx, for functions passed to Func that need more than their
// arguments.
func Current(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}
