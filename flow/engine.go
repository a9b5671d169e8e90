package flow

import (
	"context"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// engine executes the steps of one place in a run: Forward itself, a branch, or the work
// of a step, which must not make steps. Package internal/engine implements it over
// journals; flow does not depend on journals, leases or stores.
//
// Each method with a context makes one or more steps. It returns once the step's outcome
// is durable, or returns the outcome that an earlier execution recorded. ctx is the
// caller's, derived from the context that holds the engine. If only ctx ends, that is the
// outcome of the step. If the execution has to stop, the method returns an error that
// run.IsControl reports, and so does every later call.
//
// Besides the errors of each operation, a method returns run.ErrNestedStep from the work
// of a step, an error of the engine while another step of the place is in flight, and
// run.ErrMismatch when the journal holds another step. If a method returns a session with
// an error, the caller continues with that session.
type engine interface {
	place
	work
	marks
	sessions
	branches
	models
	memories
}

// place describes the caller's position in a run. Its methods make no step and may be
// called at any time.
type place interface {
	// Info describes the place.
	Info() Info
	// Now returns the time of the last recorded step, the same on every execution; in the
	// work of a step it returns the current time.
	Now() time.Time
	// NewID returns 32 hexadecimal digits, the same on every execution; in the work of a
	// step they are those of a random UUID.
	NewID() string
	// Progress is the text of [Progress], for the step in flight.
	Progress(text string)
}

// work has the steps that act outside of sessions, and the steps that wait.
type work interface {
	// Do calls fn, which sets the value that out points to, and records the value as
	// JSON, or the error. If the step is recorded already, Do decodes the record into out
	// and does not call fn. After an error it calls fn again by the policy, whose nil has
	// defaults. After an error the value of out is undefined.
	Do(ctx context.Context, name string, e tool.Effect, p *tool.Retry, out any, fn func(context.Context) error) error
	// Defer registers fn as a compensation of the run; it runs nothing. The step records
	// the options, and a cleanup run finds fn by calling Forward again.
	Defer(ctx context.Context, name string, fn func(context.Context) error, o DeferOptions) error
	// ChangeVersion returns the version of a change to the code that applies to the run.
	// The first call for the change records it; later calls make no step. A recorded
	// version outside of oldest to newest is run.ErrMismatch.
	ChangeVersion(ctx context.Context, change string, oldest, newest int) (int, error)
	// Await waits for an answer to w and decodes it into out, which may be nil. The step
	// sets Path and Due of w. With a timeout above zero Await returns run.ErrExpired
	// after that time. Without an answer yet it returns run.ErrSuspended. Of a run that a
	// Start of this run started, out is a *RunEnd.
	Await(ctx context.Context, w journal.Wait, timeout time.Duration, out any) error
	// First waits likewise for the first of several, and returns its index, and a context
	// with which the next step gets its outcome.
	First(ctx context.Context, cases []stepper.Case) (int, context.Context, error)
	// Gather calls functions concurrently, at most limit of those that do not wait, and
	// returns their errors. Each gets a context for steps of its own.
	Gather(ctx context.Context, limit int, fns []func(context.Context) error) error
	// Loop calls body, with a context for steps of its own, until it returns false. It
	// records s and the value that state points to after each call, and goes on after the
	// last recorded one.
	Loop(ctx context.Context, name string, s session.Session, state any, body func(context.Context, session.Session) (session.Session, bool, error)) (session.Session, error)
	// Start starts an independent run and returns its id, once the step has recorded the
	// task. A task without an id gets one that follows from the step.
	Start(ctx context.Context, t Task) (run.ID, error)
	// Listen waits likewise for messages of the user and adds them to s.
	Listen(ctx context.Context, s session.Session, w journal.Wait, timeout time.Duration) (session.Session, error)
	// CallTool runs a tool on s with arguments in JSON, and adds its result as a row.
	CallTool(ctx context.Context, s session.Session, t tool.Tool, args string) (session.Session, tool.Result, error)
}

// marks are what others see of a run.
type marks interface {
	// SetTag sets a tag of the run, in a step; "" removes it.
	SetTag(ctx context.Context, key, value string) error
	// SetStatus sets the status of the run. It makes no step, and a branch that executes
	// the code around it ignores it.
	SetStatus(v any) error
}

// sessions has the steps that create, merge and end sessions, and that read other
// sessions.
type sessions interface {
	// Fork creates a session with the contents of s: a branch, or a detached session,
	// which stays open when the run ends.
	Fork(ctx context.Context, s session.Session, detached bool) (session.Session, error)
	// Adopt makes a branch of this run trunk's next version and ends it.
	Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error)
	// Reject ends a branch of this run.
	Reject(ctx context.Context, branch session.Session, reason string) error
	// Concatenate creates a session of the chunks of a followed by those of b.
	Concatenate(ctx context.Context, a, b session.Session) (session.Session, error)
	// AddWorkspaceGuide adds the instructions for agents in the files of s, unless s has
	// them, and reports whether they name skills. It makes a step only if the files were
	// not read yet.
	AddWorkspaceGuide(ctx context.Context, s session.Session) (guided session.Session, skills bool, err error)
	// Diff returns the changes of s to its files since the run got it, in at most
	// journal.MaxDetail bytes.
	Diff(ctx context.Context, s session.Session) (string, error)
	// ReadSession returns a session that the run does not hold, at the version of r; zero
	// is the newest version when the step executes.
	ReadSession(ctx context.Context, r session.Ref) (session.Session, error)
}

