package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

// round runs the tool calls of the newest assistant chunk of s. Each outcome is
// committed when its call ends; the rows follow in call order.
func (a *agent) round(ctx context.Context, t *turn, s session.Session, by *transcript.Call) (session.Session, error) {
	at := t.path
	made := journal.StepRequest{Path: at, Kind: "tools of agent", Name: a.Name}
	sc, _, err := enter(&a.p.spot, made)
	if err != nil {
		return s, err
	}
	defer sc.release()
	asked, _ := s.At(s.Len() - 1)
	cut := t.again == journal.AgainCalls
	if !cut {
		s, err = sc.ex.boxes.placed(ctx, at, s)
	}
	if err != nil && (run.IsControl(err) || sc.ex.around.asksForSandbox()) {
		return s, sc.ex.failed(err)
	}
	// Any other error of opening becomes the result of the tools that need the sandbox.
	r := &round{sc: sc, ex: sc.ex, ctx: ctx, made: made, agent: a.Name, at: at, table: by.Table, base: s, s: s, sandboxErr: err, cut: cut, gate: gate{a.Approve, a.ApproveTimeout}, before: a.Hooks.BeforeTool, after: a.Hooks.AfterTool}
	for _, call := range asked.Calls() {
		r.calls = append(r.calls, &toolCall{ToolCall: call, path: at.Index(len(r.calls))})
	}
	s, err = r.run()
	if by.Account != nil {
		*by.Account = by.Account.Settle(0, 0, r.used)
	}
	return s, err
}

// maxParallel bounds the concurrent tool calls of one round.
const maxParallel = 64

type toolCall struct {
	session.ToolCall
	path run.Path
	spec tool.Spec
	args json.RawMessage // as passed to the tool
	// edited are arguments that a hook or an approver substituted; "" means the model's
	// own.
	edited   string
	answered bool          // the approver edited them
	refused  *tool.Outcome // the call cannot run
	// work returns the workflow that does the call's work, in a run of its own; nil for a
	// function.
	work  func(args json.RawMessage) flow.Workflow
	out   *outcome      // nil until the call ended
	st    *step         // the newest try
	tries *tries        // since the last answer
	tried chan struct{} // closed when the newest try has its outcome
	// asks is the unanswered question of the newest try; nil is none.
	asks    *journal.Asked
	asking  sync.Mutex                      // guards answers, while a try is in flight
	answers []answered                      // to the previous tries
	box     atomic.Pointer[sandbox.Sandbox] // the last one that the tool opened
}

// outcome is the result of a call, ready to become a row.
type outcome struct {
	asks   *journal.Asked // the call ended with a question, and leaves no row
	body   json.RawMessage
	images []session.Image
	failed bool
	head   blob.Digest // of the workspace; zero if the call cannot change it
	back   lease.PutBack
	ends   lease.ServiceEnds
	nested error // the tool tried to make a step: the workflow is wrong, not the model
}

// round is the calls of one assistant chunk in flight. mu guards their shared state: the
// committed session, and the rows that wait for their turn.
type round struct {
	sc         *scope
	ex         *Execution
	ctx        context.Context
	made       journal.StepRequest // names the round
	agent      string
	at         run.Path
	table      *tool.Table
	base       session.Session // the session that every call of the round gets
	sandboxErr error
	cut        bool // the answer is cut off: none of its calls is made
	gate       gate
	tree       *manifest.Tree // of base; nil until a rule needs it
	// The hooks of the agent; nil are none.
	before func(ctx context.Context, spec tool.Spec, args json.RawMessage) (json.RawMessage, error)
	after  func(ctx context.Context, spec tool.Spec, args json.RawMessage, r tool.Result) (tool.Result, error)
	calls  []*toolCall

	mu   sync.Mutex
	s    session.Session
	rows int           // rows in s that belong to the round
	used session.Usage // by the runs that did the work of calls
}

func (r *round) run() (session.Session, error) {
	leave := r.sc.inside(&r.made)
	works, err := r.functions()
	leave()
	if err == nil && len(works) > 0 {
		err = delegation{r, works}.run()
	}
	return r.s, r.ex.failed(err)
}

