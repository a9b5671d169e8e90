package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Verdicts about a step of a replay.
const (
	// StepMatches: the code requests the recorded step.
	StepMatches = "matches"
	// StepDiffers: the code requests another step at that path.
	StepDiffers = "differs"
	// StepNew: the code requests a step that is not recorded.
	StepNew = "new"
	// StepUnreached: the step is recorded, and the code does not reach it.
	StepUnreached = "unreached"
)

// Replayed is the result of a workflow's code against the journal of a run.
type Replayed struct {
	Run      run.ID
	Branch   string // its name, for a branch of a fan-out
	Workflow string
	Session  session.ID
	State    run.State // the state of the run
	Code     string    // the revision of the replayed code
	// Revisions are the revisions that recorded the run's steps, in order.
	Revisions []string
	// Steps are in the order in which the code reaches them, followed by the recorded
	// steps that it does not reach.
	Steps []ReplayedStep
	// Differs is the first difference; "" if the code matches the record.
	Differs string
	// Branches are the branches of the run's fan-outs that are part of its code, or whose
	// workflow is offered here.
	Branches []*Replayed
}

// ReplayedStep is one step of a replay.
type ReplayedStep struct {
	Path    run.Path
	Verdict string
	// Recorded and Asked describe the step in the journal and in the code, as in "model
	// planner". One is empty if there is no such step.
	Recorded, Asked string
	// Input means that kind and name match and the logical input does not.
	Input   bool
	Summary string // of the recorded outcome
}

// Matches reports whether the code matches the record of the run, including its branches.
func (r *Replayed) Matches() bool {
	return r.Differs == "" && !slices.ContainsFunc(r.Branches, func(b *Replayed) bool { return !b.Matches() })
}

// Replay runs the code of a workflow against the journal of a run, without models, tools,
// memories, sandboxes and the log, and reports the differences. It writes nothing and
// executes no step: the code stops at the first step that is not recorded. The run may
// have ended or be open; home is the session that it was submitted to. If the code of all
// iterations of a loop matches, Replay runs the last one that ended again, from its recorded
// state alone: so it finds code that depends on something besides the state.
//
// rt must have Values, and the Mint of the runtime that ran the run; its Workflows are
// those of remote branches. The code between steps does run: its own side effects happen
// again.
func Replay(ctx context.Context, rt *Runtime, g flow.Registration, home session.Key, id run.ID) (*Replayed, error) {
	h, err := rt.Values.Recording(ctx, home, id)
	if err != nil {
		return nil, fmt.Errorf("flow: replay: %w", err)
	}
	r, err := replay(ctx, rt, g, h, 0)
	if last := iterations(h.Journal) - 1; last > 0 && err == nil && r.Matches() {
		if again, err := replay(ctx, rt, g, h, last); err != nil || !again.Matches() {
			return again, err
		}
	}
	return r, err
}

// ReplayIterations is Replay, and then begins the loops of the run at each of their
// iterations. It returns the first replay that does not match, or the last one.
func ReplayIterations(ctx context.Context, rt *Runtime, g flow.Registration, home session.Key, id run.ID) (r *Replayed, err error) {
	h, err := rt.Values.Recording(ctx, home, id)
	if err != nil {
		return nil, fmt.Errorf("flow: replay: %w", err)
	}
	for from := range max(iterations(h.Journal), 1) {
		if r, err = replay(ctx, rt, g, h, from); err != nil || !r.Matches() {
			break
		}
	}
	return r, err
}

// iterations returns the largest number of ended iterations of a loop.
func iterations(j *journal.Journal) (n int) {
	for _, s := range j.Recorded() {
		if s.Kind == journal.StepLoop {
			n = max(n, j.Iterations(s.Path))
		}
	}
	return n
}

func replay(ctx context.Context, rt *Runtime, g flow.Registration, h *journal.Recording, from int) (*Replayed, error) {
	t := &recorder{from: from}
	ex, err := prepareReplay(ctx, rt, g, h, t)
	if err != nil {
		return nil, err
	}
	out := &Replayed{
		Run: ex.id, Workflow: ex.task.Workflow, Session: ex.home.ID, State: h.LogState, Code: g.Revision,
	}
	if b := ex.task.Branch; b != nil {
		out.Branch = b.Name
	}
	if err := t.run(ctx, ex); err != nil {
		return nil, err
	}
	t.compare(ex, h, out)
	for _, f := range h.FanOuts {
		for _, task := range f.Tasks(ex.home.Tenant) {
			b, err := replayBranch(ctx, rt, g, task)
			if err != nil {
				return nil, err
			}
			if b != nil {
				out.Branches = append(out.Branches, b)
			}
		}
	}
	return out, nil
}

