package journal

import (
	"fmt"
	"maps"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Decision is the journal's decision about a step.
type Decision uint8

// The decisions.
const (
	// Execute: the step has no record; run it.
	Execute Decision = iota + 1
	// Replay: the outcome is recorded; return it without running the step.
	Replay
	// Repeat: a former attempt may have started the step; running it again
	// under the same call id is harmless.
	Repeat
	// RestoreThenRepeat: like Repeat, after restoring the workspace.
	RestoreThenRepeat
	// Ambiguous: a former attempt may have started a call that must not happen twice;
	// an operator decides.
	Ambiguous
	// Mismatch: the code requests another step than the one recorded here.
	Mismatch
)

// StepRequest is a step as the code requests it. Input is a digest of the logical
// arguments, never of rendered bytes.
type StepRequest struct {
	Path   run.Path
	Kind   string
	Name   string
	Input  string
	Effect string // of a tool: "non_idempotent", "idempotent", "read_only" or "sandboxed"
}

// Journal is the records of a run in the logs of its sessions. It is queried step by
// step and grows when the run claims another session. It is not safe for concurrent
// use.
type Journal struct {
	attempt  uint64
	steps    map[run.Path]*Step
	intents  map[run.Path]StepStarted
	resolved map[run.Path]resolution
	asked    map[run.Path]*Step // see Record.questions
	past     past
}

// JournalOf returns a copy of the records of a run in one log.
func (b *RunState) JournalOf(id run.ID) *Journal {
	r := b.runs[id]
	if r == nil {
		return &Journal{}
	}
	return &Journal{attempt: r.Attempt, steps: maps.Clone(r.steps), intents: maps.Clone(r.intents), resolved: maps.Clone(r.resolved), asked: r.questions(), past: r.past}
}

// Merge adds the records of the same run in another log.
func (j *Journal) Merge(o *Journal) {
	for p, s := range o.steps {
		if j.steps[p] == nil {
			put(&j.steps, p, s)
		}
	}
	for p, i := range o.intents {
		if j.steps[p] == nil && i.Attempt >= j.intents[p].Attempt {
			put(&j.intents, p, i)
		}
	}
	for p, v := range o.resolved {
		put(&j.resolved, p, v)
	}
}

// MergeEnclosing adds the records of an enclosing run, except the records of its end:
// every run has those at the same paths.
func (j *Journal) MergeEnclosing(o *Journal) {
	steps := maps.Clone(o.steps)
	maps.DeleteFunc(steps, func(p run.Path, _ *Step) bool { return p.Ends() })
	j.Merge(&Journal{steps: steps, intents: o.intents, resolved: o.resolved})
}

// Has reports whether a step is recorded at a path.
func (j *Journal) Has(p run.Path) bool { return j.steps[p] != nil }

// Began reports whether the step at a path has started: it is recorded, it was
// announced and cut off, or some of its parts were.
func (j *Journal) Began(p run.Path) bool {
	for at := range j.steps {
		if at.Within(p) {
			return true
		}
	}
	for at := range j.intents {
		if at.Within(p) {
			return true
		}
	}
	return false
}

// Step returns the record at a path, nil if there is none.
func (j *Journal) Step(p run.Path) *Step { return j.steps[p] }

// Question returns the run's question at a path, as the step that the answer belongs
// to. It returns nil if there is no question, or if the answer is recorded.
func (j *Journal) Question(p run.Path) *Step { return j.asked[p] }

// Unvisited returns the first step that is recorded, or was announced and cut
// off, for which visited is false. Steps that end a run ("end...") do not count.
func (j *Journal) Unvisited(visited func(run.Path) bool) (p run.Path, name string, found bool) {
	look := func(path run.Path, n string) {
		if path.Ends() || visited(path) || found && run.ComparePaths(p, path) <= 0 {
			return
		}
		p, name, found = path, n, true
	}
	for path, s := range j.steps {
		look(path, s.Kind+" "+s.Name)
	}
	for path, i := range j.intents {
		look(path, i.Name)
	}
	return p, name, found
}

// Spent returns the usage of the steps, its estimated part, and the number of steps,
// including those of gathered branches and of ended iterations. It leaves out the steps
// for which skip returns true.
func (j *Journal) Spent(skip func(*Step) bool) (used, lost session.Usage, steps int64) {
	used, lost, steps = j.past.Usage, j.past.Lost, j.past.Steps
	for _, s := range j.steps {
		if !skip(s) {
			used, lost, steps = used.Add(s.Usage), lost.Add(s.Lost), steps+1+s.Steps
		}
	}
	return used, lost, steps
}

// Unpriced returns a model of ended iterations whose calls have an unknown cost, "" without
// one.
func (j *Journal) Unpriced() string { return j.past.Unpriced }

// Made returns the sessions that steps made, except for steps that skip names.
func (j *Journal) Made(skip func(*Step) bool) (all []session.ID) {
	for _, s := range j.steps {
		if !skip(s) {
			all = append(all, s.made()...)
		}
	}
	return all
}

// Len returns the number of recorded steps.
func (j *Journal) Len() int { return len(j.steps) }

// Next decides about a step. With Replay it returns the record. With Mismatch it
// returns an error that wraps ErrMismatch and names both sides, and the record or the
// question, if there is one. With Ambiguous it returns the open intent, unless an
// operator resolved it.
func (j *Journal) Next(a StepRequest) (Decision, *Step, error) {
	if s := j.steps[a.Path]; s != nil {
		if s.Kind != a.Kind || s.Name != a.Name || s.Input != a.Input {
			if s.Kind == a.Kind && s.Name == a.Name {
				return Mismatch, s, fmt.Errorf("%w: step %s, %s %q, is recorded with another input", run.ErrMismatch, a.Path, s.Kind, s.Name)
			}
			return Mismatch, s, fmt.Errorf("%w: step %s is recorded as %s %q, the code asks for %s %q", run.ErrMismatch, a.Path, s.Kind, s.Name, a.Kind, a.Name)
		}
		return Replay, s, nil
	}
	if q := j.asked[a.Path]; q != nil && (a.Kind != q.Kind || a.Name != q.Name) {
		return Mismatch, q, fmt.Errorf("%w: step %s asked %q, and an answer is for that question alone; the code asks for %s %q there",
			run.ErrMismatch, a.Path, q.Name, a.Kind, a.Name)
	}
	intent, open := j.intents[a.Path]
	switch {
	case open && intent.Attempt < j.attempt && (intent.Name != a.Name || intent.Input != a.Input):
		return Mismatch, nil, fmt.Errorf("%w: call %q at step %s was cut off and nobody knows whether it took effect; the code asks for %s %q there",
			run.ErrMismatch, intent.Name, a.Path, a.Kind, a.Name)
	case open && intent.Attempt < j.attempt:
		if v, ok := j.Resolution(a.Path); ok && v.Decision == run.Again {
			return Repeat, nil, nil
		}
		return Ambiguous, nil, nil
	case a.Effect == "sandboxed" && j.attempt > 1:
		return RestoreThenRepeat, nil, nil
	case j.attempt > 1 && a.Kind == StepTool:
		return Repeat, nil, nil
	}
	return Execute, nil, nil
}

// Resolution returns the operator's decision about a step. A decision does not apply to
// a call that was started after it.
func (j *Journal) Resolution(p run.Path) (Resolved, bool) {
	v, ok := j.resolved[p]
	if intent, open := j.intents[p]; open && intent.Attempt > v.attempt {
		return Resolved{}, false
	}
	return v.Resolved, ok
}

// OpenIntent returns the intent that a former attempt left open at a path.
func (j *Journal) OpenIntent(p run.Path) (StepStarted, bool) { v, ok := j.intents[p]; return v, ok }

// Undecided returns the last failed try of a step, if it is held and no operator has decided
// about the step since; else nil.
func (j *Journal) Undecided(p run.Path) *Step {
	var last *Step
	for n := 1; j.steps[p.Child("try").Index(n)] != nil; n++ {
		last = j.steps[p.Child("try").Index(n)]
	}
	if v, ok := j.resolved[p]; last == nil || !last.Held || ok && v.attempt >= last.Attempt {
		return nil
	}
	return last
}

// IntentLife is the time after the commit of its intent within which a call that must
// not happen twice may still start.
const IntentLife = 5 * time.Second
