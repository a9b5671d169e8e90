package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// DefaultMaxRounds is how many model calls an Agent makes unless told otherwise.
const DefaultMaxRounds = 64

// ErrMaxRounds is returned when an agent still calls tools after its last
// round. The session keeps what it did.
var ErrMaxRounds = errors.New("flow: agent did not finish within its rounds")

// Agent is a workflow that asks a model, runs the tools it calls and goes on
// until it answers without calling one. It is plain data: copy and vary it
// freely. It holds the names of models and memories, never connections.
type Agent struct {
	Name     string
	Prompt   string // instructs the model; not part of the session
	Provider llm.Provider
	Tools    []tool.Tool
	// Memory names the memory that is searched for what the user said last;
	// what is found follows the session in the prompt. "" is none.
	Memory string
	// Recall is how many notes are recalled at most; 0 is 4.
	Recall int
	// MaxRounds bounds the model calls; 0 is DefaultMaxRounds.
	MaxRounds int
	// Budget bounds this agent's part of the run.
	Budget run.Budget
	// Approve says which calls a person has to approve before they run; nil is
	// none. It must answer the same for the same call. Calls that are rejected
	// do not run, and the model is told why; so it is to what arguments a person
	// changed those of a call.
	Approve func(spec tool.Spec, args json.RawMessage) bool
	// ApproveWithin is how long a person has; zero is run.DefaultExpiry. A call
	// that nobody approved in time counts as rejected.
	ApproveWithin time.Duration
}

// Forward implements Workflow.
func (a *Agent) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	table, err := tool.NewTable(a.Tools...)
	if err != nil {
		return s, fmt.Errorf("flow: agent %s: %w", a.Name, err)
	}
	notes, err := a.recall(ctx, &s)
	if err != nil {
		return s, err
	}
	account := run.Account{Limit: a.Budget}
	more := false // the agent was done, and the user said something
	for range a.rounds() {
		if _, err := account.Reserve(0); err != nil {
			return s, fmt.Errorf("flow: agent %s: %w", a.Name, err)
		}
		var resp *llm.Response
		var done run.Done
		if s, resp, done, err = a.ask(ctx, s, table, notes, more); err != nil {
			return s, err
		}
		account = account.Settle(0, 1, done.Usage)
		switch {
		case len(resp.Calls) > 0:
			if s, err = a.round(ctx, done.Path, s, table); err != nil {
				return s, err
			}
		case resp.Finish != llm.FinishTools:
			if more = told(ctx, s, a.call(table, notes, true)); !more {
				return s, nil
			}
		}
	}
	return s, fmt.Errorf("%w: %s made %d; raise Agent.MaxRounds", ErrMaxRounds, a.Name, a.rounds())
}

func (a *Agent) rounds() int {
	if a.MaxRounds > 0 {
		return a.MaxRounds
	}
	return DefaultMaxRounds
}

// call is the agent's model call; more says that it had been done.
func (a *Agent) call(table *tool.Table, notes note, more bool) call {
	c := call{agent: a.Name, prompt: a.Prompt, provider: a.Provider, notes: notes, more: more}
	for _, spec := range table.Specs() {
		c.tools = append(c.tools, llm.ToolSpec{Name: spec.Name, Description: spec.Description, Schema: string(spec.Schema)})
	}
	return c
}