// replayBranch replays a branch; it returns nil if the branch never began, or if its
// workflow is not offered here.
func replayBranch(ctx context.Context, rt *Runtime, g flow.Registration, t journal.Task) (*Replayed, error) {
	if t.Branch.Remote {
		if rt.Workflows == nil {
			return nil, nil
		}
		var ok bool
		if g, ok = rt.Workflows.Lookup(t.Workflow); !ok {
			return nil, nil
		}
	}
	h, err := rt.Values.Recording(ctx, t.Session, t.ID)
	if errors.Is(err, run.ErrUnknownRun) || errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("flow: replay branch %s: %w", t.Branch.Name, err)
	}
	if h.Started.IsZero() {
		return nil, nil
	}
	return replay(ctx, rt, g, h, 0)
}

// prepareReplay returns an execution that only reads.
func prepareReplay(ctx context.Context, rt *Runtime, g flow.Registration, h *journal.Recording, t *recorder) (*Execution, error) {
	readOnly := &Runtime{
		Store: replayStore{rt.Values}, Values: rt.Values, Blobs: rt.Blobs, Mint: rt.Mint, Node: rt.Node, Model: rt.Model,
		Memory: func(context.Context, session.Tenant, string) (memory.Store, error) { return nil, errReplay },
	}
	if readOnly.Blobs == nil {
		readOnly.Blobs = func(session.Tenant) blob.Store { return blob.NewMemory() }
	}
	ex := newExecution(&Execution{
		rt: readOnly, reg: g, id: h.Record.ID, home: h.Record.Home, granted: h.ClaimResult, state: run.Running, task: &h.Record.Task, attempt: h.Attempt,
		pos: position{journal: h.Journal, last: h.Started, recorder: t}, life: lifetime{parked: true},
		levels: levels{all: []level{{run: h.Record.ID, home: h.Record.Home}}},
	})
	ex.input = placedAs(&h.Record.Task, h.Base)
	ex.sessions.hold(ex.home, &heldSession{}, h.Base, h.Session, false)
	if ex.task.Branch == nil {
		return ex, ex.around.load(ctx)
	}
	if ex.task.Branch.Remote {
		return ex, nil
	}
	return ex, ex.around.loadEndedAncestors(ctx)
}

// loadEndedAncestors is loadAncestors for runs that may have ended.
func (a *around) loadEndedAncestors(ctx context.Context) error {
	ex := a.ex
	b := ex.task.Branch
	ex.levels.all = nil
	for _, a := range b.Ancestors {
		h, err := ex.rt.Values.Recording(ctx, session.Key{Tenant: ex.home.Tenant, ID: a.Session}, a.Run)
		if err != nil {
			return fmt.Errorf("flow: replay branch %s of run %s: %w", b.Name, a.Run, err)
		}
		if err := ex.around.enclose(ctx, a.Path, h.ClaimResult); err != nil {
			return err
		}
	}
	ex.levels.all = append(ex.levels.all, level{run: ex.id, home: ex.home, path: b.Path, base: ex.granted.Base})
	return nil
}

// run runs the code up to its end or to the first step that is not recorded.
func (t *recorder) run(ctx context.Context, ex *Execution) error {
	w, err := ex.build()
	if err != nil {
		t.err = err
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ex.life.ctx = ctx
	t.result, t.err = ex.callForward(ctx, w)
	switch {
	case ex.levels.branch():
		t.result, t.err = ex.around.leaveBranch(t.err)
	case ex.cleans != nil:
		t.result, t.err = ex.compensate()
	}
	ex.result = t.result
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("flow: replay of run %s: %w", ex.id, err)
	}
	t.stop = ex.life.poison
	if t.stop == nil && t.err == nil {
		t.err = ex.ends.checkResult()
	}
	return nil
}

