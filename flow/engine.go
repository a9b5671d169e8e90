package flow

import (
	"context"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// engine makes the steps of one place in a run: of Forward itself, of a branch, or
// of the work of a step under way, where it makes none. Package internal/engine
// implements it over journals; flow knows nothing of journals, leases and stores.
//
// Each method that takes a context makes a step, some of them several. It returns
// once the step's outcome is durable, or what a former execution recorded. ctx is
// the caller's, derived from the one that holds the engine: if it alone ends, that
// is an outcome; if the execution has to stop, the error is one that run.IsControl
// reports, and every later call returns it.
//
// Errors, besides what an operation has of its own: run.ErrNestedStep from the
// work of a step under way, an error of the engine while another step of the place is
// under way, run.ErrMismatch when the journal holds another step. A session that is
// returned together with an error is the one to go on with.
type engine interface {
	place
	work
	sessions
	branches
	models
	memories
}

// place says where in a run the caller is. Its methods make no step and may be
// called at any time.
type place interface {
	// Info describes the place.
	Info() Info
	// Now returns the time of the last recorded step, the same on every execution;
	// in the work of a step it is what the clock says.
	Now() time.Time
	// NewID returns 32 hexadecimal digits, the same on every execution; in the work
	// of a step they are those of a random UUID.
	NewID() string
}

// work is what a step does outside of sessions, and waits for.
type work interface {
	// Do calls fn, which sets what out points to, and records that as JSON, or the
	// error. A former record is decoded into out, and fn is not called. After an
	// error out holds nothing of use.
	Do(ctx context.Context, name string, e tool.Effect, out any, fn func(context.Context) error) error
	// ChangeVersion returns which version of a change to the code holds for the run. It is
	// recorded by the first call for the change; later ones make no step. Code that does
	// not know the version fails with run.ErrMismatch.
	ChangeVersion(ctx context.Context, change string, oldest, newest int) (int, error)
	// Await waits for an answer to w, whose Path and Due the step fills in, and
	// decodes it into out, which may be nil. With a timeout above zero it is
	// run.ErrExpired after that. Where the answer is not there it returns
	// run.ErrSuspended.
	Await(ctx context.Context, w journal.Wait, timeout time.Duration, out any) error
	// Listen waits likewise for words of the user and adds them to s.
	Listen(ctx context.Context, s session.Session, w journal.Wait, timeout time.Duration) (session.Session, error)
	// CallTool runs a tool on s with arguments in JSON, and adds its result as a row.
	CallTool(ctx context.Context, s session.Session, t tool.Tool, args string) (session.Session, tool.Result, error)
}

// sessions are steps that make, join and end sessions, and read those of others.
type sessions interface {
	// Fork makes a session that begins as s is: a branch, or one that is detached
	// from s and stays open when the run ends.
	Fork(ctx context.Context, s session.Session, detached bool) (session.Session, error)
	// Adopt makes a branch of this run trunk's next version and ends it.
	Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error)
	// Reject ends a branch of this run.
	Reject(ctx context.Context, branch session.Session, reason string) error
	// Concatenate makes a session of the chunks of a and those of b.
	Concatenate(ctx context.Context, a, b session.Session) (session.Session, error)
	// AddWorkspaceGuide adds what the files of s say for agents, unless s has it, and says whether
	// that names skills. It makes a step only where the files were not taken in yet.
	AddWorkspaceGuide(ctx context.Context, s session.Session) (guided session.Session, skills bool, err error)
	// Diff returns how the files of s differ from those that s came with, in at most
	// journal.MaxDetail bytes.
	Diff(ctx context.Context, s session.Session) (string, error)
	// ReadSession returns a session that the run does not hold, at the version of r; zero
	// is the newest when the step is executed.
	ReadSession(ctx context.Context, r session.Ref) (session.Session, error)
}

// branches are the steps of fan-outs.
type branches interface {
	// FanOut runs branches of s and returns when need of them have succeeded, or
	// all have ended where need is zero; until then it returns run.ErrSuspended. The
	// branches' names are valid and differ. of is for Merge.
	FanOut(ctx context.Context, s session.Session, bs []Branch, need int, o FanOutOptions) (j Joined, of any, err error)
	// Merge brings outcomes of a fan-out into its base and disposes of every
	// branch. j may hold another base, and the outcomes in another order, than
	// FanOut returned. It fails with ErrNoOutcome when the verdict takes none.
	Merge(ctx context.Context, j *Joined, of any, v Verdict) (session.Session, error)
	// MergeFiles merges the files of what a verdict takes, for a Merge that follows.
	// Where the verdict has a judge it returns the conflicts that are to be decided, as
	// texts; it is then called again with the choices for them after those of the calls
	// before, each one of the constants with a reason behind a space, or "" for none.
	MergeFiles(ctx context.Context, j *Joined, of any, v Verdict, choices []string) (open []string, err error)
}

// models are steps that ask models.
type models interface {
	// Agent asks a model, runs the tools that it calls and goes on until it answers
	// without calling one. It fails with ErrMaxRounds when it does not come to that.
	Agent(ctx context.Context, a *Agent, s session.Session) (session.Session, error)
	// Select shows a model s and a question and returns which of the candidates the
	// first integer of its answer names, counted from zero; -1 is none.
	Select(ctx context.Context, sel Selector, question string, s session.Session, candidates []string) (int, error)
	// Compress shows a model s and the instruction of c and returns a session of its
	// answer alone.
	Compress(ctx context.Context, c Compressor, s session.Session) (session.Session, error)
}

// memories are steps that read and write what outlives sessions.
type memories interface {
	// Recall searches a memory and returns at most limit notes, best first, none of
	// them of a quarantined session.
	Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error)
	// Remember writes a note and returns its name, which comes from the step.
	Remember(ctx context.Context, name, category, text string) (uri string, err error)
	// ArchiveSession stores the chunks of s and returns the name they are listed under.
	ArchiveSession(ctx context.Context, s session.Session, name string) (uri string, err error)
}

// errNoRun is returned by every step outside of a run.
var errNoRun = errors.New("flow: not inside a run: call it from a Forward that a node or an inprocess.Runner runs, with the context that Forward got")

// engineOf returns what makes the steps of a context, such as the one that an author's
// Forward gets.
func engineOf(ctx context.Context) (engine, error) {
	held := stepper.Of(ctx)
	if held == nil {
		return nil, errNoRun
	}
	return held.(engine), nil
}
