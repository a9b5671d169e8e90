package question

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/journal"
)

// A tool, or a server that is foreign to Rath, writes the text of a question. It cannot
// be taken for text of Rath: each line of the message has a mark, and all other text is
// on a line with its label, bounded in characters.
const (
	maxQuotedLines = 64 // of a message; the rest is on the last one
	MaxShown       = 200
	maxShownName   = 64
	maxShownEnum   = 800
)

// property describes a value of an answer in a schema.
type property struct {
	Default     json.RawMessage `json:"default"`
	Description string          `json:"description"`
	Enum        json.RawMessage `json:"enum"`
	OneOf       json.RawMessage `json:"oneOf"`
	Title       string          `json:"title"`
	Type        string          `json:"type"`
}

// String describes the valid values on one line.
func (p property) String() string {
	text := OneLine(cmp.Or(p.Type, "any"), maxShownName)
	if among := cmp.Or(string(p.Enum), string(p.OneOf)); among != "" {
		text += " of " + OneLine(among, maxShownEnum)
	}
	return text
}

// properties returns the properties of a schema that was compiled before.
func properties(schema string) (all map[string]property, required []string) {
	var s struct {
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	_ = json.Unmarshal([]byte(schema), &s)
	return s.Properties, s.Required
}

// Detail renders a question for its readers, in at most journal.MaxDetail bytes: the
// whole message, and the values of a positive answer.
func Detail(q journal.Asked) string {
	var b strings.Builder
	quote(&b, q.Message)
	b.WriteString("The call is made again, from its beginning, with the answer, which the session records in plain text.\n")
	all, required := properties(q.Schema)
	if len(all) > 0 {
		b.WriteString("A yes takes these values, as a JSON object:\n")
	}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		line := fmt.Sprintf("  %s, %s", OneLine(name, maxShownName), p)
		switch {
		case p.Default != nil:
			line += ", " + OneLine(string(p.Default), MaxShown) + " if left out"
		case slices.Contains(required, name):
			line += ", required"
		}
		if says := OneLine(cmp.Or(p.Description, p.Title), MaxShown); says != "" {
			line += ": " + says
		}
		if b.Len()+len(line) > journal.MaxDetail-100 {
			fmt.Fprintf(&b, "  … and %d more\n", len(all)-i)
			break
		}
		b.WriteString(line + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// quote writes a text with a mark before each line.
func quote(b *strings.Builder, text string) {
	n := 0
	for line := range strings.FieldsFuncSeq(text, breaks) {
		if line = OneLine(line, len(line)); line == "" {
			continue
		}
		switch n++; {
		case n == 1:
			b.WriteString("> ")
		case n <= maxQuotedLines:
			b.WriteString("\n> ")
		default:
			b.WriteByte(' ')
		}
		b.WriteString(line)
	}
	if n > 0 {
		b.WriteByte('\n')
	}
}

// breaks reports whether some programs show a new line after r.
func breaks(r rune) bool { return strings.ContainsRune("\n\v\f\r\u0085\u2028\u2029", r) }

// OneLine returns at most n characters of s on one line, without characters that could
// steer a terminal or reorder the surrounding text. A cut text ends with an ellipsis.
func OneLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || breaks(r):
			return ' '
		case r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > n {
		s = string([]rune(s)[:n-1]) + "…"
	}
	return s
}
