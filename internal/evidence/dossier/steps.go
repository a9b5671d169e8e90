package dossier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stepRef names a step in one log.
type stepRef struct {
	session session.ID
	path    run.Path
}

// timeline turns commits into the lines of a dossier.
type timeline struct {
	a     *archive
	f     *Facts
	names map[session.ID]string
	graph *lineage.Graph  // of all commits
	index map[stepRef]int // number of a step's line
	rows  map[stepRef]session.Chunk
	at    commitRef // the commit being folded
	seen  map[attempt]bool
	asked bool               // the first row of a user was seen
	left  []string           // contents that could not be shown, with the reason
	asks  map[stepRef]string // questions, by the step that waits
	fans  map[run.ID]int     // positions among the branches, from 1, by the branch's run
}

type attempt struct {
	run run.ID
	n   uint64
}

// timeline fills f.Steps and all lists of steps.
func (a *archive) timeline(f *Facts, g *lineage.Graph, names map[session.ID]string) *timeline {
	t := &timeline{a: a, f: f, graph: g, names: names, index: map[stepRef]int{}, rows: map[stepRef]session.Chunk{}, seen: map[attempt]bool{}, asks: map[stepRef]string{}, fans: map[run.ID]int{}}
	for _, p := range a.order() {
		if !p.c.ours || !p.c.concerns(p.n, a.runs) {
			continue
		}
		f.Numbers.Commits++
		t.at = p
		for _, e := range p.facts() {
			t.event(e)
		}
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		if parent := s.Path.Parent(); parent != "" && s.Kind != "run" {
			at, found := t.index[stepRef{s.Session, parent}]
			s.Child = found && at < s.N
		}
	}
	return t
}

func (t *timeline) name(id session.ID) string { return cmp.Or(t.names[id], string(id)) }

// ref names a step in the log of the commit.
func (t *timeline) ref(path run.Path) stepRef { return stepRef{t.at.c.key.ID, path} }

// number returns the position of a session in the evidence, from 1.
func (t *timeline) number(id session.ID) int {
	return 1 + slices.IndexFunc(t.a.logs, func(c *chain) bool { return c.key.ID == id })
}

// line appends a line of the timeline and returns it.
func (t *timeline) line(e journal.Fact, kind, actor, text string) *Step {
	c := t.at.c
	t.f.Steps = append(t.f.Steps, Step{
		N: len(t.f.Steps) + 1, Session: c.key.ID, Label: t.name(c.key.ID), In: t.number(c.key.ID), Commit: t.at.n, Hash: c.entries[t.at.n-1].At.Hash,
		Time: e.Time, Kind: kind, Actor: one(actor, 60), Text: one(text, 200),
	})
	return &t.f.Steps[len(t.f.Steps)-1]
}

// remark adds a line for a warning or a status.
func remark(t *timeline, e journal.Fact, what any) {
	switch p := what.(type) {
	case journal.Warning:
		t.line(e, "warning", "run", "warns: "+p.Text)
		t.f.Warnings = append(t.f.Warnings, textOf(p.Text))
	case journal.Status:
		t.line(e, "status", "run", "is at "+quote(p.Value, 160))
	}
}

