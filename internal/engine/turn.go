package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// agent is a running agent.
type agent struct {
	*flow.Agent
	p *place
}

// Agent is the Forward of a flow.Agent.
func (p *place) Agent(ctx context.Context, a *flow.Agent, s session.Session) (session.Session, error) {
	return (&agent{a, p}).forward(ctx, s)
}

func (a *agent) forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, found, err := a.equip(ctx, s)
	if err != nil {
		return s, err
	}
	c, err := a.call(ctx, s, found)
	if err != nil {
		return s, err
	}
	for n := range a.rounds() {
		c.Answer.Last = n == a.rounds()-1
		if err := c.Reserve(); err != nil {
			return s, err
		}
		if s, _, err = a.fit(ctx, s, c, nil); err != nil {
			return s, err
		}
		if err := a.mayGoOn(ctx, "before model", s, a.Hooks.BeforeModel); err != nil {
			return s, err
		}
		turn, err := a.ask(ctx, s, c)
		if s = turn.s; errors.Is(err, llm.CodeContextLength) {
			var fits bool
			s, fits, err = a.fit(ctx, s, c, err)
			if fits {
				continue
			}
		}
		if err != nil {
			return s, err
		}
		c.Settle(turn.used, turn.unpriced)
		if turn.again != "" && turn.again != journal.AgainCalls {
			continue
		}
		if c.Choice != llm.ToolsNone {
			c.Choice = "" // otherwise the agent would call tools forever
		}
		if err := a.mayGoOn(ctx, "after model", s, a.Hooks.AfterModel); err != nil {
			return s, err
		}
		switch {
		case len(turn.resp.Calls) > 0:
			if s, err = a.round(ctx, turn, s, c); err != nil {
				return s, err
			}
			if a.MaxRounds == 0 && transcript.Repeats(s) {
				return s, fmt.Errorf("%w: %s made the same calls with the same results %d times in a row", flow.ErrMaxRounds, a.Name, transcript.MaxRepeats)
			}
		default:
			if s, err = a.end(ctx, s); err != nil {
				return s, err
			}
			if c.More = true; s.PendingDigest() == "" && !a.hasNewMessages(s, c) {
				return s, nil
			}
		}
	}
	return s, fmt.Errorf("%w: %s made %d; raise Agent.MaxRounds", flow.ErrMaxRounds, a.Name, a.rounds())
}

// DefaultMaxRounds is the maximum number of model calls of an agent whose MaxRounds is 0.
const DefaultMaxRounds = 64

func (a *agent) rounds() int {
	if a.MaxRounds > 0 {
		return a.MaxRounds
	}
	return DefaultMaxRounds
}

// call prepares the agent's model calls. An agent spends most of its time waiting for
// them, so their data is stored in the call, not on the stack, which would have to be
// twice as large.
func (a *agent) call(ctx context.Context, s session.Session, found []tool.Tool) (*transcript.Call, error) {
	c := &transcript.Call{Agent: a.Name, Prompt: a.Prompt, Provider: &a.Provider, Choice: a.ToolChoice, Partial: a.Hooks.Partial}
	if a.Budget != (run.Budget{}) {
		c.Account = &journal.Account{Limit: a.Budget}
	}
	var err error
	if c.Table, err = tool.NewTable(slices.Concat(a.Tools, found)...); err != nil {
		return nil, fmt.Errorf("flow: agent %s: %w", a.Name, err)
	}
	specs := c.Table.Specs()
	c.Tools = slices.Grow(c.Tools, len(specs))
	for _, spec := range specs {
		c.Tools = append(c.Tools, llm.ToolSpec{Name: spec.Name, Description: spec.Description, Schema: string(spec.Schema)})
	}
	c.Notes, err = a.recall(ctx, &s)
	return c, err
}

// turn is a completed model call.
type turn struct {
	s     session.Session // with the answer
	resp  *llm.Response
	again string   // why the model is asked again; see journal.StepCompleted
	path  run.Path // of the step
	used  session.Usage
	// unpriced is the model, if the cost of the call is unknown.
	unpriced string
}

