package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// The exit codes. They are documented in exitTopic and never change meaning.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitUnavailable = 5
	ExitPartial     = 6
	ExitRefused     = 7
	ExitInterrupted = 130
)

const ExitTopic = `Exit codes:

  0    success; of a run: it succeeded
  1    the run failed, or a verification failed
  2    wrong command line, configuration or task
  3    not found: a run, session, version, workflow or file
  4    conflict with the current state: an id of another task, a store in use,
       a file changed meanwhile
  5    not available: no server, a full or read-only store, a model without an
       answer, a timeout
  6    partial success; the message names the missing part
  7    refused: a decision is required (needs_review), credentials were
       rejected, or the command would run without isolation
  130  interrupted; the message has the command to continue
`

// exitError is an error with its exit code for scripts.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// WithCode returns err with an exit code for scripts.
func WithCode(code int, err error) error { return &exitError{code, err} }

// Fail returns an error with an exit code.
func Fail(code int, format string, args ...any) error {
	return WithCode(code, fmt.Errorf(format, args...))
}

// Silent ends the command with a code, without another message.
func Silent(code int) error { return &exitError{code, errSaid} }

var errSaid = errors.New("")

// report prints an error and returns the exit code.
func (a *App) report(ctx context.Context, err error) int {
	if err == nil {
		return ExitOK
	}
	code := CodeOf(err)
	if context.Cause(ctx) == ErrInterrupted && code != ExitOK && !errors.Is(err, errSaid) {
		a.Err.Println("rath: interrupted")
		return ExitInterrupted
	}
	if !errors.Is(err, errSaid) {
		text := strings.TrimSpace(term.Clean(messages.Text(err)))
		const name = "rath:"
		text = strings.TrimPrefix(a.Err.Message(name+" "+text), name)
		a.Err.Println(a.Err.Paint(term.Red, name) + text)
	}
	return code
}

// CodeOf chooses the exit code of an error.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*dossier.Failure](err); ok {
		return ExitFailed
	}
	if _, ok := errors.AsType[*workspace.ConflictError](err); ok {
		return ExitConflict
	}
	if _, ok := errors.AsType[*workspace.RefusedError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[*workspace.LimitError](err); ok {
		return ExitUsage
	}
	if e, ok := errors.AsType[*llm.Error](err); ok {
		switch e.Code {
		case llm.CodeNoKey, llm.CodeNoModel, llm.CodeInvalidRequest:
			return ExitUsage
		}
		return ExitUnavailable
	}
	for _, c := range []struct {
		code int
		errs []error
	}{
		{ExitUsage, []error{run.ErrMalformed, session.ErrTooLarge, session.ErrTenant, audit.ErrInput, view.ErrNotFile, view.ErrNotText, syscall.ENOTDIR, syscall.EISDIR}},
		{ExitNotFound, []error{session.ErrNotFound, lineage.ErrNotFound, run.ErrUnknownRun, view.ErrEmptyFile, fs.ErrNotExist}},
		{ExitConflict, []error{
			run.ErrKeyReused, run.ErrPruned, run.ErrState, session.ErrConflict, session.ErrClosed, session.ErrArchived, session.ErrStale, natsserver.ErrStoreInUse,
			natsserver.ErrPortInUse, streams.ErrDurability, session.ErrTooOld, fs.ErrExist,
		}},
		{ExitRefused, []error{run.ErrReview, conn.ErrDenied, streams.ErrRefused, sandbox.ErrUnsupported}},
		{ExitUnavailable, []error{
			run.ErrBusy, session.ErrUnavailable, conn.ErrUnreachable, conn.ErrNoAnswer, conn.ErrFull, natsserver.ErrStoreFull, natsserver.ErrStoreReadOnly,
			context.DeadlineExceeded, run.ErrNotSupported, syscall.EROFS, syscall.ENOSPC, fs.ErrPermission,
		}},
		{ExitInterrupted, []error{ErrInterrupted, context.Canceled}},
	} {
		for _, target := range c.errs {
			if errors.Is(err, target) {
				return c.code
			}
		}
	}
	if run.CodeOf(err) == dispatch.CodeUnknownWorkflow {
		return ExitNotFound
	}
	return ExitFailed
}

// StateCode returns the exit code for a run's state.
func StateCode(s run.State) int {
	switch s {
	case run.Succeeded:
		return ExitOK
	case run.NeedsReview:
		return ExitRefused
	case run.Failed, run.Cancelled, run.TimedOut:
		return ExitFailed
	}
	return ExitPartial
}
