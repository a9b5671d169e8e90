package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/session"
)

// IsControl errors mean that this execution of a run must stop; they are never recorded
// as a step's outcome. A workflow returns them like any error, and its other results
// are then ignored.
var (
	// ErrSuperseded means that a newer attempt owns the run.
	ErrSuperseded = errors.New("run: a newer attempt owns this run")
	// ErrSuspended means that the run waits without resources; it resumes by itself.
	ErrSuspended = errors.New("run: suspended; it resumes by itself")
	// ErrCancelled means that the run was cancelled.
	ErrCancelled = errors.New("run: cancelled")
	// ErrReview means that the run cannot continue before an operator decides.
	ErrReview = errors.New("run: needs review")
	// ErrShutdown means that the node is stopping; another node takes over the run, or
	// this one resumes it after its next start.
	ErrShutdown = errors.New("run: node is shutting down")
)

// Errors in answers to a task or a request.
var (
	// ErrBusy means that a bound was reached. Accepted work is kept, and the caller may
	// try again.
	ErrBusy = errors.New("run: busy")
	// ErrKeyReused means that the id already names another task.
	ErrKeyReused = errors.New("run: this id was used for another task")
	// ErrNotSupported marks a field or verb that this release does not support.
	ErrNotSupported = errors.New("run: not supported by this release")
	// ErrPruned is returned for the result of a run that ended, was archived and pruned:
	// it is in the archive.
	ErrPruned = errors.New("run: pruned")
	// ErrUnknownRun is returned for a run that is not in the session's log.
	ErrUnknownRun = errors.New("run: unknown run")
	// ErrState is returned for a request that the run's state does not allow.
	ErrState = errors.New("run: not possible in this state")
	// ErrBudget is a step's outcome: it would exceed the run's budget.
	ErrBudget = errors.New("run: budget exceeded")
	// ErrMismatch means that the workflow's code no longer requests the steps in its
	// journal.
	ErrMismatch = errors.New("run: the code does not match its journal")
	// ErrNestedStep rejects a step within the function of another step: replay does not
	// call that function, so the nested step could not be found again.
	ErrNestedStep = errors.New("run: a step inside of another step")
	// ErrTooDeep rejects a fan-out within too many others, see MaxDepth, and the start of a
	// run below too many others, see MaxStarted.
	ErrTooDeep = errors.New("run: nested too deep")
	// ErrDeadline is the outcome of a run that ended at its deadline.
	ErrDeadline = errors.New("run: deadline exceeded")
	// ErrExpired is the outcome of a question without an answer in time.
	ErrExpired = errors.New("run: no answer in time")
	// ErrTruncated is the outcome of an agent whose model's answer was cut at its
	// length limit, and remained cut after the model was asked to continue.
	ErrTruncated = errors.New("run: the model's answer is cut")
	// ErrRefused is the outcome of an agent whose model refused to answer.
	ErrRefused = errors.New("run: the model refused")
	// ErrFiltered is the outcome of an agent whose model's answer was withheld by a
	// filter of the server.
	ErrFiltered = errors.New("run: the model's answer was withheld by a filter")
	// ErrEmpty is the outcome of an agent whose model gave no answer: an empty one,
	// calls that it announced and did not send, or a call written as text.
	ErrEmpty = errors.New("run: the model gave no answer")
	// ErrPoison ends a run that was claimed too often without progress.
	ErrPoison = errors.New("run: claimed too often without a new step")
)

// ErrQuarantined is returned for the operations that a quarantine forbids: until its
// release, no node claims a run on the session, merges it or recalls its contents.
var ErrQuarantined = errors.New("run: the session is quarantined")

// IsControl reports whether err stops an execution without being recorded.
func IsControl(err error) bool {
	return errors.Is(err, ErrSuperseded) || errors.Is(err, ErrSuspended) || errors.Is(err, ErrCancelled) ||
		errors.Is(err, ErrReview) || errors.Is(err, ErrShutdown) || errors.Is(err, session.ErrConflict) ||
		errors.Is(err, session.ErrUnavailable)
}

// Code is the form of an error in journals and on the wire. Codes are only ever added.
type Code string

