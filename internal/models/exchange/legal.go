package exchange

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Rules are a server's demands on a transcript, beyond those of all wires. The zero
// value has none.
type Rules struct {
	// IDs match the ids of calls that the server accepts. NewID makes one of a digest; nil
	// is call_ and 24 hexadecimal digits.
	IDs   *regexp.Regexp
	NewID func(sum [sha256.Size]byte) string
	// SystemFirst: instructions are allowed only at the beginning; later ones are sent
	// as the user's.
	SystemFirst bool
	// UserFirst: the first message after the instructions is the user's.
	UserFirst bool
	// UserLast: the newest message is the user's or a result.
	UserLast bool
	// Alternate: no two messages of an assistant follow each other.
	Alternate bool
	// AnswerResults: an assistant speaks between results and the user.
	AnswerResults bool
	// NoBlanks: texts of white space alone are rejected.
	NoBlanks bool
	// ResultImages: results may have images. Images of a failed result, and of all
	// results without the rule, follow the results as a message of the user.
	ResultImages bool
}

// Substitutes for messages that a server demands and a transcript lacks.
const (
	Opening    = "Begin."
	GoOn       = "Go on."
	received   = "I have the results."
	noResult   = "No result of this call is recorded: it was not made, or its result was not kept."
	ofTools    = "Images of the results above:"
	noReason   = "the tool reported an error without a text"
	errorStart = "Error: "
)

// Line is a message of a legal transcript. Its Calls and Opaque are empty: the Parts
// contain an assistant's message.
type Line struct {
	llm.Message
	Parts []Part
	At    int // the index of its message; -1 if there is none
}

// Thinks reports whether the line begins with a thought.
func (l *Line) Thinks() bool {
	return len(l.Parts) > 0 && l.Parts[0].Raw != nil && l.Parts[0].Call == nil
}

// Legalize returns the messages of r as a transcript that a server with the rules accepts,
// and whether thoughts of former answers are in it.
//
// Each call has one result, directly after the message with the call. A result that
// answers no call is the user's text; a call without one has a result that reports it.
// Ids are unique and of the server's form. Names and arguments of calls have the form
// that servers check. Empty messages are left out. Thoughts are sent back only to their
// own model, server and key, and never as the end of a message.
//
// A line depends only on its message and on the messages before, up to the next message
// of an assistant. The transcript of a later request therefore begins with that of an
// earlier, answered one, as prompt caches require.
func (e *Endpoint) Legalize(wire string, r *llm.Request, rules Rules) (lines []Line, thoughts bool) {
	l := &legalizer{rules: rules, used: map[string]bool{}, again: map[string]int{}}
	for i := range r.Messages {
		m := &r.Messages[i]
		switch m.Role {
		case llm.Assistant:
			l.endRound()
			l.answer(e.open(wire, m, i >= r.ThoughtsFrom), m, i)
		case llm.Tool:
			l.result(m, i)
		default:
			l.speak(m, i)
		}
	}
	l.endRound()
	lines = l.ordered()
	for i := range lines {
		thoughts = thoughts || slices.ContainsFunc(lines[i].Parts, func(p Part) bool { return p.Raw != nil })
	}
	return lines, thoughts
}

// legalizer builds a transcript.
type legalizer struct {
	rules Rules
	lines []Line
	open  []opened        // calls of the newest answer without a result
	next  int             // the place of the next result of the round; 0 without a round
	seen  []llm.Image     // images of the round's results that follow them
	used  map[string]bool // ids of calls
	again map[string]int  // how often an id was replaced
}

type opened struct{ id, sent string }

// speak adds a message of the user, or instructions.
func (l *legalizer) speak(m *llm.Message, at int) {
	if l.empty(m.Text) && len(m.Images) == 0 {
		return
	}
	l.lines = append(l.lines, Line{Message: llm.Message{Role: m.Role, Text: m.Text, Images: m.Images, Name: m.Name}, At: at})
}

// empty reports whether the server treats a text as empty.
func (l *legalizer) empty(text string) bool {
	return text == "" || l.rules.NoBlanks && strings.TrimSpace(text) == ""
}

// answer adds a message of an assistant.
func (l *legalizer) answer(parts []Part, m *llm.Message, at int) {
	parts = slices.DeleteFunc(parts, func(p Part) bool { return p.Raw == nil && p.Call == nil && l.empty(p.Text) })
	for n := len(parts); n > 0 && parts[n-1].Raw != nil && parts[n-1].Call == nil; n-- {
		parts = parts[:n-1]
	}
	if len(parts) == 0 {
		return
	}
	for i := range parts {
		if c := parts[i].Call; c != nil {
			sent := l.id(c.ID)
			l.open = append(l.open, opened{c.ID, sent})
			parts[i].Call = &session.ToolCall{ID: sent, Name: name(c.Name), Args: Object(c.Args)}
		}
	}
	l.lines = append(l.lines, Line{Message: llm.Message{Role: llm.Assistant, Text: m.Text, Name: m.Name}, Parts: parts, At: at})
	if len(l.open) > 0 {
		l.next = len(l.lines)
	}
}