// ask makes one model call and adds its answer to s. The turn holds the session even if
// there is an error.
func (a *agent) ask(ctx context.Context, s session.Session, c *transcript.Call) (*turn, error) {
	st, err := a.p.begin(ctx, journal.StepModel, a.Name, s, true, "", c.Digest())
	if err != nil {
		return &turn{s: s}, err
	}
	defer st.end()
	if st.ex.task.OnFailure == run.Hold {
		st.tries = &tries{work: st.asked}
		if err := st.tries.load(st); err != nil {
			return &turn{s: s}, st.fail(err)
		}
	}
	if st.decision == journal.Replay {
		return st.recordedTurn(c)
	}
	if _, ok := st.resolution(); ok {
		return &turn{s: s}, st.fail(st.review(run.CodeReview, "the call of a model at step %s takes no value; let it try again or fail", st.asked.Path))
	}
	for {
		// Messages that came before the answer are committed with it, ahead of it.
		words, upTo := st.ex.signals.newMessages(st)
		resp, prompt, err := st.ex.models.complete(st, c, st.s.With(words...))
		if !errors.Is(err, errInterrupted) {
			return a.commitAnswer(st, c, s, words, upTo, resp, prompt, err)
		}
	}
}

// recordedTurn returns the turn in the journal.
func (st *step) recordedTurn(c *transcript.Call) (*turn, error) {
	t := &turn{s: st.record.Session, path: st.asked.Path, used: st.record.Usage, unpriced: st.record.Unpriced(), again: st.record.Again}
	st.ex.models.noteFinish(&st.record.StepCompleted)
	if err := rebuild(st.record); err != nil {
		return t, err
	}
	t.resp = &llm.Response{Finish: llm.Finish(st.record.Finish)}
	if t.again == "" || t.again == journal.AgainCalls {
		chunk, _ := t.s.At(t.s.Len() - 1)
		t.resp.Text, t.resp.Calls = chunk.Text(), transcript.CallsOf(chunk)
	}
	return t, c.Resume(&st.record.StepCompleted)
}

// commitAnswer commits the outcome of a model call, after the messages that it answers.
func (a *agent) commitAnswer(st *step, c *transcript.Call, s session.Session, words []session.Chunk, upTo uint64, resp *llm.Response, prompt blob.Digest, err error) (*turn, error) {
	t := &turn{s: s, resp: resp, path: st.asked.Path}
	content := make([]session.Event, len(words), len(words)+1)
	for i, w := range words {
		content[i] = session.ChunkEvent(w)
	}
	st.content = content
	d := journal.StepCompleted{Inbox: upTo, Prompt: prompt, Model: a.Provider.Model}
	if err != nil {
		d.Code = codeOf(err)
		return t, t.finish(st, d, came(err))
	}
	v := c.Judge(resp)
	t.again = v.Again
	// An answer that stays cut is kept: the session can continue from it.
	if v.Err == nil && (v.Again == "" || v.Again == journal.AgainCalls) || errors.Is(v.Err, run.ErrTruncated) && len(resp.Calls) == 0 && strings.TrimSpace(v.Text) != "" {
		st.ex.models.answered(st, &d, a.Name, resp)
		sumUp(v, &d, resp)
		st.content = append(content, a.row(st, &d, resp, v))
	} else if err := st.ex.models.judged(st, &d, a.Name, resp, v); err != nil {
		return t, err
	}
	if err := t.finish(st, d, nil); err != nil {
		return t, err
	}
	if d.Row {
		chunk, _ := t.s.At(t.s.Len() - 1)
		resp.Calls = transcript.CallsOf(chunk)
	}
	return t, c.Resume(&d)
}

