package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Resumed is the part of an ended run that a later run takes over.
type Resumed struct {
	// ClaimResult has the run's Base and its records in its home log before the step.
	*ClaimResult
	// At is the value of the run's home session right before the step; of a fan-out with
	// outcomes that stand, the value from which its branches started.
	At       session.Session
	Step     run.Path
	Standing []GatheredBranch
	// Ended is the run's end, and Cleanup reports that a cleanup run takes over its records.
	Ended   *Ended
	Cleanup bool
}

// maxResumptions bounds how many runs, each of which continues the previous one, the
// records of one run can come from.
const maxResumptions = 32

// Resumed reads the parts of runs that a resumption takes over: the run that it names
// first, and then those that this one resumed itself. It returns ErrUnknownRun or
// session.ErrNotFound if there is no such run, ErrState if the run has not ended, and
// ErrMalformed if another commit ended it, or if there are too many.
func (v *Values) Resumed(ctx context.Context, t session.Tenant, r *run.Resumption) ([]Resumed, error) {
	h, err := v.Recording(ctx, session.Key{Tenant: t, ID: r.Session}, r.Run)
	if err != nil {
		return nil, err
	}
	return v.resumed(ctx, h, r)
}

// resumed is Resumed with the recording of the run that r names.
func (v *Values) resumed(ctx context.Context, h *Recording, r *run.Resumption) (all []Resumed, err error) {
	for of := r; of != nil; {
		if of != r {
			if h, err = v.Recording(ctx, session.Key{Tenant: h.Record.Home.Tenant, ID: of.Session}, of.Run); err != nil {
				return nil, err
			}
		}
		switch {
		case len(all) == maxResumptions:
			return nil, fmt.Errorf("journal: run %s continues %d runs, one after the other: %w; rerun it", r.Run, maxResumptions, run.ErrMalformed)
		case h.Ended == nil:
			return nil, fmt.Errorf("journal: run %s has not ended: %w", of.Run, run.ErrState)
		case h.EndedBy.Seq != of.Commit || h.EndedBy.Hash != of.Hash && !of.Cleanup():
			return nil, fmt.Errorf("journal: run %s ended by commit %d, %s, not by commit %d: %w", of.Run, h.EndedBy.Seq, h.EndedBy.Hash, of.Commit, run.ErrMalformed)
		}
		at := h.Base
		for _, s := range h.Journal.steps {
			if run.ComparePaths(s.Path, of.Step) < 0 && s.Session.Key() == at.Key() && s.Session.Ref().Version > at.Ref().Version {
				at = s.Session
			}
		}
		before := h.Journal.Before(of.Step)
		base, standing := h.Standing(of.Step)
		if len(standing) > 0 {
			if at, err = v.Link(ctx, base); err != nil {
				return nil, fmt.Errorf("journal: run %s: where the branches of step %s began: %w", of.Run, of.Step, err)
			}
			for p, s := range h.Journal.steps {
				if p.Within(CommitPath(of.Step)) {
					put(&before.steps, p, s)
				}
			}
		}
		cp := *h.ClaimResult
		cp.Journal = before
		all = append(all, Resumed{&cp, at, of.Step, standing, h.Ended, of.Cleanup()})
		of = h.Record.Task.Resumes
	}
	return all, nil
}

// Before returns the records of the steps before a step. Calls that were cut off at it or
// after it are open in the result: nobody knows whether they took effect.
func (j *Journal) Before(step run.Path) *Journal {
	out := &Journal{attempt: j.attempt, resolved: j.resolved}
	for p, s := range j.steps {
		if !p.Ends() && run.ComparePaths(p, step) < 0 {
			put(&out.steps, p, s)
		}
	}
	for p, i := range j.intents {
		i.Attempt = 0 // before each attempt of the run that takes over
		put(&out.intents, p, i)
	}
	return out
}

// Standing returns the outcomes of the fan-out at a step that stand if the run is resumed
// there, and the value from which the branches started: the outcomes of the branches that
// succeeded, unless all did. Only those of a value of the run's home can be merged again.
func (h *Recording) Standing(step run.Path) (base session.Link, standing []GatheredBranch) {
	i := slices.IndexFunc(h.FanOuts, func(f FanOut) bool { return f.Path == step })
	opened := h.Journal.Step(step)
	if i < 0 || opened == nil || h.FanOuts[i].Base.Key != h.Record.Home {
		return base, nil
	}
	f := h.FanOuts[i]
	var terms FanOutTerms
	if json.Unmarshal([]byte(opened.Value), &terms) != nil {
		return base, nil
	}
	standing = terms.Standing
	all := len(standing) + len(f.Branches)
	if g := h.Journal.Step(GatherPath(step)); g != nil {
		standing, _ = g.Gathered()
		standing = slices.DeleteFunc(standing, func(b GatheredBranch) bool { return b.State != run.Succeeded })
	}
	if len(standing) == all {
		standing = nil
	}
	return f.Base, standing
}

