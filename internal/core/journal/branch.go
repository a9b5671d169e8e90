package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Branch marks a task as a branch of a fan-out: a separate run in a separate session,
// with the session's id as its id. It runs a part of its parent's workflow, which is
// replayed up to that part, or, if it is remote, a workflow by name.
type Branch struct {
	// Ancestors are the enclosing runs, the outermost first. The last one receives the
	// branch's outcome.
	Ancestors []Ancestor   `json:"ancestors"`
	Base      session.Link `json:"base"` // the value that it starts from
	// Call is the tool call in Base, by its id there, that the branch is the work of. Its
	// session has none of the rows of Base.
	Call   string     `json:"call,omitempty"`
	Name   string     `json:"name"`
	Path   run.Path   `json:"path"` // of its steps: the fan-out's and its name
	Remote bool       `json:"remote,omitempty"`
	Root   session.ID `json:"root"` // of the tree
	// WarmsCache reports that the other branches wait for this one: it records
	// [CacheWarmed] with its first answer of a model, or with its first wait.
	WarmsCache bool `json:"warm,omitempty"`
	// Within names the workflows of the branches around it, the outermost first;
	// the run at the root is not among them. It has less than MaxDepth.
	Within []string `json:"within,omitempty"`
}

// Ancestor is a run with its home session and the path below which its own steps are.
// In a parent that receives its branch's outcome, Path is the path of the step that
// gathers.
type Ancestor struct {
	Path    run.Path   `json:"path,omitempty"`
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
}

// FanOut records that a run opened branches. Their tasks are derived from it.
type FanOut struct {
	Allow     string         `json:"allow,omitempty"` // of the tasks of the branches
	Ancestors []Ancestor     `json:"ancestors"`       // of the branches
	Base      session.Link   `json:"base"`
	Branches  []FanOutBranch `json:"branches"`
	Budget    run.Budget     `json:"budget,omitzero"` // of each branch
	By        string         `json:"by,omitempty"`    // who submitted the run; set by the writer
	Deadline  int64          `json:"deadline,omitempty"`
	OnFailure string         `json:"on_failure,omitempty"` // of the tasks of the branches
	Path      run.Path       `json:"path"`
	Revision  string         `json:"revision,omitempty"`
	Root      session.ID     `json:"root"`
	Run       run.ID         `json:"run"`
	// WarmFirst reports that only the first branch starts; the others start when
	// [KindBranchesReleased] records the same fan-out again.
	WarmFirst bool     `json:"warm,omitempty"`
	Within    []string `json:"within,omitempty"` // of the branches; set by the writer
	Workflow  string   `json:"workflow"`
}

// FanOutTerms is the value of the record of a fan-out.
type FanOutTerms struct {
	Budget   run.Budget `json:"budget,omitzero"` // of each branch that it opens
	Deadline int64      `json:"deadline,omitempty"`
	// Standing is the branches that it does not open, because their outcomes come from the
	// run that this one resumes. See [Recording.Standing].
	Standing []GatheredBranch `json:"standing,omitempty"`
}

// BranchesReleased records that the other branches of a warm-first fan-out start.
type BranchesReleased FanOut

// FanOutBranch is one branch of a fan-out. One with a workflow is remote.
type FanOutBranch struct {
	Call     string     `json:"call,omitempty"` // of a branch for a tool call
	Input    string     `json:"input,omitempty"`
	Model    string     `json:"model,omitempty"` // of the task of a remote branch
	Name     string     `json:"name"`
	Revision string     `json:"revision,omitempty"`
	Session  session.ID `json:"session"`
	MCP      []string   `json:"mcp,omitempty"`   // of the task of a remote branch
	Tools    []string   `json:"tools,omitempty"` // of the task of a remote branch
	Workflow string     `json:"workflow,omitempty"`
}

// BranchOutcomes records the outcomes of branches of a fan-out for the run that opened
// them. The branches are notified and accept no event after that.
type BranchOutcomes struct {
	Branches []run.BranchOutcome `json:"branches"`
	Run      run.ID              `json:"run"`
}