func (t *timeline) event(e journal.Fact) {
	if e.Run != "" && !t.a.runs[e.Run] {
		return
	}
	if e.State != "" && t.decides(e.Run) {
		t.state(e.Run, e.State)
	}
	f := t.f
	switch p := e.What.(type) {
	case session.Chunk:
		t.chunk(e, p)
	case session.Placement:
		if e.Batch == "" && !p.Head.IsZero() {
			t.line(e, "placed", "run", "starts from given files in "+p.Backend).After = p.Head
		}
	case journal.Submitted:
		if e.Run == t.a.run {
			f.Submitted, f.Workflow, f.Revision = e.Time, e.Workflow, e.Revision
			text := "run of " + e.Workflow + " submitted"
			if p.Behind != "" {
				text += ", waits behind run " + string(p.Behind)
			}
			if f.By, f.Says = p.By, p.Says; p.Task.Branch == nil {
				f.Via = p.Via
			}
			if p.By != "" {
				text += "," + f.Submitter()
			}
			s := t.line(e, "run", "run", text)
			if p.Task.Input != "null" {
				s.Body = textOf(p.Task.Input)
				f.Asked = s.Body
			}
		}
	case journal.Claimed:
		t.claimed(e, p)
	case journal.Released:
		if t.decides(e.Run) {
			text := fmt.Sprintf("attempt %d gives the run back: %s", p.Attempt, p.Reason)
			if p.Step != "" {
				text += fmt.Sprintf(" (for a node with revision %q, because of step %s)", p.Revision, p.Step)
			}
			t.line(e, "run", "run", text)
		}
	case journal.Review:
		s := t.line(e, "review", "run", "needs review: "+p.Reason)
		s.Code = p.Code
		t.decision(e, s, "asked for review")
	case journal.Resolved:
		s := t.line(e, "resolved", cmp.Or(journal.Named(p.By, p.Says), "somebody"), fmt.Sprintf("decides %q about step %s: %s", p.Decision, p.Path, p.Reason))
		s.Body = textOf(p.Value)
		t.decision(e, s, "decided: "+one(p.Decision, 40))
	case journal.CancelRequested:
		s := t.line(e, "cancel", cmp.Or(journal.Named(p.By, p.Says), "somebody"), "asks the run to stop: "+p.Reason)
		if !t.a.runs[run.ID(cmp.Or(p.By, p.Says))] { // else the run around a branch cancelled it by itself
			t.decision(e, s, "asked to stop")
		}
	case journal.Warning, journal.Status:
		remark(t, e, p)
	case journal.Ended:
		t.ended(e, p)
	case journal.Settled:
		if b := t.branch(p.Run); b != nil && p.N > 0 {
			b.Tokens = p.Total.Usage.Tokens()
		}
		t.line(e, "settled", "run", fmt.Sprintf("session %s reports %s tokens of the run", t.name(p.Part.From), excerpt.Thousands(p.Part.Spent.Usage.Tokens())))
	case journal.RunWaiting:
		t.waits(e, p)
	case journal.SignalReceived:
		t.received(e, p)
	case journal.FanOut:
		t.fanOut(p)
	case journal.BranchesReleased:
		t.line(e, "spread", "run", "spreads to "+excerpt.Counted(max(len(p.Branches)-1, 0), "more branch")).Path = p.Path
	case journal.BranchOutcomes:
		t.disposed(p)
	case journal.Quarantined:
		text, what := "quarantines the session: ", "quarantined"
		if p.Released {
			text, what = "lets the session go on: ", "readmitted"
		}
		s := t.line(e, what, cmp.Or(journal.Named(p.By, p.Says), "somebody"), text+p.Reason)
		t.decision(e, s, what+" session "+t.name(t.at.c.key.ID))
	case journal.Rebudgeted:
		s := t.line(e, "rebudgeted", cmp.Or(journal.Named(p.By, p.Says), "somebody"), "sets the budget: "+lineage.BudgetText(p.Budget))
		t.decision(e, s, "budget set: "+lineage.BudgetText(p.Budget))
	case journal.StepStarted:
		t.intent(e, p)
	case journal.StepCompleted:
		t.done(e, p)
	case journal.Late:
		t.late(e, journal.StepCompleted(p))
	}
}

// decision adds an external decision, or the request for one.
func (t *timeline) decision(e journal.Fact, s *Step, what string) {
	t.f.Decisions = append(t.f.Decisions, Decision{s.N, what, one(journal.Named(e.By, e.Says), 100), one(e.Reason, 400)})
}