// Replace replaces the sessions of the records.
func (j *Journal) Replace(by func(session.Session) session.Session) {
	for p, s := range j.steps {
		cp := *s
		cp.Session = by(s.Session)
		j.steps[p] = &cp
	}
}

// LastStep returns the record of the last step of the workflow itself; nil without one.
func (j *Journal) LastStep() *Step {
	all := slices.DeleteFunc(j.Recorded(), func(s *Step) bool { return !s.Path.Top() })
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// tags returns the tags of a run after its recorded steps; t are the tags of its task.
func (j *Journal) tags(t run.Tags) run.Tags {
	for _, s := range j.Recorded() {
		var value string
		if s.Kind == StepTag && s.Code == "" && json.Unmarshal([]byte(s.Value), &value) == nil {
			t = t.With(s.Name, value)
		}
	}
	return t
}

// ResumptionAt returns the resumption of a run that has ended, at a step of its workflow,
// and the run's record with the tags at its end; "" is the step that failed or was cut
// off. Before the step at which the run continued another one, it is the resumption of
// that one. ResumptionAt returns ErrState if the run succeeded or is open, or if the run
// has made a call from the step on that has taken effect, or may have, and must not happen
// twice.
func (v *Values) ResumptionAt(ctx context.Context, home session.Key, id run.ID, step run.Path) (*run.Resumption, *Record, error) {
	h, err := v.Recording(ctx, home, id)
	if err != nil {
		return nil, nil, err
	}
	return v.resumptionAt(ctx, h, step)
}

// resumptionAt is ResumptionAt with the run's recording, to which it adds the records in
// the logs of other sessions.
func (v *Values) resumptionAt(ctx context.Context, h *Recording, step run.Path) (*run.Resumption, *Record, error) {
	id, home := h.Record.ID, h.Record.Home
	switch b := h.Record.Task.Branch; {
	case b != nil:
		return nil, nil, fmt.Errorf("run %s is the branch %s of run %s: %w; resume that one", id, b.Name, b.Ancestors[0].Run, run.ErrState)
	case h.Ended == nil:
		return nil, nil, fmt.Errorf("run %s has not ended, it is %s: %w; cancel it first, or wait", id, h.LogState, run.ErrState)
	case h.LogState == run.Succeeded:
		return nil, nil, fmt.Errorf("run %s succeeded: %w; rerun it, or rewind its session", id, run.ErrState)
	case h.Ended.Next != nil && h.Ended.Next.Run == run.CleanupOf(id):
		return nil, nil, fmt.Errorf("run %s was cleaned up by run %s, so its steps do not stand: %w; rerun it", id, h.Ended.Next.Run, run.ErrState)
	}
	if err := v.addMade(ctx, h); err != nil {
		return nil, nil, err
	}
	switch {
	case step == "":
		step = h.failedStep()
	case !step.Top() && !h.iterates(step):
		return nil, nil, fmt.Errorf("step %q: %w; name a step of the workflow itself, or an iteration of a loop, such as %s", step, run.ErrMalformed, h.failedStep())
	}
	of := *h.Record
	of.Task.Tags = h.Journal.tags(of.Task.Tags)
	before := h.Record.Task.Resumes
	_, standing := h.Standing(step)
	older := before != nil && (run.ComparePaths(step, before.Step) < 0 || step == before.Step && len(standing) == 0)
	if before.Cleanup() { // whose own first step is that one
		older = run.ComparePaths(step, before.Step) < 0
	}
	if call := h.effect(step, older, standing); call != "" {
		return nil, nil, fmt.Errorf("run %s cannot be resumed at step %s: %s, and must not happen twice: %w; resume after it, or rewind the session to before it", id, step, call, run.ErrState)
	}
	if older && before.Cleanup() {
		return nil, nil, fmt.Errorf("step %s is of run %s, which run %s cleans up: %w; name a compensation, from step %s on", step, before.Run, id, run.ErrState, before.Step)
	}
	if older {
		r, _, err := v.ResumptionAt(ctx, session.Key{Tenant: home.Tenant, ID: before.Session}, before.Run, step)
		return r, &of, err
	}
	r := &run.Resumption{Commit: h.EndedBy.Seq, Hash: h.EndedBy.Hash, Run: id, Session: home.ID, Step: step}
	_, err := v.resumed(ctx, h, r)
	return r, &of, err
}

// addMade adds the records in the logs of the sessions that the run made, and of the
// branches that it opened.
func (v *Values) addMade(ctx context.Context, h *Recording) error {
	type part struct {
		run     run.ID
		session session.ID
	}
	var left []part
	add := func(id run.ID, of *Recording) {
		for _, k := range of.Journal.Made(func(*Step) bool { return false }) {
			left = append(left, part{id, k})
		}
		for _, f := range of.FanOuts {
			for _, b := range f.Branches {
				left = append(left, part{run.ID(b.Session), b.Session})
			}
		}
	}
	add(h.Record.ID, h)
	for seen := map[session.ID]bool{}; len(left) > 0; {
		p := left[0]
		if left = left[1:]; seen[p.session] {
			continue
		}
		seen[p.session] = true
		of, err := v.Recording(ctx, session.Key{Tenant: h.Record.Home.Tenant, ID: p.session}, p.run)
		if errors.Is(err, run.ErrUnknownRun) || errors.Is(err, session.ErrNotFound) {
			continue // it never began
		}
		if err != nil {
			return err
		}
		add(p.run, of)
		h.Journal.Merge(of.Journal)
		if p.run != h.Record.ID { // of a branch
			h.FanOuts = append(h.FanOuts, of.FanOuts...)
		}
	}
	return nil
}

// iterates reports whether a path is an iteration of a loop of the workflow itself, which
// the run ended, or had to begin.
func (h *Recording) iterates(p run.Path) bool {
	loop := p.Parent()
	s := h.Journal.Step(loop)
	n, ok := IterationOf(loop, p)
	return p.Resumable() && s != nil && s.Kind == StepLoop && ok && n <= h.Journal.Iterations(loop)
}

// failedStep returns the step at which a run that did not succeed is resumed: the last one
// of the workflow itself, of a loop the last iteration, if it failed, if a branch of it failed, or if calls of its round
// are not recorded; if it got the failure of a started run, the start of that one; else the
// next one.
func (h *Recording) failedStep() run.Path {
	last := h.Journal.LastStep()
	if last == nil {
		if r := h.Record.Task.Resumes; r != nil {
			return r.Step
		}
		return "0"
	}
	n, _ := strconv.Atoi(string(last.Path))
	at, next := last.Path, run.Path("").Index(n+1)
	if won := h.Journal.Step(SelectPath(at).Child(last.Value)); last.Kind == StepSelect && last.Code == "" {
		if won == nil {
			return at
		}
		last = won
	}
	if last.Code != "" {
		return at
	}
	switch last.Kind {
	case StepLoop:
		n := h.Journal.Iterations(last.Path)
		if n == 0 {
			return last.Path
		}
		if v, err := h.Journal.Step(last.Path.Index(n - 1)).Iteration(); err == nil && v.More {
			return last.Path.Index(n)
		}
	case StepModel:
		c, _ := last.Session.At(last.Session.Len() - 1)
		for i := range c.CallCount() {
			if !h.Journal.Has(last.Path.Index(i)) {
				return last.Path
			}
		}
	case StepFanOut:
		g := h.Journal.Step(GatherPath(last.Path))
		if g == nil {
			return last.Path
		}
		all, _ := g.Gathered()
		if slices.ContainsFunc(all, func(b GatheredBranch) bool { return b.State != run.Succeeded }) && h.Ended.State == run.Failed {
			return last.Path
		}
	case StepResult:
		var end RunEnd
		if json.Unmarshal([]byte(last.Value), &end) != nil || end.State == run.Succeeded || h.Ended.State != run.Failed {
			return next
		}
		for _, s := range h.Journal.Recorded() {
			if v, err := s.Started(); s.Kind == StepStart && err == nil && v.Run == end.Run {
				first, _, _ := strings.Cut(string(s.Path), ".")
				return run.Path(first)
			}
		}
	}
	return next
}

// effect describes a recorded call, at a step or after it, that has taken effect and must
// not happen twice, except in branches whose outcome stands; with cut also one that was cut
// off. It is "" if there is none.
func (h *Recording) effect(step run.Path, cut bool, standing []GatheredBranch) string {
	for _, s := range h.Done() {
		stands := slices.ContainsFunc(standing, func(b GatheredBranch) bool { return s.Path.Within(step.Child(b.Name)) })
		if !stands && run.ComparePaths(s.Path, step) >= 0 {
			return fmt.Sprintf("%s %q at step %s has taken effect", s.Kind, s.Name, s.Path)
		}
	}
	for at, i := range h.Journal.intents {
		if cut && run.ComparePaths(at, step) >= 0 {
			return fmt.Sprintf("call %q at step %s was cut off and may have taken effect", i.Name, at)
		}
	}
	return ""
}