// GatherPath is the path of the step that gathers the branches of the fan-out at p.
func GatherPath(p run.Path) run.Path { return p.Child("gather") }

// SelectPath is the path below which the cases of the select at a path are, by their
// indexes.
func SelectPath(p run.Path) run.Path { return p.Child("on") }

// CommitPath is the path of the step that commits the pending edits of the session with
// which the step at p begins.
func CommitPath(p run.Path) run.Path { return p.Child("commit") }

// GatheredBranch is one branch in the record of a gather.
type GatheredBranch struct {
	Code    run.Code     `json:"code,omitempty"`
	Error   string       `json:"error,omitempty"`
	Link    session.Link `json:"link,omitzero"`
	Name    string       `json:"name"`
	Session session.ID   `json:"session"`
	State   run.State    `json:"state"`
}

// Gathered decodes the branches in the value of a gather's record.
func (d StepCompleted) Gathered() ([]GatheredBranch, error) {
	var all []GatheredBranch
	if err := json.Unmarshal([]byte(d.Value), &all); err != nil {
		return nil, fmt.Errorf("run: the value of step %s: %w", d.Path, err)
	}
	return all, nil
}

// Tasks returns the tasks of the branches, the same whenever they are derived.
func (f FanOut) Tasks(t session.Tenant) []Task {
	tasks := make([]Task, 0, len(f.Branches))
	for i, b := range f.Branches {
		task := Task{
			ID: run.ID(b.Session), Workflow: f.Workflow, Revision: f.Revision, Session: session.Key{Tenant: t, ID: b.Session},
			Budget: f.Budget, Deadline: fromMillis(f.Deadline), Sandbox: Sandbox{Allow: f.Allow}, By: f.By, OnFailure: f.OnFailure,
			Branch: &Branch{
				Ancestors: f.Ancestors, Base: f.Base, Call: b.Call, Name: b.Name, Path: f.Path.Child(b.Name), Remote: b.Workflow != "", Root: f.Root,
				WarmsCache: f.WarmFirst && i == 0, Within: f.Within,
			},
		}
		if f.By != "" {
			task.Via = string(f.Run)
		}
		if b.Workflow != "" {
			task.Workflow, task.Revision, task.Model, task.Tools, task.MCP = b.Workflow, b.Revision, b.Model, b.Tools, b.MCP
			if b.Input != "" {
				task.Input = json.RawMessage(b.Input)
			}
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// valid checks the branch of a task.
func (b *Branch) valid(k session.Key) error {
	if len(b.Ancestors) == 0 || b.Base.Seq == 0 || b.Base.Tenant != k.Tenant {
		return fmt.Errorf("journal: branch %s of %s: %w", b.Name, b.Base.Key, run.ErrMalformed)
	}
	if len(b.Within) >= run.MaxDepth {
		return tooDeep(b.Within)
	}
	for _, a := range b.Ancestors {
		if err := (session.Key{Tenant: k.Tenant, ID: a.Session}).Valid(); err != nil {
			return err
		}
	}
	return session.ValidID("branch", b.Name)
}

// within returns the workflows of the branches around those that a run opens, and fails
// if there are too many.
func (r *Record) within() ([]string, error) {
	b := r.Task.Branch
	if b == nil {
		return nil, nil
	}
	all := append(slices.Clone(b.Within), r.Task.Workflow)
	if len(all) >= run.MaxDepth {
		return nil, tooDeep(all)
	}
	return all, nil
}

// tooDeep names the first and the last workflows of a chain.
func tooDeep(all []string) error {
	const first, last = 4, 2
	text := strings.Join(all[:min(first, len(all))], " -> ")
	if n := len(all); n > first+last {
		text += " -> … -> " + strings.Join(all[n-last:], " -> ")
	}
	return fmt.Errorf("%w: %d branches lie around each other (%s), at most %d may; end the loop, or fan out side by side", run.ErrTooDeep, len(all)+1, text, run.MaxDepth)
}

// Parent returns the run to which the branch reports its outcome.
func (b *Branch) Parent() *Ancestor {
	a := b.Ancestors[len(b.Ancestors)-1]
	return &Ancestor{Path: GatherPath(b.Path[:max(len(b.Path)-len(b.Name)-1, 0)]), Run: a.Run, Session: a.Session}
}

// branchEnded reports whether the session is a branch whose run has ended. Such a
// session accepts only its closing.
func (b *RunState) branchEnded() bool {
	r := b.runs[b.branch]
	return r != nil && r.State.Terminal()
}

// fanOut folds the opening of branches by a run.
func (r *Record) fanOut(f FanOut) {
	for _, b := range f.Branches {
		if !slices.Contains(r.branches, b.Session) {
			r.branches = append(r.branches, b.Session)
		}
	}
	r.reserved.opened(f)
	if f.WarmFirst && len(f.Branches) > 1 {
		r.warming = &f
	}
}

// gathered folds the consumption of the reports in the inbox.
func (r *Record) gathered(p run.Path) {
	var counted []session.ID
	for _, v := range r.inbox {
		if v.Kind == Report && v.Path == p && v.Branch != nil {
			counted = append(counted, v.Branch.Link.ID)
		}
	}
	r.reserved.Gather(p, counted)
}

// branchesEnded folds the outcomes of branches. Before its own record, a step that
// gathers disposes of the branches whose reports it has not seen. Such a report may
// have arrived since.
func (r *Record) branchesEnded(d BranchOutcomes) {
	for _, v := range r.inbox {
		if v.Kind == Report && v.Branch != nil && slices.ContainsFunc(d.Branches, func(one run.BranchOutcome) bool { return one.Session == v.Branch.Link.ID }) {
			r.reserved.Settle(v.Path, v.Branch)
		}
	}
	r.branches = slices.DeleteFunc(r.branches, func(id session.ID) bool {
		return slices.ContainsFunc(d.Branches, func(one run.BranchOutcome) bool { return one.Session == id })
	})
}

// close ends the session of a branch that its parent disposed of. An open run in it is
// cancelled, and closes the session with its end.
func (w *StateMachine) close(d run.BranchOutcome, now time.Time) error {
	r := w.state.runs[w.state.branch]
	switch {
	case w.at.Seq == 0:
		return nil // the node that accepts the branch's task detects that it is too late
	case r == nil:
		return fmt.Errorf("journal: session %s is no branch of a fan-out: %w", w.key, run.ErrState)
	case w.value.Closing().State != "" || r.Cancel != nil && r.Cancel.Close != "" && !r.State.Terminal():
		return nil
	case r.State.Terminal():
		return w.stage(now, w.closing(d))
	}
	return w.cancel(r, CancelRequested{By: string(r.Task.Branch.Parent().Run), Close: d.State, Reason: d.Reason}, now)
}

func (w *StateMachine) closing(d run.BranchOutcome) session.Event {
	by := session.Key{Tenant: w.key.Tenant, ID: w.state.runs[w.state.branch].Task.Branch.Parent().Session}
	return session.ClosedEvent(session.Closing{By: by, Reason: d.Reason, State: d.State})
}

// report returns the signal that reports a branch's outcome to its parent.
func report(k session.Key, e Ended, at commitlog.Position) *Signal {
	link := session.Link{Ref: session.Ref{Key: k, Version: e.Version}, Seq: at.Seq, Hash: at.Hash, Token: at.Token}
	return &Signal{
		To: session.Key{Tenant: k.Tenant, ID: e.Parent.Session}, Run: e.Parent.Run,
		Received: &SignalReceived{
			ID: string(k.ID), Kind: Report, Path: e.Parent.Path, Run: e.Parent.Run,
			Branch: &BranchEnd{Code: e.Code, Error: e.Error, Link: link, State: e.State, Steps: e.Steps, Usage: e.Usage},
		},
	}
}
