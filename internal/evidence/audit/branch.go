package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// fanout is one branch as described by the fan-out that opened it.
type fanout struct {
	parent *runState
	log    *log
	seq    uint64
	path   string // of the fan-out
	name   string
	base   link
	budget budget
	root   string
	remote bool
	call   string // the tool call whose work the branch is
	warm   bool   // the others wait for it
	within []string
	held   *held  // the condition of its start, nil for none
	state  string // its outcome in run.disposed
	told   bool   // its report came
	runs   string // the workflow of its task
	around []ancestor
	by     string // who submitted the run that opened it
}

// toldBranch is a branch's outcome in the parent's log: in a report that the parent
// received, or in its gather step.
type toldBranch struct {
	log     *log
	seq     uint64
	run     string
	branch  key
	what    string
	state   string
	code    string
	commit  uint64
	version uint64
	usage   *usage
	steps   int64
}

func (f *folding) fanOut(e *event, d fanoutData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runFanOut) {
		return
	}
	recorded := slices.ContainsFunc(f.c.events, func(o event) bool {
		v, ok := read[doneData](o.data)
		return o.kind == stepDone && o.batch == e.batch && ok && v.Kind == "fanout" && v.Run == d.Run && v.Path == d.Path
	})
	f.a.check(BranchResults, recorded, f.says(d.Run, "run.fanout in the batch of step.done "+d.Path+", which opens the branches", "it in batch "+e.batch))
	if g.opened == nil {
		g.opened = map[string]int{}
	}
	g.opened[d.Path] = len(d.Branches)
	f.a.check(BranchResults, r.home, f.says(d.Run, "run.fanout in the home of the run", "it elsewhere"))
	f.a.check(BranchResults, d.By == g.by, f.says(d.Run, fmt.Sprintf("branches from %q, who submitted the run", g.by), fmt.Sprintf("%q", d.By)))
	f.a.link(claimOf{from: f.l, seq: f.c.seq, link: d.Base, what: "what the branches start from"})
	f.reserve(&d, g)
	h := f.holds(&d, r)
	for i, b := range d.Branches {
		k := key{f.l.tenant, b.Session}
		before := f.a.fanouts[k]
		f.a.check(BranchResults, before == nil, f.says(d.Run, "branch "+b.Session+" opened once", "it again"))
		if before == nil {
			opened := &fanout{
				parent: g, log: f.l, seq: f.c.seq, path: d.Path, name: b.Name, base: d.Base, budget: d.Budget, root: d.Root, remote: b.Workflow != "", call: b.Call,
				warm: d.Warm && i == 0, within: d.Within, runs: cmp.Or(b.Workflow, d.Workflow), around: d.Ancestors, by: d.By,
			}
			if i > 0 {
				opened.held = h
			}
			f.a.fanouts[k] = opened
		}
	}
}

func (f *folding) disposed(_ *event, d disposedData) {
	r, _ := f.here(d.Run)
	if !f.lives(d.Run, r, runDisposed) {
		return
	}
	for _, b := range d.Branches {
		k := key{f.l.tenant, b.Session}
		f.a.dispose(f.l, b.Session)
		f.a.disposals = append(f.a.disposals, disposal{f.l, f.c.seq, d.Run, k, b.State})
		if b.State != "adopted" && b.State != "merged" {
			f.a.check(Graph, b.Reason != "", f.says(d.Run, "a reason why branch "+b.Session+" was "+b.State, "none"))
		}
		if known := f.a.fanouts[k]; known != nil {
			known.state = b.State // the gather step in this log relies on it
		}
	}
}

// disposal is the outcome of a branch for the run that opened it, as recorded in the
// run's home and in the session that the branch started from.
type disposal struct {
	log    *log
	seq    uint64
	run    string
	branch key
	state  string
}