// branches are the steps of fan-outs.
type branches interface {
	// FanOut runs branches of s and returns when need of them have succeeded, or when all
	// have ended if need is zero; until then it returns run.ErrSuspended. The names of
	// the branches are valid and distinct. of is the argument for Merge.
	FanOut(ctx context.Context, s session.Session, bs []Branch, need int, o FanOutOptions) (j Joined, of any, err error)
	// Merge merges outcomes of a fan-out into its base and disposes of every branch. j
	// may have another base, or the outcomes in another order, than FanOut returned. It
	// fails with ErrNoOutcome when the verdict takes no outcome.
	Merge(ctx context.Context, j *Joined, of any, v Verdict) (session.Session, error)
	// MergeFiles merges the files of the outcomes that a verdict takes, for a Merge that
	// follows. If the verdict has a judge, MergeFiles returns the undecided conflicts as
	// texts. The caller then calls it again with a choice for each, appended to the
	// choices of the calls before. A choice is one of the constants and a reason after a
	// space, or "" for none.
	MergeFiles(ctx context.Context, j *Joined, of any, v Verdict, choices []string) (open []string, err error)
}

// models has the steps that call models.
type models interface {
	// Agent calls a model and runs the tools of each answer until an answer calls no
	// tool. It fails with ErrMaxRounds if no such answer comes.
	Agent(ctx context.Context, a *Agent, s session.Session) (session.Session, error)
	// Select shows s and a question to a model. The first integer of the answer is the
	// index of a candidate, counted from zero; -1 is none.
	Select(ctx context.Context, sel Selector, question string, s session.Session, candidates []string) (int, error)
	// Compress shows s and the instruction of c to a model and returns a session of its
	// answer alone.
	Compress(ctx context.Context, c Compressor, s session.Session) (session.Session, error)
}

// memories has the steps that read and write memories, which outlive sessions.
type memories interface {
	// Recall searches a memory and returns at most limit notes, best first. It omits
	// notes of quarantined sessions.
	Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error)
	// Remember writes a note and returns its name, which derives from the step.
	Remember(ctx context.Context, name, category, text string) (uri string, err error)
	// ArchiveSession stores the chunks of s and returns their name in the memory's list.
	ArchiveSession(ctx context.Context, s session.Session, name string) (uri string, err error)
}

// errNoRun is returned by every step outside of a run.
var errNoRun = errors.New("flow: not inside a run: call it from a Forward that a node or an inprocess.Runner runs, with the context that Forward got")

// engineOf returns the engine of a context, such as the context of an author's Forward.
func engineOf(ctx context.Context) (engine, error) {
	held := stepper.Of(ctx)
	if held == nil {
		return nil, errNoRun
	}
	return held.(engine), nil
}
