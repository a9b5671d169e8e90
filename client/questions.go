package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Questions lists the questions of waiting runs and answers them. An answer is a
// messages.Control, as for [Runs].
type Questions struct{ c *Client }

// Question is an approval or a response that a run waits for.
type Question struct {
	Run       run.ID        `json:"run"`
	Workflow  string        `json:"workflow,omitempty"`
	Session   session.ID    `json:"session,omitempty"`
	Step      run.Path      `json:"step"`
	Kind      string        `json:"kind"` // run.WaitApproval or run.WaitResponse
	Name      string        `json:"name,omitempty"`
	Title     string        `json:"title,omitempty"`
	Wants     string        `json:"wants,omitempty"`        // the answer, in a few words
	Expires   int64         `json:"expires_ms,omitempty"`   // Unix milliseconds
	Submitted int64         `json:"submitted_ms,omitempty"` // the time of the run's submission
	BranchOf  run.ID        `json:"branch_of,omitempty"`    // the run that opened this one as a branch
	wait      messages.Wait // as the lineage has it
	sessions  []session.ID  // that the run wrote to
}

// String is the question in one line.
func (q Question) String() string { return fmt.Sprintf("step %s %s", q.Step, q.wait) }

// QuestionsOf returns the open questions of a run.
func QuestionsOf(r *messages.RunInfo) []Question {
	var qs []Question
	for _, w := range r.Waits {
		if w.Kind != run.WaitApproval && w.Kind != run.WaitResponse {
			continue
		}
		q := Question{
			Run: r.Run, Workflow: r.Workflow, Session: r.Session, Step: w.Step, Kind: w.Kind, Name: w.Name, Title: w.Title, Wants: w.Wants,
			Expires: w.Due, Submitted: r.Submitted, wait: w, sessions: r.Sessions,
		}
		if r.BranchOf != nil {
			q.BranchOf = r.BranchOf.Run
		}
		qs = append(qs, q)
	}
	return qs
}

// List returns the open questions of all runs, the oldest run first.
func (qs *Questions) List(ctx context.Context) ([]Question, error) {
	rs, err := qs.c.Runs.List(ctx, &RunsOptions{States: []run.State{run.Waiting}})
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	var all []Question
	for _, r := range slices.Backward(rs) {
		all = append(all, QuestionsOf(&r)...)
	}
	return all, nil
}

// askedFrom is the number of chunks at the end of a session in which Call searches: the
// questions about a model's calls directly follow the calls.
const askedFrom = 64

// Call returns the tool call that an approval is about, with its arguments as the model
// wrote them. It returns session.ErrNotFound for a question without a call, such as a
// workflow's own question. q must come from List.
func (qs *Questions) Call(ctx context.Context, q Question) (session.ToolCall, error) {
	path, ok := strings.CutSuffix(string(q.Step), ".approval")
	asking := run.Path(path).Parent()
	if q.Kind != run.WaitApproval || !ok || asking == "" {
		return session.ToolCall{}, fmt.Errorf("question %s of run %s is about no tool call: %w", q.Step, q.Run, session.ErrNotFound)
	}
	for _, id := range slices.Backward(q.sessions) { // the question is about the newest one
		page, err := query[messages.Session](ctx, qs.c, messages.QuerySession, wire.Query{Session: string(id), Limit: askedFrom})
		if err == nil && page.Next > 0 {
			page, err = query[messages.Session](ctx, qs.c, messages.QuerySession, wire.Query{Session: string(id), After: uint64(max(page.Total-askedFrom, 0)), Limit: askedFrom})
		}
		if err != nil {
			return session.ToolCall{}, fmt.Errorf("question %s of run %s: %w", q.Step, q.Run, err)
		}
		for _, row := range slices.Backward(page.Chunks) {
			for n, call := range row.Calls {
				if row.Run == string(q.Run) && row.Step == string(asking) && asking.Index(n) == run.Path(path) {
					return call, nil
				}
			}
		}
	}
	return session.ToolCall{}, fmt.Errorf("question %s of run %s: its call is not among the last %d rows: %w", q.Step, q.Run, askedFrom, session.ErrNotFound)
}

// Detail returns the text of a workflow's question besides its title, such as a diff to
// approve, "" if there is none, and the JSON Schema of the value that answers it, nil
// for any value. q must come from List.
func (qs *Questions) Detail(ctx context.Context, q Question) (text string, schema json.RawMessage, err error) {
	r, err := qs.c.Runs.Get(ctx, q.Run)
	if err != nil {
		return "", nil, fmt.Errorf("question %s of run %s: %w", q.Step, q.Run, err)
	}
	return r.Details[q.Step], r.Schemas[q.Step], nil
}

// Approve approves the question at d.Step; without a step the run must have exactly one
// open question. d.Value, as JSON, replaces the subject of the question, such as the
// arguments of a tool call. The run continues once the answer is recorded. run.ErrState
// means that the question is not open: it was decided, has expired, or was never asked.
func (qs *Questions) Approve(ctx context.Context, id run.ID, d messages.Control) error {
	return qs.decide(ctx, id, messages.VerbApprove, d)
}

// Reject rejects a question. The agent and the evidence get d.Reason. Otherwise it is
// like Approve.
func (qs *Questions) Reject(ctx context.Context, id run.ID, d messages.Control) error {
	return qs.decide(ctx, id, messages.VerbReject, d)
}

// Answer answers a question with d.Value. If the question's schema rejects the value,
// it returns run.ErrMalformed, and the run keeps waiting. Otherwise it is like Approve.
func (qs *Questions) Answer(ctx context.Context, id run.ID, d messages.Control) error {
	return qs.decide(ctx, id, messages.VerbRespond, d)
}

func (qs *Questions) decide(ctx context.Context, id run.ID, verb string, d messages.Control) error {
	if d.Step == "" {
		q, err := qs.question(ctx, id, verb)
		if err != nil {
			return fmt.Errorf("%s run %s: %w", verb, id, err)
		}
		d.Step = q.Step
	}
	if len(d.Value) > 0 && !json.Valid(d.Value) {
		return fmt.Errorf("%s run %s: the value is not JSON: %w; a text is written with quotes", verb, id, run.ErrMalformed)
	}
	return qs.c.control(ctx, id, verb, d)
}

// question returns the only question that a verb can answer.
func (qs *Questions) question(ctx context.Context, id run.ID, verb string) (Question, error) {
	r, err := qs.c.Runs.Get(ctx, id)
	if err != nil {
		return Question{}, err
	}
	kind := run.WaitApproval
	if verb == messages.VerbRespond {
		kind = run.WaitResponse
	}
	var fit, other []Question
	for _, q := range QuestionsOf(&r) {
		if q.Kind == kind {
			fit = append(fit, q)
		} else {
			other = append(other, q)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return Question{}, fmt.Errorf("the run asks %d questions, name the step of one: %s: %w", len(fit), list(fit), run.ErrMalformed)
	case len(other) > 0:
		return Question{}, fmt.Errorf("the run waits at %s, which %s does not answer: %w", list(other), verb, run.ErrState)
	case r.State.Terminal():
		return Question{}, fmt.Errorf("the run has no open question, it has ended (%s): %w", r.State, run.ErrState)
	}
	return Question{}, fmt.Errorf("the run has no open question, it is %s: %w", r.State, run.ErrState)
}

func list(qs []Question) string {
	var all []string
	for _, q := range qs {
		all = append(all, q.String())
	}
	return strings.Join(all, "; ")
}
