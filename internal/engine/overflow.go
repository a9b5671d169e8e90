package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/internal/models/tokens"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// overflow is the journal's record of a session that needs compression.
type overflow struct {
	// Cached is the number of tokens in the provider's cache. MicroUSD is the cost of
	// reading the kept ones again.
	Cached   int64 `json:"cached,omitempty"`
	Limit    int64 `json:"limit,omitempty"` // in tokens; 0 is unknown
	MicroUSD int64 `json:"micro_usd,omitempty"`
	Refused  bool  `json:"refused,omitempty"` // by the server
	Tokens   int64 `json:"tokens"`            // by estimate
}

func (o *overflow) String() string {
	text := fmt.Sprintf("about %d", o.Tokens)
	if o.Limit > 0 {
		text += fmt.Sprintf(" of %d", o.Limit)
	}
	text += " tokens"
	if o.Refused {
		text += ", refused as too long"
	}
	if o.Cached > 0 {
		text += fmt.Sprintf(", %d of them cached", o.Cached)
	}
	return text
}

// Names of the step that decides it, and of the reason for the replacement of the
// session.
const (
	overflowStep   = "overflow"
	overflowReason = "its context is full"
)

const overflowInstruction = "Summarise the conversation above so that you can go on with it knowing nothing but your summary: " +
	"the task in its own words, the decisions with their reasons, what was done and found with names and numbers, the state of the work and what is open."

// fit compresses the session of an agent whose next request would be too long for the
// model, or was, as the error refused reports. fits is true if it did. The decision
// depends on the node's present list of models, so it is a step of its own, which later
// executions follow.
//
//go:noinline
func (a *agent) fit(ctx context.Context, s session.Session, c *transcript.Call, refused error) (_ session.Session, fits bool, err error) {
	w := &c.Window
	if a.p.in != nil || s.Unborn() || w.Off {
		return s, false, refused
	}
	if w.Tried {
		return s, false, tooLong(refused)
	}
	at := a.p.sc.path()
	recorded, past := a.p.sc.overflowed(at, a.Name)
	if past {
		return s, false, refused
	}
	var o *overflow
	if !recorded {
		if o, err = a.overflows(s, c, refused != nil); err != nil {
			return s, false, err
		}
		if o == nil {
			return s, false, tooLong(refused)
		}
	}
	if o, err = a.decide(ctx, o); err != nil {
		return s, false, err
	}
	by, err := a.compressed(ctx, s, c, o)
	if err != nil {
		return s, false, err
	}
	if w.Tried = true; by.Ref() == s.Ref() && by.PendingDigest() == s.PendingDigest() {
		w.Off = true
		return s, false, refused
	}
	if by.Key() != s.Key() {
		if by, err = a.replace(ctx, s, by, overflowReason); err != nil {
			return s, false, err
		}
	}
	c.Shown, c.Notes.After = transcript.Rendering{}, min(c.Notes.After, by.Len())
	return by, true, nil
}

// tooLong adds a remedy to the error of a model for a session that no summary can
// shorten.
func tooLong(refused error) error {
	if refused == nil {
		return nil
	}
	return fmt.Errorf("%w; there are no older rows to compress: shorten the task, put it into a file of the workspace, or name a model with a larger context", refused)
}

// overflowed reports whether the journal holds at a path the decision to compress an
// agent's session, or whether the run passed it without one.
func (sc *scope) overflowed(at run.Path, agent string) (recorded, past bool) {
	ex := sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if next := ex.pos.journal.Step(at); next != nil {
		recorded = next.Kind == journal.StepDo && next.Name == overflowStep && next.Input == ex.sessions.inputDigest(session.Session{}, []string{agent})
		return recorded, !recorded
	}
	return false, ex.past(at) || ex.levels.outer(at) || ex.life.poison != nil || ex.pos.recorder != nil
}

// leastSummed is the minimum number of tokens that a summary replaces: with fewer tokens
// it would not be shorter.
const leastSummed = 64

// shortens reports whether the session has enough tokens for a summary to replace. While
// the request still fits, that is half of the kept tokens: otherwise each call would need
// a summary.
func (a *agent) shortens(s session.Session, o *overflow) bool {
	keep := o.keep()
	switch w := a.Overflow.(type) {
	case nil:
	case *flow.Compressor:
		if keep = w.Keep; keep == 0 {
			return true
		}
	default: // the author's workflow decides
		return true
	}
	from, size := transcript.KeptFrom(s, keep), 0
	last := transcript.Lasting(s, from)
	for i, c := range s.Range(0, from) {
		if _, lasts := slices.BinarySearch(last, i); !lasts {
			size += len(session.ChunkEvent(c).Data)
		}
	}
	least := int64(leastSummed)
	if !o.Refused && o.Tokens <= o.Limit {
		least = max(least, keep/2)
	}
	return llm.Estimate(size) >= least
}

