package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Kind says what went wrong, for models and for programs that read
// transcripts. The list only grows.
type Kind string

// The kinds of failure.
const (
	InvalidArguments   Kind = "invalid_tool_arguments"   // no JSON object, or not what the schema asks for
	UnknownTool        Kind = "unknown_tool"             // the agent has no such tool
	Exception          Kind = "tool_execution_exception" // the tool returned an error or panicked
	Cancelled          Kind = "cancelled"                // the run ended meanwhile
	Timeout            Kind = "timeout"                  // a deadline inside the tool passed
	FileNotFound       Kind = "file_not_found"           // no such name in the workspace
	PathRefused        Kind = "path_refused"             // the name leaves the workspace or is no file or directory
	TooLarge           Kind = "too_large"                // more than the tool takes or gives
	NotText            Kind = "not_text"                 // the file is binary, or not UTF-8 and would lose bytes
	NotImage           Kind = "not_image"                // it is no image that models see
	Mismatch           Kind = "mismatch"                 // an edit or a patch does not fit the files as they are
	Unsupported        Kind = "unsupported_tool"         // not available in this sandbox
	OSError            Kind = "os_error"                 // the operating system refused
	SandboxMissing     Kind = "sandbox_missing"          // the session has no sandbox
	SandboxUnavailable Kind = "sandbox_unavailable"      // it has one that cannot be opened
	SandboxClosed      Kind = "sandbox_closed"           // it was closed
	SandboxLost        Kind = "sandbox_lost"             // it died; what the call did is unknown
	FilesRefused       Kind = "files_refused"            // the call left what a workspace cannot keep; its changes are undone
	Rejected           Kind = "rejected"                 // a person did not approve the call
	Unreachable        Kind = "unreachable"              // the host is none that the run may reach, or does not answer
	AnswerCut          Kind = "answer_cut"               // the model's answer was cut, so none of its calls is made
	Unavailable        Kind = "tool_unavailable"         // the process that has the tool does not answer
)

// The longest texts, in bytes, that a failure's body holds.
const (
	maxMessage = 2000
	maxDetail  = 4000
)

// Failure is an error of a kind. A tool returns one to choose what the model
// reads; its body is
//
//	{"ok":false,"error_kind":KIND,"message":MESSAGE,"detail":DETAIL}
//
// without detail when there is none.
type Failure struct {
	Kind    Kind
	Message string // what happened, and what to do instead
	Detail  string // the name or text it happened with
	Err     error  // the cause, for the runtime alone
}

// Error returns the kind and the message.
func (f *Failure) Error() string { return "tool: " + string(f.Kind) + ": " + f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// MarshalJSON writes the body.
func (f *Failure) MarshalJSON() ([]byte, error) {
	return schema.Marshal(struct {
		OK      bool   `json:"ok"`
		Kind    Kind   `json:"error_kind"`
		Message string `json:"message"`
		Detail  string `json:"detail,omitempty"`
	}{false, f.Kind, clip(f.Message, maxMessage), clip(f.Detail, maxDetail)})
}

// failure is the Failure that err is reported as.
func failure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		return &Failure{Kind: Exception, Message: p.Error(), Detail: "panic", Err: err}
	}
	if errors.Is(err, sandbox.ErrLost) || errors.Is(err, sandbox.ErrClosed) {
		return sandboxFailure("", err)
	}
	name := typeName(err)
	if errors.Is(err, context.DeadlineExceeded) {
		return &Failure{Kind: Timeout, Message: err.Error(), Detail: name, Err: err}
	}
	return &Failure{Kind: Exception, Message: name + ": " + err.Error(), Detail: name, Err: err}
}

// typeName is the type of the first error in err's chain that says something:
// those of errors and fmt do not.
func typeName(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		t := reflect.TypeOf(e)
		elem := t
		if t.Kind() == reflect.Pointer {
			elem = t.Elem()
		}
		if p := elem.PkgPath(); p != "errors" && p != "fmt" {
			return strings.TrimPrefix(t.String(), "*")
		}
	}
	return "error"
}

// panicError is what a panic in a tool becomes.
type panicError struct {
	Value any
	Stack string // for the runtime; the model does not see it
}

// Error returns the value that was given to panic.
func (p *panicError) Error() string { return "panic: " + fmt.Sprint(p.Value) }

// Unwrap returns the value if it is an error.
func (p *panicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Outcome is how a call ended, ready to be recorded.
type Outcome struct {
	// Body is canonical JSON: compact, valid UTF-8, at most MaxBody bytes.
	Body    json.RawMessage
	Images  []session.Image
	IsError bool
	Kind    Kind // of a Failure; "" otherwise
	// Err is the error behind the body, nil for a result. It is for the
	// runtime: one that ends the run instead of the call (because ctx ended,
	// or a step inside the tool was suspended) must not be recorded.
	Err error
}

// ResultOutcome is the outcome of a call that came to v, which is made elsewhere: as of a
// tool that returns it.
func ResultOutcome(ctx context.Context, v any, b blob.Store) Outcome {
	body, err := schema.Marshal(v)
	if err == nil {
		body, err = fold(ctx, body, b)
	}
	if err != nil {
		return ErrorOutcome(err)
	}
	return Outcome{Body: body}
}

// ErrorOutcome is the outcome of a call that failed with err, which must not be nil.
func ErrorOutcome(err error) Outcome {
	f := failure(err)
	body, encodeErr := schema.Marshal(f)
	if encodeErr != nil { // a Failure holds strings, which always encode
		panic(encodeErr)
	}
	return Outcome{Body: body, IsError: true, Kind: f.Kind, Err: err}
}

// ErrNotMade is wrapped by the error of a call that did not reach what makes it, so that the
// call can be made again whatever its effect.
var ErrNotMade = errors.New("tool: the call was not made")
