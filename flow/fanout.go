package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Branch is one way on from a session: a workflow that runs on a session of
// its own, on whatever node takes it.
type Branch struct {
	// Name is part of the branch's identity: unique in its fan-out, of the
	// characters of ids.
	Name     string
	Workflow Workflow
}

// Branches names workflows by their descriptions, or "b0", "b1" and so on.
func Branches(ws ...Workflow) []Branch {
	bs := make([]Branch, len(ws))
	taken := map[string]bool{}
	for i, w := range ws {
		name, _ := describe(w)
		if session.ValidID("branch", name) != nil || taken[name] {
			name = fmt.Sprintf("b%d", i)
		}
		taken[name] = true
		bs[i] = Branch{name, w}
	}
	return bs
}

// Repeat returns n branches of one workflow, named "b0" to "b<n-1>".
func Repeat(n int, w Workflow) []Branch {
	bs := make([]Branch, n)
	for i := range bs {
		bs[i] = Branch{fmt.Sprintf("b%d", i), w}
	}
	return bs
}

// Remote is a workflow by name, run by a node that offers it. As the workflow
// of a [Branch] it runs there; by itself it goes on with the session there and
// comes back with the result. Workflows that submit each other without end fail
// at run.MaxDepth.
type Remote struct {
	Workflow string
	Revision string          // "" is what is offered
	Input    json.RawMessage // JSON; nil is none
	// Model and Tools are what its task asks for; "" and nil are what the
	// workflow takes by itself.
	Model string
	Tools []string
	// Description is shown by a Selector.
	Description string
}

// Forward runs the workflow on a branch of s and adopts what it comes to.
func (w Remote) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	j, err := FanOut(ctx, s, []Branch{{w.Workflow, w}}, nil)
	if err != nil {
		return s, err
	}
	if o := j.Outcomes[0]; o.Err != nil {
		return s, o.Err
	}
	return Merge(ctx, j, Pick(0))
}

// Join says when a fan-out has enough. The zero Join waits for every branch.
type Join struct {
	// Quorum is how many branches must succeed; the others are cancelled then,
	// and kept as evidence. When so many cannot succeed any more, the fan-out
	// ends with what there is.
	Quorum int
	// First is a quorum of one.
	First bool
}

// FanOutOptions change how a fan-out runs; nil means the defaults.
type FanOutOptions struct {
	Join Join
	// Deadline is how long the branches have; those that have not ended are
	// cancelled. Zero is no limit but the run's own.
	Deadline time.Duration
	// WarmFirst lets the first branch begin alone. The others begin once it has
	// its first answer of a model: a provider that caches prompts then holds the
	// beginning that the branches share, so they pay for it at the price of the
	// cache. If it waits for something before, as for branches of its own, or ends,
	// however it ends, they begin then; if its end decides the join, they never
	// do. All else that it does before its first answer keeps the others waiting.
	WarmFirst bool
}

// Outcome is how a branch ended.
type Outcome struct {
	Name string
	// Session is what the branch became, as far as it came. It is empty for a
	// branch that never began.
	Session session.Session
	State   run.State
	Err     error // why it did not succeed
}

// Joined is a fan-out whose join is decided. [Merge] brings its outcomes into
// the base.
type Joined struct {
	Base     session.Session
	Outcomes []Outcome // in the order of the branches

	path run.Path
	of   map[string]*fanned // by the branches' names
}

// Succeeded returns the indexes of the branches that succeeded.
func (j *Joined) Succeeded() []int {
	var at []int
	for i, o := range j.Outcomes {
		if o.State == run.Succeeded {
			at = append(at, i)
		}
	}
	return at
}

// fanned is a branch of a fan-out of this run.
type fanned struct {
	key      session.Key
	name     string
	link     session.Link // its last commit; zero if it never began
	state    run.State
	disposed bool
}

