package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// frame is an event of a stream or a whole answer, as tolerant as Go's types allow: a
// member that may differ between servers is raw or a word.
type frame struct {
	Object  exchange.Word   `json:"object"`
	Type    exchange.Word   `json:"type"`
	Model   exchange.Word   `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
	// In place of choices, some servers report a failure in one of these.
	Detail  json.RawMessage `json:"detail"`
	Errors  json.RawMessage `json:"errors"`
	Message exchange.Word   `json:"message"`
	Base    struct {
		Status exchange.Count `json:"status_code"` // 0 is that all is well
	} `json:"base_resp"`
}

// failed reports whether an event is the report of a failure.
func (f *frame) failed() bool {
	return exchange.IsSet(f.Error) || f.Object == "error" || f.Type == "error" ||
		len(f.Choices) == 0 && (exchange.IsSet(f.Detail) || exchange.IsSet(f.Errors) || f.Message != "" || f.Base.Status != 0)
}

type choice struct {
	Index        exchange.Count `json:"index"`
	Delta        *spoken        `json:"delta"`
	Message      *spoken        `json:"message"`
	FinishReason exchange.Word  `json:"finish_reason"`
	Logprobs     *logprobs      `json:"logprobs"`
	// Error is the error of a server behind the answering one.
	Error json.RawMessage `json:"error"`
}

type logprobs struct {
	Content []logprob `json:"content"`
}

type logprob struct {
	Token   json.RawMessage `json:"token"`
	Logprob *float64        `json:"logprob"`
	Top     []logprob       `json:"top_logprobs"`
}

type spoken struct {
	Content          json.RawMessage `json:"content"`
	Refusal          json.RawMessage `json:"refusal"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningDetails json.RawMessage `json:"reasoning_details"`
	ToolCalls        []call          `json:"tool_calls"`
	FunctionCall     *function       `json:"function_call"`
}