// functions makes the calls of tools that are functions, and returns the calls that a
// workflow works on.
func (r *round) functions() (works []*toolCall, err error) {
	if err := r.replay(); err != nil {
		return nil, err
	}
	if err := (hooking{r}).beforeAll(); err != nil {
		return nil, err
	}
	if err := r.approvals(); err != nil {
		return nil, err
	}
	if err := (hooking{r}).edited(); err != nil {
		return nil, err
	}
	var calls []*toolCall
	for _, c := range r.calls {
		if c.work != nil && c.refused == nil {
			works = append(works, c)
			continue
		}
		if c.work != nil {
			if err := r.replayCall(c); err != nil {
				return nil, err
			}
		}
		c.st.fly(live.Queues, cmp.Or(c.edited, c.Args))
		defer func() { c.st.flight.End() }()
		calls = append(calls, c)
	}
	for i := 0; i < len(calls); {
		// Calls that change the workspace run alone; the calls between two of them run
		// concurrently, lane by lane.
		j := i
		for j < len(calls) && !calls[j].mutates() {
			j++
		}
		if err := r.group(calls[i:j]); err != nil {
			return nil, err
		}
		if j < len(calls) {
			if err := r.group(calls[j : j+1]); err != nil {
				return nil, err
			}
			j++
		}
		i = j
	}
	for _, c := range calls { // all of them are recorded now, as at replay
		if c.out.nested != nil {
			return nil, c.out.nested
		}
	}
	return works, nil
}

func (c *toolCall) mutates() bool { return c.refused == nil && c.spec.Effect == tool.Sandboxed }

// bind finds the tool of a call and checks its arguments; ok is false for a call that
// cannot run.
func (r *round) bind(c *toolCall, args string) (ok bool) {
	if r.cut {
		out := tool.ErrorOutcome(&tool.Failure{Kind: tool.AnswerCut, Detail: c.Name, Message: transcript.CutCalls})
		c.refused = &out
		return false
	}
	var err error
	if c.spec, c.args, err = r.table.Bind(c.Name, args); err != nil {
		out := tool.ErrorOutcome(err)
		c.refused = &out
	}
	return err == nil
}

// replay binds the calls and takes over the recorded ones.
func (r *round) replay() error {
	for _, c := range r.calls {
		effect := tool.ReadOnly
		if r.bind(c, c.Args) {
			effect = lease.EffectIn(c.spec, r.base.Placement())
			if t, ok := r.table.Lookup(c.Name); ok {
				if w, ok := t.(interface {
					Work(args json.RawMessage) flow.Workflow
				}); ok {
					c.work = w.Work
				}
			}
		}
		c.st = r.callStep(c, c.path, journal.StepTool)
		c.st.asked.Effect, c.st.s, c.st.log = effect.String(), r.base, r.base.Key()
		c.plan(effect)
		if c.work != nil {
			continue // the work is recorded before the call
		}
		if err := r.replayCall(c); err != nil {
			return err
		}
	}
	return nil
}

// replayCall takes over the record of a call.
func (r *round) replayCall(c *toolCall) error {
	var rec *journal.Step
	for {
		if err := c.st.decide(); err != nil {
			return err
		}
		if err := c.tries.load(c.st); err != nil || c.st.decision != journal.Replay {
			return err
		}
		rec = c.st.record
		if rows := rec.Session.Len() - r.base.Len(); rows >= r.rows {
			r.s, r.rows = rec.Session, rows
		}
		if c.asks = rec.Asks; c.asks == nil {
			break
		}
		if taken, err := r.replayAnswer(c); err != nil || !taken {
			return err
		}
	}
	c.out = &outcome{body: json.RawMessage(rec.Value), images: rec.Images, failed: rec.Failed, head: rec.HeadAfter}
	if rec.Code == run.CodeNestedStep {
		c.out.nested = rec.Code.Err(rec.Error)
	}
	return nil
}