// finishDisposals checks that the run that opened a branch disposed of it exactly once,
// and that the branch's log agrees.
func (a *audit) finishDisposals() {
	first := map[key]disposal{}
	for _, d := range a.disposals {
		if a.incomplete(d.log) {
			continue
		}
		b, ok := a.fanouts[d.branch]
		if !ok && a.o.Open {
			continue
		}
		a.check(BranchResults, ok && b.parent.id == d.run, func() Violation {
			return d.log.says(d.seq, d.run, "a branch that the run opened", "run.disposed of "+d.branch.id)
		})
		one, again := first[d.branch]
		a.check(BranchResults, !again || one.state == d.state && one.log != d.log, func() Violation {
			return d.log.says(d.seq, d.run, "branch "+d.branch.id+" disposed of once, it was "+one.state, d.state)
		})
		if !again {
			first[d.branch] = d
		}
	}
	for k, b := range a.fanouts {
		if a.incomplete(b.log) {
			continue
		}
		d, ok := first[k]
		if !ok && b.parent.end != nil {
			left := slices.Contains(a.disposed[b.parent.home.key], k)
			a.check(BranchResults, left, func() Violation {
				return b.log.says(b.seq, b.parent.id, "branch "+k.id+" in a run.disposed or in branches of run.ended", "neither, and the run has "+b.parent.end.state)
			})
			d, ok = disposal{state: "cancelled"}, left
		}
		if l := a.logs[k]; ok && l != nil && l.closed != nil {
			a.check(BranchResults, l.closed.State == d.state, func() Violation {
				return l.says(l.seq, k.id, "session.closed as "+d.state+", as run "+b.parent.id+" says", l.closed.State)
			})
		}
	}
}

// reported checks the report of a branch's end.
func (f *folding) reported(d *receivedData) {
	b := d.Branch
	opened := f.a.fanouts[key{f.l.tenant, b.Link.Session}]
	f.a.check(BranchResults, opened != nil && opened.parent.id == d.Run && d.Path == opened.path+".gather",
		f.says(d.Run, "the report of a branch that the run opened, for the step that gathers it", "one of "+b.Link.Session+" for step "+d.Path))
	if opened != nil {
		f.a.check(BranchResults, !opened.told, f.says(d.Run, "one report of branch "+b.Link.Session, "another one"))
		opened.told = true
	}
	f.a.link(claimOf{from: f.l, seq: f.c.seq, link: b.Link, what: "the end of a branch"})
	g := f.a.run(f.l, d.Run)
	g.reported, g.told = g.reported.plus(b.Usage), g.told+b.Steps
	f.a.told = append(f.a.told, toldBranch{
		f.l, f.c.seq, d.Run, key{f.l.tenant, b.Link.Session}, "the report", b.State, b.Code, b.Link.Seq, b.Link.Version, &b.Usage, b.Steps,
	})
}

// outcome is the end of a branch as a gather step records it.
type outcome struct {
	Code    string `json:"code"`
	Link    link   `json:"link"`
	Name    string `json:"name"`
	Session string `json:"session"`
	State   string `json:"state"`
	path    string // of the fan-out
}

// stand reads the outcomes with which a fan-out begins: of branches that a run had which
// this one continues.
func (g *runState) stand(f *folding, d *doneData) {
	var terms struct {
		Standing []outcome `json:"standing"`
	}
	if d.Code != "" || json.Unmarshal([]byte(d.Value), &terms) != nil {
		return // the step failed, or checks of its form report it
	}
	for _, o := range terms.Standing {
		if g.standing == nil {
			g.standing = map[string]outcome{}
		}
		o.path = d.Path
		g.standing[o.Session] = o
		f.a.check(BranchResults, g.resumes.Run != "" && o.State == "succeeded" && o.Link.Session == o.Session,
			f.says(d.Run, "outcomes of branches that succeeded, of a run that it continues, to stand", o.State+" of "+o.Session))
	}
}

// finishStanding checks that a run which this one continues opened the branches whose
// outcomes stand, at the same step.
func (g *runState) finishStanding(a *audit) {
	for id, o := range g.standing {
		own := a.fanouts[key{g.tenant, id}]
		if own == nil && a.o.Open || a.incomplete(g.home) {
			continue
		}
		of := g
		for n := 0; n < maxAround && of != nil && (own == nil || own.parent != of); n++ {
			of = a.runIn(key{g.tenant, of.resumes.Run}, of.resumes.Session)
		}
		a.check(BranchResults, of != nil && of != g && own != nil && own.path == o.path && own.name == o.Name, func() Violation {
			return g.home.says(1, g.id, "branch "+o.Name+" of step "+o.path+" of a run that it continues", "the outcome of "+id)
		})
	}
}

