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

// Kind classifies a failure for models and for programs that read transcripts. Kinds are
// added, never removed.
type Kind string

// The kinds of failure.
const (
	InvalidArguments   Kind = "invalid_tool_arguments"   // not a JSON object, or not valid under the schema
	UnknownTool        Kind = "unknown_tool"             // the agent has no such tool
	Exception          Kind = "tool_execution_exception" // the tool returned an error or panicked
	Cancelled          Kind = "cancelled"                // the run ended during the call
	Timeout            Kind = "timeout"                  // a deadline inside the tool passed
	FileNotFound       Kind = "file_not_found"           // no such name in the workspace
	PathRefused        Kind = "path_refused"             // the name leaves the workspace or is no file or directory
	TooLarge           Kind = "too_large"                // more than the tool takes or gives
	NotText            Kind = "not_text"                 // the file is binary, or not UTF-8 and would lose bytes
	NotImage           Kind = "not_image"                // the data is not an image that models can see
	Mismatch           Kind = "mismatch"                 // an edit or a patch does not match the current files
	Unsupported        Kind = "unsupported_tool"         // not available in this sandbox
	OSError            Kind = "os_error"                 // the operating system reported an error
	SandboxMissing     Kind = "sandbox_missing"          // the session has no sandbox
	SandboxUnavailable Kind = "sandbox_unavailable"      // it has one that cannot be opened
	SandboxClosed      Kind = "sandbox_closed"           // it was closed
	SandboxLost        Kind = "sandbox_lost"             // the sandbox died; the effects of the call are unknown
	FilesRefused       Kind = "files_refused"            // the call left files that a workspace cannot store; its changes are undone
	Rejected           Kind = "rejected"                 // the approver rejected the call
	Unreachable        Kind = "unreachable"              // the run may not reach the host, or the host does not answer
	AnswerCut          Kind = "answer_cut"               // the model's answer was truncated, so none of its calls is made
	Unavailable        Kind = "tool_unavailable"         // the process that provides the tool does not answer
)

// The maximum lengths of the texts in a failure's body, in bytes.
const (
	maxMessage = 2000
	maxDetail  = 4000
)

// Failure is an error with a kind. A tool returns one to choose the text that
// the model reads. Its body is
//
//	{"ok":false,"error_kind":KIND,"message":MESSAGE,"detail":DETAIL}
//
// where an empty detail is omitted.
type Failure struct {
	Kind    Kind
	Message string // the problem, and the alternative if there is one
	Detail  string // the name or text it happened with
	Err     error  // the cause; for the runtime only
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

// failure returns the Failure that reports err.
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

// typeName returns the type of the first error in err's chain that is not of package errors
// or fmt.
func typeName(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		t := reflect.TypeOf(e)
		elem := t
		if t.Kind() == reflect.Pointer {
			elem = t.Elem()
		}
		if p := elem.PkgPath(); p != "errors" && p != "fmt" && t != reflect.TypeFor[*permanent]() {
			return strings.TrimPrefix(t.String(), "*")
		}
	}
	return "error"
}

// panicError is the error of a tool that panicked.
type panicError struct {
	Value any
	Stack string // for the runtime; the model does not see it
}

// Error returns the argument of panic as text.
func (p *panicError) Error() string { return "panic: " + fmt.Sprint(p.Value) }

// Unwrap returns the value if it is an error.
func (p *panicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Outcome is the outcome of a call in the form that is recorded.
type Outcome struct {
	// Body is canonical JSON: compact, valid UTF-8, at most MaxBody bytes.
	Body    json.RawMessage
	Images  []session.Image
	IsError bool
	Kind    Kind // of a Failure; "" otherwise
	// Err is the error that the body reports, nil for a result. It is for the runtime: an
	// error that ends the run instead of the call (because ctx is done, or a step inside the
	// tool was suspended) must not be recorded.
	Err error
}

// ResultOutcome returns the outcome of a call that ran elsewhere and returned v. It is the
// same as the outcome of a tool that returns v.
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

// ErrorOutcome returns the outcome of a call that failed with err, which must not be nil.
func ErrorOutcome(err error) Outcome {
	f := failure(err)
	body, encodeErr := schema.Marshal(f)
	if encodeErr != nil { // a Failure holds strings, which always encode
		panic(encodeErr)
	}
	return Outcome{Body: body, IsError: true, Kind: f.Kind, Err: err}
}

// ErrNotMade is wrapped by the error of a call that did not reach its target. The call can
// be repeated whatever its effect.
var ErrNotMade = errors.New("tool: the call was not made")