// result adds the result of a call after its answer, or as a text of the user.
func (l *legalizer) result(m *llm.Message, at int) {
	i := slices.IndexFunc(l.open, func(o opened) bool { return o.id == m.CallID })
	if i < 0 {
		of := "Result of a call"
		if m.Name != "" {
			of = "Result of " + m.Name
		}
		text := m.Text
		if m.Failed {
			text = ErrorText(text)
		}
		l.lines = append(l.lines, Line{Message: llm.Message{Role: llm.User, Text: of + ": " + text, Images: m.Images}, At: at})
		return
	}
	line := Line{Message: llm.Message{Role: llm.Tool, CallID: l.open[i].sent, Name: m.Name, Text: m.Text, Failed: m.Failed}, At: at}
	if l.rules.ResultImages && !m.Failed {
		line.Images = m.Images
	} else {
		l.seen = append(l.seen, m.Images...)
	}
	l.open = slices.Delete(l.open, i, i+1)
	l.insert(line)
}

// insert inserts a line after the results of the round.
func (l *legalizer) insert(line Line) {
	l.lines = slices.Insert(l.lines, l.next, line)
	l.next++
}

// endRound completes the results of the newest answer.
func (l *legalizer) endRound() {
	for _, o := range l.open {
		l.insert(Line{Message: llm.Message{Role: llm.Tool, CallID: o.sent, Text: noResult, Failed: true}, At: -1})
	}
	if len(l.seen) > 0 {
		l.insert(Line{Message: llm.Message{Role: llm.User, Text: ofTools, Images: l.seen}, At: -1})
	}
	l.open, l.seen, l.next = nil, nil, 0
}

// id returns the sent id of a call. It replaces an id that the server would reject, or
// that an earlier call has.
func (l *legalizer) id(id string) string {
	sent := id
	for id == "" || l.used[sent] || l.rules.IDs != nil && !l.rules.IDs.MatchString(sent) {
		l.again[id]++
		sum := sha256.Sum256([]byte(id + "\x00" + strconv.Itoa(l.again[id])))
		if l.rules.NewID != nil {
			sent = l.rules.NewID(sum)
		} else {
			sent = "call_" + hex.EncodeToString(sum[:12])
		}
		id = cmp.Or(id, sent)
	}
	l.used[sent] = true
	return sent
}

// ordered puts the lines into the order of roles that the server requires.
func (l *legalizer) ordered() []Line {
	first := slices.IndexFunc(l.lines, func(line Line) bool { return line.Role != llm.System })
	if first < 0 {
		first = len(l.lines)
	}
	if l.rules.UserFirst && first == len(l.lines) && first > 0 {
		first-- // only instructions: the last one is the request
	}
	out := slices.Clone(l.lines[:first])
	add := func(role llm.Role, text string) {
		line := Line{Message: llm.Message{Role: role, Text: text}, At: -1}
		if role == llm.Assistant {
			line.Parts = []Part{{Text: text}}
		}
		out = append(out, line)
	}
	last := llm.System
	for _, line := range l.lines[first:] {
		if line.Role == llm.System && l.rules.SystemFirst {
			line.Role = llm.User
		}
		switch {
		case l.rules.UserFirst && last == llm.System && len(out) == first && line.Role == llm.Assistant:
			add(llm.User, Opening)
		case l.rules.Alternate && last == llm.Assistant && line.Role == llm.Assistant:
			add(llm.User, GoOn)
		case l.rules.AnswerResults && last == llm.Tool && line.Role != llm.Tool && line.Role != llm.Assistant:
			add(llm.Assistant, received)
		}
		out, last = append(out, line), line.Role
	}
	switch {
	case len(out) == 0, l.rules.UserFirst && len(out) == first:
		add(llm.User, Opening)
	case l.rules.UserLast && last == llm.Assistant:
		add(llm.User, GoOn)
	}
	return out
}

// wireName is the form of the names of tools that all servers accept.
var wireName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// name returns the name of a call of a transcript in that form. A model may have
// invented it.
func name(s string) string {
	if wireName.MatchString(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && wireName.MatchString(string(r)) {
			return r
		}
		return '_'
	}, s)
	return cmp.Or(s[:min(len(s), 64)], "_")
}

// Object returns the arguments of a call as the JSON object that servers demand. It
// makes an object of other arguments: the tool rejected them, and its result shows it.
func Object(args string) string {
	b := bytes.TrimSpace([]byte(args))
	switch {
	case len(b) == 0:
		return "{}"
	case b[0] == '{' && json.Valid(b):
		return args
	}
	data, err := Marshal(map[string]string{"arguments": args})
	if err != nil {
		return "{}"
	}
	return string(data)
}

// ErrorText is the text of a failed result on a wire without a flag for failures. A
// body that reports the failure itself is unchanged.
func ErrorText(text string) string {
	var body struct {
		OK *bool `json:"ok"`
	}
	switch {
	case json.Unmarshal([]byte(text), &body) == nil && body.OK != nil && !*body.OK:
		return text
	case strings.TrimSpace(text) == "":
		return errorStart + noReason
	}
	return errorStart + text
}
