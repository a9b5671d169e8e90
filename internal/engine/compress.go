package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Compress is the Forward of a flow.Compressor.
func (p *place) Compress(ctx context.Context, c flow.Compressor, s session.Session) (session.Session, error) {
	s, _, err := (&compression{Compressor: c, p: p}).run(ctx, s)
	return s, err
}

// compression is a session's compression in flight.
type compression struct {
	flow.Compressor
	p *place
	// most bounds the rows shown to the model, in bytes; 0 is the limit of the model.
	most int
	// excerpts is the size of the excerpt, in bytes, that replaces a missing summary;
	// with 0 the compression fails instead.
	excerpts int
	short    int // summaries that were too short
	halved   int // how often the shown text was halved, because the server rejected more
}

// maxHalved bounds the halvings of a request for a summary that a server rejects as too
// long.
const maxHalved = 4

// run replaces s by a summary, and returns the usage.
func (c *compression) run(ctx context.Context, s session.Session) (out session.Session, usage session.Usage, err error) {
	ask := &transcript.Call{Agent: c.Name, Prompt: c.Prompt, Provider: &c.Provider, Ask: c.Instruction}
	for {
		out, used, again, err := c.summarise(ctx, ask, s)
		usage = usage.Add(used)
		if c.Keep > 0 && c.halved < maxHalved && errors.Is(err, llm.CodeContextLength) {
			c.halved++
			continue
		}
		if err != nil || !again {
			return out, usage, err
		}
	}
}

// summarise requests the summary once, in a step, and makes the session from it; again
// reports that the model must be asked to continue.
func (c *compression) summarise(ctx context.Context, ask *transcript.Call, s session.Session) (_ session.Session, usage session.Usage, again bool, err error) {
	st, err := c.p.begin(ctx, journal.StepCompress, c.Name, s, false, "", ask.Digest())
	if err != nil {
		return s, usage, false, err
	}
	defer st.end()
	var d journal.StepCompleted
	err = st.make(func() error {
		d = st.record.StepCompleted
		return rebuild(st.record)
	}, func() (_ journal.StepCompleted, err error) {
		d, err = c.request(st, ask)
		return d, err
	})
	if err != nil {
		return s, usage, false, err
	}
	if usage = d.Usage.Sub(d.Lost); d.Again != "" {
		if d.Again == journal.AgainShort {
			c.short++
		}
		return s, usage, true, ask.Resume(&d)
	}
	out, err := c.begin(st, s, d.Value, usage)
	return out, usage, false, st.fail(err)
}

// begin makes the session that starts with a summary of s.
func (c *compression) begin(st *step, s session.Session, text string, usage session.Usage) (session.Session, error) {
	base := st.after
	if !st.ex.forks.holds(st.asked.Path, base.Key()) {
		base = st.s.Committed()
	}
	l, ok := base.Link()
	if !ok {
		return s, fmt.Errorf("flow: compress %s: it is not committed", s.Ref())
	}
	ex := st.ex
	ex.mu.Lock()
	ex.sessions.alias(st.s, base)
	ex.mu.Unlock()
	o := session.Origin{Agent: c.Name, Workflow: ex.reg.Name, Node: ex.rt.Node, Run: string(ex.id), Step: string(st.asked.Path), Usage: usage, Placement: base.Placement()}
	rows := []session.Event{session.ChunkEvent(session.UserText(text).Of(o))}
	if c.Keep > 0 {
		rows = transcript.Kept(base, transcript.KeptFrom(base, c.Keep), rows[0])
	}
	out, err := ex.forks.claim(st.ctx, ex.forks.child(st.asked.Path), base.Root(), st.opening(session.OpenCompress, l), rows, &heldSession{parent: base.Key()})
	if err != nil {
		return s, err
	}
	return out, nil
}

// A summary has at least one byte per leastSummary bytes of its source. A shorter one
// counts as missing.
const leastSummary = 4096

// request requests the summary, and returns the record of the step. If the answer is not
// a summary, the record is stored beside the session.
func (c *compression) request(st *step, ask *transcript.Call) (d journal.StepCompleted, err error) {
	if err := st.ex.values.notArchived(st.ctx, st.asked.Path, st.s.Key()); err != nil {
		return d, fmt.Errorf("flow: compress %s: %w", st.s.Ref(), err)
	}
	st.beside = true
	shown, to, size := st.s, st.s.Len(), transcript.Size(st.s)
	if c.Keep > 0 {
		most, err := st.ex.models.room(ask, c.most)
		if err != nil {
			return d, err
		}
		to = transcript.KeptFrom(st.s, c.Keep)
		quoted := transcript.Quote(st.s, to, most>>c.halved)
		shown, size = session.New(session.UserText(quoted)), len(quoted)
	}
	resp, d, err := st.ex.models.once(st, ask, shown, "summarising")
	if err != nil {
		return d, err
	}
	v := ask.Judge(resp)
	text := strings.TrimSpace(v.Text)
	if least := size / leastSummary; v.Again == "" && v.Err == nil && len(text) < least {
		if v.Again = journal.AgainShort; c.short > 0 {
			v.Again, v.Err = "", fmt.Errorf("%w: %s, model %s: its summaries have %d bytes for %d bytes of text; name another model", run.ErrEmpty, c.Name, resp.Model, len(text), least*leastSummary)
		}
	}
	if v.Again != "" || v.Err != nil && c.excerpts == 0 {
		return d, st.ex.models.judged(st, &d, c.Name, resp, v)
	}
	st.beside = false
	d.Links = []session.Link{{Ref: session.Ref{Key: st.ex.forks.child(st.asked.Path)}}}
	switch {
	case v.Err != nil:
		d.Value = "No model made a summary of what came before. These are excerpts of it.\n" + transcript.Quote(st.s, to, c.excerpts) + transcript.OmittedImages(st.s, c.Keep)
		d.Summary = fmt.Sprintf("keeps excerpts of %s, without a summary: %s", excerpt.Counted(st.s.Len(), "chunk"), excerpt.Clip(v.Err.Error(), 120))
	default:
		d.Value = text + transcript.OmittedImages(st.s, c.Keep)
		d.Summary = fmt.Sprintf("compresses %s into one", excerpt.Counted(st.s.Len(), "chunk"))
	}
	return d, nil
}

// room returns the bytes of rows that the model can be shown: the limit of the node's
// list, and at most most if that is not 0.
func (m *modelUse) room(c *transcript.Call, most int) (int, error) {
	all, err := m.choices(c)
	if err != nil {
		return 0, err
	}
	if limit := largest(all); limit > 0 {
		room := int(max(limit-max(defaultReply, limit/10), limit/2)) * 3
		most = min(cmp.Or(most, room), room)
	}
	return cmp.Or(most, defaultRoom), nil
}

// defaultRoom is about the context of a model of 128k tokens, in bytes.
const defaultRoom = 384 << 10
