// Package seam is the seam between package flow, which authors of workflows write
// against, and what executes workflows. An execution puts an [Engine] into the
// context that it gives to Forward; the functions of package flow find it there
// and call it:
//
//	func Fork(ctx context.Context, s session.Session) (session.Session, error) {
//		e, err := engine(ctx) // from seam.From
//		if err != nil {
//			return s, err
//		}
//		return e.Fork(ctx, s, false)
//	}
//
// So flow knows nothing of journals, leases and stores, and package
// internal/engine, which does, can be replaced without its authors noticing. The
// interfaces are grouped by what a step works on. What holds for all of their
// methods that take a context stands at Engine.
package seam

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Engine makes the steps of one place in a run: of Forward itself, of a branch, or
// of the work of a step under way, where it makes none.
//
// Each method that takes a context makes a step, some of them several. It returns
// once the step's outcome is durable, or what a former execution recorded. ctx is
// the caller's, derived from the one that holds the Engine: if it alone ends, that
// is an outcome; if the execution has to stop, the error is one that run.IsControl
// reports, and every later call returns it.
//
// Errors, besides what an operation has of its own: run.ErrNestedStep from the
// work of a step under way, flow.ErrConcurrentStep while another step of the place
// is under way, run.ErrMismatch when the journal holds another step. A session
// that is returned together with an error is the one to go on with.
type Engine interface {
	Place
	Work
	Sessions
	Branches
	Models
	Memories
}

// Place says where in a run the caller is. Its methods make no step and may be
// called at any time.
type Place interface {
	// Info describes the place.
	Info() Info
	// Now returns the time of the last recorded step, the same on every execution;
	// in the work of a step it is what the clock says.
	Now() time.Time
	// NewID returns 32 hexadecimal digits, the same on every execution; in the work
	// of a step they are those of a random UUID.
	NewID() string
}

// Info is flow.Info, field by field.
type Info struct {
	Run       run.ID
	Session   session.Key
	Workflow  string
	Attempt   uint64
	Path      run.Path
	Tenant    session.Tenant
	Input     []byte
	Model     string
	Tools     []string
	Deadline  time.Time
	Replaying bool
}

// Work is what a step does outside of sessions, and waits for.
type Work interface {
	// Do calls fn, which sets what out points to, and records that as JSON, or the
	// error. A former record is decoded into out, and fn is not called. After an
	// error out holds nothing of use.
	Do(ctx context.Context, name string, e tool.Effect, out any, fn func(context.Context) error) error
	// Await waits for an answer to w, whose Path and Due the step fills in, and
	// decodes it into out, which may be nil. With a timeout above zero it is
	// run.ErrExpired after that. Where the answer is not there it returns
	// run.ErrSuspended.
	Await(ctx context.Context, w journal.Wait, timeout time.Duration, out any) error
	// Listen waits likewise for words of the user and adds them to s.
	Listen(ctx context.Context, s session.Session, w journal.Wait, timeout time.Duration) (session.Session, error)
	// Call runs a tool on s with arguments in JSON, and adds its result as a row.
	Call(ctx context.Context, s session.Session, t tool.Tool, args string) (session.Session, tool.Result, error)
}

// Sessions are steps that make, join and end sessions, and read those of others.
type Sessions interface {
	// Fork makes a session that begins as s is: a branch, or one that is detached
	// from s and stays open when the run ends.
	Fork(ctx context.Context, s session.Session, detached bool) (session.Session, error)
	// Adopt makes a branch of this run trunk's next version and ends it.
	Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error)
	// Reject ends a branch of this run.
	Reject(ctx context.Context, branch session.Session, reason string) error
	// Concatenate makes a session of the chunks of a and those of b.
	Concatenate(ctx context.Context, a, b session.Session) (session.Session, error)
	// Read returns a session that the run does not hold, at the version of r; zero
	// is the newest when the step is executed.
	Read(ctx context.Context, r session.Ref) (session.Session, error)
}

// Branches are steps of fan-outs.
type Branches interface {
	// FanOut runs branches of s and returns when enough of them have ended; until
	// then it returns run.ErrSuspended. The branches' names are valid and differ.
	FanOut(ctx context.Context, s session.Session, bs []Branch, o FanOut) (*Joined, error)
	// Merge brings outcomes of a fan-out into its base and disposes of every
	// branch. j may hold another base, and the outcomes in another order, than
	// FanOut returned. It fails with flow.ErrNoOutcome when the verdict takes none.
	Merge(ctx context.Context, j *Joined, v Verdict) (session.Session, error)
}

// Branch is one branch of a fan-out.
type Branch struct {
	// FanOutBranch holds its name and, if another workflow is to run in it, that
	// one's name and task. The engine fills in Session.
	journal.FanOutBranch
	// Forward is the code of the branch, which the run's own workflow holds.
	Forward func(ctx context.Context, s session.Session) (session.Session, error)
}

// FanOut says how a fan-out runs.
type FanOut struct {
	Need      int           // how many branches must succeed; zero waits for the ends of all
	Timeout   time.Duration // how long the branches have; zero is no limit but the run's own
	WarmFirst bool          // the others begin once the first one has an answer of a model
}

// Joined is a fan-out whose join is decided.
type Joined struct {
	Base     session.Session
	Outcomes []Outcome
	Of       any // the engine's own
}

// Outcome is flow.Outcome, field by field.
type Outcome struct {
	Name    string
	Session session.Session
	State   run.State
	Err     error
}

// Verdict is flow.Verdict, field by field.
type Verdict struct {
	Take    []int
	Adopt   bool
	Text    string
	Reasons []string
}

// Models are steps that ask models.
type Models interface {
	// Agent asks a model, runs the tools that it calls and goes on until it answers
	// without calling one. It fails with flow.ErrMaxRounds when it does not come to
	// that.
	Agent(ctx context.Context, a *Agent, s session.Session) (session.Session, error)
	// Select shows a model s and a question and returns which of the candidates the
	// first integer of its answer names, counted from zero; -1 is none.
	Select(ctx context.Context, q Question, s session.Session, candidates []string) (int, error)
	// Compress shows a model s and a question and returns a session of its answer
	// alone.
	Compress(ctx context.Context, q Question, s session.Session) (session.Session, error)
}

// Agent is flow.Agent, field by field.
type Agent struct {
	Name      string
	Prompt    string
	Provider  llm.Provider
	Tools     []tool.Tool
	Memory    string
	Recall    int
	MaxRounds int
	Budget    run.Budget
	Approve   func(spec tool.Spec, args json.RawMessage) bool

	ApproveWithin time.Duration
}

// Question is a model call whose question does not become part of the session.
type Question struct {
	Agent    string
	Prompt   string
	Provider llm.Provider
	Text     string // the last message of the request
}

// Memories are steps that read and write what outlives sessions.
type Memories interface {
	// Recall searches a memory and returns at most limit notes, best first, none of
	// them of a quarantined session.
	Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error)
	// Remember writes a note and returns its name, which comes from the step.
	Remember(ctx context.Context, name, category, text string) (uri string, err error)
	// Archive stores what was said in s and returns the name it is listed under.
	Archive(ctx context.Context, s session.Session, name string) (uri string, err error)
}

type key struct{}

// With returns a context in which steps are made by e.
func With(ctx context.Context, e Engine) context.Context { return context.WithValue(ctx, key{}, e) }

// From returns what makes the steps of a context; nil outside of a run.
func From(ctx context.Context) Engine {
	e, _ := ctx.Value(key{}).(Engine)
	return e
}