// FanOut runs branches of s at the same time, each on a session of its own,
// wherever there is room, and returns when enough of them have ended. One
// commit opens them all; meanwhile the run waits as with [Await] and holds
// nothing, so FanOut returns run.ErrSuspended until the join is decided, unless
// that is in a moment.
//
// A branch's workflow may be any Go value: the node that takes a branch runs
// the code around it against this run's journal, without doing anything again,
// up to the fan-out, and then only the branch. What a budget leaves is divided
// equally among the branches; what they do not use comes back. The part of a
// branch that is cancelled, because the join was decided without it, comes back
// once it has told what it used; until then it counts as spent.
//
// A fan-out within run.MaxDepth others, which a workflow that submits itself comes
// to, fails with run.ErrTooDeep.
//
// Branches that fail do not fail the fan-out. Every branch has to be disposed
// of by [Merge]; those that are not are rejected when the run ends.
func FanOut(ctx context.Context, s session.Session, bs []Branch, o *FanOutOptions) (*Joined, error) {
	if o == nil {
		o = &FanOutOptions{}
	}
	need, err := o.Join.check(bs)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(bs))
	for i, b := range bs {
		names[i] = b.Name
	}
	name := strings.Join(names, ",")
	st, err := begin(ctx, run.StepFanOut, clip(name, 200), s, s.Unborn() || s.PendingDigest() != "", "", name, fmt.Sprint(need))
	if err != nil {
		return nil, err
	}
	defer st.end()
	ex, path := st.ex, st.asked.Path
	base, err := ex.flush(ctx, path, st.s)
	if err != nil {
		return nil, st.fail(err)
	}
	ex.mu.Lock()
	ex.alias(st.s, base)
	ex.alias(s, base)
	ex.mu.Unlock()
	f := &fan{ex: ex, ctx: ctx, path: path, base: base, bs: bs, need: need, name: clip(name, 200), log: ex.owner(path).home}
	if st.decision != run.Replay {
		f.identify()
		err = f.open(st, o)
	} else {
		if err := json.Unmarshal([]byte(st.record.Value), &f.terms); err != nil {
			return nil, st.fail(fmt.Errorf("%w: fan-out at step %s: %w", run.ErrMismatch, path, err))
		}
		if ex.leads(path) {
			return nil, ex.enter(ctx, path, bs) // a branch does not need to know the others
		}
		f.identify()
	}
	if err != nil {
		return nil, st.fail(err)
	}
	j, err := f.gather()
	if err != nil {
		return nil, st.fail(err)
	}
	return j, nil
}

func (j Join) check(bs []Branch) (need int, err error) {
	switch {
	case len(bs) == 0:
		return 0, errors.New("flow: a fan-out needs at least one branch")
	case len(bs) > run.MaxBranches:
		return 0, fmt.Errorf("flow: a fan-out of %d branches: at most %d; nest them", len(bs), run.MaxBranches)
	case j.Quorum < 0 || j.Quorum > len(bs):
		return 0, fmt.Errorf("flow: a quorum of %d of %d branches: choose 1 to %d, or 0 for all", j.Quorum, len(bs), len(bs))
	case j.First && j.Quorum > 1:
		return 0, fmt.Errorf("flow: a join cannot be First and a quorum of %d", j.Quorum)
	}
	seen := make(map[string]bool, len(bs))
	for i, b := range bs {
		switch {
		case session.ValidID("branch", b.Name) != nil:
			return 0, fmt.Errorf("flow: branch %d: %w", i, session.ValidID("branch", b.Name))
		case b.Name == "gather" || seen[b.Name]:
			return 0, fmt.Errorf("flow: branch %q: the name is taken; every branch of a fan-out has one of its own", b.Name)
		case b.Workflow == nil:
			return 0, fmt.Errorf("flow: branch %q has no workflow", b.Name)
		}
		seen[b.Name] = true
	}
	if j.First {
		return 1, nil
	}
	return j.Quorum, nil
}

// fan is a fan-out under way.
type fan struct {
	ex    *Execution
	ctx   context.Context
	path  run.Path
	base  session.Session
	bs    []Branch
	need  int
	name  string
	log   session.Key
	ids   []session.ID
	terms terms
}

// terms are what the record of a fan-out keeps for later executions.
type terms struct {
	Budget   run.Budget `json:"budget,omitzero"` // of each branch
	Deadline int64      `json:"deadline,omitempty"`
}

// identify derives the branches' sessions.
func (f *fan) identify() {
	owner := f.ex.owner(f.path)
	for _, b := range f.bs {
		f.ids = append(f.ids, f.ex.rt.Mint.Child(f.ex.home.Tenant, string(owner.run), string(f.path.Child(b.Name))))
	}
}

