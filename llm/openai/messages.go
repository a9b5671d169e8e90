package openai

import (
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"regexp"
	"strings"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// wire is the member of [llm.Message.Opaque] for chat completions.
const wire = "openai"

// thought is the data that a server attaches to an answer under a name of its own, and
// requires back under the same name.
type thought struct {
	Content string          `json:"reasoning_content,omitempty"`
	Text    string          `json:"reasoning,omitempty"`
	Details json.RawMessage `json:"reasoning_details,omitempty"`
}

// unrecorded replaces the thought of an answer without one, for a server that rejects
// an assistant's message without a thought or with an empty one.
const unrecorded = " "

var (
	// shortIDs are the ids that OpenAI accepts, directly and behind gateways.
	shortIDs = regexp.MustCompile(`^[!-~]{1,40}$`)
	// nineIDs are the ids that Mistral accepts, and the servers of its models.
	nineIDs  = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)
	mistrals = regexp.MustCompile(`(?i)(mistral|ministral|mixtral|magistral|devstral|codestral|pixtral|voxtral)`)
	// speaker is the form of a speaker's name.
	speaker = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// rulesOf returns the demands of a server. OpenAI has few. Other servers may use a
// template that supports one instruction, at the beginning, and two speakers who take
// turns.
func rulesOf(e *exchange.Endpoint) exchange.Rules {
	rules := exchange.Rules{IDs: shortIDs}
	if isOpenAI(e.Host) {
		return rules
	}
	rules.SystemFirst, rules.UserFirst, rules.UserLast, rules.Alternate = true, true, true, true
	if isMistral(e) {
		rules.IDs, rules.NewID, rules.AnswerResults = nineIDs, nine, true
	}
	return rules
}

func isMistral(e *exchange.Endpoint) bool {
	return strings.HasSuffix(e.Host, ".mistral.ai") || mistrals.MatchString(e.Model)
}

// nine makes an id of nine letters and digits.
func nine(sum [sha256.Size]byte) string {
	s := new(big.Int).SetBytes(sum[:]).Text(36)
	return s[len(s)-9:]
}

// messages are the messages of r for the server e; thoughts reports whether thoughts of
// earlier answers are among them.
func messages(r *llm.Request, e *exchange.Endpoint) (list []wireMessage, thoughts bool) {
	lines, thoughts := e.Legalize(wire, r, rulesOf(e))
	turns := !isOpenAI(e.Host)
	thinks := false // the server attaches thoughts
	for i := range lines {
		l := &lines[i]
		m := encodeMessage(l)
		switch {
		case m.Content == nil && turns && l.Role == llm.Assistant:
			m.Content = ""
		case l.Role == llm.System && r.Provider.SystemRole != "":
			m.Role = r.Provider.SystemRole
		}
		if thinks = thinks || m.thought.Content != ""; thinks && l.Role == llm.Assistant && m.thought.Content == "" {
			m.thought.Content = unrecorded
		}
		if isMistral(e) && l.Role != llm.Tool {
			m.Name = "" // the server rejects unknown members
		}
		if last := len(list) - 1; turns && i > 0 && l.Role == lines[i-1].Role && (l.Role == llm.User || l.Role == llm.System) {
			list[last].join(&lines[i-1], l, m)
			continue
		}
		list = append(list, m)
	}
	return list, thoughts
}

// join adds a message of the same speaker.
func (m *wireMessage) join(before, l *exchange.Line, next wireMessage) {
	if m.Name != next.Name {
		m.Name = ""
	}
	text, plain := m.Content.(string)
	if plain && len(l.Images) == 0 {
		m.Content = strings.TrimPrefix(text+"\n\n"+l.Text, "\n\n")
		return
	}
	all, _ := m.Content.([]api.ChatMessagePart)
	if plain {
		all = parts(nil, text, nil)
	}
	m.Content = parts(all, l.Text, l.Images)
}

func encodeMessage(l *exchange.Line) wireMessage {
	w := wireMessage{Role: string(l.Role), Content: l.Text}
	switch {
	case l.Role == llm.User && len(l.Images) > 0:
		w.Content = parts(nil, l.Text, l.Images)
	case l.Role == llm.Tool:
		w.ToolCallID = l.CallID
		if l.Failed {
			w.Content = exchange.ErrorText(l.Text)
		}
		return w
	case l.Role == llm.Assistant:
		w.answer(l.Parts)
	}
	if speaker.MatchString(l.Name) {
		w.Name = l.Name
	}
	return w
}

// answer sets the message of an assistant.
func (w *wireMessage) answer(all []exchange.Part) {
	var text strings.Builder
	for _, p := range all {
		switch {
		case p.Call != nil:
			c := wireCall{ToolCall: api.ToolCall{ID: p.Call.ID, Type: api.ToolTypeFunction}, ExtraContent: p.Raw}
			c.Function = wireFunction{Name: p.Call.Name, Arguments: p.Call.Args}
			w.ToolCalls = append(w.ToolCalls, c)
		case p.Raw != nil:
			_ = json.Unmarshal(p.Raw, &w.thought) // the pieces of this package
		default:
			text.WriteString(p.Text)
		}
	}
	w.Content = text.String()
}
