package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/filemerge"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

// delegation is the calls of a round that workflows work on.
type delegation struct {
	*round
	works []*toolCall
}

// run executes the workflows of the calls concurrently, each as a branch of a fan-out
// whose session has no rows of the caller. Their answers are the results of the calls.
func (r delegation) run() error {
	calls := r.works
	at := r.at.Child("calls")
	if !r.recorded(at) && r.recorded(paths(calls)...) { // the fan-out was rejected
		return r.replayAll()
	}
	if len(calls) > run.MaxBranches {
		return r.answer(nil, fmt.Errorf("%d calls of workflows at once: at most %d", len(calls), run.MaxBranches))
	}
	f := &fan{ex: r.ex, ctx: r.ctx, path: at, base: r.base, calls: calls, log: r.ex.levels.owner(at).home}
	var names []string
	for _, c := range calls {
		b := flow.Branch{Name: c.branch(), Workflow: c.begin(r.base.Placement())}
		f.bs, names = append(f.bs, b), append(names, b.Name)
	}
	f.name = excerpt.Clip(strings.Join(names, ","), 200)
	st, err := r.ex.substep(r.ctx, f.log, session.Session{}, journal.StepRequest{
		Path: at, Kind: journal.StepFanOut, Name: f.name, Input: r.ex.sessions.inputDigest(r.base, names),
	})
	if err != nil {
		return err
	}
	st.began = time.Now()
	j, of, err := f.forward(st, flow.FanOutOptions{})
	if errors.Is(err, run.ErrTooDeep) {
		return r.answer(nil, err)
	}
	if err == nil {
		r.used = f.used
		err = f.disposeCalls(joined{&j, of.(*fanOutState)})
	}
	if err != nil {
		return err
	}
	return r.answer(j.Outcomes, nil)
}

// answer commits the outcomes of calls: the results of the workflows, or the reason why
// they never began.
func (r delegation) answer(all []flow.Outcome, refused error) error {
	for i, c := range r.works {
		if err := r.replayCall(c); err != nil {
			return err
		}
		if c.st.decision == journal.Replay {
			continue
		}
		d := journal.StepCompleted{Call: r.callID(c), Effect: c.st.asked.Effect}
		var out tool.Outcome
		if refused != nil {
			out = tool.ErrorOutcome(&tool.Failure{Kind: tool.Rejected, Message: refused.Error(), Detail: c.Name, Err: refused})
		} else {
			out = hooking{r.round}.reviewed(r.ctx, c, r.outcomeOf(c, &all[i], &d))
		}
		if err, ok := c.st.outcome(out.Err); !ok {
			return err
		}
		if d.Failed = out.IsError; out.IsError {
			d.Code, d.Error, d.Summary = run.Code(out.Kind), excerpt.Clip(errText(out.Err), 300), live.CallSummary(c.Name, cmp.Or(c.edited, c.Args), out)
		}
		o := outcome{body: out.Body, failed: out.IsError}
		if refused == nil {
			if err := r.takeFiles(c, &all[i], &o, &d); err != nil {
				return err
			}
		}
		if err := r.commit(c, o, d); err != nil {
			return err
		}
	}
	return nil
}

func paths(calls []*toolCall) []run.Path {
	all := make([]run.Path, len(calls))
	for i, c := range calls {
		all[i] = c.path
	}
	return all
}

// recorded reports whether the journal holds steps at all of the paths.
func (r *round) recorded(all ...run.Path) bool {
	r.ex.mu.Lock()
	defer r.ex.mu.Unlock()
	for _, at := range all {
		if !r.ex.pos.journal.Has(at) {
			return false
		}
	}
	return true
}

// replayAll takes over the records of the calls.
func (r delegation) replayAll() error {
	for _, c := range r.works {
		if err := r.replayCall(c); err != nil {
			return err
		}
	}
	return nil
}

// branch returns the name of a call's branch, from the tool and the call's place in its
// round.
func (c *toolCall) branch() string {
	place := string(c.path[strings.LastIndexByte(string(c.path), '.')+1:])
	return c.Name[:min(len(c.Name), session.MaxID-1-len(place))] + "-" + place
}

// begin returns the workflow that does a call's work, on a copy of the caller's files.
func (c *toolCall) begin(p session.Placement) flow.Func {
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		if p.Backend != "" {
			p.Epoch = 0
			s = s.Placed(p)
		}
		return c.work(c.args).Forward(ctx, s)
	}
}