// gathered checks the outcomes of branches in a gather step. An outcome without a
// link is of a branch that was given up.
func (f *folding) gathered(d *doneData) {
	var outcomes []outcome
	if d.Code != "" {
		return // the step failed as a whole
	}
	path := fanoutOf(d.Path)
	err := json.Unmarshal([]byte(d.Value), &outcomes)
	f.a.check(Format, err == nil, f.says(d.Run, "the outcomes of branches as the value of step "+d.Path, clip(d.Value, 60)))
	seen := map[string]bool{}
	g := f.a.run(f.l, d.Run)
	opened := g.opened[path]
	for _, o := range outcomes {
		k := key{f.l.tenant, o.Session}
		own := f.a.fanouts[k]
		before, stands := g.standing[o.Session]
		if stands = stands && before.path == path; stands {
			opened++
		}
		f.a.check(BranchResults, !seen[o.Session] && (stands && o.Link == before.Link && o.State == before.State || own != nil && own.parent.id == d.Run && own.path == path),
			f.says(d.Run, "the outcome of a branch of step "+path+", once", "that of "+o.Session))
		seen[o.Session] = true
		if o.Link.Seq == 0 {
			f.a.check(BranchResults, o.State == "cancelled" && own != nil && own.state == "cancelled",
				f.says(d.Run, "branch "+o.Session+", of which no end came, to be given up as cancelled", "outcome "+o.State))
			continue
		}
		f.a.check(Tenant, o.Link.Tenant == f.l.tenant, f.says(d.Run, "outcomes within tenant "+f.l.tenant, "one in "+o.Link.Tenant))
		f.a.check(BranchResults, o.Link.Session == o.Session, f.says(d.Run, "the outcome of branch "+o.Session+" to link it", o.Link.Session))
		f.a.link(claimOf{from: f.l, seq: f.c.seq, link: o.Link, what: "the outcome of a branch"})
		f.a.told = append(f.a.told, toldBranch{f.l, f.c.seq, d.Run, k, "the outcome", o.State, o.Code, o.Link.Seq, o.Link.Version, nil, 0})
	}
	f.a.check(BranchResults, len(seen) == opened, f.says(d.Run, fmt.Sprintf("the outcomes of all %d branches of step %s", opened, path), fmt.Sprintf("%d", len(seen))))
}

// finishFanOuts compares the outcomes in the parents' logs with the logs of the branches.
func (a *audit) finishFanOuts() {
	for _, t := range a.told {
		a.finishTold(&t)
	}
	a.told = nil
	a.finishDisposals()
	a.finishSpreads()
	for _, g := range a.runs {
		if g.home != nil {
			g.finishStanding(a)
		}
	}
	for k, b := range a.fanouts {
		g := a.runs[k]
		if g != nil && g.home != nil && !a.incomplete(g.home) {
			a.finishBranch(k, b, g)
		}
	}
	for _, g := range a.runs {
		if g.branch != nil && a.fanouts[g.key] == nil && !a.o.Open && !a.incomplete(g.home) {
			a.check(BranchResults, false, func() Violation {
				return g.home.says(1, g.id, "a run.fanout that opened the branch", "none")
			})
		}
	}
}

func (a *audit) finishTold(t *toldBranch) {
	g := a.runs[t.branch]
	if a.incomplete(t.log) || a.o.Open && (g == nil || g.end == nil) {
		return
	}
	name := t.what + " of branch " + t.branch.id
	if g == nil || g.end == nil {
		a.check(BranchResults, false, func() Violation {
			return t.log.says(t.seq, t.run, name+" after the end of its run", "no run.ended there")
		})
		return
	}
	e := g.end
	a.check(BranchResults, e.state == t.state, func() Violation { return t.log.says(t.seq, t.run, name+" to say "+e.state, t.state) })
	a.check(BranchResults, e.code == t.code, func() Violation {
		return t.log.says(t.seq, t.run, fmt.Sprintf("%s to say code %q", name, e.code), fmt.Sprintf("%q", t.code))
	})
	a.check(BranchResults, t.version == e.version, func() Violation {
		return t.log.says(t.seq, t.run, fmt.Sprintf("%s to say version %d", name, e.version), fmt.Sprintf("%d", t.version))
	})
	a.check(BranchResults, t.commit == e.commit, func() Violation {
		return t.log.says(t.seq, t.run, fmt.Sprintf("%s to name commit %d", name, e.commit), fmt.Sprintf("commit %d", t.commit))
	})
	if t.usage != nil {
		a.check(BranchResults, *t.usage == e.usage, func() Violation {
			return t.log.says(t.seq, t.run, fmt.Sprintf("%s to say usage %+v", name, e.usage), fmt.Sprintf("%+v", *t.usage))
		})
		a.check(BranchResults, t.steps == e.steps, func() Violation {
			return t.log.says(t.seq, t.run, fmt.Sprintf("%s to say %d steps", name, e.steps), fmt.Sprint(t.steps))
		})
	}
}