type call struct {
	Index        *exchange.Count `json:"index"`
	ID           exchange.Word   `json:"id"`
	Function     *function       `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

type function struct {
	Name      exchange.Word   `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type usage struct {
	PromptTokens     exchange.Tokens `json:"prompt_tokens"`
	CompletionTokens exchange.Tokens `json:"completion_tokens"`
	InputTokens      exchange.Tokens `json:"input_tokens"`
	OutputTokens     exchange.Tokens `json:"output_tokens"`
	HitTokens        exchange.Tokens `json:"prompt_cache_hit_tokens"`
	Details          *details        `json:"prompt_tokens_details"`
	InputDetails     *details        `json:"input_tokens_details"` // of the Responses protocol
	Cost             *float64        `json:"cost"`                 // US dollars
}

type details struct {
	Cached  exchange.Tokens `json:"cached_tokens"`
	Written exchange.Tokens `json:"cache_write_tokens"`
}

// counts returns the server's counts. Without input tokens, or with an impossible
// count, it returns none.
func (u *usage) counts() session.Usage {
	var c session.Usage
	if in := max(u.PromptTokens, u.InputTokens); in > 0 && min(u.PromptTokens, u.InputTokens, u.CompletionTokens, u.OutputTokens) != exchange.Absurd {
		c.Input, c.Output = int64(in), int64(max(u.CompletionTokens, u.OutputTokens))
		read, written := u.HitTokens, exchange.Tokens(0)
		if d := cmp.Or(u.Details, u.InputDetails); d != nil {
			read, written = max(read, d.Cached), d.Written
		}
		c.CacheRead = min(max(int64(read), 0), c.Input)
		c.CacheWrite = min(max(int64(written), 0), c.Input-c.CacheRead)
	}
	if u.Cost != nil && *u.Cost > 0 && *u.Cost < 1e9 {
		c.MicroUSD = int64(math.Round(*u.Cost * 1e6))
	}
	return c
}

// slot is an unfinished tool call.
type slot struct {
	wire     int64 // the server's index, -1 without one
	id, name string
	args     strings.Builder
	join     exchange.Joiner
	extra    json.RawMessage
}

// assembler assembles a completion and passes its pieces on.
type assembler struct {
	e *exchange.Endpoint
	exchange.Passed

	text, reasoning      strings.Builder
	textJoin, reasonJoin exchange.Joiner
	thoughts             thoughts // as they go back
	slots                []*slot
	refused              bool
	usage                session.Usage
	model                string
	logprobs             []llm.Logprob
	wantsLogprobs        bool
	others               []*assembler // of the answers after the first
}

func newAssembler(e *exchange.Endpoint, r *llm.Request, sink func(llm.Delta)) *assembler {
	a := &assembler{e: e, Passed: exchange.Passed{Sink: sink}, model: e.Model, wantsLogprobs: r.Logprobs != nil}
	for range r.N - 1 {
		a.others = append(a.others, &assembler{e: e, model: e.Model, wantsLogprobs: r.Logprobs != nil})
	}
	return a
}

var _ exchange.Decoder = (*assembler)(nil)

// State implements [exchange.Decoder].
func (a *assembler) State() exchange.State {
	s := exchange.State{Begun: a.Begun, Whole: a.Whole(), Text: a.text.Len(), Size: a.Size, Used: a.usage}
	for _, o := range a.others {
		s.Begun, s.Whole, s.Text, s.Size = s.Begun || o.Begun, s.Whole && o.Whole(), s.Text+o.text.Len(), s.Size+o.Size
	}
	return s
}

// Done implements [exchange.Decoder].
func (a *assembler) Done() {
	a.Passed.Done()
	for _, o := range a.others {
		o.Passed.Done()
	}
}

// Add handles one event.
func (a *assembler) Add(raw []byte) error {
	var f frame
	if err := json.Unmarshal(raw, &f); err != nil {
		return a.e.Malformed("an event is not the JSON of a completion")
	}
	if f.failed() {
		return a.e.Failure(raw)
	}
	if f.Model != "" {
		a.model = llm.Clip(string(f.Model), llm.MaxNameLen)
	}
	var u usage
	_ = json.Unmarshal(f.Usage, &u) // no answer is lost for want of its price
	if c := u.counts(); c != (session.Usage{}) {
		a.usage = c
	}
	for i := range f.Choices {
		c := &f.Choices[i]
		if exchange.IsSet(c.Error) {
			return a.e.Failure(c.Error)
		}
		to := a
		if c.Index != 0 {
			if c.Index < 0 || int(c.Index) > len(a.others) {
				continue
			}
			to = a.others[c.Index-1]
		}
		for _, s := range []*spoken{c.Delta, c.Message} {
			if s == nil {
				continue
			}
			if err := to.speak(s); err != nil {
				return err
			}
		}
		if c.Logprobs != nil && to.wantsLogprobs {
			to.weigh(c.Logprobs.Content)
		}
		if a.State().Size > a.e.MaxResponse() {
			return a.e.Malformed("the answer is larger than %d bytes", a.e.MaxResponse())
		}
		if err := to.Ended(a.e, string(c.FinishReason)); err != nil {
			return err
		}
	}
	return nil
}

func (a *assembler) speak(s *spoken) error {
	// Some servers send the same thought under two names.
	for i, raw := range []json.RawMessage{s.ReasoningContent, s.Reasoning, s.ReasoningDetails} {
		if !exchange.IsSet(raw) {
			continue
		}
		a.thoughts.named(i)
		a.think(a.reasonJoin.Add(raw))
		break
	}
	a.Size += a.thoughts.add(s.ReasoningDetails)
	for _, raw := range exchange.ContentParts(s.Content) {
		if exchange.IsSet(raw.Thinking) {
			a.think(a.reasonJoin.Add(raw.Thinking))
		} else {
			a.say(a.textJoin.Add(raw.Text))
		}
	}
	a.say(a.textJoin.Add(s.Refusal))
	if exchange.IsSet(s.Refusal) && string(s.Refusal) != `""` {
		a.refused = true
	}
	calls := s.ToolCalls
	if s.FunctionCall != nil && (s.FunctionCall.Name != "" || exchange.IsSet(s.FunctionCall.Arguments)) {
		calls = append(calls, call{Index: new(exchange.Count), Function: s.FunctionCall})
	}
	for i := range calls {
		if err := a.call(&calls[i], i, len(calls)); err != nil {
			return err
		}
	}
	return nil
}

// weigh adds the probabilities of tokens. They count towards the answer's size.
func (a *assembler) weigh(list []logprob) {
	for i := range list {
		one, ok := list[i].of()
		if !ok {
			continue
		}
		for j := range list[i].Top {
			if top, ok := list[i].Top[j].of(); ok && len(one.Top) < llm.MaxLogprobs {
				one.Top = append(one.Top, top)
			}
		}
		a.Size += len(one.Token) + 16*(1+len(one.Top))
		a.logprobs = append(a.logprobs, one)
	}
}

// of reads a token; half a character of it becomes U+FFFD. For an impossible token the
// servers of OpenAI send -9999, and others send null.
func (l *logprob) of() (llm.Logprob, bool) {
	var j exchange.Joiner
	if l.Logprob == nil || math.IsNaN(*l.Logprob) {
		return llm.Logprob{}, false
	}
	return llm.Logprob{Token: j.Add(l.Token) + j.Flush(), Logprob: *l.Logprob}, true
}

func (a *assembler) think(t string) {
	if t != "" {
		a.reasoning.WriteString(t)
		a.Emit(llm.Delta{Reasoning: t})
	}
}

func (a *assembler) say(t string) {
	if t != "" {
		a.text.WriteString(t)
		a.Emit(llm.Delta{Text: t})
	}
}

// call handles the piece of a tool call at position pos of n.
func (a *assembler) call(c *call, pos, n int) error {
	fn := c.Function
	if fn == nil {
		fn = &function{}
	}
	i := a.slot(c, string(fn.Name), pos, n)
	if i == len(a.slots) {
		if i == MaxCalls {
			return a.e.Malformed("the answer has more than %d tool calls", MaxCalls)
		}
		a.slots = append(a.slots, &slot{wire: -1})
		if c.Index != nil {
			a.slots[i].wire = int64(*c.Index)
		}
	}
	s := a.slots[i]
	var d session.ToolCall
	if s.id == "" && c.ID != "" {
		s.id = llm.Clip(string(c.ID), llm.MaxNameLen)
		d.ID = s.id
	}
	// Names are sent whole, in pieces, or whole again with every piece.
	if name := string(fn.Name); name != "" && name != s.name && len(s.name)+len(name) <= llm.MaxNameLen {
		s.name += name
		d.Name = name
	}
	if args := bytes.TrimSpace(fn.Arguments); len(args) > 0 && (args[0] == '{' || args[0] == '[') {
		d.Args = s.join.Flush() + llm.CleanText(string(args))
	} else {
		d.Args = s.join.Add(args)
	}
	s.args.WriteString(d.Args)
	if exchange.IsSet(c.ExtraContent) {
		a.Size += len(c.ExtraContent) - len(s.extra)
		s.extra = bytes.Clone(c.ExtraContent)
	}
	a.Begun = true
	if d.ID != "" || d.Name != "" || d.Args != "" {
		a.Emit(llm.Delta{Call: &d, Index: i})
	}
	return nil
}

// slot returns the index of the slot of a piece; len(a.slots) is a new one. Servers
// number calls, or only name them by id, or do neither, or give all of them the number
// 0.
func (a *assembler) slot(c *call, name string, pos, n int) int {
	id := llm.Clip(string(c.ID), llm.MaxNameLen)
	if c.Index != nil {
		for i := len(a.slots) - 1; i >= 0; i-- {
			if s := a.slots[i]; s.wire == int64(*c.Index) {
				// A new id alone does not mean a new call: some servers generate one
				// for every piece. An id with a name does.
				if id != "" && s.id != "" && id != s.id && name != "" {
					return len(a.slots)
				}
				return i
			}
		}
		return len(a.slots)
	}
	if id != "" {
		for i, s := range a.slots {
			if s.id == id {
				return i
			}
		}
		return len(a.slots)
	}
	last := len(a.slots) - 1
	switch {
	case last < 0:
		return 0
	case name != "" && a.slots[last].name != "":
		return len(a.slots)
	case name == "" && n > 1 && pos < len(a.slots):
		return pos
	default:
		return last
	}
}

// Response returns the finished completion. It flushes the text held back.
func (a *assembler) Response() *llm.Response {
	a.think(a.reasonJoin.Flush())
	a.say(a.textJoin.Flush())
	for i, s := range a.slots {
		if t := s.join.Flush(); t != "" {
			s.args.WriteString(t)
			a.Emit(llm.Delta{Call: &session.ToolCall{Args: t}, Index: i})
		}
	}
	r := &llm.Response{Text: a.text.String(), Reasoning: a.reasoning.String(), Finish: a.Finish, Word: a.Word, Usage: a.usage, Uncounted: a.usage.Tokens() == 0, Model: a.model, Logprobs: a.logprobs}
	for _, o := range a.others {
		other := o.Response()
		other.Uncounted, other.Model = a.usage.Tokens() == 0, a.model
		r.Others = append(r.Others, *other)
	}
	ids := exchange.IDs{}
	pieces := a.thoughts.pieces(r.Reasoning)
	if r.Text != "" {
		pieces = append(pieces, exchange.Piece{Text: len(r.Text)})
	}
	for i, s := range a.ordered() {
		id := ids.Take(s.id, i)
		r.Calls = append(r.Calls, session.ToolCall{ID: id, Name: s.name, Args: s.args.String()})
		pieces = append(pieces, exchange.Piece{Call: id, Raw: s.extra})
	}
	r.Opaque = a.e.Seal(wire, pieces)
	switch {
	case a.refused:
		r.Finish = llm.FinishRefused
	case len(r.Calls) > 0 && r.Finish == llm.FinishStop:
		r.Finish = llm.FinishTools
	}
	return r
}

// ordered returns the calls in the server's numbering if it is consistent, else in the
// order of arrival.
func (a *assembler) ordered() []*slot {
	slots := slices.Clone(a.slots)
	seen := map[int64]bool{}
	for _, s := range slots {
		if s.wire < 0 || seen[s.wire] {
			return slots
		}
		seen[s.wire] = true
	}
	slices.SortStableFunc(slots, func(x, y *slot) int { return int(x.wire - y.wire) })
	return slots
}
