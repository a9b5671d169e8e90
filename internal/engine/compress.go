package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Compress is the Forward of a flow.Compressor.
func (p *place) Compress(ctx context.Context, c flow.Compressor, s session.Session) (session.Session, error) {
	s, _, err := p.compress(ctx, compression{Compressor: c}, s)
	return s, err
}

// compression is a session's compression under way.
type compression struct {
	flow.Compressor
	// most is how many bytes of rows the model is shown at most; 0 is as many as it takes.
	most int
	// excerpts is how many bytes of the rows take the place of a summary that the model did
	// not give; 0 fails then.
	excerpts int
	short    int // summaries that were too short
	halved   int // how often the model was shown half as much, because its server refused more
}

// maxHalved is how often a server's refusal of the request for a summary as too long makes
// that shorter by half.
const maxHalved = 4

// compress replaces s by a summary, and returns the usage of that.
func (p *place) compress(ctx context.Context, c compression, s session.Session) (out session.Session, usage session.Usage, err error) {
	ask := &call{agent: c.Name, prompt: c.Prompt, provider: &c.Provider, ask: c.Instruction}
	for {
		out, used, again, err := p.summarise(ctx, &c, ask, s)
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

// summarise asks for the summary once, in a step, and makes the session of it; again reports
// that the model is to be asked on.
func (p *place) summarise(ctx context.Context, c *compression, ask *call, s session.Session) (_ session.Session, usage session.Usage, again bool, err error) {
	st, err := p.begin(ctx, journal.StepCompress, c.Name, s, false, "", ask.digest())
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
		return s, usage, true, ask.resumed(&d)
	}
	out, err := c.begin(st, s, d.Value, usage)
	return out, usage, false, st.fail(err)
}

// begin makes the session that begins with a summary of s.
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
		rows = kept(base, keptFrom(base, c.Keep), rows[0])
	}
	out, err := ex.forks.claim(st.ctx, ex.forks.child(st.asked.Path), base.Root(), st.opening(session.OpenCompress, l), rows, &heldSession{parent: base.Key()})
	if err != nil {
		return s, err
	}
	return out, nil
}

// A summary has at least one byte for so many of the text that the model was shown for it.
// With fewer it is taken for none.
const leastSummary = 4096

// request asks for the summary, and returns the record of the step. Of an answer that is no
// summary it is beside the session.
func (c *compression) request(st *step, ask *call) (d journal.StepCompleted, err error) {
	if err := st.ex.values.notArchived(st.ctx, st.asked.Path, st.s.Key()); err != nil {
		return d, fmt.Errorf("flow: compress %s: %w", st.s.Ref(), err)
	}
	st.beside = true
	shown, to, size := st.s, st.s.Len(), sizeOfRows(st.s)
	if c.Keep > 0 {
		most, err := ask.room(st.ex, c.most)
		if err != nil {
			return d, err
		}
		to = keptFrom(st.s, c.Keep)
		quoted := quotation(st.s, to, most>>c.halved)
		shown, size = session.New(session.UserText(quoted)), len(quoted)
	}
	resp, d, err := ask.once(st, shown, "summarising")
	if err != nil {
		return d, err
	}
	v := ask.judge(resp)
	text := strings.TrimSpace(v.text)
	if least := size / leastSummary; v.again == "" && v.err == nil && len(text) < least {
		if v.again = journal.AgainShort; c.short > 0 {
			v.again, v.err = "", fmt.Errorf("%w: %s, model %s: its summaries have %d bytes for %d bytes of text; name another model", run.ErrEmpty, c.Name, resp.Model, len(text), least*leastSummary)
		}
	}
	if v.again != "" || v.err != nil && c.excerpts == 0 {
		return d, st.judged(&d, c.Name, resp, v)
	}
	st.beside = false
	d.Links = []session.Link{{Ref: session.Ref{Key: st.ex.forks.child(st.asked.Path)}}}
	switch {
	case v.err != nil:
		d.Value = "No model made a summary of what came before. These are excerpts of it.\n" + quotation(st.s, to, c.excerpts) + gone(st.s, c.Keep)
		d.Summary = fmt.Sprintf("keeps excerpts of %s, without a summary: %s", count(st.s.Len(), "chunk"), excerpt.Clip(v.err.Error(), 120))
	default:
		d.Value = text + gone(st.s, c.Keep)
		d.Summary = fmt.Sprintf("compresses %s into one", count(st.s.Len(), "chunk"))
	}
	return d, nil
}

// sizeOfRows is how many bytes the texts of a session have.
func sizeOfRows(s session.Session) (size int) {
	for _, c := range s.Chunks() {
		size += len(c.Text())
		for _, call := range c.Calls() {
			size += len(call.Args)
		}
	}
	return size
}