// ask makes one model call and adds its answer to s. Of the step's record it
// returns the path and the usage.
func (a *Agent) ask(ctx context.Context, s session.Session, table *tool.Table, notes note, more bool) (session.Session, *llm.Response, run.Done, error) {
	c := a.call(table, notes, more)
	st, err := begin(ctx, run.StepModel, a.Name, s, true, "", c.digest())
	if err != nil {
		return s, nil, run.Done{}, err
	}
	defer st.end()
	path := st.asked.Path
	done := run.Done{Path: path}
	if st.decision == run.Replay {
		done.Usage = st.record.Usage
		if err := rebuild(st.record); err != nil {
			return st.record.Session, nil, done, err
		}
		chunk, _ := st.record.Session.At(st.record.Session.Len() - 1)
		return st.record.Session, &llm.Response{Text: chunk.Text(), Calls: callsOf(chunk), Finish: llm.Finish(st.record.Value)}, done, nil
	}
	// What the user said meanwhile goes before the answer, in the same commit.
	words, heardTo := st.ex.messages(st)
	resp, prompt, err := c.complete(st, st.s.With(words...))
	for errors.Is(err, errInterrupted) {
		words, heardTo = st.ex.messages(st)
		resp, prompt, err = c.complete(st, st.s.With(words...))
	}
	err, ok := st.outcome(err)
	if !ok {
		return s, nil, done, err
	}
	content := make([]session.Event, len(words), len(words)+1)
	for i, w := range words {
		content[i] = session.ChunkEvent(w)
	}
	defer st.ex.take(heardTo, "")
	if err != nil {
		ack, commitErr := st.commit(run.Done{Code: codeOf(err), Error: clip(err.Error(), 4<<10), Inbox: heardTo, Prompt: prompt, Model: a.Provider.Model}, content...)
		if commitErr != nil {
			return s, nil, done, commitErr
		}
		return ack.Session, nil, done, err
	}
	calls := make([]session.ToolCall, len(resp.Calls))
	for i, call := range resp.Calls {
		if call.ID == "" {
			call.ID = fmt.Sprintf("call_%s_%d", path, i)
		}
		calls[i] = session.ToolCall{ID: call.ID, Name: call.Name, Args: call.Args}
	}
	chunk := session.AssistantText(resp.Text, calls...).WithOpaque(resp.Opaque).Of(st.ex.origin(a.Name, path, st.s.Placement(), resp.Usage))
	ack, err := st.commit(run.Done{
		Inbox: heardTo, Row: true, Prompt: prompt, Model: resp.Model, Value: string(resp.Finish), Summary: clip(firstLine(resp.Text), 100),
	}, append(content, session.ChunkEvent(chunk))...)
	if err != nil {
		return s, nil, done, err
	}
	done.Usage = chunk.Origin().Usage.Add(st.lost)
	chunk, _ = ack.Session.At(ack.Session.Len() - 1)
	resp.Calls = callsOf(chunk)
	return ack.Session, resp, done, nil
}

func callsOf(c session.Chunk) []llm.ToolCall {
	var calls []llm.ToolCall
	for _, call := range c.Calls() {
		calls = append(calls, llm.ToolCall{ID: call.ID, Name: call.Name, Args: call.Args})
	}
	return calls
}

