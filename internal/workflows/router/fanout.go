package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// FanOutInput is the input of "fanout".
type FanOutInput struct {
	// Prompt is the user's message before the branches start; it may be empty.
	Prompt   string        `json:"prompt,omitzero"`
	Branches []BranchInput `json:"branches"`
	Join     JoinInput     `json:"join,omitzero"`
	// TimeoutMS is the time limit of the branches, in milliseconds; 0 is the task's.
	TimeoutMS int64 `json:"timeout_ms,omitzero"`
	// WarmFirst lets the branches after the first one begin only once that one
	// has its first answer of a model, so that the provider's cache holds the
	// beginning that they share, or has ended.
	WarmFirst bool `json:"warm_first,omitzero"`
	// Merge is one of the policies below; "" is MergeSinceAncestor.
	Merge string `json:"merge,omitzero"`
	// Pick names the branch that MergePick takes; "" is the first that
	// succeeded.
	Pick string `json:"pick,omitzero"`
	// Files merges the files of the selected branches; it is one of the constants below and
	// resolves conflicts. "" keeps the files of the first branch only.
	Files string `json:"files,omitzero"`
	// Judge chooses for MergeBest and FilesJudge, Summariser writes for MergeSummarise.
	Judge      AskInput `json:"judge,omitzero"`
	Summariser AskInput `json:"summariser,omitzero"`
}

// BranchInput is one branch, or Count of them.
type BranchInput struct {
	// Name is unique; of Count branches it is followed by "-0", "-1" and so on.
	Name     string          `json:"name"`
	Workflow string          `json:"workflow"`
	Revision string          `json:"revision,omitzero"` // "" is the offered revision
	Input    json.RawMessage `json:"input,omitzero"`    // of the workflow; may be absent
	Model    string          `json:"model,omitzero"`    // "" is the task's
	Tools    []string        `json:"tools,omitzero"`    // none is the task's
	Count    *int            `json:"count,omitzero"`
}

// JoinInput ends the wait early: after Quorum branches succeeded, or the First. Without
// either, all branches are awaited.
type JoinInput struct {
	Quorum *int `json:"quorum,omitzero"`
	First  bool `json:"first,omitzero"`
}

// AskInput configures a model call; empty fields use the task's values or defaults.
type AskInput struct {
	Prompt string `json:"prompt,omitzero"`
	Model  string `json:"model,omitzero"`
}

// The merge policies of "fanout".
const (
	MergeSinceAncestor = "since_ancestor" // each branch's additions, one after the other
	MergePick          = "pick"           // one branch, unchanged
	MergeBest          = "best"           // the branch that a judge prefers
	MergeSummarise     = "summarise"      // a summary of the branches' results
)

// The resolutions of "fanout" for conflicts between files.
const (
	FilesOurs   = flow.TakeOurs   // the branch that was merged before
	FilesTheirs = flow.TakeTheirs // the later branch
	FilesBoth   = flow.KeepBoth   // both, the later one as "path.<branch>"
	FilesJudge  = "judge"         // a judge's choice of these, for each conflict
)

var onConflicts = []string{FilesOurs, FilesTheirs, FilesBoth, FilesJudge}

var merges = []string{MergeSinceAncestor, MergePick, MergeBest, MergeSummarise}

const fanOutSchema = `{"type":"object","additionalProperties":false,"required":["branches"],"properties":{` +
	`"prompt":{"type":"string","description":"the user's message before the branches"},` +
	`"branches":{"type":"array","minItems":1,"maxItems":1024,"items":{"type":"object","additionalProperties":false,"required":["name","workflow"],"properties":{` +
	`"name":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$","description":"unique"},` +
	`"workflow":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$"},"revision":{"type":"string"},` +
	`"input":{"description":"of the workflow"},"model":{"type":"string"},"tools":{"type":"array","items":{"type":"string"}},` +
	`"count":{"type":"integer","minimum":1,"maximum":1024,"description":"number of branches: name-0, name-1 and so on"}}}},` +
	`"join":{"type":"object","additionalProperties":false,"properties":{` +
	`"quorum":{"type":"integer","minimum":1,"description":"number of successful branches that ends the wait"},"first":{"type":"boolean","description":"a quorum of one"}}},` +
	`"timeout_ms":{"type":"integer","minimum":1,"description":"how long the branches have"},` +
	`"warm_first":{"type":"boolean","description":"the other branches start after the first model answer or the end of the first one"},` +
	`"merge":{"type":"string","enum":["since_ancestor","pick","best","summarise"]},` +
	`"files":{"type":"string","enum":["ours","theirs","both","judge"],"description":"merge the files of the branches, with this choice for conflicts"},` +
	`"pick":{"type":"string","description":"the branch to take; the first that succeeded without it"},` +
	`"judge":{"$ref":"#/$defs/ask"},"summariser":{"$ref":"#/$defs/ask"}},` +
	`"$defs":{"ask":{"type":"object","additionalProperties":false,"properties":{"prompt":{"type":"string"},"model":{"type":"string"}}}}}`

