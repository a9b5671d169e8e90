package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rathcluster/rath/internal/models/exchange"
)

// thoughts are the thoughts of an answer in progress, in the form that their server
// requires back.
type thoughts struct {
	name    int // 1 to 3: the member that contains them
	details []*detail
}

// The members, by their place among those that are read.
const (
	asContent = iota + 1 // reasoning_content
	asText               // reasoning
	asDetails            // reasoning_details
)

// named records the member that contains a thought. The first one is kept.
func (t *thoughts) named(at int) {
	if t.name == 0 {
		t.name = at + 1
	}
}

// detail is an entry of reasoning_details. Its text arrives in pieces.
type detail struct {
	raw    json.RawMessage            // of an entry in one piece
	fields map[string]json.RawMessage // of several: the newest of each
	member string                     // the one with the text; "" for a complete entry
	text   strings.Builder
	join   exchange.Joiner
}

// textOf are the members with the text, by the type of the entry.
var textOf = map[string]string{`"reasoning.text"`: "text", `"reasoning.summary"`: "summary"}

// maxDetails bounds the details of an answer.
const maxDetails = 4096

// add adds entries of reasoning_details, and returns their size. An entry of text with
// the type and the index of the previous one continues it.
func (t *thoughts) add(raw json.RawMessage) (size int) {
	var list []json.RawMessage
	if !exchange.IsSet(raw) || json.Unmarshal(raw, &list) != nil {
		return 0
	}
	for _, one := range list {
		var fields map[string]json.RawMessage
		if json.Unmarshal(one, &fields) != nil || fields == nil {
			continue
		}
		size += len(one)
		member := textOf[string(fields["type"])]
		if n := len(t.details); n > 0 && t.details[n-1].continues(member, fields) {
			t.details[n-1].grow(fields)
			continue
		}
		if len(t.details) == maxDetails {
			break
		}
		d := &detail{raw: bytes.Clone(one), fields: fields, member: member}
		if member != "" {
			d.text.WriteString(d.join.Add(fields[member]))
		}
		t.details = append(t.details, d)
	}
	return size
}

func (d *detail) continues(member string, fields map[string]json.RawMessage) bool {
	return member != "" && d.member == member && string(d.fields["index"]) == string(fields["index"])
}

// grow adds a piece.
func (d *detail) grow(fields map[string]json.RawMessage) {
	d.raw = nil
	d.text.WriteString(d.join.Add(fields[d.member]))
	for name, value := range fields {
		if exchange.IsSet(value) {
			d.fields[name] = bytes.Clone(value)
		}
	}
}

// whole returns the entry as it is sent back.
func (d *detail) whole() (json.RawMessage, error) {
	if d.raw != nil {
		return d.raw, nil
	}
	text, err := exchange.Marshal(d.text.String() + d.join.Flush())
	if err != nil {
		return nil, err
	}
	d.fields[d.member] = text
	return exchange.Marshal(d.fields)
}

// pieces returns the thoughts, whose text is given, as a piece of the answer.
func (t *thoughts) pieces(text string) []exchange.Piece {
	var back thought
	var details []json.RawMessage
	for _, d := range t.details {
		raw, err := d.whole()
		if err != nil {
			return nil
		}
		details = append(details, raw)
	}
	switch {
	case t.name == asContent:
		back.Content = text
	case t.name == asText && details == nil:
		back.Text = text
	}
	var err error
	if details != nil {
		back.Details, err = exchange.Marshal(details)
	}
	if err != nil || back.Content == "" && back.Text == "" && details == nil {
		return nil
	}
	data, err := exchange.Marshal(back)
	if err != nil {
		return nil
	}
	return []exchange.Piece{{Raw: data}}
}
