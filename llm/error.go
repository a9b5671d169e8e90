package llm

import (
	"errors"
	"strings"
	"time"

	"github.com/rathcluster/rath/session"
)

// Code classifies a failure. A Code is itself an error, so that it works as
// the sentinel of its class, also for errors that came out of a journal:
//
//	if errors.Is(err, llm.CodeRateLimited) { ... }
//
// The list is closed and append-only: codes are stored in journals and sent on the
// wire, so their names and meanings never change.
type Code string

// The codes. Failures of the first group may be retried, those of the second may not.
const (
	// CodeRateLimited: too many requests or tokens per time.
	CodeRateLimited Code = "rate_limited"
	// CodeOverloaded: the server has no capacity at the moment.
	CodeOverloaded Code = "overloaded"
	// CodeUnavailable: the server cannot be reached or failed.
	CodeUnavailable Code = "unavailable"
	// CodeTimeout: the total time, or the time to the first token, ran out, or a
	// gateway timed out. The server may charge such a call.
	CodeTimeout Code = "timeout"
	// CodeIdleTimeout: a stream went silent after its start.
	CodeIdleTimeout Code = "idle_timeout"
	// CodeTruncated: the answer stopped without proof that it is complete.
	CodeTruncated Code = "truncated"
	// CodeMalformed: the answer violates the protocol, is too large, or is a flood of
	// empty data.
	CodeMalformed Code = "malformed"

	// CodeAuth: the key is missing, wrong, or lacks the permission.
	CodeAuth Code = "auth"
	// CodeModelNotFound: the server does not have the model.
	CodeModelNotFound Code = "model_not_found"
	// CodeInvalidRequest: the request is wrong and will stay wrong.
	CodeInvalidRequest Code = "invalid_request"
	// CodeContextLength: the transcript is too long for the model, or alone exceeds the
	// limit per minute.
	CodeContextLength Code = "context_length"
	// CodeRefused: the provider rejects the content.
	CodeRefused Code = "refused"
	// CodeQuota: the account has no credit left.
	CodeQuota Code = "quota"
	// CodeNoModel: neither the provider nor the configuration names a model.
	CodeNoModel Code = "no_model"
	// CodeNoKey: no key is configured where one is needed.
	CodeNoKey Code = "no_key"
)

var codes = []Code{
	CodeRateLimited, CodeOverloaded, CodeUnavailable, CodeTimeout, CodeIdleTimeout, CodeTruncated, CodeMalformed,
	CodeAuth, CodeModelNotFound, CodeInvalidRequest, CodeContextLength, CodeRefused, CodeQuota, CodeNoModel, CodeNoKey,
}

// Codes returns all codes there are.
func Codes() []Code { return append([]Code(nil), codes...) }

// Error makes the code usable as a target of errors.Is.
func (c Code) Error() string { return "llm: " + string(c) }

// Retryable reports whether the same request may succeed later. It is false for a code
// unknown to this release.
func (c Code) Retryable() bool {
	switch c {
	case CodeRateLimited, CodeOverloaded, CodeUnavailable, CodeTimeout, CodeIdleTimeout, CodeTruncated, CodeMalformed:
		return true
	default:
		return false
	}
}

// Error is a failed model call. Its text is meant for users and journals: it names the
// model or server, the cause and, where there is one, the remedy. It holds no key and
// at most a few hundred bytes of the server's text.
type Error struct {
	Code Code
	// Status is the HTTP status, or 0.
	Status int
	// RetryAfter is the wait that the server requested, or 0.
	RetryAfter time.Duration
	// Final: the server reported that another try is useless, although the code is
	// retryable.
	Final bool
	// Thoughts: the server rejected a request with thoughts of earlier answers, and may
	// accept it without them, by [Request.ThoughtsFrom]. It is not kept in a journal.
	Thoughts bool
	// Used is the usage that the server reported before the call failed. It is not kept
	// in a journal.
	Used    session.Usage
	Message string
}

// Error returns the code and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Error() + ": " + e.Message
}

// Unwrap makes errors.Is(e, e.Code) hold.
func (e *Error) Unwrap() error { return e.Code }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool { return !e.Final && e.Code.Retryable() }

// CodeOf returns the code of err, or "" if it is not a failure of a model
// call (a context that ended, for example).
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	c, _ := errors.AsType[Code](err)
	return c
}

// Retryable reports whether err is a failed model call that may succeed
// later. It is false for nil and for a context that ended.
func Retryable(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Retryable()
	}
	return CodeOf(err).Retryable()
}

// Rebuild restores an error from its code and the text that its Error method returned.
// The other fields are not restored. An unknown code, which a newer release may have
// written, is kept.
func Rebuild(code Code, text string) *Error {
	m := strings.TrimPrefix(text, code.Error())
	return &Error{Code: code, Message: strings.TrimPrefix(m, ": ")}
}

// CodeForStatus classifies an HTTP status without a better explanation. It returns ""
// for 2xx.
func CodeForStatus(status int) Code {
	switch {
	case status >= 200 && status < 300:
		return ""
	case status == 401, status == 403, status == 407:
		return CodeAuth
	case status == 402:
		return CodeQuota
	case status == 404:
		return CodeModelNotFound
	case status == 408, status == 504, status == 524:
		return CodeTimeout
	case status == 409, status == 425:
		return CodeUnavailable
	case status == 429:
		return CodeRateLimited
	case status == 451:
		return CodeRefused
	case status == 503, status == 529:
		return CodeOverloaded
	case status >= 500:
		return CodeUnavailable
	default:
		return CodeInvalidRequest
	}
}

var (
	_ error = Code("")
	_ error = (*Error)(nil)
)