func fanOutRegistration(offers Offers) flow.Registration {
	return flow.Registration{
		Name: FanOut, Revision: "2", Input: json.RawMessage(fanOutSchema),
		Description: "Runs workflows in parallel on branches of the session, on any nodes, and merges their results.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			in := &FanOutInput{}
			if err := messages.DecodeInput(FanOut, s.Input, in); err != nil {
				return nil, err
			}
			w := &fanOut{in: in, task: s, offers: offers}
			return w, w.prepare()
		},
	}
}

// Check returns the error that the workflow returns for an invalid input.
func (in *FanOutInput) Check() error {
	copied := *in
	return (&fanOut{in: &copied}).prepare()
}

// fanOut is one run of the workflow.
type fanOut struct {
	in       *FanOutInput
	task     flow.Info
	offers   Offers
	branches []flow.Branch
	o        flow.FanOutOptions
}

// maxTimeout is the longest timeout; a longer one is a slip of the unit.
const maxTimeout = 366 * 24 * time.Hour

// prepare checks the input and converts it for package flow.
func (w *fanOut) prepare() error {
	in := w.in
	bad := func(field, problem, remedy string) error { return refuse(FanOut, field, problem, remedy) }
	if err := w.spread(); err != nil {
		return err
	}
	n := len(w.branches)
	if q := in.Join.Quorum; q != nil {
		switch {
		case *q < 1:
			return bad("join.quorum", fmt.Sprintf("%d is no number of branches", *q), "leave it out to wait for all")
		case *q > n:
			return bad("join.quorum", fmt.Sprintf("%d of %d branches", *q, n), fmt.Sprintf("choose 1 to %d", n))
		case in.Join.First && *q != 1:
			return bad("join", "first is a quorum of one, and another one is given", "leave one of them out")
		}
		w.o.Quorum = *q
	}
	if in.Join.First {
		w.o.Quorum, w.o.First = 0, true
	}
	w.o.Timeout = time.Duration(in.TimeoutMS) * time.Millisecond
	w.o.WarmFirst = in.WarmFirst
	if in.TimeoutMS < 0 || in.TimeoutMS > maxTimeout.Milliseconds() {
		return bad("timeout_ms", fmt.Sprintf("%d is not from 1 to %d, a year", in.TimeoutMS, maxTimeout.Milliseconds()), "it counts milliseconds; leave it out for none")
	}
	if in.Merge == "" {
		in.Merge = MergeSinceAncestor
	}
	if !slices.Contains(merges, in.Merge) {
		return bad("merge", fmt.Sprintf("%q is no policy", excerpt.Clip(in.Merge, 40)), "choose one of "+strings.Join(merges, ", ")+"; the workflow merge joins whole sessions")
	}
	for _, f := range []struct {
		field  string
		given  bool
		policy string
	}{{"pick", in.Pick != "", MergePick}, {"judge", in.Judge != AskInput{} && in.Files != FilesJudge, MergeBest}, {"summariser", in.Summariser != AskInput{}, MergeSummarise}} {
		if f.given && in.Merge != f.policy {
			return bad(f.field, "the merge policy is "+in.Merge, fmt.Sprintf("leave it out, or set merge to %q", f.policy))
		}
	}
	switch {
	case in.Files == "":
	case !slices.Contains(onConflicts, in.Files):
		return bad("files", fmt.Sprintf("%q is no rule for conflicts", excerpt.Clip(in.Files, 40)), "choose one of "+strings.Join(onConflicts, ", "))
	case in.Merge == MergePick || in.Merge == MergeBest:
		return bad("files", "the merge policy is "+in.Merge+", which takes one branch with its files", "leave it out, or set merge to "+MergeSinceAncestor)
	}
	if in.Pick != "" && !slices.ContainsFunc(w.branches, func(b flow.Branch) bool { return b.Name == in.Pick }) {
		return bad("pick", fmt.Sprintf("no branch is named %q", excerpt.Clip(in.Pick, 80)), "name one of the branches")
	}
	if err := errors.Join(checkPrompt(FanOut, "judge.prompt", in.Judge.Prompt), checkPrompt(FanOut, "summariser.prompt", in.Summariser.Prompt)); err != nil {
		return err
	}
	return checkPrompt(FanOut, "prompt", in.Prompt)
}