// decides reports whether the log of the commit is the home of a run.
func (t *timeline) decides(id run.ID) bool {
	switch {
	case id == t.a.run:
		return t.at.c.key.ID == t.a.home.ID
	case t.a.runs[id]:
		return run.ID(t.at.c.key.ID) == id
	}
	return false
}

// state sets the state of a run.
func (t *timeline) state(id run.ID, s run.State) {
	if id == t.a.run {
		t.f.State = s
	}
	if b := t.branch(id); b != nil {
		b.State = s
	}
}

func (t *timeline) claimed(e journal.Fact, p journal.Claimed) {
	at := attempt{p.Run, p.Attempt}
	if !t.decides(p.Run) || t.seen[at] {
		return
	}
	t.seen[at] = true
	if b, node := t.branch(p.Run), one(p.Incarnation, 60); b != nil && !slices.Contains(b.Nodes, node) {
		b.Nodes = append(b.Nodes, node)
	}
	if p.Run == t.a.run {
		if t.f.Started.IsZero() {
			t.f.Started = e.Time
		}
		t.f.Revision = cmp.Or(p.Revision, t.f.Revision)
	}
	t.line(e, "run", "run", fmt.Sprintf("attempt %d begins on %s, epoch %d", p.Attempt, p.Incarnation, p.Epoch))
}

func (t *timeline) ended(e journal.Fact, p journal.Ended) {
	if !t.decides(p.Run) {
		return
	}
	f := t.f
	if p.Run == t.a.run {
		f.Ended, f.Answer, f.Workflow = e.Time, textOf(p.Output), cmp.Or(f.Workflow, p.Workflow)
	}
	if b := t.branch(p.Run); b != nil {
		b.Tokens = p.Usage.Tokens()
	}
	f.Numbers.Tokens += p.Unrecorded.Tokens()
	f.Numbers.MicroUSD += p.Unrecorded.MicroUSD
	f.Numbers.ModelCalls += p.Unrecorded.Calls
	text := "run " + strings.ReplaceAll(string(p.State), "_", " ")
	if p.Error != "" {
		text += ": " + p.Error
	}
	s := t.line(e, "run", "run", text)
	s.Code, s.Error = p.Code, textOf(p.Error)
}

// chunk attaches a row to the step that made it, or adds a line for it.
func (t *timeline) chunk(e journal.Fact, c session.Chunk) {
	o := c.Origin()
	at := t.ref(run.Path(o.Step))
	if o.Step != "" {
		t.rows[at] = c
		if n, ok := t.index[at]; ok {
			t.attach(&t.f.Steps[n-1], c)
			return
		}
		if slices.ContainsFunc(t.at.facts(), func(e journal.Fact) bool {
			_, ok := e.What.(journal.StepCompleted)
			return ok && string(e.Step) == o.Step
		}) {
			return // its step follows in the commit
		}
	}
	verb := map[session.Kind]string{session.User: "asks", session.System: "instructs", session.Assistant: "says", session.ToolResult: "answers"}[c.Kind()]
	s := t.line(e, string(c.Kind()), cmp.Or(o.Agent, string(c.Kind())), verb+" "+quote(c.Text(), 120))
	s.Body = textOf(c.Text())
	s.Whole, _ = c.Body()
	s.Images = c.Images()
	if c.Kind() == session.User && !t.asked {
		t.f.Asked, t.asked = s.Body, true
	}
}

// attach adds a row to the line of its step.
func (t *timeline) attach(s *Step, c session.Chunk) {
	s.Body = textOf(c.Text())
	s.Whole, _ = c.Body()
	s.Images = c.Images()
	if args := c.Args(); args != "" {
		s.Args = textOf(args)
	}
	if agent := c.Origin().Agent; agent != "" {
		s.Actor = one(agent, 60)
	}
}