// open records the fan-out: from here on the branches run. Unless the join is
// decided in a moment it then returns run.ErrSuspended.
func (f *fan) open(st *step, o *FanOutOptions) error {
	ex := f.ex
	link, ok := f.base.Link()
	if !ok {
		return fmt.Errorf("flow: fan-out of %s: it is not committed", f.base.Ref())
	}
	ex.mu.Lock()
	budget, err := ex.account.Split(len(f.bs))
	ex.mu.Unlock()
	if err != nil {
		return err
	}
	budget.Time = 0 // the deadline says it
	end := ex.granted.Record.Deadline()
	if o.Deadline > 0 {
		if d := time.Now().Add(o.Deadline); end.IsZero() || d.Before(end) {
			end = d
		}
	}
	f.terms.Budget = budget
	if !end.IsZero() {
		f.terms.Deadline = end.UnixMilli()
	}
	out := run.FanOut{
		Ancestors: ex.ancestors(), Base: link, Budget: budget, Deadline: f.terms.Deadline, Path: f.path,
		Revision: ex.task.Revision, Root: f.base.Root(), Run: ex.id, Warm: o.WarmFirst && len(f.bs) > 1, Workflow: ex.reg.Name,
	}
	for i, b := range f.bs {
		one := run.FanOutBranch{Name: b.Name, Session: f.ids[i]}
		if r, ok := b.Workflow.(Remote); ok {
			one.Workflow, one.Revision, one.Input, one.Model, one.Tools = r.Workflow, r.Revision, string(r.Input), r.Model, r.Tools
		}
		out.Branches = append(out.Branches, one)
	}
	opened, err := run.NewEvent(run.KindFanOut, out)
	if err != nil {
		return err
	}
	waiting, err := run.NewEvent(run.KindWaiting, run.Suspended{Attempt: ex.attempt, For: []run.Wait{f.wait()}, Run: ex.id})
	if err != nil {
		return err
	}
	value, err := session.Marshal(f.terms)
	if err != nil {
		return err
	}
	st.log = f.log
	if _, err := st.commitBeside(run.Done{Value: value, Summary: "opens " + count(len(f.bs), "branch")}, opened, waiting); err != nil {
		return err
	}
	_, err = ex.linger(fmt.Errorf("%w: %s run", run.ErrSuspended, count(len(f.bs), "branch")))
	return err
}

// ancestors are the runs around the branches that this run opens.
func (ex *Execution) ancestors() []run.Ancestor {
	var all []run.Ancestor
	for _, l := range ex.levels {
		all = append(all, run.Ancestor{Path: l.path, Run: l.run, Session: l.home.ID})
	}
	return all
}

func (f *fan) wait() run.Wait {
	return run.Wait{
		Branches: f.ids, Due: f.terms.Deadline, Kind: run.WaitBranches, Name: f.name, Need: f.need, Path: run.GatherPath(f.path),
		Title: "waits for " + count(len(f.bs), "branch"),
	}
}

// gathered is what the record of a gather keeps of a branch.
type gathered struct {
	Code    run.Code     `json:"code,omitempty"`
	Error   string       `json:"error,omitempty"`
	Link    session.Link `json:"link,omitzero"`
	Name    string       `json:"name"`
	Session session.ID   `json:"session"`
	State   run.State    `json:"state"`
}

// gather takes in how the branches ended, or waits for them.
func (f *fan) gather() (*Joined, error) {
	ex := f.ex
	st := &step{ex: ex, ctx: f.ctx, log: f.log, began: time.Now()}
	st.asked = run.Asked{Path: run.GatherPath(f.path), Kind: run.StepGather, Name: f.name, Input: inputDigest(session.Session{}, []string{f.name})}
	if err := st.decide(); err != nil {
		return nil, err
	}
	var all []gathered
	if st.decision == run.Replay {
		if err := json.Unmarshal([]byte(st.record.Value), &all); err != nil || len(all) != len(f.bs) {
			return nil, fmt.Errorf("%w: the branches gathered at step %s are not those of the code", run.ErrMismatch, st.asked.Path)
		}
	} else {
		inbox, err := ex.wait(f.ctx, []run.Wait{f.wait()}, 0)
		if err != nil {
			return nil, err
		}
		if all, err = f.record(st, inbox); err != nil {
			return nil, err
		}
	}
	return f.joined(all)
}

