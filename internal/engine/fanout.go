package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// FanOut is flow.FanOut.
func (p *place) FanOut(ctx context.Context, s session.Session, bs []flow.Branch, need int, o flow.FanOutOptions) (j flow.Joined, of any, err error) {
	names := make([]string, len(bs))
	for i, b := range bs {
		names[i] = b.Name
	}
	name := strings.Join(names, ",")
	st, err := p.begin(ctx, journal.StepFanOut, excerpt.Clip(name, 200), s, s.Unborn() || s.PendingDigest() != "", "", name, fmt.Sprint(need))
	if err != nil {
		return j, nil, err
	}
	defer st.end()
	ex, path := st.ex, st.asked.Path
	base, err := ex.joins.flush(ctx, path, st.s)
	if err != nil {
		return j, nil, st.fail(err)
	}
	ex.mu.Lock()
	ex.sessions.alias(st.s, base)
	ex.sessions.alias(s, base)
	ex.mu.Unlock()
	f := &fan{ex: ex, ctx: ctx, path: path, base: base, bs: bs, need: need, name: excerpt.Clip(name, 200), log: ex.levels.owner(path).home}
	j, of, err = f.forward(st, o)
	return j, of, st.fail(err)
}

// forward opens the branches, runs the branch of this execution, or gathers their
// outcomes.
func (f *fan) forward(st *step, o flow.FanOutOptions) (j flow.Joined, of any, err error) {
	if err := inGather(f.ex, f.path, "a fan-out"); err != nil {
		return j, nil, err
	}
	leads := f.ex.levels.leads(f.path)
	if !leads { // a branch does not need the others
		f.identify()
	}
	st.log, st.beside = f.log, true
	err = st.make(func() error { defer f.stand(); return st.decode(&f.terms) }, func() (journal.StepCompleted, error) { return f.open(st, o) })
	switch {
	case err != nil:
		return j, nil, err
	case leads:
		return j, nil, f.ex.around.enterBranch(f.ctx, f.path, f.bs)
	case st.decision != journal.Replay:
		return j, nil, f.ex.failed(fmt.Errorf("%w: %s run", run.ErrSuspended, excerpt.Counted(len(f.bs), "branch")))
	}
	return f.gather()
}

// fan is a fan-out in flight.
type fan struct {
	ex    *Execution
	ctx   context.Context
	path  run.Path
	base  session.Session
	bs    []flow.Branch
	need  int
	name  string
	log   session.Key
	ids   []session.ID
	terms journal.FanOutTerms

	calls    []*toolCall // whose work the branches do; nil for flow.FanOut
	gathered bool        // by this execution
	used     session.Usage
}

// identify derives the branches' sessions.
func (f *fan) identify() {
	owner := f.ex.levels.owner(f.path)
	for _, b := range f.bs {
		f.ids = append(f.ids, f.ex.rt.Mint.Child(f.ex.home.Tenant, string(owner.run), string(f.path.Child(b.Name))))
	}
}

// stand takes the sessions of the branches whose outcomes stand.
func (f *fan) stand() {
	for i := range f.ids {
		if g := f.standing(i); g != nil {
			f.ids[i] = g.Session
		}
	}
}

// standing returns the outcome of a branch if it stands, else nil.
func (f *fan) standing(branch int) *journal.GatheredBranch {
	at := slices.IndexFunc(f.terms.Standing, func(g journal.GatheredBranch) bool { return g.Name == f.bs[branch].Name })
	if at < 0 {
		return nil
	}
	return &f.terms.Standing[at]
}

// open returns the record of the fan-out, with the events that start the branches and
// make the execution wait for them.
func (f *fan) open(st *step, o flow.FanOutOptions) (d journal.StepCompleted, err error) {
	ex := f.ex
	link, ok := f.base.Link()
	if !ok {
		return d, fmt.Errorf("flow: fan-out of %s: it is not committed", f.base.Ref())
	}
	if own := ex.levels.own(); f.path == own.from {
		f.terms.Standing = slices.DeleteFunc(slices.Clone(own.standing), func(g journal.GatheredBranch) bool {
			return !slices.ContainsFunc(f.bs, func(b flow.Branch) bool { return b.Name == g.Name })
		})
	}
	opens := len(f.bs) - len(f.terms.Standing)
	if opens == 0 { // of other code
		f.terms.Standing, opens = nil, len(f.bs)
	}
	f.stand()
	ex.mu.Lock()
	budget, err := ex.account.Split(opens)
	ex.mu.Unlock()
	if err != nil {
		return d, err
	}
	// Their time limit is that of the run, whose end ends them: the run's deadline may
	// change. The deadline of its task never moves.
	budget.Time = 0
	end := ex.task.Deadline
	if o.Timeout != 0 {
		if d := ex.rt.Clock.Now().Add(o.Timeout); end.IsZero() || d.Before(end) {
			end = d
		}
	}
	f.terms.Budget = budget
	if !end.IsZero() {
		f.terms.Deadline = end.UnixMilli()
	}
	out := journal.FanOut{
		Allow:     ex.task.Sandbox.Allow,
		Ancestors: ex.levels.ancestors(), Base: link, Budget: budget, Deadline: f.terms.Deadline, Path: f.path,
		OnFailure: ex.task.OnFailure, Revision: ex.task.Revision, Root: f.base.Root(), Run: ex.id, WarmFirst: o.WarmFirst && opens > 1, Workflow: ex.reg.Name,
	}
	for i, b := range f.bs {
		if f.standing(i) != nil {
			continue
		}
		one := journal.FanOutBranch{Name: b.Name, Session: f.ids[i]}
		if r, ok := b.Workflow.(flow.Remote); ok {
			one.Workflow, one.Revision, one.Input, one.Model, one.Tools, one.MCP = r.Workflow, r.Revision, string(r.Input), r.Model, r.Tools, r.MCP
		}
		if f.calls != nil {
			one.Call = f.calls[i].ID
		}
		out.Branches = append(out.Branches, one)
	}
	opened, err := journal.NewEvent(journal.KindFanOut, out)
	if err != nil {
		return d, err
	}
	waiting, err := journal.NewEvent(journal.KindRunWaiting, journal.RunWaiting{Attempt: ex.attempt, For: []journal.Wait{f.wait()}, Revision: ex.reg.Revision, Run: ex.id})
	if err != nil {
		return d, err
	}
	st.content = []session.Event{opened, waiting}
	d.Summary = "opens " + excerpt.Counted(opens, "branch")
	if n := len(f.terms.Standing); n > 0 {
		d.Summary += "; the outcomes of " + excerpt.Counted(n, "branch") + " stand"
	}
	d.Value, err = canonical.Marshal(f.terms)
	return d, err
}

func (f *fan) wait() journal.Wait {
	open, need := f.ids, f.need
	if n := len(f.terms.Standing); n > 0 {
		open = slices.DeleteFunc(slices.Clone(f.ids), func(id session.ID) bool {
			return slices.ContainsFunc(f.terms.Standing, func(g journal.GatheredBranch) bool { return g.Session == id })
		})
		if need > 0 {
			need = max(need-n, 1)
		}
	}
	return journal.Wait{
		Branches: open, Due: f.terms.Deadline, Kind: run.WaitBranches, Name: f.name, Need: need, Path: journal.GatherPath(f.path),
		Title: "waits for " + excerpt.Counted(len(open), "branch"),
	}
}
