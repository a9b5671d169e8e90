package engine

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
)

// place is the engine of a context, by its spot. Its methods implement the functions of
// package flow.
type place struct{ waits }

// waits implements those functions that wait, or let others wait.
type waits struct{ spot }

// spot is the position of a context in a run: in a scope, which makes steps, or in the work
// of a step, such as Do's function and a tool, which makes none.
type spot struct {
	sc *scope
	in *step // nil in a scope
}

// placeIn returns the engine of a scope.
func placeIn(sc *scope) *place { return &place{waits{spot{sc: sc}}} }

// scope numbers the steps of one line of execution. Its steps run sequentially.
type scope struct {
	ex     *Execution
	prefix run.Path
	next   int
	busy   bool
	ids    int
	within *journal.StepRequest // the step whose function is being called; nil between steps
	line   *line                // of which it is a part; nil for Forward
}

// ErrConcurrentStep is returned when two steps run concurrently in one scope. Their order
// would differ between executions.
var ErrConcurrentStep = errors.New("flow: another step of this run is under way: run branches at the same time with FanOut, or functions with Gather, each with the context that it gets; not goroutines")

// enter enters the scope for its next step, or for more work of the step at made.Path.
// made names the step in errors. The caller must release the scope.
func enter(p *spot, made journal.StepRequest) (*scope, run.Path, error) {
	if p.in != nil {
		return nil, "", nested(made, p.in.asked)
	}
	sc, ex := p.sc, p.sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if err := ex.life.mayGoOn(); err != nil {
		return nil, "", err
	}
	if sc.within != nil {
		return nil, "", nested(made, *sc.within)
	}
	if sc.busy {
		return nil, "", ErrConcurrentStep
	}
	sc.busy = true
	if made.Path == "" {
		made.Path = sc.prefix.Index(sc.next)
		sc.next++
	}
	return sc, made.Path, nil
}

// path returns the path of the next step.
func (sc *scope) path() run.Path {
	sc.ex.mu.Lock()
	defer sc.ex.mu.Unlock()
	return sc.prefix.Index(sc.next)
}

func (sc *scope) release() {
	sc.ex.mu.Lock()
	sc.busy = false
	sc.ex.mu.Unlock()
}

// Info is flow.RunInfo.
func (p *spot) Info() flow.Info {
	if p.in == nil {
		return p.sc.ex.info(p.sc.path(), "")
	}
	i := p.in.ex.info(p.in.asked.Path, p.in.asked.Name)
	if i.Replaying, i.Try = false, 1; p.in.tries != nil {
		i.Try += p.in.tries.failed
	}
	return i
}

// info returns the flow.Info for a place in the run.
func (ex *Execution) info(at run.Path, name string) flow.Info {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	owner, t := ex.levels.owner(at), ex.around.outermost()
	return flow.Info{
		Run: owner.run, Session: owner.home, Workflow: ex.reg.Name, Attempt: ex.attempt, Path: at, Name: name, Tenant: ex.home.Tenant,
		Input: t.Input, Model: t.Model, Tools: t.Tools, MCP: t.MCP, Deadline: ex.task.Deadline, Replaying: ex.pos.journal.Has(at),
	}
}

// nested returns the error of a step that the work of another one makes.
func nested(made, in journal.StepRequest) error {
	return fmt.Errorf("%w: %s cannot be made inside of %s (step %s), which is under way: make it in Forward, before or after; "+
		"agents that are to work at the same time are branches of a FanOut, and one that a model calls is a WorkflowTool", run.ErrNestedStep, quoted(made.Kind, made.Name), quoted(in.Kind, in.Name), in.Path)
}

// quoted returns the title of a step for errors.
func quoted(kind, name string) string {
	if name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// inside records that a function, a tool or a hook of the workflow's author is called in
// a step, until leave is called: the author's code may use the context of the scope
// there, too.
func (sc *scope) inside(in *journal.StepRequest) (leave func()) {
	set := func(in *journal.StepRequest) {
		sc.ex.mu.Lock()
		defer sc.ex.mu.Unlock()
		sc.within = in
	}
	set(in)
	return func() { set(nil) }
}

// ours are the packages between a workflow's code and the execution of its steps, as
// prefixes of their functions' names.
var ours = []string{"github.com/rathcluster/rath/flow.", "github.com/rathcluster/rath/internal/engine."}

// caller returns file:line of the workflow code that called a function of package
// flow.
func caller() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(f.Function, p) }) || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// panicPlace returns file:line of the code that panicked. Only a deferred function that
// recovers may call it, itself.
func panicPlace() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for thrown := false; ; {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if thrown && !inRuntime {
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
		if thrown = thrown || inRuntime; !more {
			return "an unknown place"
		}
	}
}
