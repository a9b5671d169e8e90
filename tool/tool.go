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
// outcome (a result, an error, a panic, a call of a tool that does not exist)
// into the JSON body that the model reads. Nothing a model sends makes it fail.
//
// [Builtins] are the tools that work on a session's workspace: commands, code
// and files. They run in the session's sandbox alone, never in this process.
//
// The package executes one call at a time and decides nothing about order,
// retries or recording: package flow runs the calls of a turn by their [Lane]
// and journals each outcome according to its Effect. What a tool returns need
// not be reproducible (the built-ins report elapsed time); the recorded
// outcome is what counts.
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

// Effect says what may happen when a call is made again after a crash cut it
// off. The zero value is the careful one.
type Effect uint8

// The effects.
const (
	// NonIdempotent calls are never made again by themselves: one that was cut
	// off waits for a person.
	NonIdempotent Effect = iota
	// Idempotent calls are made again under the same Call.ID, by which the
	// target recognises them.
	Idempotent
	// ReadOnly calls change nothing and are made again freely.
	ReadOnly
	// Sandboxed calls change nothing but the workspace; they are made again
	// after it was put back. See Effect.In.
	Sandboxed
)

var effects = [...]string{"non_idempotent", "idempotent", "read_only", "sandboxed"}

// String returns the word that is recorded: "non_idempotent", "idempotent",
// "read_only" or "sandboxed".
func (e Effect) String() string {
	if int(e) < len(effects) {
		return effects[e]
	}
	return fmt.Sprintf("effect(%d)", uint8(e))
}

// MarshalText writes what String returns.
func (e Effect) MarshalText() ([]byte, error) {
	if int(e) >= len(effects) {
		return nil, fmt.Errorf("tool: no effect has number %d", uint8(e))
	}
	return []byte(effects[e]), nil
}

// UnmarshalText reads what MarshalText writes.
func (e *Effect) UnmarshalText(text []byte) error {
	for i, word := range effects {
		if word == string(text) {
			*e = Effect(i)
			return nil
		}
	}
	return fmt.Errorf("tool: unknown effect %q, want one of %q", text, effects)
}

// In returns the effect of a tool in a sandbox of which i holds: a Sandboxed tool
// is NonIdempotent where commands can change something over a network, or in a service
// that keeps it outside of the workspace, or are not confined, because putting the
// workspace back then does not undo them.
func (e Effect) In(i sandbox.Info) Effect {
	if e == Sandboxed && (i.Outside || !i.Network.Repeatable() || !i.Isolation.AtLeast(sandbox.IsolationKernel)) {
		return NonIdempotent
	}
	return e
}

// Spec is what a tool says about itself. It does not change.
type Spec struct {
	Name        string          // [A-Za-z0-9_-]{1,64}
	Description string          // for the model
	Schema      json.RawMessage // JSON schema of the arguments, an object; empty: any object
	Effect      Effect
	// Outside says that calls of a Sandboxed tool change something outside of the workspace,
	// too: its files are kept, and putting them back does not undo a call.
	Outside bool
	// Lane names what the call needs alone: calls of one turn in the same
	// lane run one after the other in call order, calls in different lanes or
	// in lane "" at the same time. Nil means: one lane for all NonIdempotent
	// tools ("global"), one for all Sandboxed ones ("workspace"), one for
	// each Idempotent tool (its name), "" for ReadOnly tools.
	Lane func(args json.RawMessage) string
}

// The lanes of tools that name none.
const (
	LaneGlobal    = "global"
	LaneWorkspace = "workspace"
)

// LaneOf is the lane of one call, with arguments as Table.Bind returns them. A Lane that
// panics gives the careful answer.
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

// Call is one call of a tool and what it may use.
type Call struct {
	// ID is the same on every attempt: pass it on as idempotency key.
	ID      string
	Attempt uint64          // 1 for the first
	Args    json.RawMessage // a JSON object that matches the schema; not to be altered
	Session session.Session // as the model saw it when it made the call
	// Sandbox gives the session's sandbox, opened on first use. Nil or an
	// error means that there is none.
	Sandbox func(context.Context) (sandbox.Sandbox, error)
	// HTTP carries requests to the hosts that the session's sandbox may reach, as those of
	// its commands, and opens it on first use. Nil, or a nil transport, means that there are
	// none. Redirects are not followed.
	HTTP  func(context.Context) (http.RoundTripper, error)
	Blobs blob.Store // takes outputs that are too long for a transcript; may be nil
	// Ask asks a person, for a yes and for values that match a JSON Schema. While there is no
	// answer it fails: the call returns that error, ends with it, and is made again from its
	// beginning when the answer is there, in a run that waited as for an approval. What the
	// call did before it asked it does again. action is "accept", "decline", or "cancel" if
	// the time was up; content are the values. Nil means that there is no person to ask.
	Ask func(ctx context.Context, message string, schema json.RawMessage) (action string, content json.RawMessage, err error)
	// Progress says how far the call is, to people who look at its run meanwhile. Only the
	// last text is kept, as long as the call runs. It may be called from several goroutines,
	// and be nil.
	Progress func(text string)
}

// Result is the result of a tool. Body is any value that encodes to JSON, or a
// json.RawMessage; in a result that the engine returns, as flow.CallTool does, it is a [JSON].
// IsError marks a body that reports a failure in the tool's own words; most tools return
// an error instead.
type Result struct {
	Body    any
	IsError bool
	// Images are shown to models that see images, see [KeepImage].
	Images []session.Image
}

// Text returns the body as a model reads it: a string as it is, anything else as JSON.
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

// JSON is a body that is JSON text already. It prints as [Result.Text] returns it.
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
// Call gets arguments that were checked against the schema and returns when
// all its work has ended, soon after ctx has. An error becomes the body that
// the model reads: a *Failure with its own kind, context.DeadlineExceeded as
// timeout, any other as tool_execution_exception with its type and text, so
// errors must not hold secrets.
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, c Call) (Result, error)
}

type callKey struct{}

// Current returns the call that runs under ctx, for functions given to Func
// that need more than their arguments.
func Current(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}