// record commits how the branches ended; those that did not end are cancelled.
func (f *fan) record(st *step, inbox []run.Received) ([]gathered, error) {
	ended := map[session.ID]*run.BranchEnd{}
	why := "the join was decided without it"
	for _, v := range inbox {
		switch {
		case v.Path != st.asked.Path:
		case v.Kind == run.Report:
			ended[v.Branch.Link.ID] = v.Branch
		case v.Kind == run.Timer:
			why = "the deadline of the fan-out passed"
		}
	}
	all := make([]gathered, len(f.bs))
	var lost []run.Disposal
	var usage session.Usage
	var steps int64
	succeeded := 0
	for i, b := range f.bs {
		g := gathered{Name: b.Name, Session: f.ids[i], State: run.Cancelled, Code: run.CodeCancelled, Error: why}
		if e := ended[f.ids[i]]; e != nil {
			g.Code, g.Error, g.Link, g.State = e.Code, clip(e.Error, 1<<10), e.Link, e.State
			usage, steps = usage.Add(e.Usage), steps+e.Steps
			if e.State == run.Succeeded {
				succeeded++
			}
		} else {
			lost = append(lost, run.Disposal{Session: f.ids[i], State: session.ClosedCancelled, Reason: g.Error})
		}
		all[i] = g
	}
	value, err := session.Marshal(all)
	if err != nil {
		return nil, err
	}
	var content []session.Event
	if len(lost) > 0 {
		e, err := run.NewEvent(run.KindDisposed, run.Disposed{Branches: lost, Run: f.ex.id})
		if err != nil {
			return nil, err
		}
		content = append(content, e)
	}
	_, err = st.commitBeside(run.Done{
		Value: value, Usage: usage, Steps: steps, Summary: fmt.Sprintf("%d of %s succeeded", succeeded, count(len(f.bs), "branch")),
	}, content...)
	if err != nil {
		return nil, err
	}
	f.ex.settle(st.asked.Path, slices.Collect(maps.Keys(ended)))
	f.ex.take(0, st.asked.Path)
	return all, nil
}

// settle gives back what was set aside for branches whose ends were gathered.
// The others have told by now, or will be late.
func (ex *Execution) settle(gather run.Path, counted []session.ID) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.escrow.Gather(gather, counted)
	for _, v := range ex.inbox {
		if v.Kind == run.Report && v.Path == gather {
			ex.escrow.Settle(gather, v.Branch)
		}
	}
	ex.account = ex.account.Holding(&ex.escrow)
}

// joined rebuilds what FanOut returns.
func (f *fan) joined(all []gathered) (*Joined, error) {
	values, err := f.values(all)
	if err != nil {
		return nil, err
	}
	j := &Joined{Base: f.base, path: f.path, of: make(map[string]*fanned, len(all))}
	for i, g := range all {
		o := Outcome{Name: g.Name, Session: values[i], State: g.State, Err: g.Code.Err(g.Error)}
		one := &fanned{key: session.Key{Tenant: f.ex.home.Tenant, ID: g.Session}, name: g.Name, link: g.Link, state: g.State, disposed: g.Link.Seq == 0}
		j.Outcomes, j.of[g.Name] = append(j.Outcomes, o), one
		if !f.ex.outer(f.path) {
			f.ex.mu.Lock()
			f.ex.fanned = append(f.ex.fanned, one)
			f.ex.mu.Unlock()
		}
	}
	return j, nil
}

// valuesAtOnce bounds the branches whose sessions are read at the same time.
const valuesAtOnce = 16

// values reads the sessions of branches, unborn for those that never began.
// Those that ran on other nodes come from the log, side by side.
func (f *fan) values(all []gathered) ([]session.Session, error) {
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	out := make([]session.Session, len(all))
	slots := make(chan struct{}, valuesAtOnce)
	var reads sync.WaitGroup
	for i, g := range all {
		if g.Link.Seq == 0 {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		reads.Go(func() {
			defer func() { <-slots }()
			var err error
			if out[i], err = f.ex.rt.Values.Link(ctx, g.Link); err != nil {
				cancel(fmt.Errorf("branch %s: %w", g.Name, err))
			}
		})
	}
	reads.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("flow: read how the fan-out at step %s ended: %w: %w", f.path, session.ErrUnavailable, err)
	}
	return out, nil
}
