package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/internal/audit"
	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// The exit codes. They are documented in exitTopic and never change meaning.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitPartial     = 6
	exitRefused     = 7
	exitInterrupted = 130
)

const exitTopic = `Exit codes:

  0    done; of a run: it succeeded
  1    the run failed, or what was verified does not hold
  2    the command line, the configuration or a task is wrong
  3    a run, session, version, workflow or file is not there
  4    a conflict, or something that the present state does not allow: an id
       used for another task, a store in use, a file that changed meanwhile
  5    not available: no server, a full or read-only store, a model that does
       not answer, a time-out
  6    only a part was done; the message says which
  7    refused: a person has to decide (needs_review), credentials were
       rejected, or a limit of isolation would be given up
  130  interrupted; the message says how to go on
`

// exitError is an error with the exit code that tells it to scripts.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// fail returns an error with an exit code.
func fail(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// silent ends the command with a code; everything was said already.
func silent(code int) error { return &exitError{code, errSaid} }

var errSaid = errors.New("")

// usage is a wrong command line.
func usage(cmd *cobra.Command, err error) error {
	return &exitError{exitUsage, fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
}

// flagError says what value a flag wants, without the words of package strconv.
func flagError(err error) error {
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint32": "a whole number from 0 on", "uint64": "a whole number from 0 on", "float64": "a number",
		"bool": "true or false", "duration": "a duration such as 90s, 15m or 2h",
	}[e.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s %q: want %s", e.GetFlag().Name, e.GetValue(), want)
}

// report tells an error and returns the exit code.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if context.Cause(ctx) == errInterrupted && code != exitOK && !errors.Is(err, errSaid) {
		a.err.Println("rath: interrupted")
		return exitInterrupted
	}
	if !errors.Is(err, errSaid) {
		text := strings.TrimSpace(term.Clean(messages.Text(err)))
		a.err.Println(a.err.Paint(term.Red, "rath:") + " " + text)
	}
	return code
}

// codeOf chooses the exit code of an error.
func codeOf(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*dossier.Failure](err); ok {
		return exitFailed
	}
	if _, ok := errors.AsType[*workspace.ConflictError](err); ok {
		return exitConflict
	}
	if _, ok := errors.AsType[*workspace.RefusedError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*workspace.LimitError](err); ok {
		return exitUsage
	}
	if e, ok := errors.AsType[*llm.Error](err); ok {
		switch e.Code {
		case llm.CodeNoKey, llm.CodeNoModel, llm.CodeInvalidRequest:
			return exitUsage
		}
		return exitUnavailable
	}
	for _, c := range []struct {
		code int
		errs []error
	}{
		{exitUsage, []error{run.ErrMalformed, session.ErrTooLarge, session.ErrTenant, audit.ErrInput, view.ErrNotFile, view.ErrNotText, syscall.ENOTDIR, syscall.EISDIR}},
		{exitNotFound, []error{session.ErrNotFound, lineage.ErrNotFound, run.ErrUnknownRun, view.ErrEmptyFile, fs.ErrNotExist}},
		{exitConflict, []error{
			run.ErrKeyReused, run.ErrState, session.ErrConflict, session.ErrClosed, session.ErrArchived, session.ErrStale, natsserver.ErrStoreInUse,
			natsserver.ErrPortInUse, natsbus.ErrDurability, session.ErrTooOld, fs.ErrExist,
		}},
		{exitRefused, []error{run.ErrReview, conn.ErrDenied, natsbus.ErrRefused, sandbox.ErrUnsupported}},
		{exitUnavailable, []error{
			run.ErrBusy, session.ErrUnavailable, conn.ErrUnreachable, conn.ErrNoAnswer, conn.ErrFull, natsserver.ErrStoreFull, natsserver.ErrStoreReadOnly,
			context.DeadlineExceeded, run.ErrNotSupported, syscall.EROFS, syscall.ENOSPC, fs.ErrPermission,
		}},
		{exitInterrupted, []error{errInterrupted, context.Canceled}},
	} {
		for _, target := range c.errs {
			if errors.Is(err, target) {
				return c.code
			}
		}
	}
	if e, ok := errors.AsType[*run.Error](err); ok && e.Code == natsbus.CodeUnknownWorkflow {
		return exitNotFound
	}
	return exitFailed
}

// stateCode is the exit code of how a run stands.
func stateCode(s run.State) int {
	switch s {
	case run.Succeeded:
		return exitOK
	case run.NeedsReview:
		return exitRefused
	case run.Failed, run.Cancelled, run.TimedOut:
		return exitFailed
	}
	return exitPartial
}