// The codes.
const (
	CodeError        Code = "error" // any error without a code of its own
	CodeBusy         Code = "busy"
	CodeKeyReused    Code = "key_reused"
	CodeNotSupported Code = "not_supported"
	CodeUnknownRun   Code = "unknown_run"
	CodePruned       Code = "pruned"
	CodeState        Code = "wrong_state"
	CodeBudget       Code = "budget_exceeded"
	CodeMismatch     Code = "journal_mismatch"
	CodeDeadline     Code = "deadline_exceeded"
	CodePoison       Code = "poison"
	CodeExpired      Code = "expired"
	CodeQuarantined  Code = "quarantined"
	CodeCancelled    Code = "cancelled"
	CodeReview       Code = "needs_review"
	CodeSuperseded   Code = "superseded"
	CodeNotFound     Code = "not_found"
	CodeTenant       Code = "cross_tenant"
	CodeTimeout      Code = "timeout"
	CodeConflict     Code = "conflict"
	CodeClosed       Code = "closed"
	CodeArchived     Code = "archived"
	CodeTooLarge     Code = "too_large"
	CodeMalformed    Code = "malformed"
	CodeUnavailable  Code = "unavailable"
	CodeTooDeep      Code = "too_deep"
	CodeNestedStep   Code = "nested_step"
	CodeTruncated    Code = "truncated"
	CodeRefused      Code = "refused"
	CodeFiltered     Code = "filtered"
	CodeEmpty        Code = "empty"
	CodeAfter        Code = "after_failed" // a run that must succeed before this one begins did not

	// CodeModelUnavailable ends a run whose model's server cannot be reached or fails.
	// With CodeUnavailable the error would stop an execution without being recorded.
	CodeModelUnavailable Code = "model_unavailable"
)

// ErrMalformed marks a task or a request that does not decode.
var ErrMalformed = errors.New("run: malformed")

var codes = []struct {
	code Code
	err  error
}{
	{CodeBusy, ErrBusy},
	{CodeKeyReused, ErrKeyReused},
	{CodeNotSupported, ErrNotSupported},
	{CodeUnknownRun, ErrUnknownRun},
	{CodePruned, ErrPruned},
	{CodeState, ErrState},
	{CodeBudget, ErrBudget},
	{CodeMismatch, ErrMismatch},
	{CodeDeadline, ErrDeadline},
	{CodePoison, ErrPoison},
	{CodeExpired, ErrExpired},
	{CodeQuarantined, ErrQuarantined},
	{CodeCancelled, ErrCancelled},
	{CodeReview, ErrReview},
	{CodeSuperseded, ErrSuperseded},
	{CodeMalformed, ErrMalformed},
	{CodeTooDeep, ErrTooDeep},
	{CodeNestedStep, ErrNestedStep},
	{CodeTruncated, ErrTruncated},
	{CodeRefused, ErrRefused},
	{CodeFiltered, ErrFiltered},
	{CodeEmpty, ErrEmpty},
	{CodeNotFound, session.ErrNotFound},
	{CodeTenant, session.ErrTenant},
	{CodeConflict, session.ErrConflict},
	{CodeClosed, session.ErrClosed},
	{CodeArchived, session.ErrArchived},
	{CodeTooLarge, session.ErrTooLarge},
	{CodeUnavailable, session.ErrUnavailable},
	{CodeTimeout, context.DeadlineExceeded},
}

// coded is implemented by errors with a code of their own.
type coded interface {
	error
	ErrorCode() string
}

// CodeOf returns the code of err on the wire; "" for nil. An error with a method
// ErrorCode() string, such as one of a model, has its own code, which the journal
// preserves.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if c, ok := errors.AsType[coded](err); ok {
		return Code(c.ErrorCode())
	}
	return CodeError
}

// recorded is an error from a journal or from the wire. errors.Is finds the sentinel of
// its code, so that code that branches on an error does the same on replay.
type recorded struct {
	code Code
	text string
}

// Error returns the text of the original error.
func (e *recorded) Error() string { return e.text }

// ErrorCode returns the code, see [CodeOf].
func (e *recorded) ErrorCode() string { return string(e.code) }

// Is reports whether target is the sentinel of e's code, or an error with the
// same code.
func (e *recorded) Is(target error) bool {
	for _, c := range codes {
		if c.code == e.code && c.err == target {
			return true
		}
	}
	c, ok := target.(coded)
	return ok && c.ErrorCode() == string(e.code)
}

// Err rebuilds an error from a code and a text; nil when code is empty. errors.Is finds
// the sentinel of the code.
func (c Code) Err(text string) error {
	if c == "" {
		return nil
	}
	if text == "" {
		text = fmt.Sprintf("run: %s", string(c))
	}
	return &recorded{c, text}
}