// room is how many bytes of rows the model can be shown: at most so many as the node's list
// allows, and most, if that is not 0.
func (c *call) room(ex *Execution, most int) (int, error) {
	all, err := c.choices(ex)
	if err != nil {
		return 0, err
	}
	if limit := largest(all); limit > 0 {
		room := int(max(limit-max(defaultReply, limit/10), limit/2)) * 3
		most = min(cmp.Or(most, room), room)
	}
	return cmp.Or(most, defaultRoom), nil
}

// defaultRoom is about what a model of 128k tokens takes.
const defaultRoom = 384 << 10

// maxKept bounds the chunks that follow a summary, in bytes: they are stored again.
const maxKept = 128 << 10

// keptFrom returns the index of the first of the newest chunks that have at most so many
// tokens, by estimate. No tool's result is parted from its call.
func keptFrom(s session.Session, tokens int64) int {
	from, size, room := s.Len(), 0, maxKept
	for _, i := range lasting(s, s.Len()) {
		c, _ := s.At(i)
		room -= len(session.ChunkEvent(c).Data)
	}
	for i := s.Len() - 1; i >= 0; i-- {
		c, _ := s.At(i)
		if size += len(session.ChunkEvent(c).Data); size > room || llm.Estimate(size) > tokens {
			break
		}
		if c.Kind() != session.ToolResult {
			from = i
		}
	}
	return from
}

// lasting returns the indices of the chunks before one that no summary takes the place of:
// those of the system, what the workspace says for agents, each text of it once, and the
// newest that the user said, unless it comes later.
func lasting(s session.Session, from int) (at []int) {
	said, summed := -1, -1
	guides := map[string]bool{}
	for i, c := range s.Chunks() {
		is, _ := guide.IsText(c.Text())
		switch {
		case c.Kind() != session.User:
			if c.Kind() == session.System && i < from {
				at = append(at, i)
			}
		case is:
			if i < from && !guides[c.Text()] {
				at = append(at, i)
			}
			guides[c.Text()] = true
		case c.Origin().Agent == "":
			said = i
		case c.Origin().Agent != journal.ByHook: // an agent's summary
			summed = i
		}
	}
	if said < 0 {
		said = summed
	}
	if said >= 0 && said < from {
		i, _ := slices.BinarySearch(at, said)
		at = slices.Insert(at, i, said)
	}
	return at
}

// kept returns the rows of the session that goes on after a summary: those that last, the
// summary, and the chunks from an index on. What these used is counted already.
func kept(s session.Session, from int, summary session.Event) (rows []session.Event) {
	again := func(c session.Chunk) {
		o := c.Origin()
		o.Usage = session.Usage{}
		rows = append(rows, session.ChunkEvent(c.Of(o)))
	}
	for _, i := range lasting(s, from) {
		c, _ := s.At(i)
		again(c)
	}
	rows = append(rows, summary)
	for _, c := range s.Range(from, s.Len()) {
		again(c)
	}
	return rows
}

// quotation is the text of the chunks up to an index, in at most so many bytes: the longest
// are cut.
func quotation(s session.Session, to, most int) string {
	var parts []string
	for _, c := range s.Range(0, to) {
		head := string(c.Kind())
		if c.Kind() == session.ToolResult {
			head = "result of " + c.Name()
		}
		parts = append(parts, head+": "+c.Text()+named(c))
		for _, call := range c.Calls() {
			if c.Kind() == session.Assistant {
				parts = append(parts, "assistant calls "+call.Name+" "+call.Args)
			}
		}
	}
	limit := longest(parts, most)
	var b strings.Builder
	b.WriteString("A conversation, quoted from its beginning:\n")
	for _, p := range parts {
		b.WriteByte('\n')
		if len(p) > limit {
			b.WriteString(excerpt.Clip(p, limit/2) + fmt.Sprintf(" [%d bytes left out] ", len(p)-limit))
			p = strings.ToValidUTF8(p[len(p)-limit/2:], "")
		}
		b.WriteString(p)
	}
	return b.String()
}

// named are the images of a row, in words.
func named(c session.Chunk) (text string) {
	for _, img := range c.Images() {
		text += "\n[image: " + img.String() + "]"
	}
	return text
}

// gone names the newest images of the rows that a summary takes the place of, so that a
// reader finds them; where it keeps some rows, of those before.
func gone(s session.Session, keep int64) string {
	var all []string
	to := s.Len()
	if keep > 0 {
		to = keptFrom(s, keep)
	}
	last := lasting(s, to)
	for i, c := range s.Range(0, to) {
		if _, stays := slices.BinarySearch(last, i); keep > 0 && stays {
			continue
		}
		if text := named(c); text != "" {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "\n" + strings.Join(all[max(len(all)-maxImages, 0):], "")
}

// longest returns the length to which texts have to be cut so that they have at most so
// many bytes.
func longest(parts []string, most int) int {
	const overhead = 40
	fits := func(n int) bool {
		sum := 0
		for _, p := range parts {
			sum += min(len(p), n) + overhead
		}
		return sum <= most
	}
	return sort.Search(most, func(i int) bool { return !fits(i + 1) })
}
