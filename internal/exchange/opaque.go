package exchange

import (
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Piece is a part of an assistant's message in the order of its server: something that
// the server wants back as it came, so many bytes of the text, or a call.
type Piece struct {
	Raw  json.RawMessage `json:"raw,omitempty"`
	Text int             `json:"text,omitempty"`
	Call string          `json:"call,omitempty"` // its id
}

type sealed struct {
	Host   string  `json:"host"`
	Pieces []Piece `json:"pieces"`
}

// Seal writes the pieces of an answer as [llm.Response.Opaque]: "" if none of them is
// raw, since the message itself says the rest. They go back over the same wire to the
// same host only.
func Seal(wire, host string, pieces []Piece) string {
	raw := false
	for _, p := range pieces {
		raw = raw || len(p.Raw) > 0
	}
	if !raw {
		return ""
	}
	data, err := Marshal(map[string]sealed{wire: {host, pieces}})
	if err != nil {
		return ""
	}
	return llm.CleanText(string(data))
}

// Part is a piece of a message to be sent: one of the three.
type Part struct {
	Raw  json.RawMessage
	Text string
	Call *session.ToolCall
}

// Open returns the parts of an assistant's message: in the order of its server, if it
// is what the server said, else the text and the calls.
func Open(wire, host string, m *llm.Message) []Part {
	var o map[string]sealed
	if m.Opaque != "" && json.Unmarshal([]byte(m.Opaque), &o) == nil && o[wire].Host == host {
		if parts := arrange(o[wire].Pieces, m); parts != nil {
			return parts
		}
	}
	var parts []Part
	if m.Text != "" {
		parts = append(parts, Part{Text: m.Text})
	}
	for i := range m.Calls {
		parts = append(parts, Part{Call: &m.Calls[i]})
	}
	return parts
}

// arrange puts text and calls of m where the pieces say; nil if they are of another
// message.
func arrange(pieces []Piece, m *llm.Message) (parts []Part) {
	text, calls := m.Text, m.Calls
	for _, p := range pieces {
		switch {
		case len(p.Raw) > 0:
			parts = append(parts, Part{Raw: p.Raw})
		case p.Call != "":
			if len(calls) == 0 || calls[0].ID != p.Call {
				return nil
			}
			parts = append(parts, Part{Call: &calls[0]})
			calls = calls[1:]
		case p.Text > 0 && p.Text <= len(text):
			parts = append(parts, Part{Text: text[:p.Text]})
			text = text[p.Text:]
		default:
			return nil
		}
	}
	if text != "" || len(calls) > 0 {
		return nil
	}
	return parts
}

// IDs are the ids of the calls of an answer.
type IDs map[string]bool

// Take returns id, or another one if it is blank or taken, for the call number n.
func (ids IDs) Take(id string, n int) string {
	for ; id == "" || ids[id]; n++ {
		id = fmt.Sprintf("call_%d", n)
	}
	ids[id] = true
	return id
}