// overflows measures a request that is too long for the model. It returns nil if the
// request fits, or if no summary makes it shorter. A prompt in the provider's cache is
// given up later, because it would have to be paid in full again.
func (a *agent) overflows(s session.Session, c *transcript.Call, refused bool) (*overflow, error) {
	all, err := a.p.sc.ex.models.choices(c)
	if err != nil {
		return nil, err
	}
	o := &overflow{Cached: c.Window.Cached, Limit: cmp.Or(a.MaxContext, largest(all)), Refused: refused, Tokens: c.Window.Estimate(c.SizeOf(s))}
	if c.Window.Bytes == 0 && o.Tokens > o.Limit/2 && o.Limit > 0 { // no server has counted, and the count matters
		o.Tokens = a.p.sc.ex.rt.tokens.Texts(tokens.Of(&all[0].Provider), c.Texts(s)...)
	}
	if refused {
		// A count that contradicts the server is wrong: some servers count only the new
		// part of a prompt, or a constant. A limit above the size of the request is
		// wrong, too.
		if o.Tokens = max(o.Tokens, llm.Estimate(c.SizeOf(s))); o.Tokens < o.Limit {
			o.Limit = 0
		}
	}
	most := o.Limit - max(cmp.Or(int64(a.Provider.MaxTokens), defaultReply), o.Limit/10)
	if o.Cached == 0 {
		most = min(most, o.Limit/4*3)
	}
	if !refused && (o.Limit == 0 || o.Tokens <= max(most, o.Limit/2)) {
		return nil, nil
	}
	if !a.shortens(s, o) {
		return nil, nil
	}
	if one := &all[0]; one.Cost == chain.Priced && o.Cached > 0 {
		n := min(o.keep(), o.Cached)
		o.MicroUSD = one.Price(session.Usage{Input: n}) - one.Price(session.Usage{Input: n, CacheRead: n})
	}
	return o, nil
}

// largest returns the largest context of the models in tokens: a call may reach each of
// them. 0 is unknown.
func largest(all []chain.Choice) (most int64) {
	for i := range all {
		if all[i].Context == 0 {
			return 0
		}
		most = max(most, all[i].Context)
	}
	return most
}

// keep returns the number of tokens of the newest chunks to keep.
func (o *overflow) keep() int64 { return max(cmp.Or(o.Limit, o.Tokens)/8, 1) }

// decide records the decision to compress the session, and its reason.
func (a *agent) decide(ctx context.Context, o *overflow) (*overflow, error) {
	st, err := a.p.begin(ctx, journal.StepDo, overflowStep, session.Session{}, false, tool.ReadOnly.String(), a.Name)
	if err != nil {
		return nil, err
	}
	defer st.end()
	err = st.make(func() error {
		o = &overflow{}
		return st.decode(o)
	}, func() (d journal.StepCompleted, err error) {
		d.Summary = a.Name + " is full: " + o.String()
		d.Value, err = canonical.Marshal(o)
		return d, err
	})
	return o, err
}

// compressed returns the session with which the agent continues.
func (a *agent) compressed(ctx context.Context, s session.Session, c *transcript.Call, o *overflow) (session.Session, error) {
	by := flow.Compressor{Name: a.Name, Provider: a.Provider, Keep: o.keep()}
	by.Provider.ResponseFormat = nil
	switch w := a.Overflow.(type) {
	case nil:
	case *flow.Compressor:
		by = *w
	default:
		return w.Forward(ctx, s)
	}
	by.Instruction = cmp.Or(by.Instruction, overflowInstruction)
	comp := compression{Compressor: by, p: a.p, excerpts: int(o.keep()) * 4}
	if o.Refused {
		comp.most = int(o.Tokens) * 2 // bytes: about half of it
	}
	s, used, err := comp.run(ctx, s)
	if c.Account != nil {
		*c.Account = c.Account.Settle(0, 1, used)
	}
	return s, err
}

// replace makes a session's replacement its next version.
func (a *agent) replace(ctx context.Context, s, by session.Session, reason string) (session.Session, error) {
	st, err := a.p.begin(ctx, journal.StepJoin, session.JoinReplace, s, true, "", by.Ref().String(), by.PendingDigest(), reason)
	if err != nil {
		return s, err
	}
	defer st.end()
	if err := st.ex.joins.mayDispose(st.asked.Path, by.Key()); err != nil {
		return s, st.fail(err)
	}
	out, err := st.ex.joins.adopt(st, by, session.JoinReplace, reason)
	if err != nil {
		return s, st.fail(err)
	}
	return out, nil
}
