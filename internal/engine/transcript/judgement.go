package transcript

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Bounds of the requests in a row for one answer, by the reason to continue.
const (
	maxCut    = 3 // cut at the limit of its length
	maxPaused = 8 // paused by the server
	maxEmpty  = 2 // empty, or without the calls that it announces
	maxText   = 1 // with a call written as text
)

// Judgement is the decision about an answer: it is accepted, the model is asked again for
// the reason Again, or the caller fails with Err.
type Judgement struct {
	Again string
	Err   error
	Text  string // of the whole answer so far
}

// Judge decides about an answer. It is the only place that does, for every model call.
func (c *Call) Judge(resp *llm.Response) Judgement {
	u := &c.Answer
	v := Judgement{Text: u.join(resp.Text, c.structured())}
	fail := func(err error, format string, args ...any) Judgement {
		v.Again, v.Err = "", fmt.Errorf("%w: %s, model %s: %s", err, c.Agent, cmp.Or(resp.Model, c.Provider.Model, "without a name"), fmt.Sprintf(format, args...))
		return v
	}
	isCut := resp.Finish == llm.FinishLength
	cutCalls := len(resp.Calls) > 0 && (isCut || cutArguments(resp.Calls))
	blank := strings.TrimSpace(v.Text) == ""
	switch {
	case resp.Finish == llm.FinishRefused:
		return fail(run.ErrRefused, "%s", reason(resp.Text, "it gave no reason; rephrase the request, or name another model"))
	case resp.Finish == llm.FinishFilter:
		return fail(run.ErrFiltered, "%s", reason(resp.Text, "the server gave no reason; rephrase the request, or name another model"))
	case cutCalls:
		v.Again = journal.AgainCalls
	case len(resp.Calls) > 0:
	case isCut:
		v.Again = journal.AgainCut
	case resp.Finish == llm.FinishPause:
		v.Again = journal.AgainPaused
	case blank && resp.Finish != llm.FinishTools:
		v.Again = journal.AgainEmpty
	case resp.Finish == llm.FinishTools:
		v.Again = journal.AgainMissing
	case c.Table != nil && spelt(v.Text, c.hasTool, c.structured()):
		v.Again = journal.AgainText
	}
	const limit = "raise its limit (output in the node's list of models, MaxTokens in Go), or ask for less"
	switch v.Again {
	case journal.AgainCut, journal.AgainCalls:
		switch {
		case !isCut: // the model cannot write its arguments; the agent's rounds are the bound
		case v.Again == journal.AgainCut && strings.TrimSpace(resp.Text) == "":
			return fail(run.ErrTruncated, "its answer reached the limit of its length (%d tokens) without any text; %s", resp.Usage.Output, limit)
		case u.cut == maxCut || u.Last:
			return fail(run.ErrTruncated, "%d answers in a row reached the limit of their length (%d tokens the last); %s", u.cut+1, resp.Usage.Output, limit)
		}
	case journal.AgainPaused:
		if u.pause == maxPaused || u.Last {
			return fail(run.ErrTruncated, "its server paused the answer %d times in a row; ask for less", u.pause+1)
		}
	case journal.AgainEmpty, journal.AgainMissing:
		if u.empty == maxEmpty || u.Last {
			return fail(run.ErrEmpty, "%d answers in a row have no text and no tool call, or announce calls and have none", u.empty+1)
		}
	case journal.AgainText:
		if u.spelt == maxText || u.Last {
			return fail(run.ErrEmpty, "%d answers in a row have a tool call written as text, which is not carried out: %q; name a model that can call tools, or correct its server's template", u.spelt+1, excerpt.Clip(excerpt.FirstLine(v.Text), 80))
		}
	}
	return v
}

// reason returns an answer's text as the reason of its failure, or otherwise if it has
// none.
func reason(text, otherwise string) string {
	if text = strings.TrimSpace(text); text == "" {
		return otherwise
	}
	return excerpt.Clip(text, 2<<10)
}

// structured reports whether the answer must have a format.
func (c *Call) structured() bool { return len(c.Provider.ResponseFormat) > 0 }

func (c *Call) hasTool(name string) bool {
	_, ok := c.Table.Lookup(name)
	return ok
}