func (t *timeline) intent(e journal.Fact, p journal.StepStarted) {
	at := t.ref(p.Path)
	n, ok := t.index[at]
	if !ok {
		s := t.line(e, "intent", p.Name, "is announced; no outcome is recorded")
		s.Path, s.Effect, s.Open = p.Path, "non_idempotent", true
		t.index[at], n = s.N, s.N
		t.arguments(s)
	}
	s := &t.f.Steps[n-1]
	s.Attempts = append(s.Attempts, Attempt{p.Attempt, "announced"})
}

// late adds an outcome of a superseded attempt, or of a call that was left open.
func (t *timeline) late(e journal.Fact, p journal.StepCompleted) {
	s := t.line(e, p.Kind, p.Name, fmt.Sprintf("outcome of attempt %d is no step; kept as evidence", p.Attempt))
	s.Path, s.Effect, s.Late, s.Elapsed, s.Code, s.Error = p.Path, p.Effect, true, p.Elapsed, p.Code, textOf(p.Error)
	s.Body = textOf(p.Value)
	if n, ok := t.index[t.ref(p.Path)]; ok {
		own := &t.f.Steps[n-1]
		own.Attempts = append(own.Attempts, Attempt{p.Attempt, "evidence"})
	}
}

// done adds a recorded outcome.
func (t *timeline) done(e journal.Fact, p journal.StepCompleted) {
	at := t.ref(p.Path)
	var s *Step
	if n, ok := t.index[at]; ok {
		if s = &t.f.Steps[n-1]; !s.Open {
			t.late(e, p) // the first record of a step wins
			return
		}
		s.Open, s.Kind, s.Time, s.Commit, s.Hash = false, p.Kind, e.Time, t.at.n, t.at.c.entries[t.at.n-1].At.Hash
	} else {
		s = t.line(e, p.Kind, "", "")
		t.index[at] = s.N
	}
	s.Path, s.Effect, s.Elapsed, s.Model, s.Prompt, s.Usage = p.Path, p.Effect, p.Elapsed, one(p.Model, 60), p.Prompt, p.Usage
	s.Before, s.After, s.Code, s.Error = p.HeadBefore, p.HeadAfter, p.Code, textOf(p.Error)
	s.Finish = one(journal.FinishText(p.Finish, p.Word), 120)
	s.Attempts = append(s.Attempts, Attempt{p.Attempt, "recorded"})
	row, made := t.rows[at]
	if made {
		t.attach(s, row)
	} else if !p.Row {
		s.Body = textOf(p.Value)
	}
	if p.Kind != journal.StepGather { // the sum over the branches' own steps
		t.f.Numbers.Tokens += p.Usage.Tokens()
		t.f.Numbers.MicroUSD += p.Usage.MicroUSD
	}
	switch p.Kind {
	case journal.StepModel, journal.StepSelection, journal.StepCompress:
		t.f.Numbers.ModelCalls++
		t.prompt(s)
		s.Given, s.Agent = p.Given, one(p.Name, 60)
	case journal.StepTool:
		t.f.Numbers.ToolCalls++
		t.arguments(s)
	}
	s.Actor, s.Text = t.words(s, p, row)
}

// prompt lists the request of a model call.
func (t *timeline) prompt(s *Step) {
	if s.Prompt.IsZero() {
		return
	}
	for i := range t.f.Prompts {
		if p := &t.f.Prompts[i]; p.Digest == s.Prompt {
			p.Steps = append(p.Steps, s.N)
			return
		}
	}
	t.f.Prompts = append(t.f.Prompts, Prompt{s.Prompt, s.Model, []int{s.N}})
}

// arguments sets the arguments of a tool call: from the row of the model that requested
// it, unless its own row has arguments changed by a user.
func (t *timeline) arguments(s *Step) {
	parent := s.Path.Parent()
	row, ok := t.rows[stepRef{s.Session, parent}]
	if !ok || parent == "" || !s.Args.Empty() {
		return
	}
	for i, call := range row.Calls() {
		if parent.Index(i) == s.Path {
			s.Args = textOf(call.Args)
		}
	}
}
