package journal

import (
	"fmt"
	"maps"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Decision is what the journal says to do with a step.
type Decision uint8

// The decisions.
const (
	// Execute: nothing is recorded; run the step.
	Execute Decision = iota + 1
	// Replay: the outcome is recorded; return it and run nothing.
	Replay
	// Repeat: a former attempt may have started the step; running it again
	// under the same call id is harmless.
	Repeat
	// RestoreThenRepeat: likewise, once the workspace was put back.
	RestoreThenRepeat
	// Ambiguous: a former attempt may have started a call that must not
	// happen twice; a person decides.
	Ambiguous
	// Mismatch: the code asks for another step than the one recorded here.
	Mismatch
)

// StepRequest is a step as the code asks for it. Input is a digest of the logical
// arguments, never of rendered bytes.
type StepRequest struct {
	Path   run.Path
	Kind   string
	Name   string
	Input  string
	Effect string // of a tool: "non_idempotent", "idempotent", "read_only" or "sandboxed"
}

// Journal is what the logs of a run's sessions recorded of it. It is asked
// step by step and grows when the run claims another session. It is not safe
// for concurrent use.
type Journal struct {
	attempt  uint64
	steps    map[run.Path]*Step
	intents  map[run.Path]StepStarted
	resolved map[run.Path]resolution
	asked    map[run.Path]*Step // see Record.questions
}

// JournalOf returns a copy of what one log recorded of a run.
func (b *RunState) JournalOf(id run.ID) *Journal {
	r := b.runs[id]
	if r == nil {
		return &Journal{}
	}
	return &Journal{attempt: r.Attempt, steps: maps.Clone(r.steps), intents: maps.Clone(r.intents), resolved: maps.Clone(r.resolved), asked: r.questions()}
}

// Merge adds what another log recorded of the same run.
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

// MergeEnclosing adds what a run around this one recorded, but for how that one ends:
// its paths say that of any run.
func (j *Journal) MergeEnclosing(o *Journal) {
	steps := maps.Clone(o.steps)
	maps.DeleteFunc(steps, func(p run.Path, _ *Step) bool { return p.Ends() })
	j.Merge(&Journal{steps: steps, intents: o.intents, resolved: o.resolved})
}

// Has reports whether a step is recorded at a path.
func (j *Journal) Has(p run.Path) bool { return j.steps[p] != nil }

// Began reports whether a step at a path had begun: it is recorded, was announced
// and cut off, or is one of a few parts and some of them are.
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

// Question returns what the run asked at a path, as the step that the answer is for; nil
// if it asked nothing there, or recorded the answer.
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

// Spent sums up what steps used, what of it is estimated, and how many they are
// with those of the branches that they took in; without the steps that skip names.
func (j *Journal) Spent(skip func(*Step) bool) (used, lost session.Usage, steps int64) {
	for _, s := range j.steps {
		if !skip(s) {
			used, lost, steps = used.Add(s.Usage), lost.Add(s.Lost), steps+1+s.Steps
		}
	}
	return used, lost, steps
}

// Made returns the sessions that steps made, without the steps that skip names.
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

// Next decides about a step. With Replay it returns the record; with
// Mismatch an error that wraps ErrMismatch and names both sides, and the record or the
// question, if one is there; with
// Ambiguous the intent that was left open, unless a person resolved it.
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

// Resolution returns what a person decided about a step. A decision does not
// hold for a call that was started after it.
func (j *Journal) Resolution(p run.Path) (Resolved, bool) {
	v, ok := j.resolved[p]
	if intent, open := j.intents[p]; open && intent.Attempt > v.attempt {
		return Resolved{}, false
	}
	return v.Resolved, ok
}

// OpenIntent returns the intent that a former attempt left open at a path.
func (j *Journal) OpenIntent(p run.Path) (StepStarted, bool) { v, ok := j.intents[p]; return v, ok }

// IntentLife is how long after its commit a call that must not happen twice
// may still start.
const IntentLife = 5 * time.Second