// join appends a piece to the previous ones. A piece that is a whole JSON document
// replaces the cut beginning of a structured answer: a server that enforces a format
// starts again.
func (u *Answering) join(piece string, structured bool) string {
	if u.Text != "" && structured && json.Valid([]byte(piece)) && !json.Valid([]byte(u.Text+piece)) {
		return piece
	}
	return u.Text + piece
}

// take takes over the answer of a step: again comes from its record.
func (u *Answering) take(again string, finish llm.Finish, p *journal.Partial) {
	said := llm.Message{Role: llm.Assistant, Text: p.Text, Opaque: p.Opaque}
	u.tail = nil
	if strings.TrimSpace(p.Text) != "" {
		u.tail = append(u.tail, said)
	}
	var remark string
	u.Text = ""
	switch again {
	case journal.AgainCut:
		u.cut, u.Text = u.cut+1, p.Text
		remark = "Your answer was cut at the limit of its length. Continue it exactly where it stops: repeat nothing of it, and write nothing before the continuation."
	case journal.AgainPaused:
		u.pause, u.Text = u.pause+1, p.Text
		return
	case journal.AgainEmpty:
		u.empty++
		remark = "Your last answer was empty. Go on: give your answer as text, or call the tools that you need."
	case journal.AgainMissing:
		u.empty++
		remark = "Your last answer announced tool calls and had none. Make the calls, or give your answer as text."
	case journal.AgainText:
		u.spelt++
		remark = "Your last answer has a tool call written as text, which was not carried out. Call tools as tool calls, never in your text; or give your answer without a call."
	case journal.AgainCalls: // their results report it
		u.tail = nil
		if finish == llm.FinishLength {
			u.cut++
		}
		return
	case journal.AgainShort:
		remark = "Your summary is too short to go on with: it takes the place of all that is above. Write it again, in full."
	default:
		*u = Answering{}
		return
	}
	u.tail = append(u.tail, llm.Message{Role: llm.User, Text: remark})
}

// Remark returns the last message of the next request, if that asks the model to
// continue; else "".
func (u *Answering) Remark() string {
	if n := len(u.tail); n > 0 && u.tail[n-1].Role == llm.User {
		return u.tail[n-1].Text
	}
	return ""
}

// CutCalls is the result of each call of an answer that is cut.
const CutCalls = "the answer was cut at the limit of its length, so that its calls may not be whole: none of them was carried out. " +
	"Make the call again with less in it: write a long file in several calls, or edit the part that changes"

// cutArguments reports whether the arguments of a call end in the middle of their JSON:
// its server cut the answer without reporting it.
func cutArguments(calls []session.ToolCall) bool {
	for _, c := range calls {
		if strings.TrimSpace(c.Args) == "" || json.Valid([]byte(c.Args)) {
			continue
		}
		var v json.RawMessage
		if err := json.NewDecoder(strings.NewReader(c.Args)).Decode(&v); errors.Is(err, io.ErrUnexpectedEOF) {
			return true
		}
	}
	return false
}

// Resume takes over the answer of a recorded step after which the model was asked again.
func (c *Call) Resume(d *journal.StepCompleted) error {
	var p journal.Partial
	if d.Again != "" && d.Again != journal.AgainCalls {
		if err := json.Unmarshal([]byte(d.Value), &p); err != nil {
			return fmt.Errorf("%w: the answer of step %s: %w", run.ErrMismatch, d.Path, err)
		}
	}
	c.Answer.take(d.Again, llm.Finish(d.Finish), &p)
	return nil
}

// Because describes to readers why the model is asked again.
func Because(again string, resp *llm.Response) string {
	switch again {
	case journal.AgainCut:
		return fmt.Sprintf("is cut at the limit of its length (%d tokens), and asked to continue", resp.Usage.Output)
	case journal.AgainPaused:
		return "is paused by the server, and asked to continue"
	case journal.AgainEmpty:
		return "gives an empty answer, and is asked again"
	case journal.AgainMissing:
		return "announces tool calls and has none, and is asked again"
	case journal.AgainText:
		return "writes a tool call as text, and is asked again"
	case journal.AgainShort:
		return "gives too short a summary, and is asked again"
	}
	return "has its tool calls cut, of which none is carried out"
}