// group runs calls concurrently, and repeats those that asked a question. Calls with
// answers run one at a time: some servers do not identify the call that asks.
func (r *round) group(calls []*toolCall) error {
	for again := true; again; {
		var err error
		if err = r.parallel(calls); err != nil {
			return err
		}
		for _, c := range calls {
			if err = r.do(c); err != nil {
				return err
			}
		}
		if again, err = r.answers(calls); err != nil {
			return err
		}
		paused, err := r.pauses(calls)
		if err != nil {
			return err
		}
		again = again || paused
	}
	return nil
}

// parallel runs calls concurrently, those of one lane in call order.
func (r *round) parallel(calls []*toolCall) error {
	var lanes [][]*toolCall
	byName := map[string]int{}
	for _, c := range calls {
		if c.recorded() || len(c.answers) > 0 {
			continue
		}
		lane := c.spec.LaneOf(c.args)
		if i, ok := byName[lane]; ok && lane != "" {
			lanes[i] = append(lanes[i], c)
			continue
		}
		byName[lane] = len(lanes)
		lanes = append(lanes, []*toolCall{c})
	}
	if len(lanes) == 1 {
		for _, c := range lanes[0] {
			if err := r.do(c); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	errs := make([]error, len(lanes))
	for i, lane := range lanes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, c := range lane {
				if errs[i] = r.do(c); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// recorded reports whether the newest try of a call is recorded.
func (c *toolCall) recorded() bool { return c.out != nil || c.asks != nil }

// once makes one try of a call, and commits its outcome.
func (r *round) once(c *toolCall) error {
	c.renew()
	c.tries.start(c.st)
	c.tried = make(chan struct{})
	defer close(c.tried)
	d := journal.StepCompleted{Call: r.callID(c), Effect: c.st.asked.Effect}
	r.mu.Lock()
	place := r.s.Placement()
	r.mu.Unlock()
	out, err := r.try(c, place, &d)
	if err != nil {
		return err
	}
	if sandbox.Network(place.Network).Listed() {
		d.Requests, d.Unlisted = r.ex.boxes.lease(r.base.Key()).Requests()
	}
	if place.Services != "" {
		d.Services = r.ex.boxes.lease(r.base.Key()).ServiceLogs()
	}
	if err, ok := c.st.outcome(out.Err); !ok {
		return r.cutOff(c, out, err, d)
	}
	var o outcome
	if box := c.box.Load(); box != nil && d.Retry > 0 && c.mutates() {
		r.ex.boxes.lease(r.base.Key()).GiveUp(*box) // the next try has the files from before this one
	}
	if c.mutates() {
		out = r.keepFiles(place.Head, out, &o, &d)
	}
	if box := c.box.Load(); box != nil && errors.Is(out.Err, sandbox.ErrLost) {
		r.ex.boxes.lease(r.base.Key()).GiveUp(*box)
	}
	d.Failed = out.IsError
	if d.Asks != nil && out.Err != nil { // the files of the call are lost, and so is the question
		d.Asks = nil
	}
	o.asks, o.images, o.failed = d.Asks, out.Images, out.IsError
	if place.Services != "" {
		o.ends = r.ex.boxes.lease(r.base.Key()).ServiceEnds()
	}
	o.body = o.ends.Amend(o.back.Amend(out.Body))
	switch {
	case errors.Is(out.Err, run.ErrNestedStep):
		o.nested, d.Code, d.Error = out.Err, run.CodeNestedStep, excerpt.Clip(errText(out.Err), 1<<10)
	case out.IsError && out.Kind != "":
		d.Code, d.Error = run.Code(out.Kind), excerpt.Clip(errText(out.Err), 300)
	}
	if d.Asks != nil {
		d.Summary = excerpt.Clip("asks: "+d.Asks.Message, 200)
	}
	if d.Summary == "" {
		d.Summary = live.CallSummary(c.Name, cmp.Or(c.edited, c.Args), out) + live.RequestSummary(d.Requests, d.Unlisted) + live.ServiceSummary(d.Services)
	}
	return r.commit(c, o, d)
}

// try returns the outcome of a call: the result of the tool, the operator's resolution of
// a call that was cut off, or the reason why the call cannot run.
func (r *round) try(c *toolCall, place session.Placement, d *journal.StepCompleted) (tool.Outcome, error) {
	if c.refused != nil {
		return *c.refused, nil
	}
	if v, resolved := c.st.resolution(); resolved {
		d.Summary = "resolved: " + v.Reason
		return tool.Outcome{Body: resolvedBody(v)}, nil
	}
	if c.st.asked.Effect == tool.NonIdempotent.String() {
		if err := c.st.intend(d.Call); err != nil {
			return tool.Outcome{}, err
		}
	}
	out := r.call(c, place)
	if q, ok := errors.AsType[*asking](out.Err); ok {
		d.Asks = &q.Asked
		return tool.Outcome{}, nil
	}
	if out.Err = c.st.authored(out.Err); out.Err != nil {
		c.tries.fails(c.st, out.Err, d)
	}
	if d.Retry > 0 {
		return out, nil
	}
	return hooking{r}.reviewed(r.ctx, c, out), nil
}

// cutOff records a call during which the run stopped, and returns the reason for the
// stop.
func (r *round) cutOff(c *toolCall, out tool.Outcome, why error, d journal.StepCompleted) error {
	if d.Effect == tool.NonIdempotent.String() {
		d.Value, d.Failed, d.Code, d.Error = string(out.Body), true, run.Code(out.Kind), excerpt.Clip(errText(out.Err), 300)
		if c.st.lastWord(why, d) {
			return why
		}
	}
	if len(d.Requests)+d.Unlisted > 0 {
		c.st.evidence(d)
	}
	return why
}

// keepFiles stores the files after a call that began at head. If that fails, the files
// stay those of head, and the returned outcome is the failure.
func (r *round) keepFiles(head blob.Digest, out tool.Outcome, o *outcome, d *journal.StepCompleted) tool.Outcome {
	after, back, err := r.ex.boxes.lease(r.base.Key()).Snapshot(context.WithoutCancel(r.ctx), r.ex.boxes.owner(), head)
	if err != nil {
		out, after = tool.ErrorOutcome(filesFailure(err)), head
	}
	o.head, o.back = after, back
	d.HeadBefore, d.HeadAfter = head, after
	return out
}

// filesFailure is the error for a model whose call's files could not be kept: the files
// before the call were restored. It has the reason and a remedy.
func filesFailure(err error) *tool.Failure {
	const back = "; all files are back to what they were before this call"
	refused, isRefused := errors.AsType[*workspace.RefusedError](err)
	limit, isLimit := errors.AsType[*workspace.LimitError](err)
	switch {
	case isRefused:
		return &tool.Failure{
			Kind: tool.FilesRefused, Err: err, Detail: refused.Path,
			Message: fmt.Sprintf("the call left %q, which %s and cannot be kept%s: do it again without that", refused.Path, refused.Reason, back),
		}
	case isLimit:
		return &tool.Failure{
			Kind: tool.FilesRefused, Err: err, Detail: limit.Path,
			Message: fmt.Sprintf("the call left more than %d %s (at %q)%s: leave less", limit.Limit, limit.What, limit.Path, back),
		}
	}
	return &tool.Failure{Kind: tool.SandboxLost, Err: err, Message: "the files could not be kept" + back + ": " + err.Error()}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// call runs the tool itself.
func (r *round) call(c *toolCall, place session.Placement) tool.Outcome {
	ctx, cancel := r.ex.models.callContext(c.st.context(r.ctx))
	defer cancel(nil)
	if on := r.ex.rt.OnTool; on != nil {
		if err := on(ctx); err != nil {
			return tool.ErrorOutcome(err)
		}
	}
	open := func(ctx context.Context) (sandbox.Sandbox, error) {
		if r.sandboxErr != nil {
			return nil, r.sandboxErr
		}
		if err := r.ex.stopped(); err != nil { // the leases may have ended
			return nil, err
		}
		c.st.flight.SetDoing(live.Opens, time.Time{})
		defer c.st.flight.SetDoing(live.Works, time.Time{})
		box, err := r.ex.boxes.lease(r.base.Key()).At(ctx, r.ex.boxes.owner(), r.base.Key(), place, c.spec.Effect != tool.ReadOnly)
		if err == nil {
			c.box.Store(&box)
		}
		if errors.Is(err, lease.ErrNoSandbox) { // the model cannot fix it
			r.ex.boxes.lack.Do(func() { r.ex.log.warn(ctx, fmt.Sprintf("%s of agent %q cannot work: %v", c.Name, r.agent, err)) })
		}
		return box, r.ex.failed(err)
	}
	call := tool.Call{
		Args: c.args, ID: r.callID(c), Attempt: r.ex.attempt, Session: r.base, Blobs: r.ex.boxes.blobs(), Sandbox: open, Ask: c.ask, Progress: c.st.progress, Late: r.late(c),
		HTTP: func(ctx context.Context) (http.RoundTripper, error) {
			if r.sandboxErr == nil && !sandbox.Network(place.Network).Listed() {
				return nil, nil
			}
			box, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return r.ex.boxes.lease(r.base.Key()).Way(box)
		},
	}
	var out tool.Outcome
	if late := c.st.bounded(ctx, c.tries.policy.Timeout, func(ctx context.Context) error {
		out = r.table.Run(ctx, c.Name, call)
		return out.Err
	}); late != nil {
		return tool.ErrorOutcome(late)
	}
	return out
}

// callID returns an idempotency key for a tool, the same on every attempt and in every
// try. A call that is repeated with an answer has another key.
func (r *round) callID(c *toolCall) string { return string(r.ex.id) + "/" + string(c.tries.work.Path) }

// row returns the chunk of a call that ended, at a workspace head.
func (r *round) row(c *toolCall, head blob.Digest) session.Chunk {
	p := r.base.Placement()
	if p.Backend != "" {
		p.Head = head
	}
	o := session.Origin{Agent: r.agent, Workflow: r.ex.reg.Name, Node: r.ex.rt.Node, Run: string(r.ex.id), Step: string(c.path), Placement: p}
	row := session.Result(c.ID, c.Name, string(c.out.body), c.out.failed).WithImages(c.out.images...).Of(o)
	if c.edited != "" && transcript.Compact(c.edited) != transcript.Compact(cmp.Or(c.Args, "{}")) {
		row = row.WithArgs(c.edited)
	}
	return row
}

// commit records a call's outcome. If all rows before its row are committed, the row is
// committed too, with the rows that waited for it; otherwise the record holds the body
// until then. In either case its files become the session's files.
func (r *round) commit(c *toolCall, out outcome, d journal.StepCompleted) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.asks = out.asks; c.asks == nil && d.Retry == 0 {
		c.out = &out
	}
	var content []session.Event
	n, place := r.rows, r.s.Placement()
	head := place.Head
	if !out.head.IsZero() {
		head = out.head
	}
	for ; n < len(r.calls) && r.calls[n].out != nil; n++ {
		content = append(content, session.ChunkEvent(r.row(r.calls[n], head)))
	}
	if n == r.rows && head != place.Head {
		place.Head = head
		content = append(content, session.PlacedEvent(place))
	}
	for _, text := range []string{out.back.Warning(), out.ends.Warning()} {
		if text == "" {
			continue
		}
		e, err := journal.NewEvent(journal.KindWarning, journal.Warning{Run: r.ex.id, Text: text})
		if err != nil {
			return err
		}
		content = append(content, e)
	}
	d.Row = n > r.rows && r.calls[r.rows] == c
	if !d.Row && d.Retry == 0 {
		d.Value, d.Images = string(out.body), slices.Clone(out.images) // of a tool, which may reuse it
	}
	c.st.s, c.st.content = r.s, content
	if err := c.st.finish(d, nil); !c.st.recorded {
		return err
	}
	r.s, r.rows = c.st.after, n
	return nil
}