// row returns the chunk of an answer, which its record then omits.
func (a *agent) row(st *step, d *journal.StepCompleted, resp *llm.Response, v transcript.Judgement) session.Event {
	calls := slices.Clone(resp.Calls)
	for i := range calls {
		if calls[i].ID == "" {
			calls[i].ID = fmt.Sprintf("call_%s_%d", st.asked.Path, i)
		}
	}
	if v.Text != resp.Text {
		resp.Opaque = "" // it covers only the last piece
	}
	d.Row = true
	if d.Summary == "" {
		d.Summary = excerpt.Clip(excerpt.FirstLine(v.Text), 100)
	}
	chunk := session.AssistantText(v.Text, calls...).WithOpaque(resp.Opaque)
	return session.ChunkEvent(chunk.Of(st.ex.models.origin(a.Name, st.asked.Path, st.s.Placement(), resp.Usage)))
}

// finish commits the turn's record, and returns the reason why the agent fails.
func (t *turn) finish(st *step, d journal.StepCompleted, err error) error {
	if err = st.finish(d, err); !st.recorded {
		return err
	}
	st.ex.models.noteFinish(&d)
	t.s, t.used = st.after, d.Usage.Add(st.lost)
	d.Usage, d.Cost, d.Named = t.used, st.cost, st.named
	t.unpriced = d.Unpriced()
	return err
}

// noteFinish records the end of the last answer of a model to an agent, for the end of
// the run.
func (m *modelUse) noteFinish(d *journal.StepCompleted) {
	m.ex.mu.Lock()
	defer m.ex.mu.Unlock()
	m.ex.answerEnd, m.ex.answerWord = d.Finish, d.Word
}

// origin returns the origin of a chunk of this run.
func (m *modelUse) origin(agent string, path run.Path, p session.Placement, u session.Usage) session.Origin {
	o := session.Origin{
		Agent: agent, Workflow: m.ex.reg.Name, Node: m.ex.rt.Node, Run: string(m.ex.id), Step: string(path), Placement: p,
		Usage: u,
	}
	if u != (session.Usage{}) {
		o.Usage.Calls = 1
	}
	return o
}

// codeOf and rebuild carry a model's error through the journal.
func codeOf(err error) run.Code {
	if c := llm.CodeOf(err); c != "" {
		return run.Code(c)
	}
	return run.CodeOf(err)
}

func rebuild(r *journal.Step) error {
	if r.Code == "" {
		return nil
	}
	if r.Finish != "" { // the model answered
		return r.Code.Err(r.Error)
	}
	for _, c := range llm.Codes() {
		if string(c) == string(r.Code) {
			return llm.Rebuild(c, r.Error)
		}
	}
	return r.Code.Err(r.Error)
}

// answered sets the fields of a step's record for the end of a model's answer, and its
// usage.
func (m *modelUse) answered(st *step, d *journal.StepCompleted, agent string, resp *llm.Response) {
	d.Model, d.Finish, d.Word = resp.Model, string(resp.Finish), resp.Word
	d.Usage = m.origin(agent, st.asked.Path, session.Placement{}, resp.Usage).Usage
}

// judged completes the record of an answer without a row: its end, and the reason why the
// model is asked again or the caller fails.
func (m *modelUse) judged(st *step, d *journal.StepCompleted, agent string, resp *llm.Response, v transcript.Judgement) (err error) {
	m.answered(st, d, agent, resp)
	sumUp(v, d, resp)
	p := journal.Partial{Calls: resp.Calls, Text: v.Text}
	if v.Text == resp.Text {
		p.Opaque = resp.Opaque
	}
	d.Value, err = canonical.Marshal(p)
	return err
}

// sumUp sets the reason why the model is asked again, or why the caller fails.
func sumUp(v transcript.Judgement, d *journal.StepCompleted, resp *llm.Response) {
	d.Again = v.Again
	if v.Err != nil {
		d.Code, d.Error = run.CodeOf(v.Err), excerpt.Clip(v.Err.Error(), maxError)
	} else if v.Again != "" {
		d.Summary = transcript.Because(v.Again, resp)
	}
}
