package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// The kinds of blocks. Unknown blocks are dropped: they belong to tools that the server
// runs itself, and no request uses those.
const (
	kindText     = "text"
	kindThinking = "thinking"
	kindHidden   = "redacted_thinking"
	kindCall     = "tool_use"
)

// content is a block of an unfinished answer.
type content struct {
	index    int64
	kind     string
	id, name string
	call     int // its number among the calls
	body     strings.Builder
	join     exchange.Joiner
	sign     strings.Builder // of thinking
	raw      json.RawMessage // as it started
	whole    bool            // the input arrived with the start
	form     bool            // a text that arrives as the input of the formTool
}

// maxBlocks bounds the blocks of an answer.
const maxBlocks = 4096

// start starts a block. In a whole answer the block has all of its content.
func (a *answer) start(index int64, raw json.RawMessage, whole bool) error {
	var b struct {
		Type      exchange.Word   `json:"type"`
		ID        exchange.Word   `json:"id"`
		Name      exchange.Word   `json:"name"`
		Text      json.RawMessage `json:"text"`
		Thinking  json.RawMessage `json:"thinking"`
		Signature exchange.Word   `json:"signature"`
		Input     json.RawMessage `json:"input"`
	}
	if json.Unmarshal(raw, &b) != nil {
		return a.e.Malformed("a block is not the JSON of one")
	}
	if len(a.blocks) == maxBlocks {
		return a.e.Malformed("the answer has more than %d blocks", maxBlocks)
	}
	if n := len(a.blocks); n > 0 && a.blocks[n-1].kind != kindCall {
		a.flush(a.blocks[n-1]) // consecutive texts
	}
	c := &content{index: index, kind: string(b.Type), raw: bytes.Clone(raw)}
	if c.kind == kindCall && b.Name == formTool {
		c.kind, c.form = kindText, true
	}
	a.blocks = append(a.blocks, c)
	a.Size += len(raw)
	switch c.kind {
	case kindText:
		a.say(c, b.Text)
		if c.form && (whole || exchange.IsSet(b.Input)) {
			c.whole = true
			a.speak(c, llm.CleanText(string(b.Input)))
		}
	case kindThinking:
		a.say(c, b.Thinking)
		c.sign.WriteString(string(b.Signature))
	case kindHidden:
		a.Begun = true
	case kindCall:
		if a.calls == exchange.MaxCalls {
			return a.e.Malformed("the answer has more than %d tool calls", exchange.MaxCalls)
		}
		c.call = a.calls
		a.calls++
		c.id, c.name = llm.Clip(string(b.ID), llm.MaxNameLen), llm.Clip(string(b.Name), llm.MaxNameLen)
		d := session.ToolCall{ID: c.id, Name: c.name}
		if whole || exchange.IsSet(b.Input) { // else it is still to arrive
			d.Args, c.whole = llm.CleanText(string(b.Input)), true
			c.body.WriteString(d.Args)
		}
		a.Emit(llm.Delta{Call: &d, Index: c.call})
	}
	return nil
}

// grow adds to the block of an index: to the newest one, if the server restarts its
// numbering.
func (a *answer) grow(index int64, d *delta) error {
	var c *content
	for i := len(a.blocks) - 1; i >= 0 && c == nil; i-- {
		if a.blocks[i].index == index {
			c = a.blocks[i]
		}
	}
	if c == nil { // some servers omit the start of a block
		begin := `{"type":"text"}`
		switch d.Type {
		case "thinking_delta", "signature_delta":
			begin = `{"type":"thinking"}`
		case "text_delta":
		default:
			return a.e.Malformed("a piece of a block that did not begin")
		}
		if err := a.start(index, json.RawMessage(begin), false); err != nil {
			return err
		}
		c = a.blocks[len(a.blocks)-1]
	}
	a.Begun = true
	switch {
	case c.form && !c.whole:
		a.say(c, d.PartialJSON)
	case c.kind == kindText:
		a.say(c, d.Text)
	case c.kind == kindThinking:
		a.say(c, d.Thinking)
		var s exchange.Word
		_ = s.UnmarshalJSON(d.Signature)
		a.Size += len(s)
		c.sign.WriteString(string(s))
	case c.kind == kindCall && !c.whole:
		if args := c.join.Add(d.PartialJSON); args != "" {
			c.body.WriteString(args)
			a.Emit(llm.Delta{Call: &session.ToolCall{Args: args}, Index: c.call})
		}
	}
	return nil
}

// say adds the text of raw to a block.
func (a *answer) say(c *content, raw json.RawMessage) {
	if t := c.join.Add(raw); t != "" {
		a.speak(c, t)
	}
}

// speak adds text to a block of text or thinking.
func (a *answer) speak(c *content, t string) {
	c.body.WriteString(t)
	if c.kind == kindThinking {
		a.reasoning.WriteString(t)
		a.Emit(llm.Delta{Reasoning: t})
		return
	}
	a.text.WriteString(t)
	a.Emit(llm.Delta{Text: t})
}

// flush passes on the text that a block held back, at the end of the block.
func (a *answer) flush(c *content) {
	t := c.join.Flush()
	switch {
	case t == "":
	case c.kind == kindCall:
		c.body.WriteString(t)
		a.Emit(llm.Delta{Call: &session.ToolCall{Args: t}, Index: c.call})
	default:
		a.speak(c, t)
	}
}

// verbatim returns a block of thinking in the form that the server requires back.
func (c *content) verbatim() json.RawMessage {
	if c.kind == kindHidden {
		return c.raw
	}
	data, err := exchange.Marshal(struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}{c.kind, c.body.String(), c.sign.String()})
	if err != nil {
		return c.raw
	}
	return data
}