// finishBranch compares the task of a branch with its fan-out.
func (a *audit) finishBranch(k key, b *fanout, g *runState) {
	wrong := func(expected, found string) func() Violation {
		return func() Violation { return g.home.says(1, k.id, expected, found) }
	}
	t := g.branch
	a.check(BranchResults, t != nil, wrong("the task of a branch of run "+b.parent.id, "another task"))
	if t == nil {
		return
	}
	a.check(BranchResults, slices.Equal(t.Within, b.within), wrong(fmt.Sprintf("a branch within %q as its fan-out says", b.within), fmt.Sprintf("%q", t.Within)))
	a.check(BranchResults, a.depth(b) <= maxAround, wrong(fmt.Sprintf("at most %d fan-outs around the branch", maxAround), "more"))
	a.check(BranchResults, t.Warm == b.warm, wrong(fmt.Sprintf("warm %v as its fan-out says", b.warm), fmt.Sprintf("%v", t.Warm)))
	a.check(BranchResults, t.Name == b.name && t.Remote == b.remote && t.Path == b.path+"."+b.name,
		wrong(fmt.Sprintf("branch %s at %s.%s", b.name, b.path, b.name), fmt.Sprintf("%s at %s", t.Name, t.Path)))
	a.check(BranchResults, t.Base == b.base, wrong(fmt.Sprintf("base commit %d of %s", b.base.Seq, b.base.Session), fmt.Sprintf("commit %d of %s", t.Base.Seq, t.Base.Session)))
	a.check(BranchResults, len(t.Ancestors) > 0 && t.Ancestors[len(t.Ancestors)-1].Run == b.parent.id,
		wrong("run "+b.parent.id+" as the last ancestor", "another one"))
	a.check(BranchResults, slices.Equal(t.Ancestors, b.around), wrong(fmt.Sprintf("the ancestors %v that its fan-out says", b.around), fmt.Sprint(t.Ancestors)))
	via := b.parent.id
	if b.by == "" {
		via = ""
	}
	a.check(BranchResults, g.by == b.by && g.via == via, wrong(fmt.Sprintf("a task from %q by way of %q as its fan-out says", b.by, via), fmt.Sprintf("from %q by way of %q", g.by, g.via)))
	a.check(BranchResults, g.workflow == b.runs, wrong("a task of workflow "+b.runs+" as its fan-out says", g.workflow))
	a.check(Budgets, g.budget == b.budget, wrong(fmt.Sprintf("the budget %+v that its fan-out gave", b.budget), fmt.Sprintf("%+v", g.budget)))
	a.check(Graph, g.home.root == b.root, wrong("root "+b.root, g.home.root))
	o := g.home.opened
	kind := "fork"
	if b.call != "" {
		kind = "call"
	}
	a.check(BranchResults, t.Call == b.call, wrong(fmt.Sprintf("the work of call %q as its fan-out says", b.call), fmt.Sprintf("%q", t.Call)))
	a.check(BranchResults, o.Kind == kind && len(o.Parents) == 1 && o.Parents[0] == b.base, func() Violation {
		found := []string{"a " + o.Kind}
		for _, p := range o.Parents {
			found = append(found, fmt.Sprintf("of commit %d of %s", p.Seq, p.Session))
		}
		return g.home.says(1, k.id, fmt.Sprintf("a %s of commit %d of %s", kind, b.base.Seq, b.base.Session), strings.Join(found, " "))
	})
	a.check(BranchResults, o.Run == b.parent.id && o.Step == b.path+"."+b.name,
		wrong(fmt.Sprintf("a session that step %s.%s of run %s opened", b.path, b.name, b.parent.id), fmt.Sprintf("step %s of run %s", o.Step, o.Run)))
}

// maxAround is the maximum number of fan-outs around a branch.
const maxAround = 32

// depth counts the fan-outs around a branch whose logs are present. It stops at one
// above maxAround.
func (a *audit) depth(b *fanout) int {
	n := 0
	for ; b != nil && n <= maxAround; n++ {
		b = a.fanouts[b.parent.key]
	}
	return n
}
