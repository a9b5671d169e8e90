package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
)

// place is where in a run a context is: in a scope, which makes steps, or in the
// work of a step, such as Do's function and a tool, which makes none.
type place struct {
	sc *scope
	in *step // nil in a scope
}

// scope numbers the steps of one line of execution. Within it, steps run one
// after the other.
type scope struct {
	ex     *Execution
	prefix run.Path
	next   int
	busy   bool
	ids    int
}

// scope returns the scope to make a step in. made names that step, for the error
// that it is nested.
func (p *place) scope(made journal.StepRequest) (*scope, error) {
	if p.in != nil {
		return nil, nested(made, p.in.asked)
	}
	return p.sc, nil
}

// Info is flow.RunInfo.
func (p *place) Info() flow.Info {
	var ex *Execution
	var path run.Path
	if p.in != nil {
		ex, path = p.in.ex, p.in.asked.Path
		ex.mu.Lock()
	} else {
		ex = p.sc.ex
		ex.mu.Lock()
		path = p.sc.prefix.Index(p.sc.next)
	}
	defer ex.mu.Unlock()
	owner, settings := ex.levels.owner(path), ex.settings()
	return flow.Info{
		Run: owner.run, Session: owner.home, Workflow: ex.reg.Name, Attempt: ex.attempt, Path: path, Tenant: ex.home.Tenant,
		Input: settings.Input, Model: settings.Model, Tools: settings.Tools, Deadline: ex.task.Deadline, Replaying: ex.pos.journal.Has(path),
	}
}

// nested is the error of a step that the work of another one makes.
func nested(made, in journal.StepRequest) error {
	return fmt.Errorf("%w: %s cannot be made inside of %s (step %s), which is under way: make it in Forward, before or after; "+
		"agents that are to work at the same time are branches of a FanOut", run.ErrNestedStep, quoted(made.Kind, made.Name), quoted(in.Kind, in.Name), in.Path)
}

// quoted is the title of a step, as errors name it.
func quoted(kind, name string) string {
	if name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// inside notes the step whose function, a tool or a hook of the workflow's author,
// is about to be called, until the returned function is called: the author's code
// may hold the scope's own context there, too.
func (ex *Execution) inside(in *journal.StepRequest) (leave func()) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.pos.within = in
	return func() {
		ex.mu.Lock()
		ex.pos.within = nil
		ex.mu.Unlock()
	}
}

// enter takes the scope for its next step; made names it.
func (sc *scope) enter(made journal.StepRequest) (run.Path, error) {
	ex := sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if err := ex.life.mayGoOn(); err != nil {
		return "", err
	}
	if ex.pos.within != nil {
		return "", nested(made, *ex.pos.within)
	}
	if sc.busy {
		return "", flow.ErrConcurrentStep
	}
	sc.busy = true
	path := sc.prefix.Index(sc.next)
	sc.next++
	return path, nil
}

// ours are the packages between a workflow's code and what executes its steps, as
// the names of their functions begin.
var ours = []string{"github.com/rathcluster/rath/flow.", "github.com/rathcluster/rath/internal/engine."}

// caller returns file:line of the workflow code that called a function of package
// flow.
func caller() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(f.Function, p) }) || strings.HasSuffix(f.File, "_test.go") {
			file := f.File
			if i := strings.LastIndexByte(file, '/'); i >= 0 {
				file = file[i+1:]
			}
			return fmt.Sprintf("%s:%d", file, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// hold takes the scope for work that belongs to the step before; made names it.
func (sc *scope) hold(made journal.StepRequest) error {
	sc.ex.mu.Lock()
	defer sc.ex.mu.Unlock()
	if sc.ex.life.poison != nil {
		return sc.ex.life.poison
	}
	if sc.ex.pos.within != nil {
		return nested(made, *sc.ex.pos.within)
	}
	if sc.busy {
		return flow.ErrConcurrentStep
	}
	sc.busy = true
	return nil
}

func (sc *scope) release() {
	sc.ex.mu.Lock()
	sc.busy = false
	sc.ex.mu.Unlock()
}
