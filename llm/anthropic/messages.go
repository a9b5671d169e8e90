package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"

	"github.com/rathcluster/rath/internal/exchange"
	"github.com/rathcluster/rath/llm"
)

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a part of a message. A raw one is written as it came.
type block struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
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

// transcript puts the messages into the two roles that the protocol has, each in turn.
// Other sessions share the first messages.
func transcript(all []llm.Message, shared int, host string) (system []block, turns []message) {
	first := 0
	for first < len(all) && all[first].Role == llm.System {
		first++
	}
	if first == len(all) {
		first-- // instructions alone: the last one asks
	}
	for i := range all[:first] {
		system = append(system, text(all[i].Text)...)
	}
	if n := len(system); n > 0 {
		system[n-1].CacheControl = breakpoint
	}
	var ends []int // the turns that are the user's
	fork, forked := -1, 0
	for i := range all[first:] {
		m := &all[first+i]
		role, blocks := "user", shown(m)
		switch m.Role {
		case llm.Assistant:
			role, blocks = "assistant", spoken(m, host)
		case llm.Tool:
			result := block{Type: "tool_result", ToolUseID: id(m.CallID)}
			if len(m.Images) > 0 {
				result.Content = blocks
			} else if m.Text != "" {
				result.Content = m.Text
			}
			blocks = []block{result}
		}
		if len(blocks) == 0 {
			continue
		}
		last := len(turns) - 1
		if last < 0 || turns[last].Role != role {
			turns = append(turns, message{Role: role})
			last++
			if role == "user" {
				ends = append(ends, last)
			}
		}
		turns[last].Content = join(turns[last].Content, blocks)
		if first+i < shared {
			fork, forked = last, len(turns[last].Content)-1
		}
	}
	// The newest turn of the user, and the one before, which the newest of the request
	// before was: a server looks back from a breakpoint over a bounded number of blocks.
	// The fork takes its place where nothing of a request before comes after it: what is
	// not written there, each branch writes for itself.
	for n, at := range ends[max(len(ends)-2, 0):] {
		end := len(turns[at].Content) - 1
		if newest := n == len(ends)-1 || n == 1; !newest && fork > at && turns[fork].Content[forked].raw == nil {
			at, end = fork, forked // what goes back as it came has no mark
		}
		turns[at].Content[end].CacheControl = breakpoint
	}
	if len(ends) == 1 && fork >= 0 && turns[fork].Content[forked].raw == nil {
		turns[fork].Content[forked].CacheControl = breakpoint
	}
	return system, turns
}

// join adds blocks to a turn. Results of tools come first in it: they answer the calls
// right before them.
func join(turn, blocks []block) []block {
	if len(turn) == 0 || blocks[0].Type != "tool_result" || turn[len(turn)-1].Type == "tool_result" {
		return append(turn, blocks...)
	}
	at := 0
	for at < len(turn) && turn[at].Type == "tool_result" {
		at++
	}
	return append(append(append([]block(nil), turn[:at]...), blocks...), turn[at:]...)
}

// text returns a block for a text; an empty one is refused by the protocol.
func text(s string) []block {
	if s == "" {
		return nil
	}
	return []block{{Type: "text", Text: s}}
}

// shown returns the blocks of a text and of images.
func shown(m *llm.Message) []block {
	blocks := text(m.Text)
	for i := range m.Images {
		blocks = append(blocks, block{Type: "image", Source: &source{"base64", m.Images[i].Type, m.Images[i].Data}})
	}
	return blocks
}

// spoken returns the blocks of an assistant's message.
func spoken(m *llm.Message, host string) (blocks []block) {
	for _, p := range exchange.Open(wire, host, m) {
		switch {
		case p.Raw != nil:
			blocks = append(blocks, block{raw: p.Raw})
		case p.Call != nil:
			blocks = append(blocks, block{Type: "tool_use", ID: id(p.Call.ID), Name: p.Call.Name, Input: input(p.Call.Args)})
		default:
			blocks = append(blocks, text(p.Text)...)
		}
	}
	return blocks
}

// input makes arguments the object that the protocol wants. What is none was refused by
// the tool, whose result says so.
func input(args string) json.RawMessage {
	b := bytes.TrimSpace([]byte(args))
	switch {
	case len(b) == 0:
		return json.RawMessage("{}")
	case b[0] == '{' && json.Valid(b):
		return b
	}
	data, err := exchange.Marshal(map[string]string{"arguments": args})
	if err != nil {
		return json.RawMessage("{}")
	}
	return data
}

var wireID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// id returns the id of a call as the protocol accepts it: other servers write others.
func id(s string) string {
	if wireID.MatchString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "call_" + hex.EncodeToString(sum[:12])
}