// disposeCalls commits the outcomes of the calls' branches for the caller, unless its log
// has them.
func (f *fan) disposeCalls(j joined) error {
	ex := f.ex
	if ex.levels.outer(f.path) || ex.pos.recorder != nil || !f.gathered && !j.openIn(ex.granted.Record) {
		return nil
	}
	d := journal.BranchOutcomes{Run: ex.id}
	for i, o := range j.Outcomes {
		b, call := j.of[o.Name], f.calls[i]
		if b.link.Seq == 0 {
			continue // it never began, or was cancelled when the others were gathered
		}
		st := ex.newStep(f.ctx, f.log, session.Session{}, journal.StepRequest{Path: call.path, Kind: journal.StepTool, Name: call.Name})
		if err := st.mayTake(o.Name, b.key); err != nil {
			return err
		}
		one := run.BranchOutcome{Session: b.key.ID, State: session.ClosedMerged, Reason: "it answered call " + excerpt.Clip(call.ID, 100)}
		if o.State != run.Succeeded {
			one.State, one.Reason = session.ClosedFailed, excerpt.Clip(why(&o), 1<<10)
		}
		d.Branches = append(d.Branches, one)
	}
	e, err := journal.NewEvent(journal.KindBranchOutcomes, d)
	if err == nil && len(d.Branches) > 0 {
		_, err = ex.log.commit(f.ctx, ex.home, session.Session{}, "", nil, e)
	}
	return err
}

// why describes an unsuccessful outcome.
func why(o *flow.Outcome) string {
	if o.Err == nil {
		return string(o.State)
	}
	return string(o.State) + ": " + o.Err.Error()
}

// takeFiles merges a workflow's changes to its copy of the files into the caller's files,
// which functions and other workflows of the round may have changed before.
func (r delegation) takeFiles(c *toolCall, of *flow.Outcome, o *outcome, d *journal.StepCompleted) error {
	base, ours, theirs := r.base.Placement().Head, r.s.Placement().Head, of.Session.Placement().Head
	if of.State != run.Succeeded || base.IsZero() || theirs == base || theirs.IsZero() {
		return nil
	}
	m := filemerge.Result{Head: theirs}
	var err error
	if ours != base {
		m, err = (&filemerge.Decider{Rule: flow.KeepBoth}).Merge(r.ctx, r.ex.boxes.blobs(), r.ex.rt.Workspaces.Limits, manifest.Side{Name: "the session", Head: ours}, []manifest.Side{{Name: of.Name, Base: base, Head: theirs}})
	}
	if err, ok := c.st.outcome(err); !ok {
		return err
	}
	switch limit, tooLarge := errors.AsType[*workspace.LimitError](err); {
	case err == nil:
	case tooLarge, errors.Is(err, blob.ErrNotFound), errors.Is(err, blob.ErrCorrupt), errors.Is(err, manifest.ErrMalformed):
		why := err.Error()
		if tooLarge {
			why = fmt.Sprintf("with them there would be more than %d %s (at %q)", limit.Limit, limit.What, limit.Path)
		}
		failed := tool.ErrorOutcome(&tool.Failure{
			Kind: tool.FilesRefused, Err: err, Detail: excerpt.Clip(string(o.body), 2<<10),
			Message: c.Name + " is done, but the files that it changed could not be taken: " + why,
		})
		o.body, o.failed = failed.Body, true
		d.Failed, d.Code, d.Error = true, run.Code(failed.Kind), excerpt.Clip(errText(failed.Err), 300)
		return nil
	default: // they may be readable later
		return fmt.Errorf("flow: merge the files of call %s: %w: %w", c.Name, session.ErrUnavailable, err)
	}
	o.head, d.HeadBefore, d.HeadAfter = m.Head, ours, m.Head
	if len(m.Conflicts) == 0 {
		return nil
	}
	o.body = m.Amend(o.body, of.Name)
	for _, one := range m.Conflicts {
		d.Summary += "; " + one.String()
	}
	d.Summary = excerpt.Clip(d.Summary, 1<<10)
	return nil
}

// outcomeOf returns the outcome of a workflow for the model.
func (r delegation) outcomeOf(c *toolCall, o *flow.Outcome, d *journal.StepCompleted) tool.Outcome {
	if l, ok := o.Session.Link(); ok {
		d.Links = []session.Link{l}
	}
	if o.State != run.Succeeded {
		return tool.ErrorOutcome(&tool.Failure{Kind: tool.Exception, Message: c.Name + " " + why(o), Detail: c.Name})
	}
	text := o.Session.Text()
	if last, _ := o.Session.At(o.Session.Len() - 1); last.Kind() != session.ToolResult {
		text = last.Text()
	}
	d.Summary = excerpt.Clip("answers "+excerpt.FirstLine(text), 100)
	return tool.ResultOutcome(r.ctx, text, r.ex.boxes.blobs())
}
