package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Piece is a part of an assistant's message in its server's order: a thought that the
// server requires back verbatim, a length of the text, or a call. A call may have a raw
// part of its own, such as a signature.
type Piece struct {
	Raw  json.RawMessage `json:"raw,omitempty"`
	Text int             `json:"text,omitempty"` // bytes
	Call string          `json:"call,omitempty"` // its id
}

// sealed are the pieces of an answer with its origin. Thoughts are valid only at the
// server, model and key of their origin.
type sealed struct {
	origin
	Pieces []Piece `json:"pieces"`
}

type origin struct {
	Host  string `json:"host"`
	Model string `json:"model"`
	// Key is a digest of the name of the key. It contains neither the key nor a path of
	// a machine.
	Key string `json:"key,omitempty"`
}

func (e *Endpoint) origin() origin {
	o := origin{Host: e.Host, Model: e.Model}
	if e.keyName != "" {
		sum := sha256.Sum256([]byte(e.keyName))
		o.Key = hex.EncodeToString(sum[:6])
	}
	return o
}

// Seal encodes the pieces of an answer as [llm.Response.Opaque]: "" if none of them is
// raw, because the message contains the others.
func (e *Endpoint) Seal(wire string, pieces []Piece) string {
	raw := false
	for _, p := range pieces {
		raw = raw || len(p.Raw) > 0
	}
	if !raw {
		return ""
	}
	data, err := Marshal(map[string]sealed{wire: {e.origin(), pieces}})
	if err != nil {
		return ""
	}
	return llm.CleanText(string(data))
}

// Part is a piece of an outgoing message: a thought, a text or a call, which may have a
// raw part of its own.
type Part struct {
	Raw  json.RawMessage
	Text string
	Call *session.ToolCall
}

// open returns the parts of an assistant's message. If the message is an unchanged
// answer of this endpoint, the parts are in its server's order with its thoughts.
// Otherwise they are the text and the calls.
func (e *Endpoint) open(wire string, m *llm.Message, thoughts bool) []Part {
	var o map[string]sealed
	if thoughts && m.Opaque != "" && json.Unmarshal([]byte(m.Opaque), &o) == nil && o[wire].origin == e.origin() {
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

// arrange arranges text and calls of m as in the pieces; it returns nil if the pieces
// belong to another message.
func arrange(pieces []Piece, m *llm.Message) (parts []Part) {
	text, calls := m.Text, m.Calls
	for _, p := range pieces {
		switch {
		case p.Call != "":
			if len(calls) == 0 || calls[0].ID != p.Call {
				return nil
			}
			parts = append(parts, Part{Call: &calls[0], Raw: p.Raw})
			calls = calls[1:]
		case len(p.Raw) > 0:
			parts = append(parts, Part{Raw: p.Raw})
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

// Mark returns the error of a request with thoughts of earlier answers. If the server
// rejected the request, the error is marked, because the thoughts may be the cause.
func Mark(err error, thoughts bool) error {
	if failed, ok := errors.AsType[*llm.Error](err); ok && thoughts && failed.Code == llm.CodeInvalidRequest && failed.Status >= 400 && failed.Status < 500 {
		failed.Thoughts = true
	}
	return err
}

// IDs are the ids of the calls of an answer.
type IDs map[string]bool

// Take returns id, or a generated one if it is blank or in use, for the call number n.
func (ids IDs) Take(id string, n int) string {
	for ; id == "" || ids[id]; n++ {
		id = fmt.Sprintf("call_%d", n)
	}
	ids[id] = true
	return id
}
