package anthropic

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a part of a message. A raw block is written unchanged.
type block struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	IsError      bool            `json:"is_error,omitempty"`
	Content      any             `json:"content,omitempty"` // of a result: a text, or blocks
	Source       *source         `json:"source,omitempty"`  // of an image
	CacheControl *ephemeral      `json:"cache_control,omitempty"`
	raw          json.RawMessage
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

// MarshalJSON writes the block.
func (b block) MarshalJSON() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	type plain block
	return exchange.Marshal(plain(b))
}

// rules are the protocol's demands on a transcript.
var rules = exchange.Rules{
	IDs: regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`), SystemFirst: true, UserFirst: true, UserLast: true, Alternate: true, NoBlanks: true, ResultImages: true,
}

// transcript distributes the lines to the two alternating roles of the protocol. Other
// sessions share the first messages.
func transcript(lines []exchange.Line, shared int) (system []block, turns []message) {
	first := 0
	for first < len(lines) && lines[first].Role == llm.System {
		system = append(system, text(lines[first].Text)...)
		first++
	}
	if n := len(system); n > 0 {
		system[n-1].CacheControl = breakpoint
	}
	var ends []int // the turns that are the user's
	fork, forked := -1, 0
	for i := range lines[first:] {
		l := &lines[first+i]
		role, blocks := "user", shown(l)
		switch l.Role {
		case llm.Assistant:
			role, blocks = "assistant", spoken(l)
		case llm.Tool:
			blocks = []block{result(l, blocks)}
		}
		last := len(turns) - 1
		if last < 0 || turns[last].Role != role {
			turns = append(turns, message{Role: role})
			last++
			if role == "user" {
				ends = append(ends, last)
			}
		}
		turns[last].Content = append(turns[last].Content, blocks...)
		if l.At >= 0 && l.At < shared {
			fork, forked = last, len(turns[last].Content)-1
		}
	}
	// The newest turn of the user, and the one before, which was the newest in the
	// previous request: a server searches back from a breakpoint over a bounded number
	// of blocks. A fork after the older breakpoint replaces it: each branch would
	// otherwise write the prefix up to the fork to the cache by itself.
	for n, at := range ends[max(len(ends)-2, 0):] {
		end := len(turns[at].Content) - 1
		if newest := n == len(ends)-1 || n == 1; !newest && fork > at && turns[fork].Content[forked].raw == nil {
			at, end = fork, forked // a block that is sent back verbatim has no mark
		}
		turns[at].Content[end].CacheControl = breakpoint
	}
	if len(ends) == 1 && fork >= 0 && turns[fork].Content[forked].raw == nil {
		turns[fork].Content[forked].CacheControl = breakpoint
	}
	return system, turns
}

// text returns a block for a text; the protocol rejects a blank one.
func text(s string) []block {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return []block{{Type: "text", Text: s}}
}

// shown returns the blocks of a text and of images.
func shown(l *exchange.Line) []block {
	blocks := text(l.Text)
	for i := range l.Images {
		blocks = append(blocks, block{Type: "image", Source: &source{"base64", l.Images[i].Type, l.Images[i].Data}})
	}
	return blocks
}

// result returns the block of a result, whose text and images are blocks. A failed
// result must have a text.
func result(l *exchange.Line, blocks []block) block {
	b := block{Type: "tool_result", ToolUseID: l.CallID, IsError: l.Failed}
	switch {
	case len(l.Images) > 0:
		b.Content = blocks
	case len(blocks) > 0:
		b.Content = l.Text
	case l.Failed:
		b.Content = exchange.ErrorText("")
	}
	return b
}

// spoken returns the blocks of an assistant's message.
func spoken(l *exchange.Line) (blocks []block) {
	for _, p := range l.Parts {
		switch {
		case p.Call != nil:
			blocks = append(blocks, block{Type: "tool_use", ID: p.Call.ID, Name: p.Call.Name, Input: json.RawMessage(p.Call.Args)})
		case p.Raw != nil:
			blocks = append(blocks, block{raw: p.Raw})
		default:
			blocks = append(blocks, text(p.Text)...)
		}
	}
	return blocks
}