// compare adds the results of the replay to out.
func (t *recorder) compare(ex *Execution, h *journal.Recording, out *Replayed) {
	differs := func(format string, args ...any) {
		if out.Differs == "" {
			out.Differs = fmt.Sprintf(format, args...)
		}
	}
	came := map[run.Path]bool{}
	var beyond *journal.StepRequest // the first step that is not recorded
	for _, a := range t.asked {
		if ex.levels.outer(a.Path) || came[a.Path] {
			continue
		}
		came[a.Path] = true
		s := ReplayedStep{Path: a.Path, Verdict: StepNew, Asked: title(a.Kind, a.Name)}
		if rec := ex.pos.journal.Step(a.Path); rec != nil {
			s.Recorded, s.Summary, s.Verdict = title(rec.Kind, rec.Name), rec.Summary, StepMatches
			switch {
			case s.Recorded != s.Asked:
				s.Verdict = StepDiffers
				differs("step %s is recorded as %s, the code asks for %s", a.Path, s.Recorded, s.Asked)
			case rec.Input != a.Input:
				s.Verdict, s.Input = StepDiffers, true
				differs("step %s, %s, is recorded for another input (%.8s) than the code gives it (%.8s)", a.Path, s.Asked, rec.Input, a.Input)
			}
		} else if beyond == nil {
			beyond = &a
		}
		out.Steps = append(out.Steps, s)
	}
	for _, rec := range ex.pos.journal.Recorded() {
		if n := len(out.Revisions); rec.Revision != "" && !ex.levels.outer(rec.Path) && (n == 0 || out.Revisions[n-1] != rec.Revision) {
			out.Revisions = append(out.Revisions, rec.Revision)
		}
		if came[rec.Path] || ex.levels.outer(rec.Path) || ex.lines.cut(rec.Path) || ex.loops.passed(rec.Path) || rec.Path == "end" || len(rec.Path) > 4 && rec.Path[:4] == "end." {
			continue
		}
		s := ReplayedStep{Path: rec.Path, Verdict: StepUnreached, Recorded: title(rec.Kind, rec.Name), Summary: rec.Summary}
		if beyond != nil && (rec.Path.Within(tryPath(beyond.Path)) || beyond.Kind == journal.StepParallel && rec.Path.Within(beyond.Path)) {
			s.Verdict = StepMatches // a failed try, or a part, of the step at which the code stopped
		}
		out.Steps = append(out.Steps, s)
	}
	if t.stop != nil && !errors.Is(t.stop, run.ErrShutdown) {
		differs("%v", t.stop)
	}
	for _, s := range out.Steps {
		// Code that stops at a new step cannot reach later steps.
		if s.Verdict == StepUnreached {
			if beyond != nil {
				differs("the code asks for %s at step %s, which is not recorded, and does not come to step %s (%s)",
					title(beyond.Kind, beyond.Name), beyond.Path, s.Path, s.Recorded)
			}
			differs("the code ends without step %s (%s), which is recorded", s.Path, s.Recorded)
		}
	}
	if h.Ended != nil {
		t.outcome(h.Ended, beyond, differs)
	}
}

// outcome compares the outcome of the code with the outcome of the run.
func (t *recorder) outcome(end *journal.Ended, beyond *journal.StepRequest, differs func(string, ...any)) {
	switch end.State {
	case run.Succeeded:
		switch {
		case beyond != nil:
			differs("the run succeeded, the code goes on with %s at step %s", title(beyond.Kind, beyond.Name), beyond.Path)
		case t.err != nil:
			differs("the run succeeded, the code fails: %v", t.err)
		case excerpt.Clip(t.result.Text(), journal.MaxOutput) != end.Output:
			differs("the run ended with %q, the code ends with %q", excerpt.Clip(end.Output, 120), excerpt.Clip(t.result.Text(), 120))
		}
	case run.Failed:
		switch {
		case end.Code == run.CodeExpired || end.Code == run.CodeReview:
			// The approver did not decide in time: the code did not end by itself.
		case beyond != nil:
			differs("the run failed (%s), the code goes on with %s at step %s", excerpt.Clip(end.Error, 120), title(beyond.Kind, beyond.Name), beyond.Path)
		case t.err == nil:
			differs("the run failed (%s), the code succeeds", excerpt.Clip(end.Error, 120))
		case excerpt.Clip(t.err.Error(), 4<<10) != end.Error:
			differs("the run failed with %q, the code fails with %q", excerpt.Clip(end.Error, 120), excerpt.Clip(t.err.Error(), 120))
		}
	}
	// A run that was cancelled or timed out may end anywhere.
}

func title(kind, name string) string {
	if name == "" {
		return kind
	}
	return kind + " " + name
}

// replayStore serves an execution from the logs and writes nothing.
type replayStore struct{ values *journal.Values }

var errReplay = fmt.Errorf("flow: a replay executes nothing: %w", run.ErrShutdown)

// Claim implements journal.Store: it grants the recorded claim of a session.
func (p replayStore) Claim(ctx context.Context, c journal.Claim) (*journal.ClaimResult, error) {
	h, err := p.values.Recording(ctx, c.Session, c.Run)
	if err != nil {
		return nil, fmt.Errorf("flow: replay: session %s, which the run made: %w", c.Session.ID, err)
	}
	return h.ClaimResult, nil
}

// Commit implements journal.Store. It accepts and discards events that only tidy up;
// steps never reach it.
func (p replayStore) Commit(_ context.Context, b journal.Batch) (journal.Ack, error) {
	for _, e := range b.Events {
		if e.Kind != session.KindClosed && e.Kind != journal.KindWarning {
			return journal.Ack{}, errReplay
		}
	}
	return journal.Ack{State: run.Running}, nil
}

// Apply implements journal.Store.
func (p replayStore) Apply(context.Context, journal.Signal) error { return errReplay }

// Follow implements journal.Store.
func (p replayStore) Follow(session.Key, commitlog.Position, func(*commitlog.Entry)) (stop func()) {
	return func() {}
}