// origin says who makes a chunk of this run.
func (ex *Execution) origin(agent string, path run.Path, p session.Placement, u llm.Usage) session.Origin {
	o := session.Origin{
		Agent: agent, Workflow: ex.reg.Name, Node: ex.rt.Node, Run: string(ex.id), Step: string(path), Placement: p,
		Usage: session.Usage{CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Input: u.Input, Output: u.Output, MicroUSD: u.MicroUSD},
	}
	if u != (llm.Usage{}) {
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

func rebuild(r *run.Step) error {
	if r.Code == "" {
		return nil
	}
	for _, c := range llm.Codes() {
		if string(c) == string(r.Code) {
			return llm.Rebuild(c, r.Error)
		}
	}
	return r.Code.Err(r.Error)
}

// call is a model call as the code asks for it.
type call struct {
	agent    string
	prompt   string
	provider llm.Provider
	tools    []llm.ToolSpec
	notes    note
	ask      string // a last user message that is not part of the session
	more     bool   // it answers what the user said after the agent was done
}

// digest identifies the logical arguments; the session is the step's own.
func (c call) digest() string {
	names := make([]string, len(c.tools))
	for i, t := range c.tools {
		names[i] = t.Name
	}
	parts := []any{c.prompt, c.provider.Model, names, c.notes.Digest.String(), c.ask}
	if c.more {
		parts = append(parts, "more")
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	return blob.Sum(data).Short()
}

// maxTries is how often a completion that broke off is asked for again within
// one attempt.
const maxTries = 3

// complete makes the model call and returns the answer with the digest of the
// rendered request.
func (c call) complete(st *step, s session.Session) (*llm.Response, blob.Digest, error) {
	ex := st.ex
	p := c.provider
	if p.Model == "" {
		p.Model = ex.settings().Model
	}
	if p.Model == "" {
		p.Model = ex.rt.Model
	}
	req := &llm.Request{Provider: p, Messages: render(c, s), Tools: c.tools}
	rendered, err := json.Marshal([]any{req.Messages, req.Tools, p})
	if err != nil {
		return nil, blob.Digest{}, fmt.Errorf("flow: render prompt: %w", err)
	}
	digest := blob.Sum(rendered)
	reserve := int64(p.MaxTokens)
	if reserve == 0 {
		reserve = defaultReply
	}
	reserve += llm.Estimate(len(rendered))
	st.bookKilled(reserve)
	free, err := ex.reserve(reserve)
	if err != nil {
		return nil, digest, err
	}
	defer func() { free() }()
	client, err := ex.rt.client(st.ctx, p)
	if err != nil {
		return nil, digest, err
	}
	settle := func(int) {}
	if ex.rt.Limiter != nil {
		if settle, err = ex.rt.Limiter.Acquire(st.ctx, p.BaseURL+"/"+p.Model, int(reserve)); err != nil {
			return nil, digest, err
		}
	}
	ctx, cancel := ex.callContext(st.ctx)
	defer cancel()
	if st.hears { // else nobody would take the message, however often the call is made
		var done func()
		ctx, done = ex.interruptible(ctx, st.heard)
		defer done()
	}
	spent := int64(0) // tokens, by answers that were cut off
	came := 0         // bytes of the answer under way
	sink := func(d llm.Delta) {
		came += len(d.Text) + len(d.Reasoning)
		if d.Call != nil {
			came += len(d.Call.Name) + len(d.Call.Args)
		}
		if ex.rt.OnDelta != nil {
			ex.rt.OnDelta(Delta{Session: st.s.Key(), Run: ex.id, Path: st.asked.Path, Attempt: ex.attempt, Agent: c.agent, Delta: d})
		}
	}
	req.Again = func(failed *llm.Error) error { // the client's own tries count as well
		cut := cutOff(ctx, failed, len(rendered), 0)
		st.book(cut)
		spent += cut.Tokens()
		free()
		var err error
		free, err = ex.reserve(reserve)
		return err
	}
	for try := 1; ; try++ {
		if ctx.Err() != nil { // nothing was sent
			settle(int(spent))
			return nil, digest, context.Cause(ctx)
		}
		came = 0
		req.StepKey = fmt.Sprintf("%s/%s/%d", ex.id, st.asked.Path, ex.attempt)
		// Also the one before a message that interrupted counts.
		if st.requests++; st.requests > 1 {
			req.StepKey += fmt.Sprintf(".%d", st.requests)
		}
		resp, err := client.Complete(ctx, req, sink)
		if err == nil {
			settle(int(spent + resp.Usage.Total()))
			return resp, digest, nil
		}
		cut := cutOff(ctx, err, len(rendered), came)
		st.book(cut)
		spent += cut.Tokens()
		if cause := context.Cause(ctx); errors.Is(cause, errInterrupted) {
			err = cause
		}
		broken := errors.Is(err, llm.CodeTruncated) || errors.Is(err, llm.CodeIdleTimeout) || errors.Is(err, llm.CodeMalformed)
		if try < maxTries && broken && ctx.Err() == nil {
			free()
			if free, err = ex.reserve(reserve); err == nil {
				continue
			}
		}
		settle(int(spent))
		return nil, digest, err
	}
}

// defaultReply is the reservation for an answer whose length nobody limited.
const defaultReply = 4096

// callContext ends with the caller's context and with the execution.
func (ex *Execution) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ex.ctx, func() { cancel(context.Cause(ex.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// render turns an agent's prompt and a session into messages. It is a pure
// function, so that branches of one session share all leading bytes.
func render(c call, s session.Session) []llm.Message {
	msgs := make([]llm.Message, 0, s.Len()+3)
	if c.prompt != "" {
		msgs = append(msgs, llm.Message{Role: llm.System, Text: c.prompt})
	}
	open := map[string]bool{}
	for i, chunk := range s.Chunks() {
		if c.notes.Text != "" && i == c.notes.After {
			msgs = append(msgs, llm.Message{Role: llm.System, Text: c.notes.Text})
		}
		switch chunk.Kind() {
		case session.System:
			msgs = append(msgs, llm.Message{Role: llm.System, Text: chunk.Text()})
		case session.Assistant:
			msgs = append(msgs, llm.Message{Role: llm.Assistant, Text: chunk.Text(), Calls: callsOf(chunk), Opaque: chunk.Opaque()})
			for _, call := range chunk.Calls() {
				open[call.ID] = true
			}
		case session.ToolResult:
			if open[chunk.CallID()] {
				delete(open, chunk.CallID())
				msgs = append(msgs, llm.Message{Role: llm.Tool, Text: ToolText(chunk), CallID: chunk.CallID(), Name: chunk.Name()})
				break
			}
			// No model asked for it: the workflow called the tool.
			msgs = append(msgs, llm.Message{Role: llm.User, Text: "Result of " + chunk.Name() + ": " + ToolText(chunk)})
		default:
			msgs = append(msgs, llm.Message{Role: llm.User, Text: chunk.Text()})
		}
	}
	if c.notes.Text != "" && c.notes.After >= s.Len() {
		msgs = append(msgs, llm.Message{Role: llm.System, Text: c.notes.Text})
	}
	if c.ask != "" {
		msgs = append(msgs, llm.Message{Role: llm.User, Text: c.ask})
	}
	return msgs
}