// spread makes the branches.
func (w *fanOut) spread() error {
	bad := func(field, problem, remedy string) error { return refuse(FanOut, field, problem, remedy) }
	if len(w.in.Branches) == 0 {
		return bad("branches", "there are none", `send at least one, such as {"name":"a","workflow":"agent"}`)
	}
	seen := map[string]bool{}
	for i, b := range w.in.Branches {
		at := fmt.Sprintf("branches[%d].", i)
		for _, id := range []struct{ field, value string }{{"name", b.Name}, {"workflow", b.Workflow}} {
			if id.value == "" {
				return bad(at+id.field, "it is missing", "every branch needs its own name and the name of a workflow")
			}
			if err := session.ValidID(id.field, id.value); err != nil {
				return bad(at+id.field, strings.TrimPrefix(err.Error(), "session: "), "choose another")
			}
		}
		if len(b.Model) > messages.MaxModel || len(b.Revision) > messages.MaxModel {
			return bad(at+"model", fmt.Sprintf("model or revision has more than %d bytes", messages.MaxModel), "shorten it")
		}
		if len(b.Tools) > messages.MaxTools {
			return bad(at+"tools", fmt.Sprintf("%d entries, at most %d are taken", len(b.Tools), messages.MaxTools), "name the ones that the work needs")
		}
		r := flow.Remote{Workflow: b.Workflow, Revision: b.Revision, Input: b.Input, Model: b.Model, Tools: b.Tools, MCP: w.task.MCP}
		if r.Model == "" {
			r.Model = w.task.Model
		}
		if r.Tools == nil {
			r.Tools = w.task.Tools
		}
		names := []string{b.Name}
		if b.Count != nil {
			if *b.Count < 1 || *b.Count > run.MaxBranches {
				return bad(at+"count", fmt.Sprintf("%d is not from 1 to %d", *b.Count, run.MaxBranches), "leave it out for one")
			}
			names = make([]string, *b.Count)
			for n := range names {
				names[n] = fmt.Sprintf("%s-%d", b.Name, n)
			}
		}
		for _, name := range names {
			switch {
			case len(name) > 64:
				return bad(at+"name", fmt.Sprintf("%q has more than 64 characters with its number", name), "choose a shorter one")
			case name == "gather":
				return bad(at+"name", `"gather" is the name of the step that takes the branches in`, "choose another")
			case seen[name]:
				return bad(at+"name", fmt.Sprintf("%q is the name of another branch", name), "give every branch its own name")
			case len(w.branches) == run.MaxBranches:
				return bad("branches", fmt.Sprintf("more than %d", run.MaxBranches), "nest them: a branch may be a fanout")
			}
			seen[name] = true
			w.branches = append(w.branches, flow.Branch{Name: name, Workflow: r})
		}
	}
	return nil
}

// Forward implements flow.Workflow.
func (w *fanOut) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	if strings.TrimSpace(w.in.Prompt) != "" {
		s = s.With(session.UserText(w.in.Prompt))
	}
	missing, err := flow.Do(ctx, "registry look-up", w.missing, tool.ReadOnly)
	if err != nil {
		return s, err
	}
	if len(missing) > 0 {
		return s, notOffered(FanOut, missing)
	}
	j, err := flow.FanOut(ctx, s, w.branches, &w.o)
	if err != nil {
		return s, err
	}
	need := max(w.o.Quorum, 1)
	if got := len(j.Succeeded()); got < need {
		return s, tooFew(j, need)
	}
	return flow.Merge(ctx, j, w.policy(j))
}

// missing returns the workflows of branches that no node offers: a branch of
// one would wait for ever.
func (w *fanOut) missing(ctx context.Context) ([]string, error) {
	var names []string
	for _, b := range w.in.Branches {
		if !slices.Contains(names, b.Workflow) {
			names = append(names, b.Workflow)
		}
	}
	all, err := w.offers(ctx, names...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(all, func(o messages.Workflow) bool { return o.Name == name })
	}), nil
}

// policy is how the outcomes are merged.
func (w *fanOut) policy(j *flow.Joined) flow.Policy {
	model := func(a AskInput) llm.Provider {
		if a.Model == "" {
			a.Model = w.task.Model
		}
		return llm.Provider{Model: a.Model}
	}
	judge := &flow.Agent{Name: "judge", Prompt: w.in.Judge.Prompt, Provider: model(w.in.Judge)}
	files := func(p flow.Policy) flow.Policy {
		switch w.in.Files {
		case "":
			return p
		case FilesJudge:
			return flow.WithFiles(p, flow.KeepBoth, judge)
		}
		return flow.WithFiles(p, w.in.Files, nil)
	}
	switch w.in.Merge {
	case MergePick:
		i := -1
		if w.in.Pick != "" {
			i = slices.IndexFunc(j.Outcomes, func(o flow.Outcome) bool { return o.Name == w.in.Pick })
		}
		return flow.Pick(i)
	case MergeBest:
		return flow.PickBest(judge.Judge)
	case MergeSummarise:
		return files(flow.Summarise(&flow.Compressor{Name: "summariser", Prompt: w.in.Summariser.Prompt, Provider: model(w.in.Summariser)}))
	}
	return files(flow.SinceAncestor())
}

// toldFailures is the maximum number of failed branches that an error names.
const toldFailures = 5

// tooFew returns the error of a fan-out without enough outcomes. errors.Is finds
// flow.ErrNoOutcome.
func tooFew(j *flow.Joined, need int) error {
	var why []string
	for _, o := range j.Outcomes {
		if o.State == run.Succeeded {
			continue
		}
		if len(why) == toldFailures {
			why = append(why, "and others")
			break
		}
		text := o.Name + " " + o.State.Past()
		if o.Err != nil {
			text += ": " + excerpt.Clip(o.Err.Error(), 200)
		}
		why = append(why, text)
	}
	return fmt.Errorf("fanout: %d of %d branches succeeded, %d are needed: %s: %w",
		len(j.Succeeded()), len(j.Outcomes), need, strings.Join(why, "; "), flow.ErrNoOutcome)
}
