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
	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/guide"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Compress is the Forward of a flow.Compressor.
func (p *place) Compress(ctx context.Context, c flow.Compressor, s session.Session) (session.Session, error) {
	s, _, err := p.compress(ctx, c, s, 0)
	return s, err
}

// compress replaces s by a summary, and returns what that used. most is how many bytes of
// rows the model is shown where the node's list does not say how much it takes.
func (p *place) compress(ctx context.Context, c flow.Compressor, s session.Session, most int) (_ session.Session, usage session.Usage, err error) {
	ask := &call{agent: c.Name, prompt: c.Prompt, provider: &c.Provider, ask: c.Instruction}
	st, err := p.begin(ctx, journal.StepCompress, c.Name, s, false, "", ask.digest())
	if err != nil {
		return s, usage, err
	}
	defer st.end()
	var base session.Session
	var text string
	if st.decision == journal.Replay {
		if err := rebuild(st.record); err != nil {
			return s, usage, err
		}
		base, text, usage = st.record.Session, st.record.Value, st.record.Usage.Sub(st.record.Lost)
	} else {
		if err := st.ex.notArchived(st.ctx, st.asked.Path, st.s.Key()); err != nil {
			return s, usage, st.fail(fmt.Errorf("flow: compress %s: %w", s.Ref(), err))
		}
		shown := st.s
		if c.Keep > 0 {
			if most, err = ask.room(st.ex, most); err != nil {
				return s, usage, st.fail(err)
			}
			shown = session.New(session.UserText(quotation(st.s, keptFrom(st.s, c.Keep), most)))
		}
		resp, prompt, err := ask.complete(st, shown)
		err, ok := st.outcome(err)
		if !ok {
			return s, usage, err
		}
		switch {
		case err != nil:
		case len(resp.Calls) > 0:
			err = errors.New("flow: the summarising model called a tool")
		case strings.TrimSpace(resp.Text) == "":
			err = errors.New("flow: the summarising model said nothing")
		}
		if err != nil {
			return s, usage, st.recordUseless(c.Name, resp, prompt, err)
		}
		text = strings.TrimSpace(resp.Text) + gone(st.s, c.Keep)
		usage = st.ex.origin(c.Name, st.asked.Path, session.Placement{}, resp.Usage).Usage
		ack, err := st.commit(journal.StepCompleted{
			Value: text, Prompt: prompt, Model: resp.Model, Usage: usage, Links: []session.Link{{Ref: session.Ref{Key: st.ex.child(st.asked.Path)}}},
			Summary: fmt.Sprintf("compresses %s into one", count(st.s.Len(), "chunk")),
		})
		if err != nil {
			return s, usage, err
		}
		base = ack.Session
	}
	if !st.ex.holds(st.asked.Path, base.Key()) {
		base = st.s.Committed()
	}
	l, ok := base.Link()
	if !ok {
		return s, usage, st.fail(fmt.Errorf("flow: compress %s: it is not committed", s.Ref()))
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
	out, err := ex.claim(ctx, ex.child(st.asked.Path), base.Root(), st.opening(session.OpenCompress, l), rows, &heldSession{parent: base.Key()})
	if err != nil {
		return s, usage, st.fail(err)
	}
	return out, usage, nil
}

// room is how many bytes of rows the model can be shown; most, if the node's list does not
// say it.
func (c *call) room(ex *Execution, most int) (int, error) {
	all, err := c.choices(ex)
	if err != nil {
		return 0, err
	}
	if limit := largest(all); limit > 0 {
		most = int(max(limit-max(defaultReply, limit/10), limit/2)) * 3
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
